"""What went through the topics of this broker: Kafka's BrokerTopicMetrics, of all topics (without a label) and of each."""

from __future__ import annotations

from collections.abc import Iterator
from operator import attrgetter

from ottla.replication.partition.traffic import Traffic
from ottla.server.http.metrics.exposition import COUNTER, Exposition, Family

_PREFIX = "kafka_server_brokertopicmetrics_"
FAMILIES = {
    "messages_in": Family(f"{_PREFIX}messagesin_total", COUNTER, "Records appended where this broker leads."),
    "bytes_in": Family(f"{_PREFIX}bytesin_total", COUNTER, "Bytes of records appended where this broker leads."),
    "bytes_out": Family(f"{_PREFIX}bytesout_total", COUNTER, "Bytes of records given to consumers."),
    "produce_requests": Family(f"{_PREFIX}totalproducerequests_total", COUNTER, "Appends asked for, by partition."),
    "failed_produce_requests": Family(f"{_PREFIX}failedproducerequests_total", COUNTER, "Appends refused."),
    "fetch_requests": Family(f"{_PREFIX}totalfetchrequests_total", COUNTER, "Reads by consumers, by partition."),
    "failed_fetch_requests": Family(f"{_PREFIX}failedfetchrequests_total", COUNTER, "Reads that failed."),
    "replication_bytes_in": Family(f"{_PREFIX}replicationbytesin_total", COUNTER, "Bytes copied from leaders."),
    "replication_bytes_out": Family(f"{_PREFIX}replicationbytesout_total", COUNTER, "Bytes given to followers."),
}
TOPICS_AT_ONCE = 200


def topics(traffic: Traffic, exposition: Exposition) -> Iterator[str]:
    """All of it, in pieces."""
    total = traffic.total()
    for count, family in FAMILIES.items():
        name, of_topic = family.name, attrgetter(count)
        yield f"{exposition.head(family)}{name} {of_topic(total)}\n"
        # A topic's name needs no escaping: Kafka allows only letters, digits, dots, dashes and underscores.
        items = list(traffic.by_topic.items())
        for start in range(0, len(items), TOPICS_AT_ONCE):
            some = items[start : start + TOPICS_AT_ONCE]
            yield "".join([f'{name}{{topic="{topic}"}} {of_topic(each)}\n' for topic, each in some])
