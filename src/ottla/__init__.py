"""Ottla: a broker that Apache Kafka clients cannot tell from Kafka."""

__version__ = "0.1.0"
