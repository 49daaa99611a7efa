"""The share coordinator: the state of share partitions, in the records of `__share_group_state`.

A request goes from `service.py` to the shard of each share partition (`shard.py`); `state.py` is the state of one.
"""
