"""Kafka's requests at the broker.

handlers/          one function for each request
produce/           appends of a produce request, its fast path, and its transactions
fetch/             reads of a fetch request, waits, responses
share/             share partitions at this broker: ShareFetch and ShareAcknowledge
older_offsets.py   ListOffsets v0
tree_offsets.py    OffsetCommit v0 and OffsetFetch v0: offsets in the coordination tree
visible_groups.py  groups and offsets that a client may see
"""
