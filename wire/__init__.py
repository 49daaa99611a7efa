"""Kafka's protocol: bytes to typed messages and back. No I/O, no clock, no knowledge of brokers.

`schema.py` is the language in which `messages/` declares every request and response; `types.py` is what the declarations
mean, as constructs; `generator.py` turns a construct into fast code and `codecs.py` keeps it. `headers.py` has the front
of every message, `errors.py` the errors, and `records.py` the record batches, of which most of the bytes are.
"""
