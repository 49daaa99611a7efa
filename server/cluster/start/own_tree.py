"""The coordination tree of a lone broker: stored in its first log directory, and not shared."""

from __future__ import annotations

import logging
from collections.abc import Container
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from ottla.replication.cluster import znodes
from ottla.replication.cluster.coordination import Delete, NoNode
from ottla.replication.cluster.metadata_cache import NO_TOPIC_ID
from ottla.replication.random_ids import random_topic_id
from ottla.replication.replica_manager.directories import LogDirectoryProblem
from ottla.replication.replica_manager.loading import HostedPartition
from ottla.server.cluster.coordination.embedded import EmbeddedCoordination
from ottla.server.cluster.log_dirs import check_journal
from ottla.server.ports import BrokerParts

if TYPE_CHECKING:
    from ottla.replication.cluster.coordination import Coordination
    from ottla.server.cluster.session import Session

logger = logging.getLogger("ottla.broker")


class OwnTree:
    """`CoordinationTree` of a lone broker, in a journal on its disk. Its only session lasts as long as the process."""

    is_shared = False
    patience_s = 0.0  # no other broker can be registered under this broker's id

    def __init__(self, broker: BrokerParts) -> None:
        self._broker = broker
        environment = broker.environment
        self.coordination = EmbeddedCoordination(
            Path(broker.config.log_dirs[0]), run_in_thread=environment.run_in_thread, storage=environment.storage
        )

    async def open_session(self) -> Session:
        """Return the tree's session, after checking that the journal is not missing. Raises LogDirectoryProblem."""
        broker = self._broker
        # Before the journal is opened: that would begin a new one where the old one is missing.
        await broker.environment.run_in_thread(
            check_journal, broker.replicas.directories.all, broker.configs.started_with.accepted_log_dirs
        )
        self.coordination.is_patient = False
        # A start changes a dozen things one after the other. If each waited for the disk, all else would wait for them.
        self.coordination.write_later()
        return self.coordination

    async def keep(self) -> None:
        """Wait until the journal holds all writes. Raises CoordinationUnavailable if it cannot be written."""
        await self.coordination.keep()

    async def end_start(self) -> None:
        """Make all writes durable. From now on, writes wait for room on a full disk; during the start they fail."""
        await self.coordination.write_at_once()
        self.coordination.is_patient = True

    async def fill(self, tree: Coordination) -> None:
        """Adopt Apache Kafka's data in the log directories."""
        await take_over(self._broker, tree)

    async def hosted(self, tree: Coordination) -> list[HostedPartition]:
        """Return the partitions assigned to this broker. Others on its disks are deleted or unfinished ones."""
        topics = await tree.children_data(znodes.TOPICS)
        deleted = {*await tree.children(znodes.DELETED_TOPICS)}
        node_id = self._broker.node_id
        hosted: list[HostedPartition] = []
        for name, node in topics.items():
            assignment = znodes.decode_topic(node.data)
            await _forget_unnamed(tree, name, assignment.partitions)
            config, topic_id = self._broker.configs.log_config(name), assignment.topic_id or NO_TOPIC_ID
            if name not in deleted:
                ours = [index for index, replicas in assignment.partitions.items() if node_id in replicas]
                hosted += [HostedPartition(name, index, topic_id, config) for index in ours]
        return hosted

    async def begin(self) -> None:
        """Do nothing: a lone broker needs no commitment to its tree."""

    async def until_broken(self) -> str:
        """Wait until the tree cannot be changed any more; return the reason."""
        return f"{self.coordination.path} cannot be written: {await self.coordination.until_broken()}"


async def take_over(broker: BrokerParts, tree: Coordination) -> None:
    """Adopt Apache Kafka's data in the log directories, by copying its metadata into a new tree.

    Raises LogDirectoryProblem.
    """
    replicas, run_in_thread = broker.replicas, broker.environment.run_in_thread
    found = await run_in_thread(replicas.directories.found_partitions)
    if found:
        for directory in replicas.log_directories:
            if not directory.is_online:  # its topics would not be taken over, now or ever
                raise LogDirectoryProblem(f"Log directory {directory.path} cannot be used: {directory.failure}")
        # Imported here, because most starts find nothing to take over.
        from ottla.server.cluster.start.from_kafka import adopt, find_cluster

        configs, directories = broker.configs, replicas.log_directories
        cluster = await run_in_thread(find_cluster, directories, found, configs, random_topic_id)
        await adopt(tree, cluster, broker.node_id)
        logger.info("Took over %d topics that another broker wrote", len(cluster.topics))


async def _forget_unnamed(tree: Coordination, topic: str, named: Container[int]) -> None:
    """Delete the states of partitions that a topic's node does not name; `named` are the partitions that it names.

    An older Ottla left such states if it crashed before it wrote the topic's node.
    """
    above = znodes.partitions_path(topic)
    with suppress(NoNode):
        for index in [each for each in await tree.children(above) if int(each) not in named]:
            path = f"{above}/{index}"
            (state,) = await tree.get_all([f"{path}/state"])
            await tree.multi([*([] if state is None else [Delete(f"{path}/state")]), Delete(path)])
