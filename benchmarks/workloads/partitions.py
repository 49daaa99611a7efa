"""What partitions cost: restart, the whole Metadata answer, idle processor time and produce latency with 1, 100 and 10,000.

Both brokers grow step by step and stay up, beside each other, so that each step is measured in turns.
"""

import time
from collections.abc import Generator, Mapping
from statistics import median

from benchmarks import machine
from benchmarks.brokers import Broker, Failed, stop_all
from benchmarks.clients import create_topic, load
from benchmarks.limits import Limits
from benchmarks.rows import Metric, Row, at_most
from benchmarks.session import Session, warm_up
from benchmarks.wire_client import METADATA_VERSION, Client, metadata_frame, parse

from ottla.wire.messages.metadata import MetadataResponse

COUNTS, QUICK_COUNTS = (1, 100, 10_000), (1, 1000)
PARTITIONS_PER_TOPIC, TOPICS_PER_REQUEST = 100, 10
FIRST = "first"
ASKED, IDLE_S, LATENCY_S = 10, 4.0, 2
PATIENCE_S = 240.0
WARM_UP_PASSES = 2  # after the restarts
NOT_SLOWER = at_most(1.0)


def rows(session: Session) -> Generator[Row]:
    brokers = [session.new(kind) for kind in session.kinds()]
    try:
        for broker in brokers:
            broker.start()
            create_topic(broker, FIRST)
        for count in QUICK_COUNTS if session.quick else COUNTS:
            for broker in brokers:
                grow(broker, count)
            yield from at(count, brokers, session)
    finally:
        stop_all(brokers)


def at(count: int, brokers: list[Broker], session: Session) -> Generator[Row]:
    target, rounds = (NOT_SLOWER if count == COUNTS[-1] else None), session.rounds
    name = f"{count:,} partition{'s' * (count > 1)}"
    restarted = [Metric("restart_s", "s", target, label="restart"), Metric("stop_s", "s", label="stop before it")]
    listing = listing_text(brokers[0])
    yield Row(name, brokers, lambda broker: restart(broker, count), restarted, rounds, listing)
    for broker in brokers:
        warm_up(broker, WARM_UP_PASSES)
    asked = Metric("metadata_ms", "ms", target, label="full Metadata")
    yield Row(name, brokers, lambda broker: metadata(broker, count), [asked], rounds + 2)
    idle = Metric("cpu_percent", "%", target, label="idle CPU of one processor")
    yield Row(name, brokers, idle_cpu, [idle], rounds)
    produced = [
        Metric("p50_us", "us", label="produce p50", digits=0),
        Metric("p99_us", "us", label="produce p99", digits=0),
    ]
    round_trip = Limits(session).round_trip()
    yield Row(f"{name}, 1,000 records/s", brokers, latency, produced, rounds, round_trip)


def listing_text(broker: Broker) -> str:
    """What a restart cannot do without: looking at every file of the data directory once."""
    began = time.perf_counter()
    files = sum(entry.stat().st_size >= 0 for entry in broker.data_dir.rglob("*"))
    return f"looking at {files:,} files: {time.perf_counter() - began:.3f} s"


def grow(broker: Broker, count: int) -> None:
    """Until there are so many partitions: topics of 100 each beside the first."""
    missing = count - leaders(broker)
    full, rest = divmod(missing, PARTITIONS_PER_TOPIC)
    with Client(broker.port, timeout_s=180) as client:
        if rest:
            client.create_topics([f"rest-{count}"], rest)
        for first in range(0, full, TOPICS_PER_REQUEST):
            names = [f"topic-{number:05}" for number in range(first, min(first + TOPICS_PER_REQUEST, full))]
            client.create_topics(names, PARTITIONS_PER_TOPIC)
    wait_for(broker, count, PATIENCE_S)


def wait_for(broker: Broker, count: int, patience_s: float) -> None:
    deadline = time.monotonic() + patience_s
    while leaders(broker) < count:
        if time.monotonic() > deadline:
            raise Failed(f"{broker.name} has not {count:,} leaders after {patience_s:.0f} s")


def leaders(broker: Broker) -> int:
    """How many partitions have one, as the broker says."""
    try:
        with Client(broker.port) as client:
            answer = client.metadata()
    except OSError:
        return 0
    return sum(partition.leader_id >= 0 for topic in answer.topics for partition in topic.partitions)


def restart(broker: Broker, count: int) -> Mapping[str, float]:
    """After a clean stop: from the start of the process to an answer that names a leader for all."""
    began = time.perf_counter()
    broker.stop()
    stopped = time.perf_counter()
    command = broker.command()
    started = time.perf_counter()
    broker.start_as(command)
    wait_for(broker, count, PATIENCE_S)
    return {"restart_s": time.perf_counter() - started, "stop_s": stopped - began}


def metadata(broker: Broker, count: int) -> Mapping[str, float]:
    """To the last byte of the answer."""
    request, times, answer = metadata_frame(), [], b""
    with Client(broker.port) as client:
        for _ in range(ASKED):  # not counted: the same warm-up for both
            client.ask_bytes(request)
        for _ in range(ASKED):
            began = time.perf_counter()
            answer = client.ask_bytes(request)
            times.append(time.perf_counter() - began)
    topics = parse(answer, MetadataResponse, METADATA_VERSION).topics
    if sum(len(topic.partitions) for topic in topics) < count:
        raise Failed("the answer does not name all partitions")
    return {"metadata_ms": median(times) * 1000}


def idle_cpu(broker: Broker) -> Mapping[str, float]:
    """In hundredths of one processor."""
    machine.wait_until_quiet(broker.pid, seconds=0.5)
    before = broker.cpu_seconds()
    time.sleep(IDLE_S)
    used = broker.cpu_seconds() - before
    return {"cpu_percent": 100 * used / IDLE_S}


def latency(broker: Broker) -> Mapping[str, float]:
    machine.wait_until_quiet(broker.pid)
    return load(broker, "latency", FIRST, 1000, LATENCY_S, 1024, linger_ms=0, acks="all")
