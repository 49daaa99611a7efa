"""The steps of a cleaning: what it covers, how segments are grouped, and what makes it stop."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from random import Random
from typing import Any

import pytest
import trio

from ottla.replication.log.batch_checks import AppendOrigin
from ottla.replication.log.cleaner import LogCleaner, cleanable
from ottla.replication.log.compaction import Limits
from ottla.replication.log.names import LOG_SUFFIX
from ottla.replication.log.partition_log import PartitionLog
from ottla.replication.log.tests.logs import (
    NOW_MS,
    append,
    contents,
    idempotent,
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
from ottla.wire.compression import Compression
from ottla.wire.control_batches import ControlType
from ottla.wire.legacy_records import encode_message_set
from ottla.wire.record_decoding import decode_records
from ottla.wire.records import Record

LIMITS = Limits(10**6, 10**5)
Step = Callable[[str], None]


COMPACTED: dict[str, Any] = {
    "cleanup_policy": ("compact",),
    "index_interval_bytes": 100,
    "min_cleanable_dirty_ratio": 0,
}


def compacted_log(**config: Any) -> PartitionLog:
    return new_log(**{**COMPACTED, **config})


class Cleaning:
    """A cleaner that says after each of its jobs which one that was."""

    def __init__(self, log: PartitionLog, after: Step = lambda job: None, *, now_ms: int = NOW_MS) -> None:
        self.log = log
        self.after = after
        self.cleaner = LogCleaner(self._run, lambda: now_ms, lambda: None)

    async def _run(self, function: Any, *args: Any) -> Any:
        result = function(*args)
        self.after("piece" if function is next and result is not None else getattr(function, "__name__", ""))
        return result

    def clean(
        self, *, stable: int | None = None, limits: Limits = LIMITS, may_go_on: Callable[[], bool] = lambda: True
    ) -> bool:
        log = self.log
        found = self.cleaner.look_at(log, log.log_end_offset if stable is None else stable, log.log_end_offset)
        if found is not None:
            trio.run(self.cleaner.clean, found, limits, may_go_on)
        return found is not None


def rolled(log: PartitionLog) -> PartitionLog:
    log.roll(NOW_MS)
    log.flush()
    return log


def unfinished(log: PartitionLog) -> list[str]:
    return [name for name in log.log_directory.storage.names(log.directory) if name.endswith((".cleaned", ".swap"))]


def values(log: PartitionLog) -> list[tuple[int, bytes | None, bytes | None]]:
    return [(record.offset, record.key, record.value) for record in read_records(log)]


class OneAfterTheOther:
    """A cleaner whose first thread is slow to make its segment: it does so when the second one has written a piece of its own."""

    def __init__(self) -> None:
        self.cleaner = LogCleaner(self._run, lambda: NOW_MS, lambda: None)
        self.first_is_slow = trio.Event()
        self.first_may_go_on = trio.Event()
        self._first_has_begun = trio.Event()
        self._begun = 0

    async def _run(self, function: Any, *args: Any) -> Any:
        begins = getattr(function, "__name__", "") == "begin"
        self._begun += begins
        is_first = begins and self._begun == 1
        if is_first:
            self.first_is_slow.set()
            await self.first_may_go_on.wait()
        result = function(*args)
        if is_first:
            self._first_has_begun.set()
        elif self._begun == 2 and function is next:
            self.first_may_go_on.set()
            await self._first_has_begun.wait()
        return result

    def clean(self, log: PartitionLog) -> Awaitable[bool]:
        found = self.cleaner.look_at(log, log.log_end_offset, log.log_end_offset)
        assert found is not None
        return self.cleaner.clean(found, LIMITS)


async def test_a_slow_compaction_of_a_deleted_log_takes_nothing_from_the_new_one() -> None:
    """Both make a segment of the same name in a folder that was the one's and is the other's."""
    old = compacted_log()
    append(old, keyed((b"a", b"1")), keyed((b"a", b"2")))
    rolled(old)
    threads = OneAfterTheOther()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(threads.clean, old)
        await threads.first_is_slow.wait()
        former, directory = old.directory, old.log_directory
        old.give_up()
        directory.storage.rename(former, f"{former}.0123-delete")
        old.moved_to(f"{former}.0123-delete")
        new = new_log(directory, **COMPACTED)
        append(new, keyed((b"b", b"1")), keyed((b"c", b"1")), keyed((b"b", b"2")))
        rolled(new)
        await threads.clean(new)
        threads.first_may_go_on.set()
    assert values(load(new)) == values(new)
    assert [value for _, _, value in values(new)][-2:] == [b"1", b"2"]
    if new.first_dirty_offset != new.segments[-1].base_offset:
        assert await threads.clean(new)  # it waited for the other
    assert values(new) == [(1, b"c", b"1"), (2, b"b", b"2")]
    assert unfinished(new) == []


# --- the range --------------------------------------------------------------------------------------------------------


def test_the_segment_that_holds_the_last_stable_offset_is_not_cleaned() -> None:
    log = compacted_log()
    append(log, keyed((b"a", b"1")), keyed((b"a", b"2")))
    log.roll(NOW_MS)
    append(log, keyed((b"b", b"1")), keyed((b"b", b"2")))
    append(log, idempotent(0, producer_id=8, is_transactional=True))  # from here on all is undecided
    append(log, idempotent(0, producer_id=9, is_transactional=True))
    log.append_as_leader(
        marker(ControlType.ABORT, producer_id=9), leader_epoch=0, now_ms=NOW_MS, origin=AppendOrigin.COORDINATOR
    )
    rolled(log)
    assert Cleaning(log).clean(stable=4)
    assert offsets(read_batches(log)) == [1, 2, 3, 4, 5, 6]
    assert log.first_dirty_offset == 2
    assert read_batches(log)[-1].delete_horizon_ms is None
    assert [each[:3] for each in log.aborted_transactions(0, 7).transactions] == [(9, 5, 6)]


def test_a_log_is_not_overdue_before_its_lag_can_have_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    log = compacted_log(min_cleanable_dirty_ratio=1)
    append(log, keyed((b"a", b"1")))
    rolled(log)
    log.segments[0]._forget_contents()
    monkeypatch.setattr(MemoryStorage, "open", None)  # nothing is read for it
    assert cleanable(log, 1, 1, NOW_MS) is None


def test_a_map_that_is_full_within_a_batch_ends_the_pass_there() -> None:
    log = compacted_log()
    append(log, keyed((b"a", b"1")), keyed((b"a", b"2"), (b"b", b"1"), (b"a", b"3"), (b"c", b"1")), keyed((b"a", b"4")))
    rolled(log)
    assert Cleaning(log).clean(limits=Limits(400, 4096))
    assert log.first_dirty_offset == 4
    assert values(log) == [(2, b"b", b"1"), (3, b"a", b"3"), (4, b"c", b"1"), (5, b"a", b"4")]
    assert Cleaning(log).clean(limits=Limits(400, 4096))
    assert log.first_dirty_offset == 6
    assert values(log) == [(2, b"b", b"1"), (4, b"c", b"1"), (5, b"a", b"4")]


def test_the_last_batch_below_the_high_watermark_stays_without_its_records() -> None:
    log = compacted_log(delete_retention_ms=0)
    append(log, keyed((b"a", b"1")), keyed((b"a", None)))
    rolled(log)
    assert Cleaning(log).clean()
    log.first_dirty_offset = 0
    assert Cleaning(log, now_ms=NOW_MS + 1).clean()
    assert [(each.base_offset, each.records_count) for each in read_batches(log)] == [(1, 0)]
    append(log, keyed((b"b", b"1")))
    log.first_dirty_offset = 0
    assert Cleaning(log, now_ms=NOW_MS + 1).clean()
    assert offsets(read_batches(log)) == [2]


# --- what is written --------------------------------------------------------------------------------------------------


def test_pieces_of_any_size_give_the_same_log() -> None:
    def written(io_bytes: int) -> list[bytes]:
        random, log = Random(1), compacted_log()
        for number in range(60):
            codec = random.choice(list(Compression))
            pairs = [(b"%d" % random.randrange(40), random.randbytes(random.choice((10, 3000)))) for _ in range(4)]
            append(log, keyed(*pairs, compression=codec))
            if number % 25 == 24:
                log.roll(NOW_MS)
        rolled(log)
        assert Cleaning(log).clean(limits=Limits(10**6, io_bytes))
        return [log.log_directory.storage.read(segment.path(LOG_SUFFIX)) for segment in log.segments]

    assert written(0) == written(20_000) == written(10**8)


def test_indexes_bound_a_group_as_segments_do() -> None:
    log = compacted_log()
    for number in range(30):
        append(log, keyed((b"%d" % number, b"x" * 60)))
        if number % 5 == 4:
            log.roll(NOW_MS)
    log.flush()
    entries = [segment.offset_index.entries for segment in log.segments[:-1]]
    assert entries == [4] * 6
    log.config = replace(log.config, segment_index_bytes=64)
    assert Cleaning(log).clean()
    assert segment_bases(log) == [0, 10, 20, 30]


@pytest.mark.parametrize(("age_ms", "stays"), [(999, True), (1000, False)])
def test_a_deletion_marker_of_old_goes_when_its_file_is_older_than_what_was_clean(age_ms: int, stays: bool) -> None:
    log = compacted_log(delete_retention_ms=1000)
    for base, pairs in ((0, [(b"a", None)]), (1, [(b"b", b"1")]), (2, [(b"c", b"1")])):
        records = [Record(base, NOW_MS, key, value) for key, value in pairs]
        log.append_as_follower(memoryview(bytearray(encode_message_set(records, 1))), now_ms=NOW_MS)
        log.roll(NOW_MS)
    log.flush()
    storage = log.log_directory.storage
    for segment, modified_ms in zip(log.segments, (NOW_MS - age_ms, NOW_MS, NOW_MS + 5000), strict=False):
        storage.set_modified_ms(segment.path(LOG_SUFFIX), modified_ms)
    log.first_dirty_offset = 2  # so that the second segment is the last one that was clean
    assert Cleaning(log, now_ms=NOW_MS + 10**9).clean()
    assert [key for _, key, _ in values(log)] == ([b"a"] if stays else []) + [b"b", b"c"]


def test_a_batch_of_old_is_rewritten_in_the_format_of_today() -> None:
    log = compacted_log()
    records = [Record(offset, NOW_MS + offset, b"%d" % offset, b"1") for offset in range(3)]
    data = encode_message_set(records, 1, compression=Compression.GZIP)
    log.append_as_follower(memoryview(bytearray(data)), now_ms=NOW_MS)
    append(log, keyed((b"2", b"2")))
    rolled(log)
    assert Cleaning(log).clean()
    first = read_batches(log)[0]
    assert (first.magic, first.base_offset, first.last_offset, first.records_count) == (2, 0, 1, 2)
    read = contents(log.read(0, 1, upper_bound=2, at_least_one_batch=True).region)
    assert list(decode_records(read)) == records[:2]


# --- what stops it ----------------------------------------------------------------------------------------------------


def three_segments() -> PartitionLog:
    log = compacted_log(segment_bytes=1000)
    for number in range(12):
        append(log, keyed((b"a", b"%d" % number), (b"%d" % number, b"x" * 200)))
    return rolled(log)


class At:
    """Does something once, at the given piece of work."""

    def __init__(self, number: int, action: Callable[[], object]) -> None:
        self.left = number
        self.action = action

    def __call__(self, job: str) -> None:
        if job == "piece":
            self.left -= 1
            if self.left == 0:
                self.action()


@pytest.mark.parametrize("piece", [1, 2, 5, 6, 7])
def test_a_log_that_is_not_compacted_any_more_is_left_at_once(piece: int) -> None:
    log = three_segments()
    compacted = log.config
    before = values(log)

    def change() -> None:
        log.config = replace(compacted, cleanup_policy=("delete",))

    cleaning = Cleaning(log, At(piece, change))
    assert cleaning.clean()
    assert log.first_dirty_offset == -1
    assert not unfinished(log)
    assert {each[0] for each in values(log)} <= {each[0] for each in before}
    assert not cleaning.clean()
    log.config = compacted
    assert cleaning.clean()
    assert [offset for offset, key, _ in values(log) if key == b"a"] == [22]


@pytest.mark.parametrize("piece", [1, 3, 5, 7])
def test_a_cut_during_a_pass_wins_even_if_the_same_place_is_filled_again(piece: int) -> None:
    """The segments look as before, but what was read of them is gone."""
    log = three_segments()
    bases, size = segment_bases(log), log.size_in_bytes

    def cut_and_write() -> None:
        # A key that was at the end is gone, and its value before is the last one again.
        log.truncate_to(14, now_ms=NOW_MS)
        for number in range(7, 12):
            append(log, keyed((b"b", b"%d" % number), (b"%d" % number, b"y" * 200)))
        rolled(log)
        assert (segment_bases(log), log.size_in_bytes) == (bases, size) or piece > 5

    cleaning = Cleaning(log, At(piece, cut_and_write))
    assert cleaning.clean()
    assert log.first_dirty_offset <= 14
    assert not unfinished(log)
    assert [value for _, key, value in values(log) if key == b"a"][-1] == b"6"
    assert cleaning.clean()
    assert [value for _, key, value in values(log) if key in (b"a", b"b")] == [b"6", b"11"]


@pytest.mark.parametrize("piece", [1, 4, 6])
def test_a_deleted_log_is_left_alone_with_its_files(piece: int) -> None:
    log = three_segments()
    cleaning = Cleaning(log, At(piece, log.give_up))
    assert cleaning.clean()
    assert log.first_dirty_offset == -1
    assert not cleaning.cleaner._pauses


def test_whoever_owns_the_log_may_end_the_pass() -> None:
    log = three_segments()
    allowed = [True, True, False]
    assert Cleaning(log).clean(may_go_on=lambda: allowed.pop(0))
    assert not allowed
    assert log.first_dirty_offset == -1


def test_a_pass_that_is_cancelled_leaves_files_that_the_next_start_removes() -> None:
    log = three_segments()
    before = values(log)

    async def pay(size: int) -> None:
        await trio.lowlevel.checkpoint()

    async def main() -> None:
        with trio.CancelScope() as scope:
            cleaning = Cleaning(log, At(5, scope.cancel))
            cleaning.cleaner._pay = pay
            found = cleaning.cleaner.look_at(log, log.log_end_offset, log.log_end_offset)
            assert found is not None
            await cleaning.cleaner.clean(found, LIMITS)
        assert scope.cancelled_caught

    trio.run(main)
    assert unfinished(log)
    again = load(log, clean=False)
    assert not unfinished(again)
    assert {each[0] for each in values(again)} <= {each[0] for each in before}
