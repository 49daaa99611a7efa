"""The replicated log: partitions of this broker, their copies on other brokers, and the decisions of the controller.

replica_manager/  all partitions of this broker: loads, flushes, retains, compacts and moves them, obeys the controller
partition/        one partition: leader, high watermark, in-sync replicas, fetch sessions
log/              one replica on the disk: segments, indexes, recovery, retention, compaction
fetcher/          replica fetchers: copy partitions from their leaders, append and truncate
controller/       decisions of the controller: elections, reassignment, topics, in-sync replicas
cluster/          metadata cache, nodes of the coordination tree, ports to tree and peers
config.py         settings of logs and of replication
keyed_lock.py     a lock for each name
random_ids.py     random UUIDs
reminders.py      rate-limited log lines
system.py         features of the operating system, and stand-ins for them
"""
