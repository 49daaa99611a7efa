"""What a log that is already stored costs: restart, fetch and produce with 1, 10 and 100 GB in one partition.

The segments are made here, the same for both brokers, in Kafka's own format and valid to the last byte: each of 1 GiB is a
thousand batches of about 1 MiB, whose one record is zeros. A file system keeps zeros that were never written for free, so
100 GB take 400 MB of disk. Reading them costs what reading from the page cache costs, never a disk.
"""

import itertools
import random
import struct
import time
from collections.abc import Generator, Mapping
from pathlib import Path
from statistics import median

from benchmarks import machine
from benchmarks.brokers import Broker, stop_all
from benchmarks.clients import create_topic, load
from benchmarks.limits import Limits
from benchmarks.rows import Metric, Row
from benchmarks.session import Session, warm_up
from benchmarks.wire_client import FETCH_VERSION, Client, frame, parse
from benchmarks.workloads.partitions import listing_text, restart

from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from ottla.wire.record_encoding import encode_batch
from ottla.wire.records import Record

SIZES_GB, QUICK_SIZES_GB = (1, 10, 100), (10,)
TOPIC = "stored"
RECORD_BYTES = (1 << 20) - 128
BATCHES_PER_SEGMENT = 1000
FETCHES, LATENCY_S = 100, 2
SEED = 7
WARM_UP_PASSES = 2  # after the restarts
LEADER_EPOCH = struct.pack(">i", 0)


def rows(session: Session) -> Generator[Row]:
    brokers = [session.new(kind) for kind in session.kinds()]
    try:
        for broker in brokers:
            broker.start()
            create_topic(broker, TOPIC)
        for size in QUICK_SIZES_GB if session.quick else SIZES_GB:
            for broker in brokers:
                broker.stop()
                store(broker.data_dir / f"{TOPIC}-0", size)
                broker.start()
            yield from at(size, brokers, session)
    finally:
        stop_all(brokers)


def at(size_gb: int, brokers: list[Broker], session: Session) -> Generator[Row]:
    name, rounds, limits = f"{size_gb} GB stored", session.rounds, Limits(session)
    restarted = Metric("restart_s", "s", label="restart")
    yield Row(name, brokers, lambda broker: restart(broker, 1), [restarted], rounds, listing_text(brokers[0]))
    for broker in brokers:
        warm_up(broker, WARM_UP_PASSES)
    fetched = [
        Metric("fetch_ms", "ms", label="fetch of 1 MiB anywhere, p50"),
        Metric("cpu_ms", "ms", label="fetch of 1 MiB anywhere, broker CPU"),
    ]
    yield Row(name, brokers, lambda broker: fetch_anywhere(broker, size_gb), fetched, rounds, limits.fetch())
    produced = [
        Metric("p50_us", "us", label="produce p50", digits=0),
        Metric("p99_us", "us", label="produce p99", digits=0),
    ]
    yield Row(f"{name}, 1,000 records/s", brokers, produce, produced, rounds, limits.round_trip())


def produce(broker: Broker) -> Mapping[str, float]:
    machine.wait_until_quiet(broker.pid)
    return load(broker, "latency", TOPIC, 1000, LATENCY_S, 1024, linger_ms=0, acks="all")


def fetch_anywhere(broker: Broker, size_gb: int) -> Mapping[str, float]:
    """Each from an offset of its own, the same for all brokers."""
    offsets = random.Random(SEED)
    times = []
    with Client(broker.port) as client:
        topic_id = client.topic_id(TOPIC)
        for offset in range(FETCHES):  # not counted: the same warm-up for both
            client.ask_bytes(fetch_frame(topic_id, offset))
        before = broker.cpu_seconds()
        for _ in range(FETCHES):
            request = fetch_frame(topic_id, offsets.randrange(size_gb * BATCHES_PER_SEGMENT))
            began = time.perf_counter()
            answer = client.ask_bytes(request)
            times.append(time.perf_counter() - began)
            must_have_records(answer)
        used = broker.cpu_seconds() - before
    return {"fetch_ms": median(times) * 1000, "cpu_ms": used / FETCHES * 1000}


def fetch_frame(topic_id: bytes, offset: int) -> bytes:
    partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    topics = [FetchTopic(topic_id=topic_id, partitions=[partition])]
    return frame(FetchRequest(max_wait_ms=500, min_bytes=1, max_bytes=1 << 20, topics=topics), FETCH_VERSION)


def must_have_records(answer: bytes) -> None:
    partition = parse(answer, FetchResponse, FETCH_VERSION).responses[0].partitions[0]
    if partition.error_code or len(partition.records) < RECORD_BYTES:
        raise RuntimeError(f"a fetch brought error {partition.error_code}, {len(partition.records)} bytes")


# --- segments ---------------------------------------------------------------------------------------------------------


def store(folder: Path, size_gb: int) -> None:
    """Makes the partition's folder hold so many segments and an empty one after them. The broker must be stopped."""
    for old in itertools.chain(folder.glob("*.log"), folder.glob("*index"), folder.glob("*.snapshot")):
        old.unlink()
    now_ms = time.time_ns() // 1_000_000
    batch = encode_batch([Record(0, now_ms, None, bytes(RECORD_BYTES))])
    for number in range(size_gb):
        write_segment(folder, number * BATCHES_PER_SEGMENT, batch, now_ms)
    end = name_of(size_gb * BATCHES_PER_SEGMENT)
    for suffix in ("log", "index", "timeindex"):
        (folder / f"{end}.{suffix}").touch()
    (folder / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")


def name_of(offset: int) -> str:
    return f"{offset:020}"


def write_segment(folder: Path, base_offset: int, batch: bytes, timestamp_ms: int) -> None:
    """The starts of batches, with holes for their zeros; an index entry for each but the first, as Kafka makes them."""
    rest = LEADER_EPOCH + batch.rstrip(b"\0")[16:]
    with (folder / f"{name_of(base_offset)}.log").open("wb") as log:
        for number in range(BATCHES_PER_SEGMENT):
            log.seek(number * len(batch))
            log.write(struct.pack(">q", base_offset + number) + batch[8:12] + rest)
        log.truncate(BATCHES_PER_SEGMENT * len(batch))
    numbers = range(1, BATCHES_PER_SEGMENT)
    index = b"".join(struct.pack(">ii", number, number * len(batch)) for number in numbers)
    (folder / f"{name_of(base_offset)}.index").write_bytes(index)
    # All of one timestamp: its first record is its one entry.
    (folder / f"{name_of(base_offset)}.timeindex").write_bytes(struct.pack(">qi", timestamp_ms, 0))
