"""Committed offsets of groups of all types.

service.py        OffsetFetch; commits.py: OffsetCommit and OffsetDelete
manager.py        manager in a shard: offsets, their expiry, and the end of groups
table.py          offsets of the groups of a shard, and their records; pending.py: those committed in transactions
transactional.py  TxnOffsetCommit
"""
