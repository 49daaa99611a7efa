"""The coordination trees of members of a cluster: in ZooKeeper, served by another process, or that of several workers.

A broker that was alone brings its tree along. The first start with `zookeeper.connect` or `coordination.socket` finds the journal
of the tree in the data directory. If the tree there is new, it is filled with what the journal holds: topics with their ids,
assignments and epochs, settings, the block of producer ids. Then the cluster gets the id that the log directories have, and the
journal is set aside. A crash in between means that the next start does the rest. The logs stay where they are.
"""

from __future__ import annotations

import logging
import math
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import trio

from ottla.replication.cluster import znodes
from ottla.replication.cluster.coordination import Create, Operation, SetData, multis
from ottla.replication.cluster.metadata_cache import NO_TOPIC_ID
from ottla.replication.replica_manager.loading import HostedPartition
from ottla.server.cluster.coordination.embedded import JOURNAL_NAME, EmbeddedCoordination
from ottla.server.cluster.coordination.tree_client import ServedCoordination
from ottla.server.cluster.start.own_tree import take_over
from ottla.server.config.passwords import KeptPasswords, has_passwords
from ottla.server.ports import BrokerParts
from ottla.wire.errors import KafkaError
from ottla.wire.settings import InvalidSetting

if TYPE_CHECKING:
    from ottla.replication.cluster.coordination import Coordination, Node
    from ottla.server.cluster.session import Session
    from ottla.server.config.coordination_config import CoordinationConfig, ZooKeeperConfig

logger = logging.getLogger("ottla.cluster")

MOVED_TO_ZOOKEEPER, MOVED_TO_SERVED_TREE = ".moved-to-zookeeper", ".moved-to-served-tree"
CLUSTER = "/cluster"


async def fill_from_journal(coordination: Coordination, directory: Path, passwords: KeptPasswords | None) -> None:
    """Copy a lone broker's tree from the journal in `directory`, if there is one, into `coordination`.

    The cluster's id is not copied. `passwords` encrypts passwords for the new tree (None: they stay as they are).
    Raises KafkaError if that fails.
    """
    if not (directory / JOURNAL_NAME).exists():
        return
    alone = EmbeddedCoordination(directory)
    await trio.to_thread.run_sync(alone.open)
    try:
        nodes = [(path, node) async for path, node in _walk(alone, "")]
    finally:
        await trio.to_thread.run_sync(alone.close)
    # The cluster's id stays out. A tree without it counts as new, so that after a crash the next start fills it
    # again.
    kept = [
        (path, await trio.to_thread.run_sync(_encrypted, path, node, passwords))
        for path, node in nodes
        if path != CLUSTER and not path.startswith(CLUSTER + "/")
    ]
    present = await coordination.get_all([path for path, _ in kept])
    operations: list[Operation] = []
    for (path, node), known in zip(kept, present, strict=True):
        if known is None:
            operations.append(Create(path, node.data))
        elif known.data != node.data:
            # Some nodes are there already: those that every start makes, and those that an earlier try has copied.
            operations.append(SetData(path, node.data, known.version))
    for part in multis(operations):
        await coordination.multi(part)
    logger.info("Moved %d nodes of a broker that was alone to the cluster's tree", len(operations))


async def set_journal_aside(directory: Path, suffix: str) -> None:
    """Rename the journal of a broker that has joined a cluster, because the journal's tree is outdated from now on."""
    journal = directory / JOURNAL_NAME
    if journal.exists():
        await trio.to_thread.run_sync(journal.rename, directory / (JOURNAL_NAME + suffix))
        logger.info("%s is set aside; this broker is in a cluster now", journal)


def _encrypted(path: str, node: Node, passwords: KeptPasswords | None) -> Node:
    parent, _, name = path.rpartition("/")
    if passwords is None or parent != znodes.BROKER_CONFIGS or not name.isdecimal():
        return node
    texts = znodes.decode_config(node.data)
    return (
        node._replace(data=znodes.encode_config(passwords.to_keep(texts, int(name)))) if has_passwords(texts) else node
    )


async def _walk(tree: Coordination, path: str) -> AsyncIterator[tuple[str, Node]]:
    """Yield all nodes below a path, parents first."""
    for name, node in sorted((await tree.children_data(path or "/")).items()):
        below = f"{path}/{name}"
        yield below, node
        async for each in _walk(tree, below):
            yield each


PATIENCE_SHARE = 1.5  # of the session timeout: how long a starting broker waits for its last incarnation's node to go
LOOK_AGAIN_S: Final = 0.02


class _SharedTree:
    """Base class of trees outside of this process. A broker that loses such a tree waits until it is back."""

    is_shared = True
    journal_suffix = ""
    """Suffix of the journal that this broker had before it shared its tree."""

    def __init__(self, broker: BrokerParts) -> None:
        self._broker = broker

    async def hosted(self, tree: Coordination) -> list[HostedPartition]:
        """Return all partitions on the disks. The controller later assigns or deletes them."""
        found = await self._broker.environment.run_in_thread(self._broker.replicas.directories.found_partitions)
        return [
            HostedPartition(
                each.parsed.topic,
                each.parsed.partition,
                each.topic_id or NO_TOPIC_ID,
                self._broker.configs.log_config(each.parsed.topic),
            )
            for each in found
        ]

    async def begin(self) -> None:
        """Rename the journal that this broker had as a lone broker; from now on it belongs to the cluster."""
        await set_journal_aside(self._broker.config.log_dirs[0], self.journal_suffix)

    async def keep(self) -> None:
        """Do nothing: every acknowledged write to this tree is durable."""

    async def end_start(self) -> None:
        """Do nothing: a broker of a cluster waits for an unavailable tree, during the start as well as later."""

    async def until_broken(self) -> str:
        """Wait forever: this tree never breaks for good."""
        await trio.sleep_forever()


class ZooKeeperTree(_SharedTree):
    """`CoordinationTree` in ZooKeeper, shared by the brokers of a cluster."""

    journal_suffix = MOVED_TO_ZOOKEEPER

    def __init__(self, broker: BrokerParts, config: ZooKeeperConfig) -> None:
        super().__init__(broker)
        self._config = config
        self.patience_s = config.zookeeper_session_timeout_ms / 1000 * PATIENCE_SHARE

    async def open_session(self) -> Session:
        return self._broker.environment.open_session(self._config)

    async def fill(self, tree: Coordination) -> None:
        """Copy the tree of this broker's time as a lone broker into ZooKeeper. Raises InvalidSetting."""
        try:
            await fill_from_journal(tree, self._broker.config.log_dirs[0], KeptPasswords.of(self._config))
        except KafkaError as error:
            message = f"the settings of this broker cannot go to ZooKeeper: {error.message}"
            raise InvalidSetting("password.encoder.secret", None, "", message=message) from None


class ServedTree(_SharedTree):
    """`CoordinationTree` shared by brokers of one machine; another process serves it over a Unix socket.

    Passwords are stored in clear text: the journal is accessible to this user only, as a lone broker's is.
    """

    journal_suffix = MOVED_TO_SERVED_TREE
    start_patience_s: float | None = None
    """Seconds that a start waits until some broker holds the tree; None: as long as a session lasts."""

    def __init__(self, broker: BrokerParts, config: CoordinationConfig) -> None:
        super().__init__(broker)
        self._config = config
        self._last: ServedCoordination | None = None
        self.patience_s = config.session_timeout_s * PATIENCE_SHARE

    async def open_session(self) -> Session:
        last_session = 0 if self._last is None else self._last.session_id or self._last.last_session
        self._last = ServedCoordination(
            self._config.coordination_socket,
            timeout_s=self._config.session_timeout_s,
            connection_timeout_s=self.start_patience_s,
            last_session=last_session,
        )
        return self._last

    async def fill(self, tree: Coordination) -> None:
        """Copy the tree of this broker's time as a lone broker into the served tree."""
        await fill_from_journal(tree, self._broker.config.log_dirs[0], None)


class WorkersTree(ServedTree):
    """`CoordinationTree` of several workers. The supervisor process holds and serves the tree.

    The journal has the same path as a lone broker's, so no data moves between a lone broker and workers.
    """

    # It was there when the first worker was started. If it is away, its keeper waits for room: a worker that gave up would be
    # started again until its supervisor took it for hopeless. Whoever keeps the tree away for good ends all workers.
    start_patience_s = math.inf

    def __init__(self, broker: BrokerParts, config: CoordinationConfig, number: int) -> None:
        super().__init__(broker, config)
        self._number = number

    async def fill(self, tree: Coordination) -> None:
        """Adopt Apache Kafka's data in the log directories. Worker 0 does so; the other workers wait for it."""
        if self._number == 0:
            await take_over(self._broker, tree)
            return
        # If worker 0 cannot, it ends the start of all.
        while (await tree.get_all([znodes.CLUSTER_ID]))[0] is None:
            await trio.sleep(LOOK_AGAIN_S)

    async def begin(self) -> None:
        """Do nothing: a broker needs no commitment to a workers' tree."""
