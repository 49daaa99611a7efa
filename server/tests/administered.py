"""A broker that is alone, without network: what would run in threads runs at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

import trio

from ottla.groupcoord.runtime.answers import finished
from ottla.replication.cluster.metadata_cache import BrokerEndpoint, BrokerRegistration
from ottla.replication.config import LogConfig
from ottla.replication.log.storage import Storage
from ottla.server.broker import Broker
from ottla.server.cluster.coordination.embedded import EmbeddedCoordination
from ottla.server.config.broker_config import load_config
from ottla.server.dispatch.context import RequestContext
from ottla.server.dispatch.dispatch import all_routes
from ottla.server.environment import Environment
from ottla.server.testing.memory.storage import MemoryStorage
from ottla.wire.errors import bare
from ottla.wire.schema import Message

LISTENER = "PLAINTEXT"


async def at_once(function: Callable[..., Any], *arguments: Any) -> Any:
    """Run what would run in a thread."""
    await trio.lowlevel.checkpoint()
    return function(*arguments)


class AdministeredBroker(Broker):
    """Broker 1; `opened` starts it, `stop` ends it, and so does the end of the test."""

    def __init__(
        self, directory: Path, settings: Mapping[str, str] | None, storage: Storage | None, rack: str | None
    ) -> None:
        config = load_config({"node.id": "1", "log.dirs": str(directory), **(settings or {})})
        super().__init__(config, Environment(run_in_thread=at_once, storage=storage))
        endpoint = BrokerEndpoint(1, "host-1", 9092, rack)
        self.member.register(BrokerRegistration(1, {LISTENER: endpoint}, rack))
        self.deleted: list[str] = []
        self._forget = self.coordinators.on_topics_deleted
        self.coordinators.on_topics_deleted = self._note_deleted  # type: ignore[method-assign]
        self._life = trio.CancelScope()
        self._joined, self._over = trio.Event(), trio.Event()
        self._problem: Exception | None = None

    @property
    def coordination(self) -> EmbeddedCoordination:
        return cast(Any, self.member)._tree.coordination

    async def start(self) -> AdministeredBroker:
        """Raises what ends the start."""
        trio.lowlevel.spawn_system_task(self._live)
        await self._joined.wait()
        if self._problem is not None:
            raise self._problem
        return self

    async def _live(self) -> None:
        try:
            with self._life:
                async with trio.open_nursery() as sessions:
                    await self.open(sessions)
                    try:
                        async with self.running():
                            await self.member.join()
                            self._joined.set()
                            await trio.sleep_forever()
                    finally:
                        await self.close()
                        sessions.cancel_scope.cancel()
        except* Exception as problems:  # noqa: BLE001 - whoever starts it gets it
            problem: BaseException = problems
            while isinstance(problem, BaseExceptionGroup):
                problem = problem.exceptions[0]
            self._problem = bare(cast("Exception", problem))
        finally:
            self._joined.set()
            self._over.set()

    async def stop(self) -> None:
        """In order."""
        self._life.cancel()
        await self._over.wait()

    def context(self, version: int) -> RequestContext:
        return RequestContext(cast(Any, self), api_version=version, listener_name=LISTENER)

    def hosted(self) -> list[tuple[str, int]]:
        """The partitions that this broker leads."""
        return sorted((each.topic, each.index) for each in self.replicas.partitions() if each.is_leader)

    def log_config(self, topic: str) -> LogConfig:
        """The settings that a topic's logs obey."""
        return next(each.log.config for each in self.replicas.partitions() if each.topic == topic)

    def show(self, node_id: int, rack: str | None = None) -> None:
        """Let this broker believe that there is another one."""
        endpoint = BrokerEndpoint(node_id, f"host-{node_id}", 9092, rack)
        self.cluster.put_broker(BrokerRegistration(node_id, {LISTENER: endpoint}, rack))

    async def _note_deleted(self, names: Mapping[str, bytes]) -> None:
        self.deleted += names
        await self._forget(names)


async def opened(
    directory: Path,
    settings: Mapping[str, str] | None = None,
    *,
    storage: Storage | None = None,
    rack: str | None = None,
) -> AdministeredBroker:
    """A broker that serves, as after a restart if the directory has a journal."""
    return await AdministeredBroker(directory, settings, storage, rack).start()


async def ask(broker: AdministeredBroker, request: Message, version: int = 0) -> Any:
    """Send a request through its codec and its handler, and the answer through its codec."""
    route = all_routes()[request.api_key]
    received = type(request).decode(request.encode(version), version)
    response = await finished(route.handler(received, broker.context(version)))
    return type(response).decode(response.encode(version), version)


def disk_with(directory: Path) -> MemoryStorage:
    """A disk in memory with one empty directory."""
    storage = MemoryStorage()
    storage.make_directory(str(directory))
    storage.sync_directory("/")
    return storage
