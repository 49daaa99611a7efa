"""Making the directories of new logs, several at a time in threads."""

from __future__ import annotations

import errno
from random import Random

import pytest

from ottla.replication.config import LogConfig
from ottla.replication.log.names import PARTITION_METADATA
from ottla.replication.log.partition_log import PartitionLog
from ottla.replication.log.tests.logs import (
    NOW_MS,
    ROOT,
    TOPIC_ID,
    append,
    batch,
    load,
    log_directory,
    new_log,
    offsets,
    read_batches,
)
from ottla.server.testing.memory_storage import MemoryStorage

LONGEST = 249
OTHER_ID = bytes(range(16))


def test_logs_whose_long_names_begin_alike_are_made_side_by_side() -> None:
    storage = MemoryStorage()
    directory = log_directory(storage)
    logs: list[PartitionLog] = []

    def make(name: str) -> None:
        logs.append(PartitionLog.create(directory, name, 0, LogConfig(), topic_id=None, now_ms=NOW_MS))

    def another_thread_comes_between(operation: str, path: str) -> None:
        if operation == "rename":
            storage.fail = None
            make("x" * (LONGEST - 1) + "b")

    storage.fail = another_thread_comes_between
    make("x" * (LONGEST - 1) + "a")
    assert len(logs) == 2
    for log in logs:
        append(log, batch(1))
        assert offsets(read_batches(load(log, clean=False))) == [0]


@pytest.mark.parametrize("is_late", [False, True], ids=["made with its id", "got its id later"])
@pytest.mark.parametrize("seed", range(20))
def test_a_log_that_was_flushed_knows_its_topic_after_a_power_cut(seed: int, is_late: bool) -> None:
    storage = MemoryStorage()
    log = new_log(log_directory(storage))
    append(log, batch())
    log.flush()
    if is_late:
        log.assign_topic_id(OTHER_ID)
        append(log, batch())
        log.flush()
    storage.sync_directory("/")
    storage.crash(Random(seed))
    assert load(log, clean=False).topic_id == (OTHER_ID if is_late else TOPIC_ID)


def test_a_topic_id_that_comes_while_a_flush_is_under_way_is_synced_by_the_next() -> None:
    storage = MemoryStorage()
    log = new_log(log_directory(storage))
    append(log, batch())
    job = log.prepare_flush()
    assert job is not None
    log.assign_topic_id(OTHER_ID)
    job.run()
    log.finish_flush(job)
    append(log, batch())
    synced: list[str] = []
    storage.fail = lambda operation, path: synced.append(path) if operation == "sync" else None
    log.flush()
    assert any(PARTITION_METADATA in path for path in synced)


def test_what_is_left_of_a_failed_creation_is_removed_soon() -> None:
    storage = MemoryStorage()
    directory = log_directory(storage)

    def fail(operation: str, path: str) -> OSError | None:
        return OSError(errno.EMFILE, "Too many open files") if operation in ("open", "names") else None

    storage.fail = fail
    for _ in range(2):
        with pytest.raises(OSError, match="Too many"):
            PartitionLog.create(directory, "t", 0, LogConfig(), topic_id=None, now_ms=NOW_MS)
    storage.fail = None
    left = [f"{ROOT}/{name}" for name in storage.names(ROOT)]
    assert len(left) == 2
    assert sorted(directory.removals_due(NOW_MS)) == sorted(left)
