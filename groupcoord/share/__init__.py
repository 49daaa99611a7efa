"""Share groups (KIP-932): members share the records of partitions.

service.py         requests about share groups
manager.py         manager in a shard: finds groups, writes their records; their timers
heartbeat.py       members join, stay and leave
group.py           state of a group
assignor.py        Kafka's SimpleAssignor
offsets.py         changes of a group's offsets; offset_service.py: DescribeShareGroupOffsets
records.py         records of a group
coordinator/       the share coordinator: state of share partitions in `__share_group_state`
partition/         share partitions at the leaders of partitions, driven by `server/api/share/`
"""
