"""The transaction coordinator: transactional ids in the records of `__transaction_state`, and producer ids.

service.py       requests, each sent to the shard of its transactional id
shard.py         state machine of one partition of the topic; timeouts of transactions and expiry of ids
transitions.py   next metadata of a transactional id for each request, or an error
metadata.py      metadata of a transactional id
listing.py       ListTransactions
producer_ids.py  producer ids, from blocks that are unique in the cluster
records.py       records of the topic
"""
