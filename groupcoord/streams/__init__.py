"""Streams groups (KIP-1071): tasks of a topology are assigned to members.

service.py           requests, each sent to the shard of its group
manager.py           manager in a shard: finds groups, writes their records; their timers
heartbeat.py         the heartbeat of a member, in five steps; heartbeat_checks.py: its checks, and members that leave
topology.py          subtopologies and their topics; internal_topics.py: the topics to create
targets.py           target assignment; assignor.py: Kafka's sticky assignor
reconciliation.py    moves a member towards its target
group.py             state of a group; members.py: of its members
describing.py        StreamsGroupDescribe
records.py           records of a group
"""
