"""Coordinators of groups, transactions and share partitions: state machines in partitions of internal topics.

service.py         the group coordinator: Kafka's requests about groups; it needs a `CoordinatorLog` and the topics that exist
shard.py           one partition of `__consumer_offsets`: its groups and their deadlines
manager.py         base of the managers in a shard, one for each type of group
effects.py         effects of one call: records, replies, deadlines
classic/           classic groups
consumer/          consumer groups (KIP-848)
share/             share groups (KIP-932), and the share coordinator
streams/           streams groups (KIP-1071)
modern/            common parts of consumer, share and streams groups
offsets/           committed offsets
transactions/      the transaction coordinator
runtime/           runs shards: appends records, waits, answers, loads, unloads
group.py           a group of any type
causes.py          notes why members go and are refused
records.py         records of `__consumer_offsets`
config.py          settings of the coordinators; group_settings.py: of single groups
topic_images.py    topics as groups see them
patterns.py        regular expressions of clients, by RE2
java_hashing.py    Java's hashes, where clients can see them
"""
