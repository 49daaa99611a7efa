"""Streams groups (KIP-1071): the coordinator gives the members of one Kafka Streams application their tasks."""
