"""The world of a test: its brokers, and the thread and clock on which they live.

world.py    requests without a connection, and waits until brokers do what was decided
cluster.py  a broker or a cluster from nothing: its tree, time and cuts
node.py     one broker: start, stop, kill
cuts.py     cuts between the brokers of a cluster
lab.py      a world as other threads reach it
loop.py     the thread in which all brokers of the process live
clock.py    its clock
"""
