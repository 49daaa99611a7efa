"""ShareFetch and ShareAcknowledge at the leaders of partitions: the broker's side of share groups.

`SharePartitionManager` has a `SharePartitionLeader` for each share partition, which drives the state machine of
`groupcoord/share/partition/`. `persister.py` stores its state, `fetching.py` reads for it, `dead_letters.py` takes records
that no member could process.
"""
