"""Runtime of coordinators: runs the shards of an internal topic (Kafka's CoordinatorRuntime).

coordinator_runtime.py  which shards this broker has; their deadlines
partition_runtime.py    one shard: requests, appends, replies that wait for commits
coordinator_shard.py    interfaces of shards and of the log, outcomes of calls and their batches
loading.py              loads and unloads a shard
answers.py              answers that come later, and the appends that they wait for
"""
