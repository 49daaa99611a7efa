"""Share partitions at the leaders of partitions: who holds which record, and the sessions of members. Sans-IO.

share_partition.py  the theory; acquisition locks and their expiry (`SharePartition.expire`)
acquiring.py        records that a fetch gets, and their locks
acknowledging.py    accept, release, reject, renew
in_flight.py        records in flight: state, holder, delivery count
state.py            state, settings of the group, common rules
sessions.py         share sessions of members
"""
