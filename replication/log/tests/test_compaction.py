"""Compaction: what stays and what goes, batch by batch, and that nothing a reader may rely on is lost."""

from __future__ import annotations

import contextlib
import errno
import tracemalloc
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.replication.config import LogConfig
from ottla.replication.log.batch_checks import AppendOrigin
from ottla.replication.log.cleaner import LogCleaner, cleanable
from ottla.replication.log.compaction import Limits, OffsetMap
from ottla.replication.log.partition_log import PartitionLog
from ottla.replication.log.tests.logs import (
    NOW_MS,
    append,
    batch,
    contents,
    keyed,
    load,
    marker,
    new_log,
    offsets,
    read_batches,
    read_records,
    segment_bases,
)
from ottla.server.testing.memory.storage import MemoryStorage
from ottla.wire.buffers import COPIED_BYTES_MAX
from ottla.wire.control_batches import ControlType
from ottla.wire.record_decoding import decode_records
from ottla.wire.record_encoding import encode_batch
from ottla.wire.records import Compression, Record
from ottla.wire.tests.effort import examples

DAY_MS = 86_400_000
LIMITS = Limits(10**6, 10**5)
Values = dict[bytes | None, bytes | None]


def compacted_log(**config: Any) -> PartitionLog:
    defaults = {"cleanup_policy": ("compact",), "segment_bytes": 400, "index_interval_bytes": 100}
    return new_log(**{**defaults, **config})


def compact(
    log: PartitionLog,
    *,
    now_ms: int = NOW_MS,
    map_bytes: int = LIMITS.map_bytes,
    io_bytes: int = LIMITS.io_bytes,
    last_stable_offset: int | None = None,
) -> bool:
    """Roll, flush and compact, as the manager would have it in time; returns whether there was anything to do."""
    log.roll(now_ms)
    log.flush()
    stable = log.log_end_offset if last_stable_offset is None else last_stable_offset

    async def run(function: Any, *args: Any) -> Any:
        return function(*args)

    cleaner = LogCleaner(run, lambda: now_ms, lambda: None)
    found = cleaner.look_at(log, stable, log.log_end_offset)
    if found is None:
        return False
    trio.run(lambda: cleaner.clean(found, Limits(map_bytes, io_bytes)))
    assert not cleaner._pauses
    return True


def latest(log: PartitionLog) -> Values:
    return {record.key: record.value for record in read_records(log)}


def kept(log: PartitionLog) -> list[tuple[int, bytes | None, bytes | None]]:
    """(offset, key, value) of every record that is left, control records aside."""
    found = []
    for header in read_batches(log):
        if not header.is_control:
            data = contents(
                log.read(header.base_offset, 1, upper_bound=header.next_offset, at_least_one_batch=True).region
            )
            found += [(record.offset, record.key, record.value) for record in decode_records(data)]
    return found


def test_only_the_last_record_of_a_key_stays_with_its_offset() -> None:
    log = compacted_log()
    append(log, keyed((b"a", b"1"), (b"b", b"1")), keyed((b"a", b"2")), keyed((b"c", b"1"), (b"a", b"3")))
    assert compact(log)
    assert kept(log) == [(1, b"b", b"1"), (3, b"c", b"1"), (4, b"a", b"3")]
    assert [(each.base_offset, each.last_offset) for each in read_batches(log)] == [(0, 1), (3, 4)]
    assert log.first_dirty_offset == 5
    assert append(log, keyed((b"d", b"1"))) == [5]


def test_a_batch_that_loses_nothing_stays_as_it_is() -> None:
    log = compacted_log()
    append(log, keyed((b"a", b"1"), compression=Compression.ZSTD), keyed((b"b", b"1"), (b"c", b"1")))
    before = read_batches(log)
    assert compact(log)
    assert read_batches(log) == before


@pytest.mark.parametrize("compression", list(Compression))
def test_a_thinned_batch_keeps_codec_producer_and_time(compression: Compression) -> None:
    log = compacted_log(segment_bytes=10_000)
    options = {"producer_id": 7, "producer_epoch": 2, "compression": compression}
    append(log, keyed((b"a", b"1"), (b"b", b"1"), base_sequence=0, **options), epoch=3)
    append(log, keyed((b"a", b"2"), base_sequence=2, **options), epoch=3)
    assert compact(log)
    first = read_batches(log)[0]
    assert (first.producer_id, first.producer_epoch, first.base_sequence) == (7, 2, 0)
    assert (first.compression, first.partition_leader_epoch, first.max_timestamp) == (compression, 3, NOW_MS)
    assert (first.base_offset, first.last_offset, first.records_count) == (0, 1, 1)


def test_millions_of_headers_take_little_memory() -> None:
    log = compacted_log(segment_bytes=10_000, max_message_bytes=10**7)
    many = Record(0, NOW_MS, b"kept", b"v", ((b"", None),) * 300_000)
    thinned = encode_batch([many, Record(0, NOW_MS, b"a", b"1")], compression=Compression.ZSTD)
    del many
    append(log, memoryview(bytearray(thinned)), keyed((b"a", b"2")), keyed((b"last", b"1")))
    tracemalloc.start()
    try:
        assert compact(log)
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    # As objects they would be 25 MB, and 100 MB when they are written once more.
    assert most < 8_000_000
    [record] = [each for each in read_records(log) if each.key == b"kept"]
    assert record.headers == ((b"", None),) * 300_000


@pytest.mark.parametrize("key", [b"a", bytes(COPIED_BYTES_MAX + 1)])
def test_a_very_long_batch_is_thinned_like_any_other(key: bytes) -> None:
    """Its keys and values are views, which compare with the keys of small batches."""
    log = compacted_log(segment_bytes=100_000)
    long = bytes(2 * COPIED_BYTES_MAX)
    append(log, keyed((key, long), (b"b", long), (b"c", None), compression=Compression.ZSTD))
    append(log, keyed((b"b", b"2"), (b"d", b"1")))
    append(log, keyed((key, b"2"), (b"e", long), compression=Compression.ZSTD))
    assert compact(log)
    assert kept(log) == [(2, b"c", None), (3, b"b", b"2"), (4, b"d", b"1"), (5, key, b"2"), (6, b"e", long)]
    assert not compact(log)


def test_small_segments_become_one() -> None:
    log = compacted_log(segment_bytes=250)
    for number in range(10):
        append(log, keyed((b"%d" % (number % 3), b"x" * 100)))
    assert len(segment_bases(log)) == 10
    assert compact(log)
    assert segment_bases(log) == [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10]  # by what they weighed before
    assert [offset for offset, *_ in kept(log)] == [7, 8, 9]
    assert not compact(log)
    log.config = LogConfig(cleanup_policy=("compact",), min_cleanable_dirty_ratio=0)
    append(log, keyed((b"0", b"")))
    assert compact(log)
    assert segment_bases(log) == [0, 11]
    assert [offset for offset, *_ in kept(log)] == [7, 8, 10]


def test_records_without_a_key_go() -> None:
    log = new_log()
    append(log, keyed((b"a", b"1")))
    records = [Record(0, NOW_MS, None, b"lost"), Record(1, NOW_MS, b"b", b"1")]
    append(log, memoryview(bytearray(encode_batch(records))))
    log.config = LogConfig(cleanup_policy=("compact",))
    assert compact(log)
    assert [key for _, key, _ in kept(log)] == [b"a", b"b"]


def test_deletion_markers_stay_for_their_time_and_then_go() -> None:
    log = compacted_log(delete_retention_ms=1000, segment_bytes=2000, min_cleanable_dirty_ratio=0)
    append(log, keyed((b"a", b"1"), (b"b", b"1")), keyed((b"a", None)), keyed((b"c", b"1")))
    assert compact(log)
    assert kept(log) == [(1, b"b", b"1"), (2, b"a", None), (3, b"c", b"1")]
    (tombstone,) = [each for each in read_batches(log) if each.base_offset == 2]
    assert tombstone.delete_horizon_ms == NOW_MS + 1000
    assert next(
        iter(decode_records(contents(log.read(2, 1, upper_bound=3, at_least_one_batch=True).region)))
    ) == Record(2, NOW_MS, b"a", None)
    append(log, keyed((b"d", b"1" * 200)))
    assert compact(log, now_ms=NOW_MS + 999)
    assert (2, b"a", None) in kept(log)
    append(log, keyed((b"e", b"1" * 400)))
    assert compact(log, now_ms=NOW_MS + 1000)
    assert b"a" not in latest(log)


def test_the_last_segment_and_undecided_records_are_left_alone() -> None:
    log = compacted_log()
    append(log, keyed((b"a", b"1")), keyed((b"a", b"2")))
    log.roll(NOW_MS)
    append(log, keyed((b"a", b"3")), keyed((b"a", b"4")))
    log.flush()
    assert cleanable(log, 0, 0, NOW_MS) is None
    assert compact(log, last_stable_offset=2)
    assert [offset for offset, *_ in kept(log)] == [1, 2, 3]


def test_nothing_is_compacted_before_it_is_on_disk() -> None:
    log = compacted_log()
    append(log, keyed((b"a", b"1")), keyed((b"a", b"2")))
    log.roll(NOW_MS)
    assert cleanable(log, 2, 2, NOW_MS) is None
    log.flush()
    assert cleanable(log, 2, 2, NOW_MS) is not None


def test_young_records_wait() -> None:
    log = compacted_log(min_compaction_lag_ms=1000)
    append(log, keyed((b"a", b"1"), timestamp=NOW_MS), keyed((b"a", b"2"), timestamp=NOW_MS))
    log.roll(NOW_MS)
    append(log, keyed((b"a", b"3"), timestamp=NOW_MS + 500))
    assert not compact(log, now_ms=NOW_MS + 999)
    assert compact(log, now_ms=NOW_MS + 1000)
    assert [offset for offset, *_ in kept(log)] == [1, 2]


def test_a_log_is_compacted_when_enough_of_it_is_dirty_or_it_has_waited_too_long() -> None:
    log = compacted_log(min_cleanable_dirty_ratio=0.5, max_compaction_lag_ms=10**6, segment_bytes=2000)
    append(log, *(keyed((b"%d" % number, b"x" * 100)) for number in range(8)))
    assert compact(log)
    append(log, keyed((b"0", b"y")))
    assert not compact(log)
    assert compact(log, now_ms=NOW_MS + 10**6 + 1)
    assert latest(log)[b"0"] == b"y"


def test_very_many_small_segments_become_some_that_the_loop_can_take_in(monkeypatch: pytest.MonkeyPatch) -> None:
    log = compacted_log()
    for index in range(200):
        append(log, keyed((b"%d" % index, b"x" * 300)))
    log.config = LogConfig(cleanup_policy=("compact",), index_interval_bytes=100)
    swapped: list[int] = []
    original = PartitionLog.replace_segments

    def counting(log: PartitionLog, sources: Any, cleaned: Any, *, now_ms: int) -> bool:
        swapped.append(len(sources))
        return original(log, sources, cleaned, now_ms=now_ms)

    monkeypatch.setattr(PartitionLog, "replace_segments", counting)
    assert compact(log)
    assert swapped == [64, 64, 64, 8]
    assert len(log.segments) == 5 and offsets(read_batches(log)) == list(range(200))
    assert len(load(log).segments) == 5


def test_a_small_map_takes_several_passes() -> None:
    log = compacted_log(segment_bytes=2000)
    for number in range(40):
        append(log, keyed((b"key-%d" % (number % 10), b"%d" % number)))
    passes = 0
    while compact(log, map_bytes=700):
        passes += 1
    assert passes > 2
    assert latest(log) == {b"key-%d" % (number % 10): b"%d" % number for number in range(30, 40)}


def test_the_map_takes_at_least_one_key_and_then_only_what_fits() -> None:
    offset_map = OffsetMap(100)
    assert offset_map.add([Record(0, 0, b"old", b""), Record(1, 0, b"a" * 50, b""), Record(2, 0, None, b"")], 1)
    assert (len(offset_map), offset_map.latest_offset) == (1, 1)
    assert not offset_map.add([Record(3, 0, b"a" * 50, b""), Record(4, 0, b"b", b""), Record(5, 0, b"a" * 50, b"")], 1)
    assert (len(offset_map), offset_map.latest_offset) == (1, 3)
    assert [offset_map.is_last(b"a" * 50, offset) for offset in (1, 3)] == [False, True]
    assert offset_map.is_last(b"b", 0)


def test_the_last_batch_of_a_producer_keeps_its_sequence() -> None:
    log = compacted_log()
    append(log, keyed((b"a", b"1"), producer_id=7, producer_epoch=0, base_sequence=0))
    append(log, keyed((b"a", b"2"), producer_id=7, producer_epoch=0, base_sequence=1))
    append(log, keyed((b"a", b"3")))
    assert compact(log)
    first, second = read_batches(log)
    assert (first.base_offset, first.records_count, first.base_sequence, first.producer_id) == (1, 0, 1, 7)
    assert second.base_offset == 2
    for name in storage_names(log, ".snapshot"):
        log.log_directory.storage.remove(f"{log.directory}/{name}")
    again = load(log, clean=False, recovery_point=0)
    duplicate = keyed((b"a", b"2"), producer_id=7, producer_epoch=0, base_sequence=1)
    assert again.append_as_leader(duplicate, leader_epoch=0, now_ms=NOW_MS).duplicate


def storage_names(log: PartitionLog, suffix: str) -> list[str]:
    return [name for name in log.log_directory.storage.names(log.directory) if name.endswith(suffix)]


def test_the_end_of_the_cleaned_range_is_kept() -> None:
    log = compacted_log()
    append(log, keyed((b"a", b"1")), keyed((b"a", b"2")))
    log.config = LogConfig(cleanup_policy=("compact",), delete_retention_ms=0)
    append(log, keyed((b"a", None)))
    assert compact(log)
    append(log, keyed((b"b", b"1")))
    assert compact(log, now_ms=NOW_MS + 1)
    assert kept(log) == [(3, b"b", b"1")]
    assert load(log, clean=False).log_end_offset == 4


def end_transaction(log: PartitionLog, kind: ControlType, producer_id: int) -> None:
    log.append_as_leader(
        marker(kind, producer_id=producer_id), leader_epoch=0, now_ms=NOW_MS, origin=AppendOrigin.COORDINATOR
    )
    log.on_high_watermark(log.log_end_offset)


def test_aborted_records_go_and_markers_stay_while_they_mean_something() -> None:
    log = compacted_log(segment_bytes=10_000, delete_retention_ms=1000)
    transactional = {"producer_epoch": 0, "is_transactional": True}
    append(log, keyed((b"a", b"kept")))
    append(log, keyed((b"a", b"aborted"), producer_id=1, base_sequence=0, **transactional))
    append(log, keyed((b"b", b"committed"), producer_id=2, base_sequence=0, **transactional))
    end_transaction(log, ControlType.ABORT, 1)
    end_transaction(log, ControlType.COMMIT, 2)
    append(log, keyed((b"c", b"1")))
    sum(log.remove_expired_producers(NOW_MS + 10 * DAY_MS, DAY_MS))
    assert compact(log)
    assert kept(log) == [(0, b"a", b"kept"), (2, b"b", b"committed"), (5, b"c", b"1")]
    assert [each[:3] for each in log.aborted_transactions(0, 6).transactions] == [(1, 1, 3)]
    assert [each.base_offset for each in read_batches(log) if each.is_control] == [3, 4]
    # The aborted records are gone now, so the next pass gives their marker a horizon and one after that drops it.
    append(log, keyed((b"d", b"x" * 1000)))
    assert compact(log)
    assert log.aborted_transactions(0, 6).transactions == []
    assert [(each.base_offset, each.delete_horizon_ms) for each in read_batches(log) if each.is_control] == [
        (3, NOW_MS + 1000), (4, None),
    ]  # fmt: skip
    append(log, keyed((b"e", b"x" * 3000)))
    assert compact(log, now_ms=NOW_MS + 1000)
    assert [each.base_offset for each in read_batches(log) if each.is_control] == [4]
    assert latest(log)[b"b"] == b"committed"


KEYS = st.sampled_from([b"a", b"b", b"c", b"d"])
STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.just("put"),
            st.lists(st.tuples(KEYS, st.one_of(st.none(), st.binary(max_size=30))), min_size=1, max_size=4),
        ),
        st.tuples(st.sampled_from(["compact", "roll", "restart", "kill"]), st.just([])),
    ),
    max_size=25,
)


@settings(max_examples=examples(60), deadline=None)
@given(steps=STEPS, compression=st.sampled_from(Compression), map_bytes=st.integers(200, 2000))
def test_a_compacted_log_tells_the_same_story(
    steps: list[tuple[str, list[tuple[bytes, bytes | None]]]], compression: Compression, map_bytes: int
) -> None:
    log = compacted_log(delete_retention_ms=10, min_cleanable_dirty_ratio=0)
    truth: dict[bytes | None, tuple[int, bytes | None]] = {}
    now_ms = NOW_MS
    for step, pairs in steps:
        now_ms += 7
        if step == "put":
            (base,) = append(log, keyed(*pairs, timestamp=now_ms, compression=compression), now_ms=now_ms)
            truth.update({key: (base + index, value) for index, (key, value) in enumerate(pairs)})
        elif step == "compact":
            compact(log, now_ms=now_ms, map_bytes=map_bytes)
        elif step == "roll":
            log.roll(now_ms)
        else:
            log.flush()
            dirty = log.first_dirty_offset
            if step == "restart":
                log.close()
            log = load(log, clean=step == "restart", now_ms=now_ms)
            log.first_dirty_offset = dirty
        found = kept(log)
        assert [offset for offset, *_ in found] == sorted({offset for offset, *_ in found})
        left = {key: (offset, value) for offset, key, value in found}
        for key, (offset, value) in truth.items():
            # A deletion marker may have gone after its time, and then its key has gone with it.
            assert left.get(key) == (offset, value) or (value is None and key not in left)
        for start in range(0, log.log_end_offset, 3):
            assert offsets(read_batches(log, start)) == [
                each.base_offset for each in read_batches(log) if each.last_offset >= start
            ]
        assert len(log.segments) == len(set(segment_bases(log)))


def test_retention_during_a_pass_wins() -> None:
    log = compacted_log(cleanup_policy=("compact", "delete"), retention_ms=1000, segment_bytes=200)
    for number in range(6):
        append(log, keyed((b"a", b"%d" % number)))
    log.roll(NOW_MS)
    log.flush()

    async def run(function: Any, *args: Any) -> Any:
        result = function(*args)
        if function is next and storage_names(log, ".cleaned"):
            log.delete_old_segments(NOW_MS + 2000, log.log_end_offset)
        return result

    cleaner = LogCleaner(run, lambda: NOW_MS, lambda: None)
    found = cleaner.look_at(log, log.log_end_offset, log.log_end_offset)
    assert found is not None
    trio.run(lambda: cleaner.clean(found, LIMITS))
    assert (log.log_start_offset, log.first_dirty_offset) == (6, -1)
    assert read_batches(log) == []
    assert not storage_names(log, ".cleaned") and not storage_names(log, ".swap")


def test_a_log_that_cannot_be_read_is_left_as_it_is(caplog: pytest.LogCaptureFixture) -> None:
    log = compacted_log()
    append(log, keyed((b"a", b"1")), keyed((b"a", b"2")))
    log.roll(NOW_MS)
    log.flush()
    storage = log.log_directory.storage
    assert isinstance(storage, MemoryStorage)
    path = log.segments[0].log_file.path
    storage.damage(path, 80, b"\xff" * 40)
    before = storage.read(path)

    async def run(function: Any, *args: Any) -> Any:
        return function(*args)

    cleaner = LogCleaner(run, lambda: NOW_MS, lambda: None)
    found = cleaner.look_at(log, 2, 2)
    assert found is not None
    trio.run(lambda: cleaner.clean(found, LIMITS))
    assert cleaner.look_at(log, 2, 2) is None
    assert "left as it is" in caplog.text
    assert storage.read(path) == before


class Passes:
    """A cleaner at work on one log, with a clock that is set by hand."""

    def __init__(self, log: PartitionLog) -> None:
        self.log = log
        self.now_ms = NOW_MS
        self.cleaner = LogCleaner(self._run, lambda: self.now_ms, lambda: None)
        self.ran = 0

    async def _run(self, function: Any, *args: Any) -> Any:
        self.ran += 1
        return function(*args)

    def clean(self) -> bool:
        """Whether there was something to clean."""
        found = self.cleaner.look_at(self.log, self.log.log_end_offset, self.log.log_end_offset)
        if found is not None:
            trio.run(lambda: self.cleaner.clean(found, LIMITS))
        return found is not None


def dirty_log() -> PartitionLog:
    log = compacted_log()
    append(log, keyed((b"a", b"1")), keyed((b"a", b"2")))
    log.roll(NOW_MS)
    log.flush()
    return log


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EMFILE, errno.ENOENT, errno.EINTR])
def test_a_passing_shortage_puts_compaction_off(code: int, caplog: pytest.LogCaptureFixture) -> None:
    log = dirty_log()
    passes = Passes(log)
    storage = log.log_directory.storage
    assert isinstance(storage, MemoryStorage)
    lasting = OSError(code, "as the test wants it")
    storage.fail = lambda operation, path: lasting if ".cleaned" in path and operation in ("open", "write") else None
    assert passes.clean()
    assert not passes.clean()  # it does not spin
    for wait_ms in (15_000, 30_000, 60_000):
        passes.now_ms += wait_ms - 1
        assert not passes.clean()
        passes.now_ms += 1
        assert passes.clean()
    assert log.log_directory.is_online
    said = [each.getMessage() for each in caplog.records if each.name == "ottla.replication.log.cleaner"]
    assert len(said) == 1
    storage.fail = None
    passes.now_ms += 600_000
    assert passes.clean()
    assert kept(log) == [(1, b"a", b"2")]
    assert not storage_names(log, ".cleaned")
    assert not passes.clean()


def test_a_broken_disk_ends_compaction_with_its_directory() -> None:
    log = dirty_log()
    storage = log.log_directory.storage
    assert isinstance(storage, MemoryStorage)
    storage.fail = lambda operation, path: OSError(errno.EIO, "broken") if ".cleaned" in path else None
    passes = Passes(log)
    assert passes.clean()
    assert not log.log_directory.is_online
    assert not passes.clean()


def test_a_new_log_in_the_place_of_one_that_could_not_be_compacted_is() -> None:
    log = dirty_log()
    storage = log.log_directory.storage
    assert isinstance(storage, MemoryStorage)
    storage.damage(log.segments[0].log_file.path, 80, b"\xff" * 40)
    passes = Passes(log)
    assert passes.clean()
    passes.now_ms += 10_000_000
    assert not passes.clean()
    storage.remove_tree(log.directory)
    passes.log = PartitionLog.create(
        log.log_directory, log.topic, log.partition, log.config, topic_id=None, now_ms=NOW_MS
    )
    append(passes.log, keyed((b"a", b"1")), keyed((b"a", b"2")))
    passes.log.roll(NOW_MS)
    passes.log.flush()
    assert passes.clean()
    assert kept(passes.log) == [(1, b"a", b"2")]


@settings(max_examples=examples(40), deadline=None)
@given(seed=st.integers(0, 2**32), stop=st.integers(0, 60))
def test_a_crash_at_any_moment_of_a_pass_loses_nothing(seed: int, stop: int) -> None:
    log = compacted_log(segment_bytes=300)
    random = Random(seed)
    for _ in range(12):
        append(log, keyed(*((random.choice([b"a", b"b", b"c"]), random.randbytes(20)) for _ in range(2))))
    log.roll(NOW_MS)
    log.flush()
    expected = latest(log)
    storage = log.log_directory.storage
    assert isinstance(storage, MemoryStorage)
    storage.sync_directory(log.directory)
    operations = 0

    class Stop(BaseException):
        pass

    def fail(operation: str, path: str) -> OSError | None:
        nonlocal operations
        operations += 1
        if operations > stop:
            raise Stop
        return None

    storage.fail = fail
    with contextlib.suppress(Stop):
        compact(log)
    storage.fail = None
    storage.crash(random)
    again = load(log, clean=False)
    assert again.log_end_offset == 24
    assert latest(again) == expected
    again.close()
    assert latest(load(again)) == expected


async def test_the_segments_of_a_log_that_nobody_has_looked_at_are_opened_in_a_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = new_log(cleanup_policy=("compact",), min_compaction_lag_ms=1)
    for _ in range(20):
        append(log, batch(NOW_MS))
        log.roll(NOW_MS)
    log.flush()
    log.close()
    log = load(log)
    in_thread: list[object] = []

    async def run_in_thread(work: Callable[[], object]) -> None:
        await trio.lowlevel.checkpoint()
        in_thread.append(work)
        work()

    cleaner = LogCleaner(run_in_thread, lambda: NOW_MS + DAY_MS, lambda: None)
    await cleaner.learn_times(log)
    await cleaner.learn_times(log)
    assert len(in_thread) == 1
    assert all(segment.knows_its_times for segment in log.segments)
    monkeypatch.setattr(MemoryStorage, "open", None)  # nothing is opened any more
    assert cleaner.look_at(log, log.log_end_offset, log.log_end_offset) is not None
