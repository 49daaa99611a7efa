"""The adapters in process keep the port's promises; ZooKeeper's half is compat_tests/coordination/."""

import random
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from ottla.replication.cluster.coordination import Coordination, CoordinationUnavailable
from ottla.server.cluster.coordination.embedded import EmbeddedCoordination
from ottla.server.cluster.coordination.tree_client import ServedCoordination
from ottla.server.cluster.coordination.tree_server import hold_tree
from ottla.server.testing.memory.coordination import MemoryCoordination
from ottla.server.testing.memory.coordination_service import MemoryService
from ottla.server.tests.coordination_promises import PROMISES


@pytest.fixture
def coordination(tmp_path: Path) -> Iterator[EmbeddedCoordination]:
    embedded = EmbeddedCoordination(tmp_path)
    embedded.open()
    yield embedded
    embedded.close()


@pytest.mark.parametrize("promise", PROMISES, ids=lambda promise: promise.__name__)
async def test_the_embedded_adapter_keeps(
    promise: Callable[[Coordination], Awaitable[None]], coordination: EmbeddedCoordination
) -> None:
    await promise(coordination)


@pytest.fixture
async def in_memory(autojump_clock: MockClock) -> AsyncIterator[MemoryCoordination]:
    service = MemoryService(random.Random(1))
    coordination = MemoryCoordination(service.link())
    async with trio.open_nursery() as nursery:
        await nursery.start(service.run)
        await nursery.start(coordination.run)
        yield coordination
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("promise", PROMISES, ids=lambda promise: promise.__name__)
async def test_the_adapter_in_memory_keeps(
    promise: Callable[[Coordination], Awaitable[None]], in_memory: MemoryCoordination, autojump_clock: MockClock
) -> None:
    await promise(in_memory)


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[ServedCoordination]:
    socket = tmp_path / "socket"
    coordination = ServedCoordination(str(socket), timeout_s=60)
    async with trio.open_nursery() as nursery:
        await nursery.start(hold_tree, tmp_path, socket)
        await nursery.start(coordination.run)
        yield coordination
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("promise", PROMISES, ids=lambda promise: promise.__name__)
async def test_the_served_adapter_keeps(
    promise: Callable[[Coordination], Awaitable[None]], served: ServedCoordination
) -> None:
    await promise(served)


async def test_a_closed_adapter_never_becomes_available(coordination: EmbeddedCoordination) -> None:
    coordination.close()
    with pytest.raises(CoordinationUnavailable):
        await coordination.until_available()


def test_a_broker_without_zookeeper_does_not_pay_for_kazoo() -> None:
    program = "import ottla.server.broker, sys; sys.exit('kazoo' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
