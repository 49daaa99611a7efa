"""Consumer groups, whose partitions the broker assigns (KIP-848).

service.py           requests of members, and ConsumerGroupDescribe
manager.py           manager in a shard: finds groups, writes their records; their timers
heartbeat.py         members join, stay, report and leave
rebalancing.py       group epoch, target assignment, reconciliation
assignors.py         Kafka's assignors: uniform and range
group.py             state of a group; member.py: of a member
patterns.py          regular expressions to topics
classic_requests.py  classic members of a consumer group
migration.py         migration between classic and consumer protocol
records.py           records of a group
"""
