"""A cluster in one process on virtual time: a run of one seed is repeated byte for byte by the next run of it.

virtual.py        trio on a clock that jumps; everything that would differ between two runs is seeded
processors.py     slow hosts
trace.py          a hash over all that happens
network.py        hosts and connections between them
brokers.py        one broker on a disk in memory
cluster.py        the brokers, ZooKeeper and network of one run
scenarios.py      scenarios of users, run with many seeds
simulation.py     one run of a scenario, as the scenario has it in its hands
faults.py         faults at random times
disk_faults.py    faults of disks and descriptors
administrator.py  what an operator asks brokers for meanwhile
"""
