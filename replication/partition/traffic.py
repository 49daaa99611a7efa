"""Counts of records, bytes and requests of each topic, in plain integers that only grow (Kafka's BrokerTopicMetrics).

All partitions of a topic on this broker count into one object, so the hot path pays for an addition and no look-up. A topic that
leaves this broker leaves its counts in `gone`: the totals over all topics never decrease.
"""

from __future__ import annotations

COUNTS = (
    "messages_in",
    "bytes_in",
    "bytes_out",
    "produce_requests",
    "failed_produce_requests",
    "fetch_requests",
    "failed_fetch_requests",
    "replication_bytes_in",
    "replication_bytes_out",
)


class TopicTraffic:
    """Counters of a topic's partitions since the topic came to this broker; requests count once per partition."""

    __slots__ = COUNTS

    messages_in: int
    bytes_in: int
    bytes_out: int
    produce_requests: int
    failed_produce_requests: int
    fetch_requests: int
    failed_fetch_requests: int
    replication_bytes_in: int
    replication_bytes_out: int

    def __init__(self) -> None:
        for name in COUNTS:
            setattr(self, name, 0)

    def add(self, other: TopicTraffic) -> None:
        """Add the counters of `other` to this object."""
        for name in COUNTS:
            setattr(self, name, getattr(self, name) + getattr(other, name))


class Traffic:
    """Counters of all topics with partitions on this broker."""

    def __init__(self) -> None:
        self.by_topic: dict[str, TopicTraffic] = {}
        self.gone = TopicTraffic()

    def of(self, topic: str) -> TopicTraffic:
        """Return a topic's counters; creates them if missing."""
        found = self.by_topic.get(topic)
        if found is None:
            found = self.by_topic[topic] = TopicTraffic()
        return found

    def forget(self, topic: str) -> None:
        """Move the counters of a topic that has no partitions here any more to `gone`."""
        left = self.by_topic.pop(topic, None)
        if left is not None:
            self.gone.add(left)

    def total(self) -> TopicTraffic:
        """Return the sum over all topics, including deleted topics."""
        total = TopicTraffic()
        for each in (self.gone, *self.by_topic.values()):
            total.add(each)
        return total
