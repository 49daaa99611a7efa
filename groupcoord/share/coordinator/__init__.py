"""The share coordinator: the state of share partitions, in the records of `__share_group_state`.

service.py         requests, each sent to the shards of its share partitions
shard.py           state machine of one partition of the topic
state_requests.py  requests about one share partition: initialize, read, write, delete
state.py           state of one share partition
records.py         records of the topic
"""
