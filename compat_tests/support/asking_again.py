"""Lets consumers of kafka-python ask for metadata again after three seconds; also a plugin of pytest, for suites of others.

A consumer that subscribes while it waits for metadata overlooks its topic until the metadata is too old, five minutes by default
(`clients/test_traps.py`).
"""

from kafka import KafkaConsumer

KafkaConsumer.DEFAULT_CONFIG["metadata_max_age_ms"] = 3000
