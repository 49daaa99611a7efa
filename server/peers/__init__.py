"""Connections to other brokers (adapter of `replication/cluster/peers.py`).

tcp.py         opens connections
connection.py  one connection: requests out, responses in
encryption.py  TLS
"""
