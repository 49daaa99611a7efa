"""Replica fetchers: tasks that copy partitions from their leaders (Kafka's ReplicaFetcherThread).

fetcher_manager.py        which fetcher has which partitions
fetcher.py                the task of a fetcher: asks its leader, appends, truncates where logs diverge
fetch_session_handler.py  the fetch session with a leader: which partitions the next request names
leader_end_point.py       connection to a leader
throttle.py               limits of replication traffic
"""
