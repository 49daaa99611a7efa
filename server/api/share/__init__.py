"""ShareFetch and ShareAcknowledge at the leaders of partitions: the broker's side of share groups.

share_partition_manager.py  share partitions that this broker leads, and share sessions
share_partition_leader.py   one share partition: drives the machine of `groupcoord/share/partition/`; its timers
fetching.py                 one ShareFetch: reads, acquires, waits
log_reading.py              reads of the log
requests.py                 acknowledgements and responses of a request, rights of the client
persister.py                stores state at the share coordinator
dead_letters.py             records that no member could process
"""
