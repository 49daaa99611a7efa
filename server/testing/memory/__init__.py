"""Everything in memory that a broker of a test has elsewhere on disks and in an ensemble.

storage.py               a file system, with faults on request
names.py                 its names: the tree, changes that are not on the disk yet, snapshots
contents.py              contents of its files, which snapshots share
chunks.py                memory of long files, used again by later ones
transport.py             connections of brokers whose files are in memory
coordination_service.py  a coordination ensemble, with faults on request
coordination.py          a broker's session with it
agenda.py                timed calls, and channels whose messages take their time
"""
