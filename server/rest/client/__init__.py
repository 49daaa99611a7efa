"""Client of a Kafka cluster on the event loop: thousands of requests at a time, over few connections.

links.py       one connection, shared by all who ask; opened and logged in by the commands' client
cluster.py     brokers, leaders and coordinators: whom to ask, and asking again where a cluster moves
producer.py    records in lanes, one for each partition: acknowledged by all replicas, once
membership.py  a member of a classic group: joins, is assigned partitions, beats
reading.py     fetches records of some partitions
"""
