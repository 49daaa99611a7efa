"""Making the directories of new logs, several at a time in threads."""

from __future__ import annotations

import errno
from random import Random

import pytest

from ottla.replication.config import LogConfig
from ottla.replication.log.memory_storage import MemoryStorage
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

LONGEST = 249


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


@pytest.mark.parametrize("seed", range(20))
def test_a_log_that_is_there_after_a_power_cut_knows_its_topic(seed: int) -> None:
    storage = MemoryStorage()
    log = new_log(log_directory(storage))
    storage.sync_directory("/")
    storage.sync_directory(ROOT)
    storage.sync_directory(log.directory)
    storage.crash(Random(seed))
    assert load(log, clean=False).topic_id == TOPIC_ID


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO], ids=errno.errorcode.get)
def test_a_log_whose_topic_id_does_not_reach_the_disk_is_not_made(number: int) -> None:
    storage = MemoryStorage()
    directory = log_directory(storage)
    storage.fail = lambda operation, path: (
        OSError(number, "lost") if operation == "sync" and PARTITION_METADATA in path else None
    )
    with pytest.raises(OSError, match="lost"):
        new_log(directory)
    assert storage.names(ROOT) == []


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
