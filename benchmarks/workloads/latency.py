"""Tail latency at fixed rates: 1 KiB records, linger 0, acks=all; from handing a record over to its acknowledgement."""

from collections.abc import Callable, Generator, Mapping

from benchmarks import machine
from benchmarks.brokers import Broker
from benchmarks.clients import load, new_topic
from benchmarks.limits import Limits
from benchmarks.rows import Metric, Row, at_most
from benchmarks.session import Session

KIB = 1024
SECONDS = {1000: 6, 5000: 4, 20_000: 3}
TARGETS = {"p50_us": 0.9, "p99_us": 1.0, "p999_us": 1.0}
NAMES = {"p50_us": "p50", "p99_us": "p99", "p999_us": "p99.9"}
JUDGED = (1000, 5000)
ROUNDS = 4  # of the judged rates


def rows(session: Session) -> Generator[Row]:
    limit = Limits(session).round_trip()
    for rate, seconds in SECONDS.items():
        metrics = [
            Metric(key, "us", at_most(bound) if rate in JUDGED else None, digits=0, label=NAMES[key])
            for key, bound in TARGETS.items()
        ]
        brokers = session.with_peers() if rate in JUDGED else session.main()
        run = latency(rate, max(2, int(seconds * session.share)))
        yield Row(
            f"latency at {rate:,} records/s",
            brokers,
            run,
            metrics,
            ROUNDS if rate in JUDGED and not session.quick else session.rounds,
            limit,
        )


def latency(rate: int, seconds: int) -> Callable[[Broker], Mapping[str, float]]:
    def run(broker: Broker) -> Mapping[str, float]:
        with new_topic(broker) as topic:
            machine.wait_until_quiet(*broker.pids)
            return load(broker, "latency", topic, rate, seconds, KIB, linger_ms=0, acks="all")

    return run
