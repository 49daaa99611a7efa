"""Adapters of the coordination tree (`replication/cluster/coordination.py` is their port).

embedded.py        in process: a tree in memory with a journal
tree.py            nodes and watches in memory
journal.py         the file behind it
tree_server.py     serves the tree to other processes; tree_client.py: their side
messages.py        messages between the two; sockets.py: Unix sockets
zookeeper.py       Apache ZooKeeper, by kazoo; kazoo_handler.py: its threads and callbacks
probed_session.py  sessions kept sure by probes
"""
