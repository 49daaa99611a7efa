"""The coordination tree that the brokers of one machine share: another process holds it, and serves it over a Unix socket."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import trio

from ottla.server.coordination.served import ServedCoordination
from ottla.server.ports import HasEnvironment, HasReplicas, HasSettings
from ottla.server.start.into_cluster import fill_from_journal, set_journal_aside
from ottla.server.start.zookeeper_tree import PATIENCE_SHARE, hosted_on_disk

if TYPE_CHECKING:
    from ottla.replication.cluster.coordination import Coordination
    from ottla.replication.replica_manager.loading import HostedPartition
    from ottla.server.cluster.session import Session
    from ottla.server.settings.coordination_config import CoordinationConfig

MOVED_SUFFIX = ".moved-to-served-tree"


class Port(HasReplicas, HasSettings, HasEnvironment, Protocol):
    """What is needed of the broker here."""


class ServedTree:
    """A `CoordinationTree`. Passwords are kept as they are: its journal is this user's alone, as that of a lone broker is."""

    is_shared = True
    start_patience_s: float | None = None
    """How long a start waits for somebody to hold the tree; None: as long as a session lasts."""

    def __init__(self, broker: Port, config: CoordinationConfig) -> None:
        self._broker = broker
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
        """Bring what this broker had while it was alone."""
        await fill_from_journal(tree, self._broker.config.log_dirs[0], None)

    async def hosted(self, tree: Coordination) -> list[HostedPartition]:
        """Every partition that is on the disks. The controller says later what it is to be, or that it was deleted."""
        return await hosted_on_disk(self._broker)

    async def begin(self) -> None:
        """The broker is in this cluster from now on: what it had alone does not count any more."""
        await set_journal_aside(self._broker.config.log_dirs[0], MOVED_SUFFIX)

    async def keep(self) -> None:
        """What was written into the tree is kept there already."""

    async def end_start(self) -> None:
        """The broker goes on to wait for the tree whenever it has to."""

    async def until_broken(self) -> str:
        """Never returns: who loses the tree waits until somebody serves it again."""
        await trio.sleep_forever()
