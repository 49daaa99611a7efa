"""A thread that reads or syncs a log never touches another file, whatever becomes of the log's own files meanwhile.

The number of a descriptor that is closed is the next file's. So before each system call of a thread, and before the thread
begins, the log lets go of all that it can let go of, and as many other files are opened as there are numbers free.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.replication.log import atomic_files, segment_snapshots
from ottla.replication.log import storage as storage_module
from ottla.replication.log.partition_log import PartitionLog
from ottla.replication.log.segment_snapshots import Survey, Truncation
from ottla.replication.log.storage import NotCached, OsStorage
from ottla.replication.log.tests.logs import NOW_MS, append, batch, idempotent, log_directory, new_log

OTHERS = 40
Work = Callable[[], object]


@pytest.fixture
def log(tmp_path: Path) -> PartitionLog:
    """Three segments on a real disk, nothing of them flushed."""
    log = new_log(log_directory(OsStorage(), str(tmp_path / "logs")), segment_bytes=4096, file_delete_delay_ms=0)
    sequence = 0
    while len(log.segments) < 3 or log.segments[-1].size < 1000:
        append(log, idempotent(sequence, value=b"x" * 300), batch(NOW_MS + sequence, value=b"y" * 300))
        sequence += 1
    return log


# ---------------------------------------------------------------------- what becomes of the files


def close(log: PartitionLog) -> None:
    for segment in log.segments:
        segment.close()


def shrink(log: PartitionLog) -> None:
    log.log_directory.files._open_files_max = 0
    log.log_directory.files.shrink()


def roll(log: PartitionLog) -> None:
    log.roll(NOW_MS)
    shrink(log)


def truncate(log: PartitionLog) -> None:
    log.truncate_fully_and_start_at(0, now_ms=NOW_MS)


def retain(log: PartitionLog) -> None:
    log.increase_log_start_offset(log.segments[-1].base_offset)
    log.delete_old_segments(NOW_MS, log.log_end_offset)
    for path in log.log_directory.removals_due(NOW_MS + 1):
        log.log_directory.storage.remove(path)


def delete(log: PartitionLog) -> None:
    log.give_up()
    gone = log.directory + ".0123456789abcdef0123456789abcdef-delete"
    log.log_directory.storage.rename(log.directory, gone)
    log.moved_to(gone)
    log.release_files()
    log.log_directory.storage.remove_tree(gone)


# ---------------------------------------------------------------------- what a thread does


def flush(log: PartitionLog) -> Work:
    job = log.prepare_flush()
    assert job is not None and len(job) > 3
    return job.run


def forget(log: PartitionLog) -> None:
    """As after a start: a thread has to read what is known of the segments."""
    for segment in log.segments:
        segment.close()
        segment._forget_contents()
        segment._offset_index = segment._time_index = None


def survey(log: PartitionLog) -> Work:
    forget(log)
    return Survey(log, log.segments).run


def cut(log: PartitionLog) -> Work:
    job: Truncation | None = log.prepare_truncation(log.log_end_offset - 1, now_ms=NOW_MS)
    assert job is not None
    return job.run


def read(log: PartitionLog) -> Work:
    region = log.read(0, 10**6, upper_bound=log.log_end_offset, at_least_one_batch=True).region
    assert not isinstance(region, bytes)
    expected = region.read()

    def again() -> None:
        assert region.read() == expected

    return again


def warm(log: PartitionLog) -> Work:
    file = log.segments[0].log_file.open()
    return NotCached(file, 0, 100).warm


class Watched:
    """The calls of the system that take a descriptor, each after what `meanwhile` does to the log."""

    def __init__(self, log: PartitionLog, meanwhile: Callable[[PartitionLog], None], other: Path) -> None:
        self.log, self._meanwhile, self._other = log, meanwhile, other
        self._has_let_go = False
        self._others: list[int] = []
        self.used = 0
        self.thread = 0

    def let_go(self) -> None:
        """What another thread does, the event loop's, before the next call of this one."""
        if not self._has_let_go:
            self._has_let_go = True  # first of all: what is garbage may be collected anywhere, and use descriptors, too
            other = threading.Thread(target=self._let_go)
            other.start()
            other.join()

    def _let_go(self) -> None:
        self._meanwhile(self.log)
        self._others = [os.open(self._other, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC) for _ in range(OTHERS)]

    def watch(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def watched(descriptor: int, *arguments: Any) -> Any:
            if threading.get_ident() == self.thread:
                self.let_go()
                self.used += 1
                assert descriptor not in self._others, f"{call.__name__} of another file"
            return call(descriptor, *arguments)

        return watched

    def close(self) -> None:
        for each in self._others:
            os.close(each)


@pytest.fixture
def watched(
    log: PartitionLog, meanwhile: Callable[[PartitionLog], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Watched]:
    watched = Watched(log, meanwhile, tmp_path / "other")
    for name in ("read", "pread", "write", "writev", "ftruncate", "fstat"):
        monkeypatch.setattr(os, name, watched.watch(getattr(os, name)))
    for module, name in ((storage_module, "data_sync"), (storage_module, "full_sync"), (atomic_files, "full_sync")):
        monkeypatch.setattr(module, name, watched.watch(getattr(module, name)))
    monkeypatch.setattr(segment_snapshots, "READ_AT_ONCE_BYTES", 0)
    yield watched
    watched.close()


@pytest.mark.parametrize("at", ["before it begins", "within its first call"])
@pytest.mark.parametrize("meanwhile", [close, shrink, roll, truncate, retain, delete])
@pytest.mark.parametrize("job", [flush, survey, cut, read, warm])
def test_a_thread_touches_no_other_file(watched: Watched, job: Callable[[PartitionLog], Work], at: str) -> None:
    work = job(watched.log)
    problems: list[BaseException] = []

    def in_thread() -> None:
        watched.thread = threading.get_ident()
        try:
            work()
        except BaseException as problem:  # noqa: BLE001 - the test tells it
            problems.append(problem)

    if at == "before it begins":
        watched.let_go()
    thread = threading.Thread(target=in_thread)
    thread.start()
    thread.join()
    # Files that are gone may not be found. That is told, and nothing else.
    assert [each for each in problems if not isinstance(each, FileNotFoundError)] == []
    assert watched.used or at == "before it begins"
