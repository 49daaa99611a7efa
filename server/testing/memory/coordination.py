"""Sessions with a coordination ensemble in memory, for several brokers in one process: in tests, and on virtual time.

    service = MemoryService(random.Random(seed))
    await nursery.start(service.run)
    link = service.link()                        # one broker's way to the service, which can be cut
    coordination = MemoryCoordination(link)      # one session
    await nursery.start(coordination.run)        # returns when the session is there; run() holds it

A session is as `probed_session.py` has it: connecting -> connected <-> cut off -> ended. The client probes, gives up a connection
that does not answer, and connects again. `MemoryCoordination.abandon` is a process that dies: nothing is said to the service.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import trio

from ottla.replication.cluster.coordination import (
    CoordinationError,
    CoordinationUnavailable,
    Node,
    OnChange,
    Operation,
    SessionExpired,
)
from ottla.server.cluster.coordination.probed_session import ProbedSession
from ottla.server.cluster.coordination.tree import Result, Watches
from ottla.server.testing.memory.coordination_service import Action, Connection, Link

ATTEMPT_SHARE = 1 / 6  # of the session timeout, to connect
RETRY_S = 0.1


class _PendingCall:
    """A request that a task waits for."""

    __slots__ = ("landed", "outcome")

    def __init__(self) -> None:
        self.outcome: Any = None
        self.landed = trio.Event()

    def land(self, outcome: Any) -> None:
        self.outcome = outcome
        self.landed.set()


class MemoryCoordination(ProbedSession):
    """The `Coordination` port over a `MemoryService`."""

    def __init__(self, link: Link, *, timeout_s: float = 18.0, connection_timeout_s: float = 18.0) -> None:
        super().__init__(timeout_s)
        self.watches = Watches()
        self._link = link
        self._service = link.service
        self._connection_timeout_s = connection_timeout_s
        self._connection: Connection | None = None  # None while cut off
        self._attempt: Connection | None = None
        self._pending: dict[_PendingCall, None] = {}  # in order, so that a run can be repeated by its seed

    # ------------------------------------------------------------------ the port

    def session_now(self) -> float:
        return self._link.now()

    async def get(self, path: str) -> Node:
        node: Node = await self._ask(partial(self._service.tree.get, path))
        return node

    async def get_all(self, paths: Sequence[str]) -> list[Node | None]:
        nodes: list[Node | None] = await self._ask(partial(self._service.tree.get_all, list(paths)))
        return nodes

    async def children(self, path: str) -> list[str]:
        names: list[str] = await self._ask(partial(self._service.tree.children, path))
        return names

    async def children_data(self, path: str) -> Mapping[str, Node]:
        nodes: Mapping[str, Node] = await self._ask(partial(self._service.tree.children_data, path))
        return nodes

    async def multi(self, operations: Sequence[Operation]) -> list[Result]:
        results: list[Result] = await self._ask(partial(self._service.write, list(operations), self.session_id))
        return results

    def watch_node(self, path: str, on_change: OnChange) -> Callable[[], None]:
        return self.watches.watch("node", path, on_change)

    def watch_children(self, path: str, on_change: OnChange) -> Callable[[], None]:
        return self.watches.watch("children", path, on_change)

    async def _ask(self, action: Action) -> Any:
        if self._ended:
            raise SessionExpired
        if self._connection is None:
            raise CoordinationUnavailable
        pending = _PendingCall()
        self._pending[pending] = None
        self._connection.ask(action, pending.land)
        try:
            await pending.landed.wait()
        finally:
            self._pending.pop(pending, None)
        if isinstance(pending.outcome, CoordinationError):
            raise pending.outcome
        return pending.outcome

    # ------------------------------------------------------------------ the life of the session

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Begin the session, hold it until it ends, and end it if this is cancelled.

        Raises CoordinationUnavailable if it cannot begin.
        """
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._keep_connected)
                with trio.move_on_after(self._connection_timeout_s):
                    while self.session_id == 0:
                        await self._changed.wait()
                if self.session_id != 0:
                    task_status.started()
                    await self._keep_sure()
                nursery.cancel_scope.cancel()
        finally:
            self._close()
        if self.session_id == 0:
            raise CoordinationUnavailable

    def abandon(self) -> None:
        """Behave like a session whose process was killed: send and receive no more."""
        if self._connection is not None:
            self._connection.give_up()
        if self._attempt is not None:
            self._attempt.give_up()
        self.end("abandoned")

    def _close(self) -> None:
        # Ephemeral nodes go at once, and need not wait for the timeout.
        if self._connection is not None:
            self._connection.end_session()
        self.end("closed")

    async def _keep_connected(self) -> None:
        while not self._ended:
            if self._connection is None:
                await self._connect()
            else:
                await self._changed.wait()

    async def _connect(self) -> None:
        connection = self._attempt = self._link.connect(self)
        connection.greet(self.session_id, self._timeout_s)
        with trio.move_on_after(self._timeout_s * ATTEMPT_SHARE):
            while not self._ended and self._attempt is connection:
                await self._changed.wait()
        if self._attempt is connection:
            self._attempt = None
            connection.close()
            # At random, or all brokers that lost the service would come back at the same moment.
            await trio.sleep(self._service.random.uniform(RETRY_S, 2 * RETRY_S))

    def greeted(self, connection: Connection, session_id: int, sent: float) -> None:
        """Handle the service's greeting on a new connection; 0: the session has ended."""
        # An attempt that was given up may still be answered.
        if self._ended or self._attempt is not connection:
            return
        if session_id == 0:
            self.end("expired")
            return
        self.session_id = session_id
        self._connection, self._attempt = connection, None
        self._probe_open, self._probe_sent = False, sent
        # Changes during the loss were not reported, so everybody looks again.
        self.watches.call(self.watches)
        self._note_contact(sent)

    def lost(self, connection: Connection) -> None:
        """Handle a connection that broke."""
        if connection is self._connection:  # not if this is the news of one that was replaced
            self._connection = None
            self._probe_open = False
            for pending in list(self._pending):
                pending.land(SessionExpired() if self._ended else CoordinationUnavailable())
            self._session_changed()

    def end(self, reason: str) -> None:
        """End the session: "expired", "closed" or "abandoned"."""
        if self._ended:
            return
        self._no_longer_sure()
        if self._connection is not None:
            self.lost(self._connection)
        self._session_changed()
        # No task is left in a process that was killed.
        if reason != "abandoned":
            self._call_session_listeners()

    # ------------------------------------------------------------------ being sure of the session

    @property
    def _is_connected(self) -> bool:
        return self._connection is not None

    def _send_probe(self, sent: float) -> None:
        assert self._connection is not None
        # Any request proves that the session lives: the service answers none of a session that has ended.
        self._connection.ask(lambda: None, lambda _: self._probe_answered(sent))

    async def _give_up_connection(self) -> None:
        await trio.lowlevel.checkpoint()  # as with ZooKeeper: an answer, or the end of the session, may be waiting
        connection = self._connection
        if connection is not None and self._probe_open:
            connection.give_up()
            self.lost(connection)
