"""Searching for timestamps: the records that are found, and which thread reads how much for that."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.replication.config import LogConfig
from ottla.replication.log import segment as segment_module
from ottla.replication.log.names import INDEX_SUFFIX, TIME_INDEX_SUFFIX
from ottla.replication.log.partition_log import PartitionLog
from ottla.replication.log.tests.logs import NOW_MS, append, batch, find, load, new_log
from ottla.replication.log.tests.test_segment import BASE, Filled
from ottla.replication.log.time_search import MAX_TIMESTAMP, TimestampSearch, check_sizes_until, find_in
from ottla.server.testing.memory.storage import MemoryFile, MemoryStorage
from ottla.wire.compression import Compression
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.legacy_records import encode_message_set
from ottla.wire.record_encoding import encode_batch
from ottla.wire.records import Record
from ottla.wire.tests.effort import examples


@settings(max_examples=examples(60), deadline=None)
@given(
    timestamps=st.lists(st.integers(0, 12), min_size=1, max_size=60),
    reopen=st.booleans(),
    cut=st.none() | st.integers(0, 59),
    data=st.data(),
)
def test_timestamps_are_found_in_any_order_of_times(
    timestamps: list[int], reopen: bool, cut: int | None, data: st.DataObject
) -> None:
    filled = Filled([])
    for timestamp in timestamps:
        filled.add(1, data.draw(st.sampled_from((10, 150, 500))), timestamp=timestamp)
    if cut is not None:
        filled.segment.cut(filled.segment.plan_cut(BASE + cut), now_ms=0)
        timestamps = timestamps[:cut]
    segment = filled.reopened() if reopen else filled.segment
    assert segment.max_timestamp == max(timestamps, default=-1)
    if timestamps:
        found = find_in(segment, MAX_TIMESTAMP, 0)
        assert found is not None and found.offset == BASE + timestamps.index(max(timestamps))
    for timestamp in range(max(timestamps, default=-1) + 1):
        for start in (0, len(timestamps) // 2):
            expected = next((n for n, each in enumerate(timestamps) if each >= timestamp and n >= start), None)
            found = find_in(segment, timestamp, BASE + start)
            assert (found and found.offset) == (None if expected is None else BASE + expected)


def test_one_early_record_with_a_late_time_makes_no_search_read_the_whole_segment() -> None:
    filled = Filled([(1, 900)], LogConfig())
    filled.batches.clear()
    filled.add(timestamp=9_000)
    for _ in range(1000):
        filled.add(size=900, timestamp=1_000)
    filled.add(timestamp=9_500)
    for segment in (filled.segment, filled.reopened()):
        lengths: list[int] = []
        original = type(segment.log_file.open()).read_at

        def counting(self: Any, position: int, length: int) -> bytes:
            lengths.append(length)  # noqa: B023 - used within the turn
            return original(self, position, length)  # noqa: B023

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(type(segment.log_file.open()), "read_at", counting)
            assert segment.largest_timestamp() == 9_500
            found = find_in(segment, 9_001, BASE)
            assert found is not None and found.offset == filled.end - 1
            assert find_in(segment, MAX_TIMESTAMP, 0) == found
        assert sum(lengths) < 64 * 1024


# --- who reads --------------------------------------------------------------------------------------------------------


class Reads:
    """Counts the bytes read from log files, separately for the event loop and for threads."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.on_loop = 0
        self.in_threads = 0
        self.is_in_thread = False
        original = MemoryFile.read_at

        def read_at(file: MemoryFile, position: int, length: int) -> bytes:
            data = original(file, position, length)
            if self.is_in_thread:
                self.in_threads += len(data)
            else:
                self.on_loop += len(data)
            return data

        patch.setattr(MemoryFile, "read_at", read_at)

    def find(self, log: PartitionLog, timestamp: int, between: Callable[[], object] = lambda: None) -> Any:
        """Search, while `between` happens after the thread has read and before the log learns of it."""
        search = TimestampSearch(log, timestamp)
        while not search.advance():
            self.is_in_thread = True
            search.run()
            self.is_in_thread = False
            between()
        return search.found


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Reads:
    return Reads(monkeypatch)


ORDINARY = {"value": b"x" * 100, "compression": Compression.ZSTD}


@pytest.mark.parametrize("timestamp", [500, MAX_TIMESTAMP])
def test_records_of_large_or_compressed_batches_are_read_in_a_thread(reads: Reads, timestamp: int) -> None:
    log = new_log()
    append(log, batch(*range(1000), **ORDINARY), batch(*range(1000), value=b"x" * 900))
    for _ in range(2):
        reads.on_loop = reads.in_threads = 0
        found = reads.find(log, timestamp)
        assert found == ((500, 500, 0) if timestamp >= 0 else (999, 999, 0))
        assert reads.on_loop <= 16 * 1024
        assert reads.in_threads > 1000


def test_small_batches_are_read_at_once(reads: Reads) -> None:
    log = new_log()
    append(log, batch(100, 200, 300), batch(400, 500))
    assert reads.find(log, 300) == (300, 2, 0)
    assert reads.find(log, MAX_TIMESTAMP) == (500, 4, 0)
    assert reads.in_threads == 0


def cold_log(segments: int, **config: Any) -> PartitionLog:
    """A log of many segments after a restart; nobody has looked at any."""
    log = new_log(**config)
    for number in range(segments):
        append(log, batch(1000 + number))
        log.roll(NOW_MS)
    log.flush()
    log.close()
    return load(log)


@pytest.mark.parametrize("timestamp", [1250, MAX_TIMESTAMP])
def test_the_indexes_of_many_segments_are_opened_in_a_thread_and_once(reads: Reads, timestamp: int) -> None:
    log = cold_log(300)
    wanted = 299 if timestamp < 0 else 250
    reads.on_loop = 0
    assert reads.find(log, timestamp) == (1000 + wanted, wanted, 0)
    assert reads.on_loop < 1000
    before = reads.in_threads
    assert before
    assert reads.find(log, timestamp) == (1000 + wanted, wanted, 0)
    assert reads.in_threads == before


@pytest.mark.parametrize("kind", [INDEX_SUFFIX, TIME_INDEX_SUFFIX])
@pytest.mark.parametrize("damage", [b"x", b"\x7f" * 96, None], ids=["torn", "garbage", "missing"])
def test_damaged_indexes_are_made_anew_in_a_thread(
    reads: Reads, monkeypatch: pytest.MonkeyPatch, kind: str, damage: bytes | None
) -> None:
    monkeypatch.setattr(segment_module, "REPAIR_AT_ONCE_BYTES", 1000)
    log = new_log(index_interval_bytes=4096)
    for number in range(200):
        append(log, batch(1000 + number, value=b"x" * 500))
    log.roll(NOW_MS)
    log.flush()
    log.close()
    log = load(log)
    path = log.segments[0].path(kind)
    storage = log.log_directory.storage
    good = storage.read(path)
    storage.write(path, damage) if damage is not None else storage.remove(path)
    log.enter_service(lambda log, segment: None)
    reads.on_loop = 0
    assert reads.find(log, 1100) == (1100, 100, 0)
    assert reads.in_threads > 1000
    assert reads.on_loop < 32 * 1024 < log.segments[0].size // 3
    assert storage.read(path) == good
    assert find(log, 1150) == (1150, 150, 0)


# --- what happens meanwhile -------------------------------------------------------------------------------------------


def once(*actions: Callable[[], object]) -> Callable[[], object]:
    """Each of the actions the next time, then nothing."""
    left = iter(actions)
    return lambda: next(left, lambda: None)()


def test_a_search_begins_anew_when_the_log_is_cut_meanwhile(reads: Reads) -> None:
    log = new_log()
    append(log, batch(1, 2, 3), batch(*range(100, 1100), **ORDINARY))
    cut = once(lambda: log.truncate_to(3, now_ms=NOW_MS), lambda: None)
    assert reads.find(log, 500, cut) is None
    append(log, batch(*range(2000), **ORDINARY))
    cut = once(lambda: (log.truncate_to(3, now_ms=NOW_MS), append(log, batch(700))))
    assert reads.find(log, 500, cut) == (700, 3, 0)


def test_a_search_begins_anew_when_segments_are_deleted_meanwhile(reads: Reads) -> None:
    log = new_log(retention_ms=1000)
    for start in (0, 1000):
        append(log, batch(*range(start, start + 1000), **ORDINARY))
        log.roll(NOW_MS)
    append(log, batch(NOW_MS))
    delete = once(lambda: log.delete_old_segments(1500 + 1000, log.log_end_offset))
    assert reads.find(log, 500, delete) == (1000, 1000, 0)


def test_segments_that_are_deleted_before_the_thread_opens_them_are_no_failure() -> None:
    log = new_log(retention_ms=1000)
    for start in (0, 1000):
        append(log, batch(*range(start, start + 1000), **ORDINARY))
        log.roll(NOW_MS)
    append(log, batch(NOW_MS))

    def delete() -> None:
        log.delete_old_segments(1500 + 1000, log.log_end_offset)
        for path in log.log_directory.removals_due(10**15):
            log.log_directory.storage.remove(path)

    assert find(log, 500, in_thread=once(delete)) == (1000, 1000, 0)
    assert log.log_directory.is_online


def test_appends_meanwhile_do_not_matter(reads: Reads) -> None:
    log = new_log()
    append(log, batch(*range(1000), **ORDINARY))
    assert reads.find(log, 500, lambda: append(log, batch(5000))) == (500, 500, 0)


def test_a_log_directory_that_fails_meanwhile_is_told(reads: Reads) -> None:
    log = new_log()
    append(log, batch(*range(1000), **ORDINARY))
    with pytest.raises(KafkaError) as caught:
        reads.find(log, 500, lambda: log.log_directory.take_offline(OSError(5, "broken")))
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR


def test_a_disk_that_fails_the_thread_takes_the_directory_offline() -> None:
    log = new_log()
    append(log, batch(*range(1000), **ORDINARY))
    storage = log.log_directory.storage
    assert isinstance(storage, MemoryStorage)

    def fail() -> None:
        storage.fail = lambda operation, path: OSError(5, "broken") if operation == "read" else None

    with pytest.raises(KafkaError) as caught:
        find(log, 500, in_thread=fail)
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert not log.log_directory.is_online


def test_a_segment_without_times_is_read_when_its_log_is_loaded() -> None:
    log = new_log()
    append(log, batch(-1, -1), batch(-1))
    log.flush()
    log.close()
    log = load(log)
    assert log.segments[-1].knows_its_times
    assert find(log, 0) is None


def test_segments_that_are_made_in_service_are_in_service() -> None:
    log = new_log()
    log.enter_service(lambda log, segment: None)
    append(log, batch(1))
    log.roll(NOW_MS)
    append(log, batch(2))
    log.truncate_to(1, now_ms=NOW_MS)
    assert [segment.defers_repair for segment in log.segments] == [True, True]
    log.truncate_fully_and_start_at(7, now_ms=NOW_MS)
    assert [segment.defers_repair for segment in log.segments] == [True]


@pytest.mark.parametrize(("limit", "expected"), [(19, (20, 1)), (18, None)])
def test_records_beyond_the_limit_of_their_topic_are_not_found(limit: int, expected: tuple[int, int] | None) -> None:
    log = new_log()
    append(log, batch(10, 20, value=b"value 7890", compression=Compression.GZIP))
    search = TimestampSearch(log, 15, limit)
    assert not search.advance()
    search.run()
    if expected is None:
        with pytest.raises(KafkaError) as caught:
            search.advance()
        assert caught.value.code is ErrorCode.INVALID_RECORD
    else:
        assert search.advance()
        assert search.found is not None and search.found[:2] == expected


@pytest.mark.parametrize("limit", [6, 7, 106, 107])
def test_records_of_compressed_batches_are_refused_if_they_are_longer_than_a_limit(limit: int) -> None:
    records = [Record(index, 5, None, b"x" * size) for index, size in enumerate((1, 100, 1))]
    lengths = [7, 107, 7]
    for codec in Compression:
        batch = encode_batch(records, base_offset=100, compression=codec)
        for index in range(3):
            is_refused = codec and max(lengths[: index + 1]) > limit
            with pytest.raises(KafkaError) if is_refused else nullcontext():
                check_sizes_until(batch, 100 + index, limit)


@pytest.mark.parametrize("magic", [0, 1])
def test_messages_of_wrappers_are_refused_if_one_is_longer_than_a_limit(magic: int) -> None:
    records = [Record(index, 5, None, b"x" * size) for index, size in enumerate((1, 100))]
    length = (22 if magic else 14) + 100
    wrapper = encode_message_set(records, magic, compression=Compression.GZIP)
    check_sizes_until(wrapper, 0, length)
    with pytest.raises(KafkaError):
        check_sizes_until(wrapper, 0, length - 1)
    check_sizes_until(encode_message_set(records[1:], magic), 0, 1)
