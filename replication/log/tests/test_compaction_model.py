"""Compaction of logs with transactions, against a model of what readers may rely on, and killed at every system call.

A reader of committed records (`committed`) works as Kafka's consumers do: it is told which transactions were aborted, and skips
their records up to the marker. Whatever was compacted, and wherever the process ended, such a reader finds of every key the
record that was the last one, at its offset; or nothing, if that was a deletion marker whose time is over.
"""

from __future__ import annotations

import contextlib
from random import Random
from typing import Any

import pytest
import trio
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ottla.replication.config import LogConfig
from ottla.replication.log.batch_checks import AppendOrigin
from ottla.replication.log.cleaner import LogCleaner
from ottla.replication.log.compaction import Limits
from ottla.replication.log.partition_log import PartitionLog
from ottla.replication.log.recovery import LoadOptions
from ottla.replication.log.storage import LogDirectory
from ottla.replication.log.tests.failing_calls import some
from ottla.replication.log.tests.logs import (
    NOW_MS,
    ROOT,
    append,
    contents,
    marker,
    new_log,
    read_batches,
)
from ottla.server.testing.memory.storage import MemoryStorage
from ottla.wire.compression import Compression
from ottla.wire.control_batches import ControlType, control_type_id
from ottla.wire.record_decoding import decode_records
from ottla.wire.record_encoding import encode_batch
from ottla.wire.records import Record
from ottla.wire.tests.effort import examples, thorough_or_quick

Found = dict[bytes | None, tuple[int, bytes | None]]
RETENTION_MS = 10
LIMITS = Limits(10**6, 4096)
CONFIG: dict[str, Any] = {
    "cleanup_policy": ("compact",),
    "segment_bytes": 1500,
    "index_interval_bytes": 100,
    "delete_retention_ms": RETENTION_MS,
    "min_cleanable_dirty_ratio": 0.0,
}


def batches_with_records(log: PartitionLog, upper_bound: int) -> list[tuple[Any, list[Record]]]:
    found = []
    for header in read_batches(log, upper_bound=upper_bound):
        read = log.read(header.base_offset, 1, upper_bound=header.next_offset, at_least_one_batch=True)
        found.append((header, list(decode_records(contents(read.region)))))
    return found


def committed(log: PartitionLog) -> Found:
    """The last record of each key, for a reader of committed records."""
    unstable = log.first_unstable_offset
    bound = log.log_end_offset if unstable is None else unstable
    aborted = sorted(
        log.aborted_transactions(log.log_start_offset, bound).transactions, key=lambda each: each.first_offset
    )
    aborting: set[int] = set()
    last: Found = {}
    for header, records in batches_with_records(log, bound):
        while aborted and aborted[0].first_offset <= header.last_offset:
            aborting.add(aborted.pop(0).producer_id)
        if header.is_control:
            if records and control_type_id(records[0].key) == ControlType.ABORT:
                aborting.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in aborting):
            last.update({record.key: (record.offset, record.value) for record in records})
    return last


def undecided(log: PartitionLog) -> list[tuple[int, bytes | None]]:
    """What lies behind the last stable offset."""
    unstable = log.first_unstable_offset
    if unstable is None:
        return []
    batches = batches_with_records(log, log.log_end_offset)
    return [
        (record.offset, record.value) for header, records in batches for record in records if record.offset >= unstable
    ]


def sequences(log: PartitionLog) -> dict[int, tuple[int, int]]:
    """Epoch and last sequence of each producer."""
    return {producer_id: (entry.epoch, entry.last_sequence) for producer_id, entry in log.producers.items()}


def check_found(found: Found, truth: Found) -> None:
    for key, (offset, value) in truth.items():
        assert found.get(key) == (offset, value) or (value is None and key not in found), key
    assert found.keys() <= truth.keys()


class Story:
    """A log, and what is true of it."""

    def __init__(self) -> None:
        self.log = new_log(**CONFIG)
        self.now_ms = NOW_MS
        self.committed: list[tuple[int, bytes | None, bytes | None]] = []
        self.pending: dict[int, list[tuple[int, bytes | None, bytes | None]]] = {}

    def put(self, pairs: list[tuple[bytes, bytes | None]], producer_id: int, codec: Compression) -> None:
        options: dict[str, Any] = {}
        if producer_id:
            entry = self.log.producers.get(producer_id)
            options = {
                "producer_id": producer_id,
                "producer_epoch": 0 if entry is None else entry.epoch,
                "base_sequence": 0 if entry is None else entry.last_sequence + 1,
                "is_transactional": producer_id > 1,
            }
        records = [Record(index, self.now_ms, key, value) for index, (key, value) in enumerate(pairs)]
        data = memoryview(bytearray(encode_batch(records, compression=codec, **options)))
        (base,) = append(self.log, data, now_ms=self.now_ms)
        written = [(base + index, key, value) for index, (key, value) in enumerate(pairs)]
        (self.pending.setdefault(producer_id, []) if producer_id > 1 else self.committed).extend(written)

    @property
    def truth(self) -> Found:
        """What a reader of committed records has to find, up to the last stable offset."""
        unstable = self.log.first_unstable_offset
        bound = self.log.log_end_offset if unstable is None else unstable
        # The later offset counts, and not the later commit.
        return {key: (offset, value) for offset, key, value in sorted(self.committed) if offset < bound}

    def end(self, producer_id: int, kind: ControlType, raise_epoch: bool) -> None:
        entry = self.log.producers.get(producer_id)
        epoch = (0 if entry is None else entry.epoch) + raise_epoch
        self.log.append_as_leader(
            marker(kind, producer_id=producer_id, epoch=epoch),
            leader_epoch=0,
            now_ms=self.now_ms,
            origin=AppendOrigin.COORDINATOR,
            transaction_version=2 if raise_epoch else 0,
        )
        self.log.on_high_watermark(self.log.log_end_offset)
        written = self.pending.pop(producer_id, [])
        if kind is ControlType.COMMIT:
            self.committed += written

    def restart(self, *, clean: bool) -> None:
        self.log.flush()
        log = self.log
        if clean:
            log.close()
        options = LoadOptions(0, log.recovery_point, clean, self.now_ms, first_dirty_offset=log.first_dirty_offset)
        directory = LogDirectory(ROOT, log.log_directory.storage)
        self.log = PartitionLog.load(directory, "topic-0", LogConfig(**CONFIG), options)
        self.log.first_dirty_offset = log.first_dirty_offset
        self.log.on_high_watermark(self.log.log_end_offset)

    def check(self) -> None:
        check_found(committed(self.log), self.truth)


async def at_once(function: Any, *args: Any) -> Any:
    return function(*args)


def compact(log: PartitionLog, now_ms: int, limits: Limits = LIMITS) -> bool:
    log.roll(now_ms)
    log.flush()
    cleaner = LogCleaner(at_once, lambda: now_ms, lambda: None)
    unstable = log.first_unstable_offset
    found = cleaner.look_at(log, log.log_end_offset if unstable is None else unstable, log.log_end_offset)
    if found is not None:
        trio.run(cleaner.clean, found, limits)
        assert not cleaner._pauses
    return found is not None


PAIRS = st.lists(
    st.tuples(st.sampled_from([b"a", b"b", b"c", b"d"]), st.none() | st.binary(max_size=20)), min_size=1, max_size=4
)
PRODUCERS = st.sampled_from([0, 1, 2, 3, 4])
PUT = st.tuples(st.just("put"), PAIRS, PRODUCERS, st.sampled_from([Compression.NONE, Compression.ZSTD]))
STEPS = st.lists(
    st.one_of(
        PUT,
        PUT,
        st.tuples(
            st.just("end"),
            st.sampled_from([2, 3, 4]),
            st.sampled_from([ControlType.COMMIT, ControlType.ABORT]),
            st.booleans(),
        ),
        st.tuples(st.just("compact"), st.integers(200, 3000), st.sampled_from([4096, 10**6])),
        st.sampled_from([("roll",), ("restart",), ("kill",), ("wait",)]),
    ),
    min_size=4,
    max_size=40,
)


@settings(max_examples=examples(150), deadline=None)
@example(  # the map is full behind the marker of an aborted transaction, whose producer has begun another one
    [
        ("put", [(b"a", None)], 3, Compression.NONE),
        ("end", 3, ControlType.ABORT, False),
        ("put", [(b"a", None), (b"d", b""), (b"d", None)], 3, Compression.NONE),
        ("end", 3, ControlType.COMMIT, False),
        ("compact", 200, 4096),
        ("compact", 200, 4096),
        ("end", 2, ControlType.COMMIT, False),
        ("wait",),
        ("compact", 200, 4096),
    ]
)
@given(steps=STEPS)
def test_a_reader_of_committed_records_finds_the_last_of_every_key(steps: list[tuple[Any, ...]]) -> None:
    story = Story()
    for step, *details in steps:
        story.now_ms += 3
        if step == "put":
            story.put(*details)
        elif step == "end":
            story.end(*details)
        elif step == "compact":
            known, open_records = sequences(story.log), undecided(story.log)
            compact(story.log, story.now_ms, Limits(*details))
            assert (sequences(story.log), undecided(story.log)) == (known, open_records)
        elif step == "roll":
            story.log.roll(story.now_ms)
        elif step == "wait":
            story.now_ms += RETENTION_MS
        else:
            known = sequences(story.log)
            story.restart(clean=step == "restart")
            assert sequences(story.log) == known
        story.check()


@settings(max_examples=examples(100), deadline=None)
@example(
    [
        ("put", [(b"a", None)], 2, Compression.NONE),
        ("end", 2, ControlType.COMMIT, False),
        ("end", 2, ControlType.COMMIT, True),
        ("compact", 200, 4096),
        ("put", [(b"a", None)], 0, Compression.NONE),
        ("put", [(b"a", None)], 0, Compression.NONE),
        ("roll",),
        ("end", 3, ControlType.COMMIT, False),
    ]
)
@given(steps=STEPS)
def test_what_is_known_of_producers_can_be_read_from_a_compacted_log(steps: list[tuple[Any, ...]]) -> None:
    """Without any snapshot: the last batch of each producer is there, or the marker that raised its epoch."""
    story = Story()
    for step, *details in steps:
        story.now_ms += 3
        if step == "put":
            story.put(*details)
        elif step == "end":
            story.end(*details)
        elif step == "compact":
            compact(story.log, story.now_ms)
    compact(story.log, story.now_ms)
    known, storage = sequences(story.log), story.log.log_directory.storage
    for name in storage.names(story.log.directory):
        if name.endswith(".snapshot"):
            storage.remove(f"{story.log.directory}/{name}")
    story.restart(clean=False)
    found = sequences(story.log)
    assert found.keys() <= known.keys()
    for producer_id, (epoch, sequence) in known.items():
        # A marker of a transaction without records may go, or stay without saying anything, as in Kafka. Then nobody knows a
        # producer that wrote nothing else, or it is known by an earlier marker.
        found_epoch, found_sequence = found.get(producer_id, (-1, -1))
        assert (found_epoch, found_sequence) == (epoch, sequence) or (
            sequence < 0 and found_sequence < 0 and found_epoch <= epoch
        )
    story.check()


def story_with_transactions() -> Story:
    """Several segments of which each loses something, an index of aborted transactions, and one that is open."""
    story = Story()
    random = Random(7)
    for number in range(60):
        producer_id = random.choice([0, 1, 2, 3])
        value = None if random.random() < 0.2 else random.randbytes(20)
        story.put([(random.choice([b"a", b"b", b"c"]), value), (b"%d" % number, b"")], producer_id, Compression.NONE)
        if number % 7 == 6:
            story.end(random.choice([2, 3]), random.choice([ControlType.COMMIT, ControlType.ABORT]), number % 2 == 0)
    for producer_id in (2, 3):
        story.end(producer_id, ControlType.ABORT, raise_epoch=False)
    story.log.roll(story.now_ms)
    story.put([(b"a", b"open")], 4, Compression.NONE)
    story.log.flush()
    return story


class _Stop(BaseException):
    """The process ends here."""


def compact_until(storage: MemoryStorage, story: Story, stop: int) -> list[tuple[str, str]]:
    """Compact, but end at call number `stop`; returns the calls made, each with the kind of its file."""
    calls = list[tuple[str, str]]()
    options = LoadOptions(0, story.log.recovery_point, True, NOW_MS)
    log = PartitionLog.load(LogDirectory(ROOT, storage), "topic-0", LogConfig(**CONFIG), options)

    def count(operation: str, path: str) -> None:
        if len(calls) >= stop:
            raise _Stop
        calls.append((operation, path.rpartition("/")[2].lstrip("0123456789")))

    log.roll(NOW_MS)
    log.flush()
    storage.fail = count
    with contextlib.suppress(_Stop):
        compact(log, NOW_MS)
    storage.fail = None
    return calls


def check_restarted(storage: MemoryStorage, story: Story) -> None:
    """Loaded after a kill, and compacted to the end: the log holds what it has to, and nothing else is in the directory."""
    options = LoadOptions(0, story.log.recovery_point, False, NOW_MS)
    log = PartitionLog.load(LogDirectory(ROOT, storage), "topic-0", LogConfig(**CONFIG), options)
    for _ in range(2):
        assert log.log_end_offset == story.log.log_end_offset
        check_found(committed(log), story.truth)
        assert sequences(log) == sequences(story.log)
        assert undecided(log) == undecided(story.log)
        assert not [name for name in storage.names(log.directory) if name.endswith((".cleaned", ".swap"))]
        compact(log, NOW_MS + 1)


@pytest.mark.parametrize(
    "every", [pytest.param(1, marks=pytest.mark.long, id="all"), pytest.param(thorough_or_quick(5, 29), id="some")]
)
def test_a_pass_that_is_killed_at_any_system_call_loses_nothing(every: int) -> None:
    story = story_with_transactions()
    story.log.close()
    whole = story.log.log_directory.storage
    assert isinstance(whole, MemoryStorage)
    whole.sync_directory(story.log.directory)
    calls = compact_until(whole.copy(), story, 10**6)
    assert len(calls) > 100
    for stop in [*some(calls, every), len(calls)]:
        storage = whole.copy()
        compact_until(storage, story, stop)
        after_a_power_cut = storage.copy()
        storage.kill()
        check_restarted(storage, story)
        after_a_power_cut.crash(Random(stop))
        check_restarted(after_a_power_cut, story)
