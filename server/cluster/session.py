"""The coordination of a member: a `Coordination` that outlives the sessions behind it.

Those who only read and write keep this object. Watches and ephemeral nodes belong to one session: users of a session run within
its life (`ClusterMember`) and restart with the next one. Between two sessions every call raises SessionExpired.

A session says nothing of this broker's leaderships before the broker has registered in it: while the last session was over
another broker may have taken them. So nothing is sure before `note_registered`.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol

import trio

from ottla.replication.cluster import znodes
from ottla.replication.cluster.coordination import (
    Coordination,
    Create,
    Node,
    NodeExists,
    NoNode,
    OnChange,
    OnSessionChange,
    Operation,
    SessionExpired,
    multis,
)
from ottla.replication.random_ids import random_uuid
from ottla.wire.text import uuid_text

if TYPE_CHECKING:
    from ottla.replication.replica_manager.loading import HostedPartition


class JoinProblem(Exception):
    """Error: the broker cannot join its cluster. The text is one line for the operator."""


class Session(Coordination, Protocol):
    """Session with the coordination service."""

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Begin the session and hold it until it ends; when cancelled, end it."""


class CoordinationTree(Protocol):
    """Coordination tree of a broker, with those steps of a start that depend on the kind of tree."""

    is_shared: bool
    """Whether other brokers use it, too."""

    patience_s: float
    """Seconds that a starting broker waits for its former registration to expire."""

    async def open_session(self) -> Session:
        """Return a new session that has not begun yet. Raises LogDirectoryProblem if it must not begin."""

    async def fill(self, tree: Coordination) -> None:
        """Copy this broker's existing state into a new tree."""

    async def begin(self) -> None:
        """Commit this broker to this tree, after all checks of the start."""

    async def hosted(self, tree: Coordination) -> list[HostedPartition]:
        """Return the partitions whose logs the start has to load."""

    async def keep(self) -> None:
        """Wait until all writes to the tree would survive a power cut. Raises CoordinationUnavailable.

        During a start, await this before writing anything outside of the tree that depends on the tree's content.
        """

    async def end_start(self) -> None:
        """End the start: acknowledged writes are durable from now on. Raises CoordinationUnavailable if that fails."""

    async def until_broken(self) -> str:
        """Wait until the broker cannot continue with this tree; return the reason."""


class ClusterSession:
    def __init__(self) -> None:
        self._current: Session | None = None
        self._registered: Session | None = None

    def attach(self, session: Session | None) -> None:
        """Set the current session, or None after its end."""
        self._current, self._registered = session, None

    def note_registered(self) -> None:
        """Record that this broker has registered in the current session and waits for the controller's requests."""
        self._registered = self._current

    def _session(self) -> Session:
        if self._current is None:
            raise SessionExpired
        return self._current

    @property
    def session_id(self) -> int:
        return 0 if self._current is None else self._current.session_id

    @property
    def session_sure_until(self) -> float:
        # Without a session that it has registered in, the broker is fenced.
        return -math.inf if self._registered is None else self._registered.session_sure_until

    @property
    def is_sure(self) -> bool:
        """True if this broker's registration is certainly valid. It is read for every batch, so it must be fast."""
        session = self._registered
        if session is None:
            return False
        until = session.session_sure_until
        # That of a broker that is alone has no end, and no clock is read for it.
        return until == math.inf or session.session_now() < until

    def session_now(self) -> float:
        return trio.current_time() if self._current is None else self._current.session_now()

    async def get(self, path: str) -> Node:
        return await self._session().get(path)

    async def get_all(self, paths: Sequence[str]) -> list[Node | None]:
        return await self._session().get_all(paths)

    async def children(self, path: str) -> list[str]:
        return await self._session().children(path)

    async def children_data(self, path: str) -> Mapping[str, Node]:
        return await self._session().children_data(path)

    async def multi(self, operations: Sequence[Operation]) -> list[str | int | None]:
        return await self._session().multi(operations)

    def watch_node(self, path: str, on_change: OnChange) -> Callable[[], None]:
        return self._session().watch_node(path, on_change)

    def watch_children(self, path: str, on_change: OnChange) -> Callable[[], None]:
        return self._session().watch_children(path, on_change)

    def watch_session(self, on_change: OnSessionChange) -> Callable[[], None]:
        return self._session().watch_session(on_change)

    async def until_available(self) -> None:
        await self._session().until_available()


NOTHING: Mapping[str, bytes] = MappingProxyType({})


async def settle_cluster_id(
    coordination: Coordination, make_cluster_id: Callable[[], str], fill: Callable[[], Awaitable[None]] | None = None
) -> str:
    """Return the cluster's id from the tree. If there is none, store a new one from `make_cluster_id`.

    `fill` copies existing state into the new tree before the id is stored; the next start after a crash repeats it.
    """
    # The epoch as well, which a candidate for controller would make: another write, and another wait for the disk.
    epoch = {znodes.CONTROLLER_EPOCH: znodes.encode_controller_epoch(0)}
    await make_missing(coordination, [*znodes.PERSISTENT_PATHS, *znodes.OWN_PATHS, *epoch], epoch)
    try:
        return znodes.decode_cluster_id((await coordination.get(znodes.CLUSTER_ID)).data)
    except NoNode:
        cluster_id = make_cluster_id()
    if fill is not None:
        await fill()
    try:
        await coordination.multi([Create(znodes.CLUSTER_ID, znodes.encode_cluster_id(cluster_id))])
    except NodeExists:
        # Another broker was faster, and its id counts.
        return znodes.decode_cluster_id((await coordination.get(znodes.CLUSTER_ID)).data)
    return cluster_id


async def make_missing(
    coordination: Coordination, paths: Iterable[str], contents: Mapping[str, bytes] = NOTHING
) -> None:
    """Create the nodes of `paths` that do not exist; parents come first. `contents`: data of some nodes, by path."""
    wanted = list(paths)
    while True:
        found = await coordination.get_all(wanted)
        missing: list[Operation] = [
            Create(path, contents.get(path, b"")) for path, node in zip(wanted, found, strict=True) if node is None
        ]
        try:
            for part in multis(missing):
                await coordination.multi(part)
            return
        except NodeExists:
            continue  # another broker starts at the same time; look again


def random_cluster_id() -> str:
    """Return a random UUID as Kafka writes it: 22 characters of URL-safe base64."""
    return uuid_text(random_uuid())
