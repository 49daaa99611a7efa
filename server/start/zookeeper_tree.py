"""The coordination tree that the brokers of a cluster share, in ZooKeeper."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import trio

from ottla.replication.cluster.metadata_cache import NO_TOPIC_ID
from ottla.replication.replica_manager.loading import HostedPartition
from ottla.server.ports import HasEnvironment, HasReplicas, HasSettings
from ottla.server.settings.passwords import KeptPasswords
from ottla.server.start.into_cluster import fill_from_journal, set_journal_aside
from ottla.wire.errors import KafkaError
from ottla.wire.settings import InvalidSetting

if TYPE_CHECKING:
    from ottla.replication.cluster.coordination import Coordination
    from ottla.server.cluster.session import Session
    from ottla.server.settings.coordination_config import ZooKeeperConfig

PATIENCE_SHARE = 1.5  # of the session timeout: how long a starting broker waits for its last life's node to go


class Port(HasReplicas, HasSettings, HasEnvironment, Protocol):
    """What is needed of the broker here."""


class ZooKeeperTree:
    """A `CoordinationTree`."""

    is_shared = True

    def __init__(self, broker: Port, config: ZooKeeperConfig) -> None:
        self._broker = broker
        self._config = config
        self.patience_s = config.zookeeper_session_timeout_ms / 1000 * PATIENCE_SHARE

    async def open_session(self) -> Session:
        return self._broker.environment.open_session(self._config)

    async def fill(self, tree: Coordination) -> None:
        """Bring what this broker had while it was alone."""
        try:
            await fill_from_journal(tree, self._broker.config.log_dirs[0], KeptPasswords.of(self._config))
        except KafkaError as error:
            message = f"the settings of this broker cannot go to ZooKeeper: {error.message}"
            raise InvalidSetting("password.encoder.secret", None, "", message=message) from None

    async def hosted(self, tree: Coordination) -> list[HostedPartition]:
        """Every partition that is on the disks. The controller says later what it is to be, or that it was deleted."""
        return await hosted_on_disk(self._broker)

    async def begin(self) -> None:
        """The broker is in this cluster from now on: what it had alone does not count any more."""
        await set_journal_aside(self._broker.config.log_dirs[0])

    async def keep(self) -> None:
        """What was written into the tree is kept there already."""

    async def end_start(self) -> None:
        """The broker goes on to wait for ZooKeeper whenever it has to."""

    async def until_broken(self) -> str:
        """Never returns: who loses ZooKeeper waits until it is back."""
        await trio.sleep_forever()


async def hosted_on_disk(broker: Port) -> list[HostedPartition]:
    """Every partition in the log directories, with its topic's settings."""
    found = await broker.environment.run_in_thread(broker.replicas.directories.found_partitions)
    return [
        HostedPartition(
            each.parsed.topic,
            each.parsed.partition,
            each.topic_id or NO_TOPIC_ID,
            broker.configs.log_config(each.parsed.topic),
        )
        for each in found
    ]
