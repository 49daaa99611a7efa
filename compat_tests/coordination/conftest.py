"""Real ZooKeepers, sessions with them, and a proxy to break the way between."""

import itertools
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest
import trio
from compat_tests.apache.brokers import ZooKeeper, jars, small_java
from compat_tests.coordination.proxy import Proxy

from ottla.replication.cluster.coordination import CoordinationUnavailable
from ottla.server.cluster.coordination.zookeeper import ZooKeeperCoordination
from ottla.server.config.coordination_config import ZooKeeperConfig

_numbers = itertools.count()


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeper]:
    """Shared: use a root of your own, and never stop it."""
    jars("kafka_3")
    server = ZooKeeper(tmp_path_factory.mktemp("zookeeper") / "server", small_java, {"maxSessionTimeout": "60000"})
    server.start()
    yield server
    server.stop()


@pytest.fixture
def start_zookeeper(tmp_path: Path) -> Iterator[Callable[..., ZooKeeper]]:
    """Starts one of the test's own: `start_zookeeper({"maxSessionTimeout": "5000"}, ("-Dsome=option",))`."""
    jars("kafka_3")
    servers: list[ZooKeeper] = []

    def start(settings: dict[str, str] | None = None, options: tuple[str, ...] = ()) -> ZooKeeper:
        servers.append(ZooKeeper(tmp_path / f"zookeeper-{len(servers)}", small_java, settings, options))
        servers[-1].start()
        return servers[-1]

    yield start
    for server in servers:
        server.stop()


@pytest.fixture
def root() -> str:
    """A node that no other test uses, to put after the servers in zookeeper.connect."""
    return f"/test/{next(_numbers)}"


@pytest.fixture
async def proxy(zookeeper: ZooKeeper, nursery: trio.Nursery) -> Proxy:
    """In front of the shared ZooKeeper."""
    proxy = Proxy(zookeeper.port)
    await nursery.start(proxy.run)
    return proxy


@pytest.fixture
def open_session(nursery: trio.Nursery) -> Callable[..., Awaitable[ZooKeeperCoordination]]:
    """Opens sessions that end with the test: `await open_session(address + root, zookeeper_set_acl=True)`."""

    async def open_session(connect: str, timeout_ms: int = 10_000, **settings: object) -> ZooKeeperCoordination:
        # Else a session that is to end soon has to begin as soon.
        patient = {"zookeeper_connection_timeout_ms": 60_000}
        config = ZooKeeperConfig(
            zookeeper_connect=connect, zookeeper_session_timeout_ms=timeout_ms, **(patient | settings)
        )
        coordination = ZooKeeperCoordination(config)
        await nursery.start(coordination.run)
        return coordination

    return open_session


async def complaint(words: str, **settings: object) -> str:
    """Why no session begins. A machine that is busy is given more time until the words are among them."""
    for timeout_ms in (300, 3_000, 30_000):
        config = ZooKeeperConfig(zookeeper_connection_timeout_ms=timeout_ms, **settings)
        with pytest.raises(CoordinationUnavailable) as failure:
            await ZooKeeperCoordination(config).run()
        if words in str(failure.value):
            break
    return str(failure.value)


@pytest.fixture
async def coordination(zookeeper: ZooKeeper, root: str, open_session: Callable) -> ZooKeeperCoordination:
    return await open_session(zookeeper.address + root)
