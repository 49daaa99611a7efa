"""Fetch: reads of partitions, waits for more, and the response.

`reading.py` reads all partitions of a request, each by `partition_reader.py`; `waiting.py` waits; `responses.py` makes the
response; `down_conversion.py` converts records for old clients.
"""
