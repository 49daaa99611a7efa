"""The world of a test: its brokers, and the thread and clock on which they live.

world.py  a broker or a cluster from nothing; requests without a connection
node.py   one broker: start, stop, kill
cuts.py   cuts between the brokers of a cluster
lab.py    a world as other threads reach it
loop.py   the thread in which all brokers of the process live
clock.py  its clock
"""
