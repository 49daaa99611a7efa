"""Identities of log directories in the coordination tree, and notices of failed ones."""

from __future__ import annotations

import json
import random
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from ottla.replication.cluster import znodes
from ottla.replication.cluster.coordination import CoordinationUnavailable, Create
from ottla.replication.cluster.znodes import KnownDirectory
from ottla.replication.config import ReplicationConfig
from ottla.replication.log.checkpoints import MetaProperties, decode_meta_properties, encode_meta_properties
from ottla.replication.log.storage import LogDirectory
from ottla.replication.log.tests.failing_calls import FailingCalls, run_every_case
from ottla.replication.replica_manager.directories import LogDirectoryProblem
from ottla.replication.replica_manager.manager import ReplicaManager
from ottla.server.cluster.coordination.embedded import EmbeddedCoordination
from ottla.server.cluster.log_dirs import NOTIFY_AGAIN_S, LogDirFailures, check_journal, settle_identities
from ottla.server.cluster.session import ClusterSession, settle_cluster_id
from ottla.server.testing.memory.coordination import MemoryCoordination
from ottla.server.testing.memory.coordination_service import MemoryService
from ottla.server.testing.memory.storage import MemoryStorage


@pytest.fixture
async def reader(nursery: trio.Nursery) -> MemoryCoordination:
    """A session with the tree."""
    service = MemoryService(random.Random(3))
    await nursery.start(service.run)
    reader = MemoryCoordination(service.link())
    await nursery.start(reader.run)
    return reader


@pytest.fixture
def session() -> ClusterSession:
    return ClusterSession()


@pytest.fixture
def failures(session: ClusterSession) -> LogDirFailures:
    return LogDirFailures(session, 7)


async def test_each_failure_is_told_once_and_outlives_sessions(
    autojump_clock: MockClock,
    nursery: trio.Nursery,
    reader: MemoryCoordination,
    session: ClusterSession,
    failures: LogDirFailures,
) -> None:
    await reader.multi([Create(znodes.LOG_DIR_EVENTS)])
    nursery.start_soon(failures.run)
    session.attach(reader)
    failures.note(LogDirectory("/a", MemoryStorage()))
    await trio.sleep(1)
    told = await reader.children_data(znodes.LOG_DIR_EVENTS)
    assert {name: znodes.decode_log_dir_failure(node.data) for name, node in told.items()} == {
        "log_dir_event_0000000000": 7
    }
    session.attach(None)
    failures.note(LogDirectory("/b", MemoryStorage()))
    failures.note(LogDirectory("/c", MemoryStorage()))
    await trio.sleep(5)
    session.attach(reader)
    await trio.sleep(1)
    assert len(await reader.children(znodes.LOG_DIR_EVENTS)) == 3


async def test_the_controller_is_told_to_ask_again_for_logs_that_could_not_be_made(
    autojump_clock: MockClock,
    nursery: trio.Nursery,
    reader: MemoryCoordination,
    session: ClusterSession,
    failures: LogDirFailures,
) -> None:
    nursery.start_soon(failures.run)
    session.attach(reader)
    failures.note_missing()
    failures.note_missing()
    await trio.sleep(2 * NOTIFY_AGAIN_S)  # the parent of the node is not there yet
    await reader.multi([Create(znodes.LOG_DIR_EVENTS)])
    await trio.sleep(1)
    assert len(await reader.children(znodes.LOG_DIR_EVENTS)) == 1
    await trio.sleep(60)
    assert len(await reader.children(znodes.LOG_DIR_EVENTS)) == 1
    failures.note_missing()
    await trio.sleep(NOTIFY_AGAIN_S + 1)
    assert len(await reader.children(znodes.LOG_DIR_EVENTS)) == 2


NODE = 1

TREE = "/tree"  # of a cluster, on no disk of the broker


async def at_once(function: Any, *arguments: Any) -> Any:
    await trio.lowlevel.checkpoint()
    return function(*arguments)


async def tree(storage: MemoryStorage) -> EmbeddedCoordination:
    if not storage.is_directory(TREE):
        storage.make_directory(TREE)
        storage.sync_directory("/")
    coordination = EmbeddedCoordination(Path(TREE), run_in_thread=at_once, storage=storage)
    coordination.open()
    await settle_cluster_id(coordination, lambda: "cluster")
    return coordination


async def start(
    disk: MemoryStorage,
    coordination: EmbeddedCoordination,
    *paths: str,
    accepted: Collection[str] = (),
    node_id: int = NODE,
) -> ReplicaManager:
    """As far as a start goes before logs are loaded; the process ends then."""
    replicas = ReplicaManager(paths, node_id=node_id, config=ReplicationConfig(), storage=disk, run_in_thread=at_once)
    await replicas.open()
    try:
        await settle_identities(coordination, replicas, cluster_id="cluster", accepted=accepted, keep=coordination.keep)
    finally:
        disk.kill()
    return replicas


async def known(coordination: EmbeddedCoordination, node_id: int = NODE) -> dict[str, bytes]:
    node = await coordination.get(znodes.log_dirs_path(node_id))
    return {entry.path: key for key, entry in znodes.decode_log_dirs(node.data).items()}


def on_disk(disk: MemoryStorage, path: str) -> MetaProperties:
    return decode_meta_properties(disk.read(f"{path}/meta.properties"))


async def test_ids_are_in_the_tree_and_in_the_directories() -> None:
    disk = MemoryStorage()
    coordination = await tree(MemoryStorage())
    await start(disk, coordination, "/a", "/b")
    ids = await known(coordination)
    assert sorted(ids) == ["/a", "/b"]
    for path, directory_id in ids.items():
        assert on_disk(disk, path) == MetaProperties(0, NODE, "cluster", directory_id)
    version = (await coordination.get(znodes.log_dirs_path(NODE))).version
    await start(disk, coordination, "/a", "/b")
    assert (await coordination.get(znodes.log_dirs_path(NODE))).version == version  # nothing was written


async def test_each_broker_of_a_cluster_has_its_own() -> None:
    coordination = await tree(MemoryStorage())
    await start(MemoryStorage(), coordination, "/a", node_id=1)
    await start(MemoryStorage(), coordination, "/a", node_id=2)
    assert await known(coordination, 1) != await known(coordination, 2)


async def test_a_member_that_comes_back_empty_is_refused_until_that_is_accepted() -> None:
    coordination = await tree(MemoryStorage())
    await start(MemoryStorage(), coordination, "/a")
    replaced = MemoryStorage()
    for _ in range(2):
        with pytest.raises(LogDirectoryProblem, match="/a is empty"):
            await start(replaced, coordination, "/a")
    await start(replaced, coordination, "/a", accepted=["/a"])
    await start(replaced, coordination, "/a")


async def test_properties_that_kafka_has_written_anew_get_their_id_back() -> None:
    disk, coordination = MemoryStorage(), await tree(MemoryStorage())
    await start(disk, coordination, "/a", "/b")
    ids = await known(coordination)
    disk.write("/a/meta.properties", encode_meta_properties(MetaProperties(0, NODE, "cluster", None)))
    await start(disk, coordination, "/a", "/b")
    assert on_disk(disk, "/a").directory_id == ids["/a"]


async def test_a_full_disk_keeps_no_broker_from_starting() -> None:
    disk, coordination = MemoryStorage(), await tree(MemoryStorage())
    disk.make_directory("/a")
    disk.write("/a/meta.properties", encode_meta_properties(MetaProperties(0, NODE, "cluster", None)))
    disk.space_left = 0
    replicas = await start(disk, coordination, "/a")
    assert replicas.log_directories[0].is_online
    disk.space_left = None
    await start(disk, coordination, "/a")
    assert on_disk(disk, "/a").directory_id == (await known(coordination))["/a"]


def test_whatever_fails_at_a_start_the_next_one_finds_its_directories() -> None:
    def case(calls: FailingCalls) -> None:
        async def run() -> None:
            disk = MemoryStorage()
            coordination = await tree(disk)
            await start(disk, coordination, "/a")
            disk.fail = calls
            try:
                await start(disk, coordination, "/a", "/b")  # one is added
            except (CoordinationUnavailable, LogDirectoryProblem) as problem:
                assert isinstance(problem, CoordinationUnavailable) or "cannot be used" in str(problem)
            disk.fail = None
            disk.kill()
            coordination.close()
            again = await tree(disk)
            await start(disk, again, "/a", "/b")
            ids = await known(again)
            assert {path: on_disk(disk, path).directory_id for path in ("/a", "/b")} == ids

        trio.run(run)

    assert run_every_case(case, lasting=True) > 50


async def test_the_node_says_what_it_holds() -> None:
    entries = {bytes(15) + b"\1": KnownDirectory("/a"), bytes(15) + b"\2": KnownDirectory("/b", is_new=True)}
    data = znodes.encode_log_dirs(entries)
    assert json.loads(data) == {
        "version": 1,
        "directories": [
            {"id": "AAAAAAAAAAAAAAAAAAAAAQ", "path": "/a"},
            {"id": "AAAAAAAAAAAAAAAAAAAAAg", "path": "/b", "is_new": True},
        ],
    }
    assert znodes.decode_log_dirs(data) == entries
    with pytest.raises(znodes.MalformedNode):
        znodes.decode_log_dirs(b"{}")
    with pytest.raises(znodes.MalformedNode, match="version 2"):
        znodes.decode_log_dirs(data.replace(b'"version":1', b'"version":2'))


async def test_no_second_journal_is_begun() -> None:
    disk = MemoryStorage()
    coordination = EmbeddedCoordination(Path("/a"), run_in_thread=at_once, storage=disk)

    async def held(*paths: str) -> Any:
        replicas = ReplicaManager(paths, node_id=NODE, config=ReplicationConfig(), storage=disk, run_in_thread=at_once)
        await replicas.open()
        disk.kill()
        return replicas.directories.all

    check_journal(await held("/a", "/b"), ())  # the first start
    coordination.open()
    await settle_cluster_id(coordination, lambda: "cluster")
    await start(disk, coordination, "/a", "/b")
    check_journal(await held("/a", "/b"), ())
    with pytest.raises(LogDirectoryProblem, match="journal is in /a, which has to be the first"):
        check_journal(await held("/b", "/a"), ())
    disk.remove_tree("/a")
    with pytest.raises(LogDirectoryProblem, match="/a is empty, although /b was in use"):
        check_journal(await held("/a", "/b"), ())
    check_journal(await held("/a", "/b"), ("/a",))
    check_journal(await held("/b"), ())  # its own time alone is over, or its journal was set aside
