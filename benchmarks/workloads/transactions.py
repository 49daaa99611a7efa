"""Transactions one after the other: ten records of 100 bytes, then the commit, by one producer or by ten at a time.

The client is librdkafka. A commit is measured from its call to its return, and waits for the records as well. The records of
a transaction go to one partition, or to ten, each of which gets a marker.
"""

from collections.abc import Callable, Generator, Mapping

from benchmarks import machine
from benchmarks.brokers import Broker
from benchmarks.clients import load, new_topic
from benchmarks.limits import Limits
from benchmarks.rows import Metric, Row, at_least, at_most
from benchmarks.session import Session

PLAYED = ((1, 1, 2000), (10, 1, 600), (10, 10, 200))
"""Producers, partitions of a transaction, and transactions of each producer."""

ROUNDS = 4
METRICS = (
    Metric("per_s", "/s", at_least(1.3), more_is_better=True, digits=0),
    Metric("p50_us", "us", digits=0, label="commit p50"),
    Metric("p99_us", "us", at_most(1.0), digits=0, label="commit p99"),
    Metric("cpu_us", "us", digits=0, label="broker CPU of each"),
)


def rows(session: Session) -> Generator[Row]:
    brokers = session.main()
    limit = Limits(session).round_trip()
    for producers, spread, each in PLAYED:
        for broker in brokers:  # the first one makes __transaction_state
            transactions(producers, spread, each // 4)(broker)
        name = f"transactions of 10 records of 100 B, {counted(producers, 'producer')}, {counted(spread, 'partition')} in each"
        run = transactions(producers, spread, int(each * session.share))
        beside = (Metric("client_cpu_us", "us", digits=0, label="client CPU"),)
        yield Row(name, brokers, run, METRICS, 1 if session.quick else ROUNDS, limit, beside)


def counted(count: int, what: str) -> str:
    return f"{count} {what}{'s' * (count > 1)}"


def transactions(producers: int, spread: int, each: int) -> Callable[[Broker], Mapping[str, float]]:
    def run(broker: Broker) -> Mapping[str, float]:
        with new_topic(broker, producers) as topic:
            machine.wait_until_quiet(*broker.pids)
            before = broker.cpu_seconds()
            result = load(broker, "transactions", topic, producers, each, spread, linger_ms=0)
            used = broker.cpu_seconds() - before
        count = result["transactions"]
        made = count + producers * (each // 10 + 1)  # with those before the clock starts
        return result | {
            "per_s": count / result["seconds"],
            "cpu_us": used / made * 1e6,
            "client_cpu_us": result["client_cpu_s"] / count * 1e6,
        }

    return run
