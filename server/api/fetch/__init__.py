"""Fetch: reads of partitions, waits for more, and the response.

reading.py            reads all partitions of a request
partition_reader.py   reads one partition, for a consumer or a follower
waiting.py            waits until there is enough, or the time is over
responses.py          makes the response; partition_answers.py: its parts for failures
down_conversion.py    converts records for old clients
"""
