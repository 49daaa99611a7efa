"""The same logs cleaned by Apache Kafka and by Ottla, at the same time of day, hold the same afterwards.

Ottla writes the logs (`compactable.py`) into a data directory of Kafka's, which starts on it, cleans, and stops. A copy of the
directory is cleaned here, with the time that Kafka's cleaner wrote into the delete horizons. Then more is written to what Kafka
left, and both clean again: by then horizons have passed, and batches that were emptied are met.

Compared are the segments, their batches with all of the header but lengths, checksums and codec levels, their records, the
aborted transactions, the snapshots of producers, and how far the log counts as clean.
"""

import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import trio
from compat_tests.apache.brokers import ApacheKafka4
from compat_tests.files.compactable import SEGMENT_BYTES, Case, Filler, load
from compat_tests.support.brokers import wait_until
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.replication.log.checkpoints import decode_offsets, encode_offsets
from ottla.replication.log.cleaner import Cleanable, LogCleaner
from ottla.replication.log.compaction import Limits
from ottla.replication.log.partition_log import PartitionLog
from ottla.wire.record_decoding import decode_records
from ottla.wire.records import BatchHeader, Record, iter_batches

SOON = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0", "segment.bytes": str(SEGMENT_BYTES)}
FORGETFUL = SOON | {"delete.retention.ms": "100"}
PATIENT = SOON | {"delete.retention.ms": "86400000"}
CASES = {
    "forgetful-1": Case(1, FORGETFUL),
    "forgetful-2": Case(2, FORGETFUL, ends_empty=True),
    "forgetful-3": Case(3, FORGETFUL, steps=300, keys=60),
    "patient-4": Case(4, PATIENT),
    "patient-5": Case(5, PATIENT, steps=200, keys=4, ends_empty=True),
    "open-6": Case(6, FORGETFUL, leaves_open=True),
    "open-7": Case(7, FORGETFUL, leaves_open=True, ends_empty=True),
    "appended-8": Case(8, FORGETFUL | {"message.timestamp.type": "LogAppendTime"}),
    "large-9": Case(9, FORGETFUL, steps=80, value_bytes=200_000),
    "indexes-10": Case(
        10, FORGETFUL | {"segment.index.bytes": "120", "index.interval.bytes": "200"}, steps=200, keys=200
    ),
    "magic-1-11": Case(11, FORGETFUL, magic=1),
    "magic-0-12": Case(12, PATIENT, magic=0),
    **{f"any-{seed}": Case(seed, FORGETFUL, steps=120, keys=seed, ends_empty=seed % 2 == 0) for seed in range(13, 23)},
}
SETTINGS = {"log.cleaner.backoff.ms": "100", "log.cleaner.threads": "2"}
ROUNDS = 2


class Cleaned(NamedTuple):
    """A directory before Kafka cleaned it and after."""

    before: Path
    after: Path
    time_ms: int


def now() -> int:
    return time.time_ns() // 1_000_000


@pytest.fixture(scope="module")
def rounds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Cleaned]]:
    """What Kafka made of the logs, round by round."""
    kafka = ApacheKafka4(tmp_path_factory.mktemp("kafka"), SETTINGS)
    kept = tmp_path_factory.mktemp("rounds")
    found = []
    try:
        kafka.start()
        create_topics(kafka.bootstrap)
        wait_until(lambda: all((kafka.data_dir / f"{topic}-0").is_dir() for topic in CASES), "the logs are there")
        kafka.stop()
        for number in range(ROUNDS):
            ends = {}
            for topic, case in CASES.items():
                log = load_from(kafka.data_dir, topic)
                Filler(log, case, now(), number).fill()
                ends[topic, 0] = log.log_end_offset
            # Else the cleaner may come before the leader, find a part of the log committed, and clean twice.
            (kafka.data_dir / "replication-offset-checkpoint").write_bytes(encode_offsets(ends))
            before = Path(shutil.copytree(kafka.data_dir, kept / f"before-{number}"))
            expected = {topic: dirty.uncleanable_offset for topic in CASES if (dirty := cleanable(before, topic))}
            kafka.start()
            wait_until(lambda: checkpoint(kafka.data_dir).items() >= expected.items(), "Kafka has cleaned the logs")  # noqa: B023
            kafka.stop()
            after = Path(shutil.copytree(kafka.data_dir, kept / f"after-{number}"))
            found.append(Cleaned(before, after, now()))
        yield found
    finally:
        kafka.stop()


def create_topics(bootstrap: str) -> None:
    """By a client that is gone before its broker is."""
    topics = [NewTopic(topic, 1, 1, config=case.config) for topic, case in CASES.items()]
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for created in admin.create_topics(topics).values():
        created.result(60)


def checkpoint(data: Path) -> dict[str, int]:
    path = data / "cleaner-offset-checkpoint"
    return {topic: offset for (topic, _), offset in decode_offsets(path.read_bytes()).items()} if path.exists() else {}


def load_from(data: Path, topic: str) -> PartitionLog:
    first_dirty_offset = checkpoint(data).get(topic, -1)
    return load(data, topic, CASES[topic].log_config, now_ms=now(), first_dirty_offset=first_dirty_offset)


async def at_once(function: Any, *args: Any) -> Any:
    return function(*args)


def cleanable(data: Path, topic: str, time_ms: int | None = None) -> Cleanable | None:
    log = load_from(data, topic)
    unstable = log.first_unstable_offset
    stable = log.log_end_offset if unstable is None else unstable
    return LogCleaner(at_once, lambda: time_ms or now()).look_at(log, stable, log.log_end_offset)


class Batch(NamedTuple):
    header: tuple[Any, ...]
    records: list[Record]


def plain(header: BatchHeader) -> tuple[Any, ...]:
    """All of a header but its length and checksum."""
    return header._replace(batch_length=0, crc=0)


def portrait(data: Path, topic: str) -> dict[str, Any]:
    """What is in a log's directory."""
    found: dict[str, Any] = {"clean to": checkpoint(data).get(topic)}
    for path in sorted((data / f"{topic}-0").iterdir()):
        contents = path.read_bytes()
        if path.suffix == ".log":
            found[path.name] = [
                Batch(plain(header), list(decode_records(contents[start:end])))
                for header, start, end in iter_batches(contents)
            ]
        elif path.suffix in (".txnindex", ".snapshot") and contents:
            found[path.name] = contents
    return found


def horizons(log: dict[str, Any]) -> dict[int, int]:
    """The delete horizon of each batch that has one, by its offset."""
    headers = [batch.header for name, batches in log.items() if name.endswith(".log") for batch in batches]
    return {header.base_offset: header.delete_horizon_ms for header in headers if header.delete_horizon_ms is not None}


def time_of_cleaning(cleaned: Cleaned, topic: str) -> int:
    """As the new horizons tell, or some time after it where there are none."""
    new = horizons(portrait(cleaned.after, topic)).items() - horizons(portrait(cleaned.before, topic)).items()
    retention_ms = CASES[topic].log_config.delete_retention_ms
    times = {horizon_ms - retention_ms for _, horizon_ms in new}
    assert len(times) <= 1
    return times.pop() if times else cleaned.time_ms


@pytest.mark.parametrize("topic", CASES)
@pytest.mark.parametrize("number", range(ROUNDS))
def test_what_kafka_keeps_is_kept(number: int, topic: str, rounds: list[Cleaned], tmp_path: Path) -> None:
    cleaned = rounds[number]
    data = Path(shutil.copytree(cleaned.before, tmp_path / "data"))
    time_ms = time_of_cleaning(cleaned, topic)
    found = cleanable(data, topic, time_ms)
    assert found is not None
    log = found.log
    trio.run(LogCleaner(at_once, lambda: time_ms).clean, found, Limits(1 << 30, 1 << 18))
    assert log.first_dirty_offset == found.uncleanable_offset
    assert portrait(data, topic) != portrait(cleaned.before, topic)
    own = portrait(data, topic) | {"clean to": log.first_dirty_offset}
    kafkas = portrait(cleaned.after, topic)
    for name in own.keys() | kafkas.keys():
        assert own.get(name) == kafkas.get(name), name
