"""One run of the command: its folder, how much it measures, and the brokers that stay up over many rows."""

import sys
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.brokers import MAIN, PEERS, Broker, Mock, Tansu, stop_all
from benchmarks.clients import load, new_topic

WARM_UP_RECORD_BYTES = 1024


@dataclass
class Session:
    """`share` is how much of the full amount of records is sent, `rounds` how often."""

    work: Path
    quick: bool
    warm_brokers: dict[str, Broker] = field(default_factory=dict)
    _folders: int = 0

    @property
    def rounds(self) -> int:
        return 1 if self.quick else 3

    @property
    def share(self) -> float:
        return 0.4 if self.quick else 1.0

    @property
    def warm_up_passes(self) -> int:
        return 3 if self.quick else 6

    def new(self, kind: type[Broker]) -> Broker:
        """Not started yet."""
        self._folders += 1
        return kind(self.work / f"{kind.name.replace(' ', '-')}-{self._folders}")

    def kinds(self) -> list[type[Broker]]:
        return [kind for kind in MAIN if not kind.missing()]

    def main(self) -> list[Broker]:
        """Ottla and Apache Kafka, started and warmed up once for all rows that load them."""
        return [self._warm(kind) for kind in self.kinds()]

    def with_peers(self, *wanted: type[Broker]) -> list[Broker]:
        """And these peers, or all of them. One that does not start is said to be missing, and the row goes on without it."""
        brokers = self.main()
        for kind in PEERS:
            if kind in (wanted or PEERS) and not kind.missing():
                try:
                    brokers.append(self._warm(kind))
                except RuntimeError as error:
                    print(f"without {kind.name}: {error}", file=sys.stderr)
        return brokers

    def _warm(self, kind: type[Broker]) -> Broker:
        broker = self.warm_brokers.get(kind.name)
        if broker is None:
            broker = self.warm_brokers[kind.name] = self.new(kind)
        if not broker.running():
            broker.start()
            warm_up(broker, self.warm_up_passes if kind in MAIN else 1)
        return broker

    def close(self) -> None:
        stop_all(self.warm_brokers.values())
        self.warm_brokers.clear()


def warm_up(broker: Broker, passes: int) -> None:
    """The same amount of load for everybody: 200 MB in batches of 64 KiB, reading them, and 12,000 records by themselves.

    A pass takes 3 s or more. The peers that keep everything in memory get the single records only.
    """
    for _ in range(passes):
        if not isinstance(broker, Tansu | Mock):
            throughput(broker)
        for rate in (2000, 10_000):
            latency(broker, rate)


def throughput(broker: Broker) -> None:
    records = 200_000
    with new_topic(broker, 4) as topic:
        load(broker, "produce", topic, 2, records, WARM_UP_RECORD_BYTES, linger_ms=5, batch_size=65536, acks="all")
        load(broker, "consume", topic, 4, records)


def latency(broker: Broker, rate: int) -> None:
    with new_topic(broker) as topic:
        load(broker, "latency", topic, rate, 1, WARM_UP_RECORD_BYTES, linger_ms=0, acks="all")
