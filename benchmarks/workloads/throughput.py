"""Produce, consume, and both at once: megabytes of record values a second, and what the broker's process costs per gigabyte.

The settings are the client's defaults, or the tuned ones of the target: linger 5 ms, batches of 64 KiB or 1 MiB.
"""

import contextlib
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass

from benchmarks import machine
from benchmarks.brokers import Broker, Mock, Tansu
from benchmarks.clients import (
    consumer_performance,
    load,
    new_topic,
    payload_file,
    producer_performance,
)
from benchmarks.limits import Limits
from benchmarks.rows import Metric, Row, Target, at_least, at_most
from benchmarks.session import Session

KIB, MIB, MB, GB = 1 << 10, 1 << 20, 1e6, 1e9
LIBRDKAFKA, JAVA = "librdkafka", "Java"
CLIENT_IS_THE_LIMIT = at_least(0.98), at_most(0.6)
"""Consumers and Java's producer take most of the processors that they share with the broker, so no broker can be much faster than
another. Each row asks that Ottla is as fast as Kafka, and that its process takes less of the processor."""
FULL_BYTES = {LIBRDKAFKA: 400e6, JAVA: 300e6}  # per round; records of 100 B make do with a third
CONSUMED_BYTES = 700e6
JAVA_WARM_UP_BYTES = 100e6
DEFAULT_BATCH = {LIBRDKAFKA: 1_000_000, JAVA: 16_384}


@dataclass(frozen=True)
class Produce:
    client: str
    size: int
    batch: int = 0  # 0: the client's default settings
    acks: str = "all"
    partitions: int = 1
    producers: int = 1
    compression: str = "none"

    @property
    def name(self) -> str:
        producers = f"{self.producers} producers" if self.producers > 1 else "1 producer"
        settings = f"linger 5 ms, {size_name(self.batch)} batches" if self.batch else "default settings"
        partitions = partitions_name(self.partitions)
        codec = "" if self.compression == "none" else f", {self.compression}"
        client = f"{self.client}, {producers}"
        return f"produce {size_name(self.size)}, {client}, {settings}, acks={self.acks}, {partitions}{codec}"

    @property
    def properties(self) -> dict[str, object]:
        settings: dict[str, object] = {"acks": self.acks, "compression.type": self.compression}
        if self.batch:
            settings |= {"linger.ms": 5, "batch.size": self.batch}
            if self.client == JAVA:  # or its requests could not hold such a batch
                settings |= {"max.request.size": 2 * MIB}
            else:
                settings |= {"message.max.bytes": 2 * MIB}
        return settings

    @property
    def targets(self) -> tuple[Target | None, Target | None]:
        """For the throughput and for the processor time per gigabyte."""
        if self.client == JAVA:
            return CLIENT_IS_THE_LIMIT
        if not self.batch:
            return at_least(1.0), None
        if self.size == KIB:
            return at_least(1.3), at_most(0.5)
        return None, None


TUNED = [
    Produce(client, KIB, batch, acks, partitions)
    for client in (LIBRDKAFKA, JAVA)
    for batch, acks, partitions in ((64 * KIB, "all", 1), (64 * KIB, "1", 10), (MIB, "all", 10), (MIB, "1", 1))
]
DEFAULTS = [
    Produce(LIBRDKAFKA, KIB),
    Produce(LIBRDKAFKA, KIB, producers=10, partitions=10),
    Produce(LIBRDKAFKA, 100, producers=10),
    Produce(LIBRDKAFKA, 10 * KIB, acks="1", partitions=10),
    Produce(JAVA, KIB),
    Produce(JAVA, 100, acks="1"),
    Produce(JAVA, 10 * KIB, partitions=10),
]
OTHERS = [
    Produce(LIBRDKAFKA, 100, MIB),
    Produce(LIBRDKAFKA, 10 * KIB, 64 * KIB, producers=10, partitions=10),
    Produce(LIBRDKAFKA, KIB, 64 * KIB, compression="lz4"),
    Produce(JAVA, KIB, MIB, partitions=10, compression="lz4"),
]
# What --quick leaves of them.
QUICK = [TUNED[0], TUNED[2], TUNED[4], DEFAULTS[0], DEFAULTS[1], DEFAULTS[4], OTHERS[0]]


def produce_rows(session: Session) -> Generator[Row]:
    limits = Limits(session)
    for workload in QUICK if session.quick else [*TUNED, *DEFAULTS, *OTHERS]:
        peers = session.with_peers(Tansu, Mock) if workload == DEFAULTS[0] else session.main()
        more, less = workload.targets
        if workload.compression != "none":
            more = less = None
        batch = workload.batch or DEFAULT_BATCH[workload.client]
        yield throughput_row(
            session, workload.name, peers, produce(session, workload), more, less, limits.produce(batch)
        )


def by_librdkafka(broker: Broker, topic: str, workload: Produce, records: int) -> Mapping[str, float]:
    """So many records, from librdkafka's producers."""
    counts = (workload.producers, records, workload.size)
    return metered(broker, workload.size, lambda: load(broker, "produce", topic, *counts, **workload.properties))


def produce(session: Session, workload: Produce) -> Callable[[Broker], Mapping[str, float]]:
    def run(broker: Broker) -> Mapping[str, float]:
        records = records_of(session, FULL_BYTES[workload.client], workload.size)
        with new_topic(broker, workload.partitions) as topic:
            if workload.client == LIBRDKAFKA:
                return by_librdkafka(broker, topic, workload, records)
            payloads = payload_file(session.work, workload.size)
            warm_up = int(JAVA_WARM_UP_BYTES * session.share / max(workload.size, 500))
            return metered(
                broker,
                workload.size,
                lambda: producer_performance(broker, topic, records, payloads, warm_up, **workload.properties),
                uncounted=warm_up,
            )

    return run


def records_of(session: Session, full: float, size: int) -> int:
    full *= session.share
    return int(full / size if size > 100 else full / 3 / size)


# --- consume ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Consume:
    client: str
    size: int
    partitions: int = 1
    compression: str = "none"

    @property
    def name(self) -> str:
        codec = "" if self.compression == "none" else f", {self.compression}"
        return f"consume {size_name(self.size)}, {self.client}, {partitions_name(self.partitions)}{codec}"


CONSUME = [
    Consume(LIBRDKAFKA, 100),
    Consume(LIBRDKAFKA, KIB),
    Consume(LIBRDKAFKA, KIB, 10),
    Consume(LIBRDKAFKA, 10 * KIB),
    Consume(LIBRDKAFKA, KIB, compression="lz4"),
    Consume(JAVA, 100),
    Consume(JAVA, KIB, 10),
    Consume(JAVA, 10 * KIB),
]
CONSUME_QUICK = [CONSUME[0], CONSUME[1], CONSUME[6]]
# Without the first, librdkafka stops fetching for a second whenever it has queued.min.messages.
EAGER = {"fetch_queue_backoff_ms": 1, "queued_min_messages": 1_000_000}


def consume_rows(session: Session) -> Generator[Row]:
    limits = Limits(session)
    for workload in CONSUME_QUICK if session.quick else CONSUME:
        brokers = session.with_peers(Tansu) if workload == CONSUME[1] else session.main()
        with contextlib.ExitStack() as kept:
            topics = {broker.name: kept.enter_context(new_topic(broker, workload.partitions)) for broker in brokers}
            for broker in brokers:
                fill(session, broker, topics[broker.name], workload)
            run = consume(session, workload, topics)
            yield throughput_row(session, workload.name, brokers, run, *CLIENT_IS_THE_LIMIT, limits.fetch())


def fill(session: Session, broker: Broker, topic: str, workload: Consume) -> None:
    """With batches of 64 KiB, the same to all."""
    records = records_of(session, CONSUMED_BYTES, workload.size)
    settings = {"linger_ms": 5, "batch_size": 64 * KIB, "compression_type": workload.compression, "acks": "all"}
    load(broker, "produce", topic, 1, records, workload.size, **settings)


def consume(session: Session, workload: Consume, topics: Mapping[str, str]) -> Callable[[Broker], Mapping[str, float]]:
    def run(broker: Broker) -> Mapping[str, float]:
        records, topic = records_of(session, CONSUMED_BYTES, workload.size), topics[broker.name]
        if workload.client == JAVA:
            return metered(broker, workload.size, lambda: consumer_performance(broker, topic, records))
        return metered(
            broker, workload.size, lambda: load(broker, "consume", topic, workload.partitions, records, **EAGER)
        )

    return run


# --- both -------------------------------------------------------------------------------------------------------------


def both_rows(session: Session) -> Generator[Row]:
    limits = Limits(session)
    for partitions in (1,) if session.quick else (1, 10):
        where = partitions_name(partitions)
        name = f"produce and consume together 1 KiB, librdkafka, linger 5 ms, 64 KiB batches, {where}"
        run = both(session, partitions)
        yield throughput_row(session, name, session.main(), run, None, None, limits.produce(64 * KIB))


def both(session: Session, partitions: int) -> Callable[[Broker], Mapping[str, float]]:
    settings = {"producer:linger.ms": 5, "producer:batch.size": 64 * KIB, "producer:acks": "all"}
    eager = {f"consumer:{name.replace('_', '.')}": value for name, value in EAGER.items()}

    def run(broker: Broker) -> Mapping[str, float]:
        records = records_of(session, FULL_BYTES[LIBRDKAFKA], KIB)
        with new_topic(broker, partitions) as topic:
            return metered(
                broker, KIB, lambda: load(broker, "both", topic, partitions, records, KIB, **settings, **eager)
            )

    return run


# --- all --------------------------------------------------------------------------------------------------------------


def metered(
    broker: Broker, size: int, run: Callable[[], Mapping[str, float]], uncounted: int = 0
) -> Mapping[str, float]:
    """The rate as the client tells it; the broker's cost over all records, those of the client's warm-up (uncounted) too."""
    machine.wait_until_quiet(*broker.pids)
    before = broker.cpu_seconds()
    result = run()
    used = broker.cpu_seconds() - before
    counted = result["records"] * size
    rates = {
        "MB/s": counted / MB / result["seconds"],
        "s/GB": used / ((result["records"] + uncounted) * size / GB),
    }
    if "client_cpu_s" in result:  # Java's tools do not tell
        rates["client s/GB"] = result["client_cpu_s"] / (counted / GB)
    return rates


def throughput_row(
    session: Session,
    name: str,
    brokers: list[Broker],
    run: Callable[[Broker], Mapping[str, float]],
    more: Target | None,
    less: Target | None,
    limit: str,
) -> Row:
    metrics = (
        Metric("MB/s", "MB/s", more, more_is_better=True, digits=0),
        Metric("s/GB", "s/GB", less, label="broker CPU"),
    )
    return Row(name, brokers, run, metrics, session.rounds, limit, [Metric("client s/GB", "s/GB", label="client CPU")])


def size_name(size: int) -> str:
    if size >= MIB:
        return f"{size // MIB} MiB"
    return f"{size // KIB} KiB" if size >= KIB else f"{size} B"


def partitions_name(partitions: int) -> str:
    return "1 partition" if partitions == 1 else f"{partitions:,} partitions"
