"""The log of one replica on the disk.

partition_log.py       the log: appends, reads, producers, epochs (Kafka's UnifiedLog)
segmented_log.py       changes of its segments: roll, delete by retention, truncate, replace
durable_log.py         flushes and the recovery point
log_reader.py          reads that change nothing; time_search.py: look-ups of timestamps
segment.py             one segment and its indexes; segment_files.py: its files are renamed and removed
removal.py             account of the records that leave a log
segment_snapshots.py   segments for threads to read while the log goes on
index.py               `.index` and `.timeindex`; transaction_index.py: `.txnindex`
batch_checks.py        the quick half of the checks of a produced batch; validator.py: the thorough half
batch_scan.py          scans a `.log` file for its batches and for damage
producers.py           idempotent producers and open transactions; verification.py: of transactions (KIP-890)
producer_snapshots.py  `.snapshot` files, and the producer state at an offset
leader_epochs.py       leader epochs and their start offsets
cleaner.py             picks the log to compact next, and runs compaction in threads
compaction.py          compacts: keeps the last record of each key
recovery.py            loads a log after any kind of stop
checkpoints.py         checkpoints of a log directory
atomic_files.py        replaces small files as a whole
names.py               names of files and directories
storage.py             port to the file system, and its adapter
locks.py               locks of directories between processes
descriptors.py         budget of file descriptors
faults.py              meaning of an errno for a disk
"""
