"""Classic groups: members assign partitions themselves (JoinGroup, SyncGroup).

service.py      requests of members, and DescribeGroups
manager.py      manager in a shard: finds, makes and ends groups; their timers
rebalancing.py  one group and its rebalances
group.py        state of a group between rebalances
causes.py       why members go, and why joins are refused
members.py      members, and the group's record
"""
