"""Streams groups (KIP-1071): the part of a shard that has them, and the service for their requests.

A heartbeat (`heartbeat.py`) checks the topology against the topics (`internal_topics.py`), assigns tasks (`targets.py`,
`assignor.py`) and moves its member towards them (`reconciliation.py`).
"""
