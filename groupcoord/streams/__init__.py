"""Streams groups (KIP-1071): their manager in a shard, and the service for their requests.

A heartbeat (`heartbeat.py`) checks the topology against the topics (`internal_topics.py`), assigns tasks (`targets.py`,
`assignor.py`) and moves its member towards them (`reconciliation.py`).
"""
