"""The transaction coordinator: transactional ids in the records of `__transaction_state`, and producer ids.

A request goes from `service.py` to the shard of its id (`shard.py`), and `transitions.py` decides about it.
"""
