"""A compaction whose thread stands still in the midst of a call, or that waits, while its log becomes another one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import trio

from ottla.replication.log.cleaner import LogCleaner
from ottla.replication.log.names import FRESH_SUFFIX
from ottla.replication.log.partition_log import PartitionLog
from ottla.replication.log.recovery import LoadOptions
from ottla.replication.log.storage import LogDirectory
from ottla.replication.log.tests.logs import NOW_MS, append, keyed, load, new_log, offsets, read_batches
from ottla.replication.log.tests.test_cleaner import COMPACTED, LIMITS, compacted_log, rolled, unfinished, values

OPTIONS = LoadOptions(
    log_start_offset=0,
    recovery_point=7,
    is_recovery_point_known=True,
    first_dirty_offset=-1,
    had_clean_shutdown=False,
    now_ms=NOW_MS,
)


class Meanwhile:
    """Does something once, just before the storage is asked for `operation` on a path with this end."""

    def __init__(
        self, log: PartitionLog, operation: str, end: str | tuple[str, ...], action: Callable[[], object]
    ) -> None:
        self.has_come = False
        self._wanted = operation, end
        self._action = action
        storage: Any = log.log_directory.storage
        storage.fail = self._look

    def _look(self, operation: str, path: str) -> None:
        wanted, end = self._wanted
        if not self.has_come and operation == wanted and path.endswith(end):
            self.has_come = True
            self._action()


def three_segments(**config: Any) -> PartitionLog:
    """With the bases 0, 2 and 4, and an empty one at 6."""
    log = compacted_log(**config)
    for number in range(3):
        append(log, keyed((b"a", b"%d" % number)), keyed((b"b", b"%d" % number)))
        log.roll(NOW_MS)
    log.flush()
    return log


def begin_anew(log: PartitionLog, offset: int) -> None:
    """The leader has other records, and only from this offset on: a cut, and a start at the place of a former segment."""
    log.truncate_to(1, now_ms=NOW_MS)
    log.truncate_fully_and_start_at(offset, now_ms=NOW_MS)
    append(log, keyed((b"c", b"new")), keyed((b"d", b"new")))


async def clean(log: PartitionLog, cleaner: LogCleaner) -> bool:
    found = cleaner.look_at(log, log.log_end_offset, log.log_end_offset)
    assert found is not None
    return await cleaner.clean(found, LIMITS)


async def at_once(function: Callable[..., Any], *arguments: Any) -> Any:
    return function(*arguments)


@pytest.mark.parametrize("stop", [("write", ".index.cleaned"), ("size", ".log.cleaned"), ("append", ".log.cleaned")])
async def test_a_slow_compaction_touches_nothing_of_a_log_that_begins_anew(stop: tuple[str, str]) -> None:
    """The thread has made the file of its new segment, and the log begins at the very offset that it is called after."""
    log = three_segments()
    meanwhile = Meanwhile(log, *stop, lambda: begin_anew(log, 0))
    assert not await clean(log, LogCleaner(at_once, lambda: NOW_MS))
    assert meanwhile.has_come
    append(log, keyed((b"e", b"newer")))
    for each in (log, load(log, clean=False)):
        assert values(each) == [(0, b"c", b"new"), (1, b"d", b"new"), (2, b"e", b"newer")]
    assert not unfinished(log)


async def test_what_a_slow_compaction_removes_is_no_part_of_a_log_that_begins_anew() -> None:
    """A thread is about to remove the segment that nobody wants, and does so in the midst of the log's new beginning."""
    log = three_segments()
    postponed: list[Callable[[], object]] = []
    is_cut = trio.Event()

    async def run_in_thread(function: Callable[..., Any], *arguments: Any) -> Any:
        if getattr(function, "__name__", "") == "begin":
            log.truncate_to(5, now_ms=NOW_MS)
        elif arguments == () and not hasattr(function, "__name__"):  # `discard`
            postponed.append(function)
            is_cut.set()
            return None
        return function(*arguments)

    assert not await clean(log, LogCleaner(run_in_thread, lambda: NOW_MS))
    (discard,) = postponed
    meanwhile = Meanwhile(log, "rename", (".log.cleaned", f".log{FRESH_SUFFIX}"), discard)
    begin_anew(log, 0)
    assert meanwhile.has_come
    assert log.log_directory.is_online
    for each in (log, load(log, clean=False)):
        assert values(each) == [(0, b"c", b"new"), (1, b"d", b"new")]
    assert not unfinished(log)


# --- a pass that goes on when its log is another one ------------------------------------------------------------------


class Paying:
    """A cleaner that waits after its first piece, as a low rate lets it, and does something meanwhile."""

    def __init__(self, action: Callable[[], object]) -> None:
        self._action: Callable[[], object] | None = action
        self.cleaner = LogCleaner(at_once, lambda: NOW_MS, lambda: None, pay=self._pay)

    async def _pay(self, size: int) -> None:
        action, self._action = self._action, None
        if action is not None:
            action()


async def test_a_log_that_was_moved_away_and_back_is_not_compacted_by_the_pass_of_its_former_self() -> None:
    """The pass waits while a replica moves to another disk and back: another log, which serves, has the folder then."""
    old = three_segments()
    former, directory = old.directory, old.log_directory
    moved: list[PartitionLog] = []

    def move_there_and_back() -> None:
        old.rename_directory("topic-0.0123-delete")
        new = new_log(directory, **COMPACTED)
        for number in range(3):
            append(new, keyed((b"x", b"%d" % number)), keyed((b"y", b"%d" % number)))
            new.roll(NOW_MS)
        new.flush()
        moved.append(new)

    is_done = await clean(old, Paying(move_there_and_back).cleaner)
    (new,) = moved
    assert new.directory == former
    new.release_files()  # from here on it reads what has its name
    expected = [(offset, key, b"%d" % (offset // 2)) for offset, key in zip(range(6), (b"x", b"y") * 3, strict=True)]
    for each in (new, load(new)):
        assert values(each) == expected
    assert not unfinished(new)
    assert not is_done


async def test_what_was_found_before_a_cut_is_not_compacted() -> None:
    """A checkpoint is written between the look and the pass. What is below a cut must be mapped again.

    Else it would count as clean from then on, and a deletion marker in there would one day go before the value that it deletes.
    """
    log = three_segments()
    cleaner = LogCleaner(at_once, lambda: NOW_MS, lambda: None)
    assert await clean(log, cleaner)
    append(log, keyed((b"a", b"4")))
    rolled(log)
    found = cleaner.look_at(log, log.log_end_offset, log.log_end_offset)
    assert found is not None
    assert found.first_dirty_offset == 6
    log.truncate_to(5, now_ms=NOW_MS)
    append(log, keyed((b"b", b"1"), (b"b", None)), keyed((b"b", b"2")))
    rolled(log)
    await cleaner.clean(found, LIMITS)
    assert log.first_dirty_offset < 6
    assert await clean(log, cleaner)
    assert [value for _, key, value in values(log) if key == b"b"] == [b"2"]


async def test_a_cut_under_the_thread_is_no_damage_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """The thread reads a file that ends earlier than it has been told. The log is compacted later."""
    log = three_segments()

    def cut() -> None:
        log.truncate_to(1, now_ms=NOW_MS)
        append(log, keyed((b"a", b"x")))
        rolled(log)

    meanwhile = Meanwhile(log, "open", f"{2:020d}.log", cut)
    cleaner = LogCleaner(at_once, lambda: NOW_MS, lambda: None)
    assert not await clean(log, cleaner)
    assert meanwhile.has_come
    assert not [record for record in caplog.records if record.levelname in ("WARNING", "ERROR")]
    assert cleaner.paused_count == 0
    assert await clean(log, cleaner)
    assert offsets(read_batches(log)) == [1]


async def test_a_kill_while_segments_are_exchanged_loses_nothing_because_of_what_an_earlier_pass_has_left() -> None:
    log = three_segments(segment_bytes=200)
    storage: Any = log.log_directory.storage
    append(log, keyed((b"c", b"0")))
    rolled(log)
    # The folder got its plain name, at the end of a move, while a thread wrote this into it.
    storage.write(f"{log.directory}/{1:020d}.log.cleaned", b"")
    killed: list[PartitionLog] = []

    def kill() -> None:
        copy = storage.copy()
        log_at_kill = PartitionLog.load(LogDirectory("/logs", copy), "topic-0", log.config, OPTIONS)
        killed.append(log_at_kill)

    meanwhile = Meanwhile(log, "rename", f"{4:020d}.log.swap", kill)
    assert await clean(log, LogCleaner(at_once, lambda: NOW_MS))
    assert meanwhile.has_come
    for each in (log, *killed, load(log)):
        assert values(each) == [(4, b"a", b"2"), (5, b"b", b"2"), (6, b"c", b"0")]
