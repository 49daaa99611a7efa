"""A broker without network and logs: configuration, cluster, controller and administration over a real journal."""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import trio

from ottla.replication.cluster.state import BrokerEndpoint, BrokerRegistration, ClusterState
from ottla.replication.config import LogConfig
from ottla.replication.control.topics import Controller
from ottla.replication.hosting.new_logs import MadeLog
from ottla.replication.partition.refused_sequences import RefusedSequences
from ottla.server.administration import HostedPartition, TopicAdministration
from ottla.server.coordination.embedded import EmbeddedCoordination
from ottla.server.gate.context import RequestContext
from ottla.server.net.long_answers import LongAnswers
from ottla.server.settings.broker_config import BrokerConfig, load_config
from ottla.server.settings.repository import ConfigRepository
from ottla.server.start.becoming_controller import settle_cluster_id, take_over
from ottla.wire.errors import KafkaError

LISTENER = "PLAINTEXT"


async def at_once(function: Callable[..., Any], *arguments: Any) -> Any:
    """Run what would run in a thread."""
    await trio.lowlevel.checkpoint()
    return function(*arguments)


class MemoryPartitions:
    """Partitions that are only remembered."""

    def __init__(self) -> None:
        self.hosted: dict[tuple[str, int], HostedPartition] = {}
        self.configs: dict[str, LogConfig] = {}
        self.unseen: set[tuple[str, int]] = set()
        self.failure: OSError | None = None

    async def load(self, partitions: Sequence[HostedPartition]) -> None:
        """The partitions that are hosted at start."""
        for each in partitions:
            self.hosted[each.topic, each.index] = each
            self.configs[each.topic] = each.config

    async def make_logs(
        self, partitions: Sequence[HostedPartition], made: list[MadeLog]
    ) -> Mapping[str, OSError | KafkaError]:
        await trio.lowlevel.checkpoint()
        if self.failure is not None:
            return {each.topic: self.failure for each in partitions}
        made += [MadeLog(cast(Any, None), each) for each in partitions]
        self.unseen |= {(each.topic, each.index) for each in partitions}
        return {}

    async def adopt_logs(self, made: Sequence[MadeLog]) -> None:
        await trio.lowlevel.checkpoint()
        await self.load([each.hosted for each in made])
        self.unseen -= {(each.hosted.topic, each.hosted.index) for each in made}

    async def discard_logs(self, made: Sequence[MadeLog]) -> None:
        await trio.lowlevel.checkpoint()
        self.unseen -= {(each.hosted.topic, each.hosted.index) for each in made}

    async def delete_partitions(self, partitions: Sequence[tuple[str, int]]) -> None:
        await trio.lowlevel.checkpoint()
        for each in partitions:
            del self.hosted[each]

    def update_topic_config(self, topic: str, config: LogConfig) -> None:
        self.configs[topic] = config


class AdministeredBroker:
    """What handlers of administration requests need of a broker."""

    def __init__(
        self,
        directory: Path,
        settings: Mapping[str, str] | None = None,
        *,
        racks: Mapping[int, str | None] | None = None,
        run_in_thread: Callable[..., Awaitable[Any]] = at_once,
    ) -> None:
        self.configs = ConfigRepository(load_config({"node.id": "1", "log.dirs": str(directory), **(settings or {})}))
        self.cluster = ClusterState(controller_id=1)
        for node_id, rack in (racks or {1: None}).items():
            endpoint = BrokerEndpoint(node_id, f"host-{node_id}", 9092, rack)
            self.cluster.put_broker(BrokerRegistration(node_id, {LISTENER: endpoint}, rack))
        self.long_answers = LongAnswers()
        self.coordination = EmbeddedCoordination(directory, run_in_thread=run_in_thread)
        self.controller = Controller(self.cluster, partition_count=self.config.replication.num_partitions)
        self.partitions = MemoryPartitions()
        self.replicas = SimpleNamespace(refused_sequences=RefusedSequences())
        self.deleted: list[str] = []
        ids = itertools.count(2)
        self.administration = TopicAdministration(
            coordination=self.coordination,
            controller=self.controller,
            configs=self.configs,
            partitions=self.partitions,
            on_topics_deleted=self._note_deleted,
            make_topic_id=lambda: next(ids).to_bytes(16),
        )

    @property
    def config(self) -> BrokerConfig:
        return self.configs.current

    is_in_cluster = False

    async def open(self) -> AdministeredBroker:
        """Start, as after a restart if the directory has a journal."""
        self.coordination.open()
        self.cluster.cluster_id = await settle_cluster_id(self.coordination, lambda: "cluster")
        await take_over(self.coordination, self.controller, self.configs)
        await self.partitions.load(self.administration.hosted_partitions())
        return self

    def context(self, version: int) -> RequestContext:
        return RequestContext(cast(Any, self), api_version=version, listener_name=LISTENER)

    async def _note_deleted(self, names: Mapping[str, bytes]) -> None:
        self.deleted += names


async def opened(directory: Path, settings: Mapping[str, str] | None = None, **options: Any) -> AdministeredBroker:
    return await AdministeredBroker(directory, settings, **options).open()
