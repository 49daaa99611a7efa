"""A new member of a new group: from making the client to its first record. Connecting, finding the coordinator, joining,
syncing, looking up offsets and fetching are all in it."""

from collections.abc import Generator, Mapping

from benchmarks.brokers import Broker
from benchmarks.clients import load, new_topic
from benchmarks.rows import Metric, Row, at_most
from benchmarks.session import Session

ROUNDS = 7


def rows(session: Session) -> Generator[Row]:
    brokers = session.main()
    for broker in brokers:
        join(broker)  # the first one makes __consumer_offsets
    metric = Metric("ms", "ms", at_most(1.0), digits=1)
    yield Row("group join to first record", brokers, join, [metric], 3 if session.quick else ROUNDS)


def join(broker: Broker) -> Mapping[str, float]:
    with new_topic(broker) as topic:
        load(broker, "produce", topic, 1, 100, 1024)
        return {"ms": load(broker, "join", topic, auto_offset_reset="earliest")["seconds"] * 1000}
