"""Partitions on this broker's disks, and the coordinators that live in some of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ottla.replication.cluster.state import GROUP_METADATA_TOPIC

if TYPE_CHECKING:
    from ottla.groupcoord.service import GroupCoordinator
    from ottla.replication.config import LogConfig
    from ottla.replication.hosting.manager import HostedPartition, ReplicaManager
    from ottla.replication.hosting.new_logs import MadeLog
    from ottla.wire.errors import KafkaError


class PartitionHosting:
    """The replica manager. The group coordinator hears when partitions of its topic come and go."""

    def __init__(self, replicas: ReplicaManager, groups: GroupCoordinator) -> None:
        self._replicas = replicas
        self._groups = groups

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
        self._elect([each.hosted for each in made])

    async def discard_logs(self, made: Sequence[MadeLog]) -> None:
        """Remove logs that were made in vain."""
        await self._replicas.discard_logs(made)

    def _elect(self, partitions: Sequence[HostedPartition]) -> None:
        for each in partitions:
            if each.topic == GROUP_METADATA_TOPIC:
                self._groups.on_election(each.index)

    async def delete_partitions(self, partitions: Sequence[tuple[str, int]]) -> None:
        for topic, index in partitions:
            if topic == GROUP_METADATA_TOPIC:
                self._groups.on_resignation(index)
        await self._replicas.delete_partitions(partitions)

    def update_topic_config(self, topic: str, config: LogConfig) -> None:
        self._replicas.update_topic_config(topic, config)
