"""The third version of the API: administration, and produce by streams.

clusters.py   clusters and brokers
topics.py     topics, partitions, replicas
configs.py    settings of topics and brokers
groups.py     consumer groups
acls.py       rules of the authorizer
records.py    produce by streams
resources.py  shapes of resources, lists and links
"""
