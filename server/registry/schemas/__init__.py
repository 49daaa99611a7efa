"""Formats of schemas: Avro, JSON Schema and Protobuf.

A format parses a text with the texts that it refers to, and knows how one parsed schema is read with another. All of it is done in a thread
(`threads.py`), because a long schema takes long.
"""
