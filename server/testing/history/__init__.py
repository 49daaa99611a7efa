"""Observations of clients, held against Kafka's promises.

history.py       events, and how they are written down
group_events.py  events of groups that share or assign
rules.py         the promises, and where Kafka makes them
checker.py       holds a history against the rules
ledger.py        one partition
transactions.py  transactions over all partitions
offsets.py       committed offsets of groups
owners.py        who owns which partition in a group
shares.py        share groups
replica_logs.py  the logs of replicas, compared byte by byte
availability.py  how long something may be away
observed.py      a history that the clients of a test write
narration.py     a name for each record that they sent
wrapping.py      a history that wraps clients of other libraries
wrappers.py      parts that they have in common
wrapped_producers.py  producers of kafka-python, aiokafka and confluent-kafka
wrapped_consumers.py  consumers of them
from_wire.py     a history from requests and answers
fault_kinds.py   names of faults
"""
