"""Log directories: whose they are, the lock, the mark of an orderly shutdown, the checkpoints."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from ottla.replication.log.checkpoints import MetaProperties, encode_meta_properties, encode_partition_metadata
from ottla.replication.log.storage import OsStorage
from ottla.replication.replica_manager.directories import (
    HeldDirectory,
    LogDirectoryProblem,
    hold_directories,
    make_directories,
)
from ottla.server.testing.memory.storage import MemoryStorage

DIRECTORY_ID = bytes(range(16))


def hold(storage: MemoryStorage, *paths: str, node_id: int = 1) -> list[HeldDirectory]:
    return hold_directories(paths or ("/var/logs",), storage, node_id=node_id)


def settle(held: HeldDirectory, cluster_id: str = "cluster") -> None:
    held.settle(node_id=1, cluster_id=cluster_id)


def test_a_missing_directory_is_made_and_becomes_ours() -> None:
    storage = MemoryStorage()
    (held,) = hold(storage)
    assert held.meta is None
    settle(held)
    held.release()
    (held,) = hold(storage)
    assert held.meta == MetaProperties(0, 1, "cluster", None)
    settle(held)


def test_a_directory_that_another_broker_makes_at_the_same_moment_will_do(tmp_path: Path) -> None:
    class Shared(OsStorage):
        def make_directory(self, path: str) -> None:
            super().make_directory(path)
            super().make_directory(path)

    make_directories(str(tmp_path / "shared" / "own"), Shared())
    assert (tmp_path / "shared" / "own").is_dir()
    (tmp_path / "file").touch()
    with pytest.raises(FileExistsError):
        make_directories(str(tmp_path / "file"), OsStorage())


def test_a_directory_in_use_is_refused_and_the_others_given_back() -> None:
    storage = MemoryStorage()
    hold(storage, "/b")
    with pytest.raises(LogDirectoryProblem, match=r"lock on file \.lock in /b"):
        hold(storage, "/a", "/b")
    hold(storage, "/a")


def test_a_directory_of_another_broker_is_refused() -> None:
    storage = MemoryStorage()
    (held,) = hold(storage)
    settle(held)
    held.release()
    with pytest.raises(LogDirectoryProblem, match="node id 2 does not match the stored one 1"):
        hold(storage, node_id=2)
    hold(storage)


def test_a_directory_of_another_cluster_is_refused() -> None:
    storage = MemoryStorage()
    (held,) = hold(storage)
    settle(held)
    with pytest.raises(LogDirectoryProblem, match="belongs to cluster cluster, but this broker is in cluster other"):
        settle(held, "other")


def test_directories_of_two_clusters_are_refused() -> None:
    storage = MemoryStorage()
    for path, cluster in (("/a", "one"), ("/b", "two")):
        storage.make_directory(path)
        storage.write(f"{path}/meta.properties", encode_meta_properties(MetaProperties(0, 1, cluster, None)))
    with pytest.raises(LogDirectoryProblem, match="different clusters: one, two"):
        hold(storage, "/a", "/b")


def test_unreadable_properties_and_failing_disks_are_told_in_a_sentence() -> None:
    storage = MemoryStorage()
    storage.make_directory("/a")
    storage.write("/a/meta.properties", b"\xff")
    with pytest.raises(LogDirectoryProblem, match="/a/meta.properties cannot be read"):
        hold(storage, "/a")
    storage.fail = lambda operation, path: PermissionError(13, "Permission denied", path)
    with pytest.raises(LogDirectoryProblem, match="/b cannot be used: .*Permission denied"):
        hold(storage, "/b")


def test_the_mark_of_an_orderly_shutdown_is_taken_once() -> None:
    storage = MemoryStorage()
    (held,) = hold(storage)
    assert not held.take_clean_shutdown_mark()
    held.leave_clean_shutdown_mark(7)
    assert storage.read("/var/logs/.kafka_cleanshutdown") == b'{"version":0,"brokerEpoch":7}'
    assert held.take_clean_shutdown_mark()
    assert not held.take_clean_shutdown_mark()


def test_checkpoints_are_written_when_they_say_something_new() -> None:
    storage = MemoryStorage()
    (held,) = hold(storage)
    writes: list[str] = []
    storage.fail = lambda operation, path: writes.append(path) if operation == "write" else None
    for offset in (1, 1, 2):
        held.write_checkpoint("recovery-point-offset-checkpoint", {("t", 0): offset})
    assert len(writes) == 2
    storage.fail = None
    assert held.read_checkpoints() == (True, {("t", 0): 2}, {}, {}, {})


def test_a_checkpoint_that_may_have_been_written_is_written_again() -> None:
    storage = MemoryStorage()
    (held,) = hold(storage)
    name = "recovery-point-offset-checkpoint"
    held.write_checkpoint(name, {("t", 0): 90})
    storage.fail = lambda operation, path: OSError(errno.EMFILE, "full") if operation == "sync_directory" else None
    with pytest.raises(OSError):
        held.write_checkpoint(name, {("t", 0): 100})  # it has its name already
    storage.fail = None
    held.write_checkpoint(name, {("t", 0): 90})  # the log was cut
    assert held.read_checkpoints().recovery_points == {("t", 0): 90}


def test_a_damaged_checkpoint_counts_as_empty() -> None:
    storage = MemoryStorage()
    (held,) = hold(storage)
    storage.write("/var/logs/replication-offset-checkpoint", b"0\n7\nt 0 1\n")
    storage.write("/var/logs/log-start-offset-checkpoint", b"0\n1\nt 0 5\n")
    assert held.read_checkpoints() == (False, {}, {("t", 0): 5}, {}, {})


def test_partitions_are_found_and_other_things_left_alone() -> None:
    storage = MemoryStorage()
    (held,) = hold(storage)
    for name in ("a-0", "b.c-12", f"a-1.{'0' * 32}-delete", "lost+found", "__cluster_metadata-0"):
        storage.make_directory(f"/var/logs/{name}")
    storage.write("/var/logs/file-0", b"")
    storage.write("/var/logs/a-0/partition.metadata", encode_partition_metadata(DIRECTORY_ID))
    storage.write("/var/logs/b.c-12/partition.metadata", b"\0")
    found = {each.name: (each.parsed, each.topic_id) for each in held.found_partitions()}
    assert found == {
        "a-0": (("a", 0, ""), DIRECTORY_ID),
        "b.c-12": (("b.c", 12, ""), None),
        f"a-1.{'0' * 32}-delete": (("a", 1, "-delete"), None),
    }


def test_a_directory_whose_disk_fails_is_offline_from_the_start() -> None:
    storage = MemoryStorage()
    storage.fail = lambda operation, path: OSError(5, "Input/output error", path) if path.startswith("/b") else None
    held = hold(storage, "/a", "/b")
    assert [each.log_directory.is_online for each in held] == [True, False]
    for each in held:
        each.release()
