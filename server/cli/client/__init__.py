"""Client of a Kafka cluster of any make, for commands. Blocking.

connection.py    connection to one broker; security.py: TLS and login; oauth.py: tokens
cluster.py       brokers, leaders, coordinators, offsets
producer.py      producer; batches.py: batches from files and pipes
consumer.py      consumer of partitions
group_consumer.py  consumer in a group; membership.py: members; assignment.py: what they subscribe to and get
share_consumer.py  consumer in a share group
configs.py       settings in force, and their changes
groups.py        requests about groups
transactions.py  requests about transactions
output.py        failures, tables, JSON and progress on a terminal
"""
