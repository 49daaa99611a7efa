"""Share groups (KIP-932): their manager in a shard, and the service for their requests.

`coordinator/` is the share coordinator, which keeps the state of share partitions in `__share_group_state`. `partition/` has
the share partitions and share sessions at the leaders of partitions. The broker's side is in `server/api/share/`.
"""
