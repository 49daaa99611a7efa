"""The coordination tree that a broker starts with.

own_tree.py        of a broker that is alone
member_trees.py    of members of a cluster
worker_folders.py  folders of several workers
from_kafka.py      opens a data directory that Apache Kafka wrote
"""
