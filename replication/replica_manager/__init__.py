"""All partitions of this broker, and the work behind them (Kafka's ReplicaManager). Shells in trio around machines.

manager.py                  the partitions of this broker, by name
controller_requests.py      LeaderAndIsr, StopReplica and UpdateMetadata; metadata_updates.py: what the last one says
controller_fencing.py       checks requests of a controller against the tree
alter_partition_manager.py  proposes changes of in-sync replicas to the controller
housekeeping.py             when logs are retained, compacted and checkpointed, producers expired, indexes repaired
flushing.py                 flushes, and writes of checkpoints
loading.py                  loads the logs of a directory at a start
log_lifecycle.py            creates and deletes logs
directories.py              log directories: identity, contents, checkpoints
log_directory_registry.py   log directories that this process has locked
log_dir_moves.py            moves replicas between log directories; future_replica.py: the copy that grows there
"""
