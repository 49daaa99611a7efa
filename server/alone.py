"""A broker that is alone: the controller of itself, with the coordination tree in its own data directory."""

from __future__ import annotations

import base64
import logging
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import trio

from ottla.replication.hosting.directories import LogDirectoryProblem
from ottla.server.administration import TopicAdministration, random_topic_id
from ottla.server.coordination.embedded import EmbeddedCoordination
from ottla.server.hosting import PartitionHosting
from ottla.server.ports import HasCluster, HasController, HasCoordinators, HasReplicas, HasSettings, HasSurroundings
from ottla.server.start.becoming_controller import settle_cluster_id, take_over
from ottla.server.start.log_dir_identities import check_journal, settle_identities

if TYPE_CHECKING:
    from ottla.replication.cluster.state import BrokerRegistration

logger = logging.getLogger("ottla.broker")


class JoinProblem(Exception):
    """Why a broker cannot become a member of its cluster; one line for the operator."""


class Port(HasCluster, HasController, HasCoordinators, HasReplicas, HasSettings, HasSurroundings, Protocol):
    """What is needed of the broker here."""


class Alone:
    """How such a broker starts and stops; `ClusterMember` is its counterpart."""

    def __init__(self, broker: Port) -> None:
        self._broker = broker
        surroundings = broker.surroundings
        self.coordination = EmbeddedCoordination(
            Path(broker.config.log_dirs[0]), run_in_thread=surroundings.run_in_thread, storage=surroundings.storage
        )
        self._hosting = PartitionHosting(broker.replicas, broker.coordinators)
        self.administration = TopicAdministration(
            coordination=self.coordination,
            controller=broker.controller,
            configs=broker.configs,
            partitions=self._hosting,
            on_topics_deleted=broker.coordinators.on_topics_deleted,
        )

    def register(self, registration: BrokerRegistration) -> None:
        """Let the cluster know where clients reach this broker; first of all, because only live brokers are elected."""
        self._broker.cluster.put_broker(registration)

    async def hold(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """There is no session to hold."""
        task_status.started()

    async def open(self) -> None:
        """Become the controller of what is on the disks."""
        broker = self._broker
        run_in_thread, accepted = broker.surroundings.run_in_thread, broker.configs.started_with.accepted_log_dirs
        # Before the journal is opened: that would begin a new one where the old one is missing.
        await run_in_thread(check_journal, broker.replicas.directories.all, accepted)
        await run_in_thread(self.coordination.open)
        # A log directory that was in use names its cluster. The id has to stay the same even if the tree is new.
        known_id = broker.replicas.cluster_id
        broker.cluster.cluster_id = await settle_cluster_id(
            self.coordination, lambda: known_id or random_cluster_id(), self._adopt_what_is_there
        )
        await settle_identities(
            self.coordination, broker.replicas, cluster_id=broker.cluster.cluster_id, accepted=accepted
        )
        await take_over(self.coordination, broker.controller, broker.configs)
        # Last of all, because the tree has to say which logs there are, and with which settings.
        await self._hosting.load(self.administration.hosted_partitions(), cluster_id=broker.cluster.cluster_id)

    async def _adopt_what_is_there(self) -> None:
        """Take over what Apache Kafka left in the log directories, if it did."""
        replicas = self._broker.replicas
        found = await trio.to_thread.run_sync(replicas.directories.found_partitions)
        if found:
            for directory in replicas.log_directories:
                if not directory.is_online:  # its topics would not be taken over, now or ever
                    raise LogDirectoryProblem(f"Log directory {directory.path} cannot be used: {directory.failure}")
            # Imported here, because most starts find nothing to take over.
            from ottla.server.start.from_kafka import adopt, find_cluster

            configs, directories = self._broker.configs, replicas.log_directories
            cluster = await trio.to_thread.run_sync(find_cluster, directories, found, configs, random_topic_id)
            await adopt(self.coordination, cluster, self._broker.node_id)
            logger.info("Took over %d topics that another broker wrote", len(cluster.topics))

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """The work that goes on in the background."""
        task_status.started()
        await self.administration.run()

    async def join(self) -> None:
        """There is nobody to join."""

    async def leave(self) -> None:
        """There is nobody to leave."""

    async def until_broken(self) -> str:
        """Return when this broker cannot go on as the controller of itself, with the reason."""
        return f"{self.coordination.path} cannot be written: {await self.coordination.until_broken()}"

    async def close(self) -> None:
        await trio.to_thread.run_sync(self.coordination.close)


def random_cluster_id() -> str:
    """A random uuid in Kafka's spelling: 22 characters of URL-safe base64."""
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
