"""The cluster as a broker knows it, and the ports to the coordination tree and to other brokers.

metadata_cache.py  live brokers, topics and the state of each partition
metadata_changes.py  notes changes of leaders and replicas in sync
coordination.py    port to the coordination tree: a tree of versioned nodes, as ZooKeeper's
znodes.py          paths and contents of Kafka's nodes in that tree
kraft_metadata.py  reads the metadata log of a KRaft cluster, for a data directory that Kafka wrote
peers.py           port to other brokers
"""
