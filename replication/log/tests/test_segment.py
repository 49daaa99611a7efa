"""One segment: where batches are found, where reads end, and indexes that lie."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.replication.config import LogConfig
from ottla.replication.log.batch_scan import CorruptSegment, scan_batches
from ottla.replication.log.names import INDEX_SUFFIX, TIME_INDEX_SUFFIX
from ottla.replication.log.partition_log import should_roll
from ottla.replication.log.segment import CURSORS_MAX, RECENT_MAX, Segment
from ottla.replication.log.storage import FileCache
from ottla.replication.log.tests.logs import batch, batches_of, contents
from ottla.replication.log.time_search import find_in
from ottla.server.testing.memory.storage import MemoryStorage
from ottla.wire.records import BatchHeader, assign_offsets, read_header
from ottla.wire.tests.effort import examples

BASE = 100
CONFIG = LogConfig(index_interval_bytes=400)


class Filled:
    """A segment with some batches, and the truth about it."""

    def __init__(self, sizes: list[tuple[int, int]], config: LogConfig = CONFIG, *, gaps: bool = False) -> None:
        self.files = FileCache(MemoryStorage())
        self.config = config
        self.segment = Segment.create(self.files, "", BASE, created_ms=0)
        self.batches: list[tuple[BatchHeader, int]] = []
        self.end = BASE
        for number, (count, size) in enumerate(sizes):
            self.add(count, size, timestamp=1000 + number)
            self.end += gaps

    def add(self, count: int = 1, size: int = 100, *, timestamp: int = 1000) -> None:
        data = batch(*(timestamp,) * count, value=b"x" * size)
        assign_offsets(data, 0, self.end, 0)
        header = read_header(data)
        self.batches.append((header, self.segment.size))
        self.segment.append(data, [header], self.config)
        self.end = header.next_offset

    def reopened(self) -> Segment:
        self.segment.close()
        return Segment(self.files, "", BASE, size=self.segment.size, created_ms=0)


SIZES = st.lists(st.tuples(st.integers(1, 4), st.integers(0, 600)), min_size=1, max_size=30)


@settings(max_examples=examples(40), deadline=None)
@given(sizes=SIZES, gaps=st.booleans(), reopen=st.booleans(), data=st.data())
def test_batches_are_found_and_reads_end_at_batch_borders(
    sizes: list[tuple[int, int]], gaps: bool, reopen: bool, data: st.DataObject
) -> None:
    filled = Filled(sizes, gaps=gaps)
    segment = filled.reopened() if reopen else filled.segment
    borders = [position for _, position in filled.batches] + [segment.size]
    for _ in range(10):
        offset = data.draw(st.integers(BASE, filled.end))
        index = next((n for n, (header, _) in enumerate(filled.batches) if header.last_offset >= offset), None)
        position = segment.locate(offset)
        assert position == (None if index is None else borders[index])
        if index is None or position is None:
            continue
        end = data.draw(st.sampled_from(borders[index + 1 :]))
        max_bytes = data.draw(st.integers(1, 2000))
        at_least_one = data.draw(st.booleans())
        region, next_offset = segment.read(position, max_bytes, end, at_least_one_batch=at_least_one)
        fitting = [border for border in borders[index:] if border <= min(end, position + max_bytes)]
        expected = fitting[-1] if len(fitting) > 1 or not at_least_one else borders[index + 1]
        assert position + (len(region) if region else 0) == expected
        headers = batches_of(contents(region or b""))
        assert [header.base_offset for header in headers] == [
            header.base_offset for header, at in filled.batches if position <= at < expected
        ]
        if next_offset is not None and headers:
            assert headers[-1].next_offset <= next_offset
    assert segment.read_next_offset() == filled.batches[-1][0].next_offset


def test_many_batches_are_found_at_the_tail_without_reading_the_file() -> None:
    filled = Filled([(1, 10)] * (RECENT_MAX * 3))
    reads: list[str] = []
    storage = filled.files.storage
    assert isinstance(storage, MemoryStorage)
    storage.fail = lambda operation, path: reads.append(path) if operation == "read" else None
    for header, position in filled.batches[-RECENT_MAX // 2 + 1 :]:
        assert filled.segment.locate(header.base_offset) == position
    assert reads == []
    for header, position in filled.batches:
        assert filled.segment.locate(header.base_offset) == position


def test_where_a_segment_begins_needs_no_lookup() -> None:
    filled = Filled([(1, 100)] * 300)
    segment = filled.reopened()
    reads: list[str] = []
    storage = filled.files.storage
    assert isinstance(storage, MemoryStorage)
    storage.fail = lambda operation, path: reads.append(path) if operation == "read" else None
    assert segment.locate(BASE) == 0
    assert reads == []
    assert Segment.create(filled.files, "", 2 * BASE, created_ms=0).locate(2 * BASE) is None


def test_a_reader_that_goes_on_needs_no_lookup() -> None:
    filled = Filled([(1, 100)] * 300)
    segment = filled.reopened()
    reads: list[str] = []
    position = segment.locate(BASE)
    assert position is not None
    _, next_offset = segment.read(position, 5000, segment.size, at_least_one_batch=True)
    assert next_offset is not None
    storage = filled.files.storage
    assert isinstance(storage, MemoryStorage)
    storage.fail = lambda operation, path: reads.append(path) if operation == "read" else None
    assert segment.locate(next_offset) == {header.base_offset: at for header, at in filled.batches}[next_offset]
    assert reads == []


def test_a_large_read_reads_few_headers() -> None:
    filled = Filled([(1, 900)] * 1200, LogConfig())
    segment = filled.reopened()
    lengths: list[int] = []
    original = type(segment.log_file.open()).read_at

    def counting(self: Any, position: int, length: int) -> bytes:
        lengths.append(length)
        return original(self, position, length)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(segment.log_file.open()), "read_at", counting)
        position = segment.locate(BASE + 3)
        assert position is not None
        region, _ = segment.read(position, 1024 * 1024, segment.size, at_least_one_batch=True)
    assert region is not None and 1024 * 1024 - 1000 < len(region) <= 1024 * 1024
    assert sum(lengths) < 64 * 1024 and len(lengths) < 30


def test_cursors_are_bounded() -> None:
    filled = Filled([(1, 100)] * 100)
    segment = filled.reopened()
    for header, position in filled.batches:
        segment.read(position, 500, segment.size, at_least_one_batch=True)
        assert segment.locate(header.base_offset) == position
    assert segment._cursors is not None and len(segment._cursors) == CURSORS_MAX


def test_closing_completes_the_time_index() -> None:
    filled = Filled([(1, 100)] * 10)
    segment = filled.reopened()
    assert segment.max_timestamp == 1009
    entries = segment.time_index
    assert (entries.last_timestamp, entries.last_offset) == (1009, filled.end - 1)


def test_truncating_forgets_what_came_after() -> None:
    filled = Filled([(2, 150)] * 20)
    header, position = filled.batches[12]
    filled.segment.cut(filled.segment.plan_cut(header.base_offset + 1), now_ms=5)
    assert filled.segment.size == position
    assert filled.segment.read_next_offset() == header.base_offset
    assert filled.segment.max_timestamp == 1011
    assert filled.segment.locate(header.base_offset) is None
    filled.end = header.base_offset
    filled.add(3, 10)
    assert filled.segment.locate(header.base_offset + 2) == position
    assert filled.reopened().read_next_offset() == filled.end


@pytest.mark.parametrize("kind", [INDEX_SUFFIX, TIME_INDEX_SUFFIX])
@pytest.mark.parametrize(
    "damage", [lambda data: data + b"x", lambda data: data + bytes(1200), lambda data: b"\x7f" * 96, lambda data: None]
)
def test_an_index_that_cannot_be_right_is_made_anew(kind: str, damage: Any) -> None:
    filled = Filled([(1, 100)] * 40)
    segment = filled.reopened()
    path, storage = segment.path(kind), filled.files.storage
    good = {each: storage.read(segment.path(each)) for each in (INDEX_SUFFIX, TIME_INDEX_SUFFIX)}
    damaged = damage(good[kind])
    storage.remove(path)
    if damaged is not None:
        storage.write(path, damaged)
    for header, position in filled.batches:
        assert segment.locate(header.base_offset) == position
    assert find_in(segment, 1020, BASE) == (1020, BASE + 20, 0)
    if len(damaged or b"") != 96:  # plausible entries are found out only when they are used
        segment.rebuild_indexes(CONFIG.index_interval_bytes)
        assert {each: storage.read(segment.path(each)) for each in good} == good


def test_index_entries_that_point_into_batches_are_found_out_in_use() -> None:
    filled = Filled([(1, 100)] * 40)
    segment = filled.reopened()
    path, storage = segment.path(INDEX_SUFFIX), filled.files.storage
    entries = bytearray(storage.read(path))
    entries[12:16] = (int.from_bytes(entries[12:16], "big") + 3).to_bytes(4, "big")
    storage.write(path, bytes(entries))
    for header, position in filled.batches:
        assert segment.locate(header.base_offset) == position


def test_bytes_that_are_no_batch_are_told_with_their_place() -> None:
    storage = MemoryStorage()
    good = bytes(batch(1, 2, 3))
    for tail in (b"\0" * 100, good[:60], good[:-1], b"\xff" * 200, good[:8] + b"\0\0\0\x20" + good[12:]):
        storage.write("/log", good + tail)
        with pytest.raises(CorruptSegment) as error:
            list(scan_batches(storage.open("/log"), 0, len(good + tail)))
        assert error.value.position == len(good)


def test_a_failed_append_is_undone() -> None:
    filled = Filled([(1, 100)] * 3)
    storage = filled.files.storage
    assert isinstance(storage, MemoryStorage)
    before = storage.read(filled.segment.log_file.path)
    storage.space_left = 50
    with pytest.raises(OSError):
        filled.add()
    filled.batches.pop()
    assert storage.read(filled.segment.log_file.path) == before
    storage.space_left = None
    filled.add()
    assert filled.segment.read_next_offset() == filled.end


@pytest.mark.parametrize(
    ("config", "append", "expected"),
    [
        ({}, {}, False),
        ({"segment_bytes": 1000}, {"size_bytes": 600}, True),
        ({"segment_bytes": 2000}, {"size_bytes": 600}, False),
        ({"segment_ms": 100}, {"max_timestamp": 1101}, True),
        ({"segment_ms": 100}, {"max_timestamp": 1100}, False),
        ({"segment_ms": 100}, {"now_ms": 10**9}, False),  # records have timestamps, so the clock does not count
        ({}, {"last_offset": BASE + 2**31}, True),
        ({}, {"last_offset": BASE + 2**31 - 1}, False),
    ],
)
def test_when_a_segment_is_rolled(config: dict[str, int], append: dict[str, int], expected: bool) -> None:
    filled = Filled([(1, 400)])
    arguments = {"size_bytes": 10, "max_timestamp": 1000, "last_offset": BASE + 1, "now_ms": 1000, **append}
    assert should_roll(filled.segment, LogConfig(**config), **arguments) is expected
    assert should_roll(filled.reopened(), LogConfig(**config), **arguments) is expected


def test_a_segment_whose_records_have_no_time_is_rolled_by_the_clock() -> None:
    filled = Filled([])
    filled.add(timestamp=-1)
    ask = {"size_bytes": 10, "max_timestamp": -1, "last_offset": BASE + 1}
    assert not should_roll(filled.segment, LogConfig(segment_ms=100), now_ms=100, **ask)
    assert should_roll(filled.segment, LogConfig(segment_ms=100), now_ms=101, **ask)


def test_an_empty_segment_is_never_too_old() -> None:
    filled = Filled([])
    arguments = {"size_bytes": 10, "max_timestamp": -1, "last_offset": BASE, "now_ms": 10**9}
    assert not should_roll(filled.segment, LogConfig(segment_ms=1), **arguments)


def test_jitter_brings_the_roll_forward_but_never_beyond_the_limit() -> None:
    filled = Filled([(1, 10)])
    config = LogConfig(segment_ms=1000, segment_jitter_ms=500)
    waited = next(
        wait
        for wait in range(1200)
        if should_roll(filled.segment, config, size_bytes=1, max_timestamp=1000 + wait, last_offset=BASE + 1, now_ms=0)
    )
    assert 500 < waited <= 1001


def test_a_full_index_rolls_the_segment() -> None:
    filled = Filled([(1, 200)] * 20, LogConfig(index_interval_bytes=100, segment_index_bytes=96))
    assert filled.segment.indexes_are_full
    assert not Filled(
        [(1, 200)] * 5, LogConfig(index_interval_bytes=100, segment_index_bytes=96)
    ).segment.indexes_are_full


@pytest.mark.parametrize("kind", [INDEX_SUFFIX, TIME_INDEX_SUFFIX])
def test_indexes_that_are_ahead_of_their_log_are_made_anew_before_an_append(kind: str) -> None:
    filled = Filled([(1, 100)] * 40)
    filled.segment = filled.reopened()
    path, storage = filled.segment.path(kind), filled.files.storage
    entries = bytearray(storage.read(path))
    entries[-4 if kind == TIME_INDEX_SUFFIX else -8] = 0x20  # the offset in the last entry
    storage.write(path, bytes(entries))
    if kind == TIME_INDEX_SUFFIX:
        storage.remove(filled.segment.path(INDEX_SUFFIX))
    for _ in range(40):
        filled.add()
    for header, position in filled.batches:
        assert filled.segment.locate(header.base_offset) == position
