"""A compaction whose thread stands still in the midst of a call, or that waits, while its log becomes another one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import trio

from ottla.replication.log.cleaner import LogCleaner
from ottla.replication.log.names import FRESH_SUFFIX
from ottla.replication.log.partition_log import PartitionLog
from ottla.replication.log.tests.logs import NOW_MS, append, load, log_directory, new_log, offsets, read_batches
from ottla.replication.log.tests.test_cleaner import COMPACTED, LIMITS, compacted_log, keyed, rolled, unfinished, values


class Meanwhile:
    """Does something once, just before the storage is asked for `operation` on a path with this end."""

    def __init__(self, log: PartitionLog, operation: str, end: str | tuple[str, ...], action: Callable[[], object]) -> None:
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


def three_segments() -> PartitionLog:
    """With the bases 0, 2 and 4, and an empty one at 6."""
    log = compacted_log()
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
