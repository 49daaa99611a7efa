"""Quotas of clients. `server/network/throttling.py` stops reading who used more.

client_quotas.py          quotas that are set, and their usage
client_quota_requests.py  DescribeClientQuotas and AlterClientQuotas
entities.py               entities, and the quota that holds for a client
meters.py                 usage, and throttle times
"""
