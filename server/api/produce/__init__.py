"""Produce: appends of a request, and the transactions they belong to.

fast_path.py       one ordinary batch for one partition
appending.py       all other requests: appends in order, and the wait for commits
request_checks.py  checks before the append
refusals.py        notes why batches were refused
verification.py    asks transaction coordinators (KIP-890)
markers.py         markers that end transactions
schema_ids.py      validation of schema ids, for topics that ask for it
"""
