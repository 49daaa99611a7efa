"""The controller is told once of each log directory that fails, whatever happens to the session."""

import random

import pytest
import trio
from trio.testing import MockClock

from ottla.replication.cluster import znodes
from ottla.replication.cluster.coordination import Create
from ottla.replication.log.storage import LogDirectory
from ottla.server.cluster.log_dir_failures import ASK_AGAIN_S, LogDirFailures
from ottla.server.cluster.session import ClusterSession
from ottla.server.testing.memory_coordination import MemoryCoordination, MemoryService
from ottla.server.testing.memory_storage import MemoryStorage


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
    await trio.sleep(2 * ASK_AGAIN_S)  # the parent of the node is not there yet
    await reader.multi([Create(znodes.LOG_DIR_EVENTS)])
    await trio.sleep(1)
    assert len(await reader.children(znodes.LOG_DIR_EVENTS)) == 1
    await trio.sleep(60)
    assert len(await reader.children(znodes.LOG_DIR_EVENTS)) == 1
    failures.note_missing()
    await trio.sleep(ASK_AGAIN_S + 1)
    assert len(await reader.children(znodes.LOG_DIR_EVENTS)) == 2
