"""Runtime of coordinators: runs the shards of an internal topic (Kafka's CoordinatorRuntime).

coordinator_runtime.py  which shards this broker has; their deadlines
partition_runtime.py    one shard: requests, appends, replies that wait for commits
coordinator_shard.py    interfaces of shards and of the log
loading.py              loads and unloads a shard
appends.py              appends to the log
answers.py              answers that come later
"""
