"""Client of a Kafka cluster of any make, for commands. Blocking.

connection.py    connection to one broker; security.py: TLS and login; oauth.py: tokens
cluster.py       brokers, leaders, coordinators, offsets
producer.py      producer; batches.py: batches from files and pipes
consumer.py      consumer of partitions; bounds.py: where it begins and ends
group_consumer.py  consumer in a group; membership.py: members; assignment.py: what they subscribe to and get
share_consumer.py  consumer in a share group
times.py         times as people type and read them
formats.py       formats of `ottla consume`; printing.py: prints batches by them
acls.py          requests about rules of the authorizer
configs.py       settings in force, and their changes
groups.py        requests about groups
names.py         names of topics and groups for a shell's completion
reassignment.py  plans moves of partitions, and has them carried out
transactions.py  requests about transactions
fate.py          what became of an offset; partition_view.py: what it asks of any Kafka
happenings.py    asks Ottla's brokers over HTTP what they did, and why
moves.py         requests about reassignments and elections
paced_output.py  output of a member of a group, and signals; tables.py: tables that fit a terminal
output.py        failures, tables, JSON and progress on a terminal
"""
