"""Partitions on this broker's disks, and the coordinators that live in some of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.replication.config import LogConfig
    from ottla.replication.hosting.manager import HostedPartition, ReplicaManager
    from ottla.replication.hosting.new_logs import MadeLog
    from ottla.server.coordinators.coordinators import Coordinators
    from ottla.wire.errors import KafkaError


class PartitionHosting:
    """The replica manager. Coordinators hear when partitions of their topics come and go."""

    def __init__(self, replicas: ReplicaManager, coordinators: Coordinators) -> None:
        self._replicas = replicas
        self._coordinators = coordinators

    async def load(self, partitions: Sequence[HostedPartition], *, cluster_id: str) -> None:
        """Bring back what was there before this start."""
        await self._replicas.load(partitions, cluster_id=cluster_id)
        self._elect(partitions)

    async def make_logs(
        self, partitions: Sequence[HostedPartition], made: list[MadeLog]
    ) -> Mapping[str, OSError | KafkaError]:
        """Make logs that nobody sees yet; `made` gets them. Answers which topics' could not be made, and why."""
        return await self._replicas.make_logs(partitions, made)

    async def adopt_logs(self, made: Sequence[MadeLog]) -> None:
        """Let logs that were made be known as partitions."""
        await self._replicas.adopt_logs(made)
        # Only now: a coordinator that hears of a partition begins to read it.
        self._elect([each.hosted for each in made])

    async def discard_logs(self, made: Sequence[MadeLog]) -> None:
        """Remove logs that were made in vain."""
        await self._replicas.discard_logs(made)

    def _elect(self, partitions: Sequence[HostedPartition]) -> None:
        for each in partitions:
            self._coordinators.on_election(each.topic, each.index)

    async def delete_partitions(self, partitions: Sequence[tuple[str, int]]) -> None:
        # Coordinators stop first, so that none appends to a log that is being deleted.
        for topic, index in partitions:
            self._coordinators.on_resignation(topic, index)
        await self._replicas.delete_partitions(partitions)

    def update_topic_config(self, topic: str, config: LogConfig) -> None:
        self._replicas.update_topic_config(topic, config)
