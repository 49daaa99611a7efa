"""One partition on this broker. Sans-IO.

partition.py         leads or follows; append, read, high watermark; the registry of partitions
local_replica.py     its replica on this broker: log, high watermark, watchers
followers.py         progress of followers, and who is in sync (ISR)
delayed_produce.py   produce requests that wait for in-sync replicas
retry_window.py      batches of idempotent producers that were refused and will come again
reading.py           results of reads, look-ups by timestamp, aborted transactions, diverging epochs
segment_offsets.py   first offsets of segments by the times of files, for ListOffsets v0
replica_selector.py  reads from a replica in the consumer's rack (KIP-392)
fetch_session.py     fetch sessions of consumers and followers (KIP-227)
idle_partitions.py   partitions of a session that are not read until they change
traffic.py           counts of records, bytes and requests
removals.py          log lines and history of removed records
"""
