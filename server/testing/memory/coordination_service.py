"""A coordination ensemble in memory: the tree that all brokers share, their sessions, and the way of each of them to it.

Every request takes its way to the service and its answer the way back, each with a delay from the service's `random`; what goes
one way keeps its order, as it does on a connection. Watch notices come the same way as answers. The service counts a session's
timeout from the last request that reached it.

Trouble, by call: `Link.cut` lets messages wait (one way or both) until the client gives the connection up, `Link.reset` breaks
the connection at once, so that requests on their way are done or not done, `MemoryService.stop` takes the service away and stops
its clock, `MemoryService.expire` ends a session.

Sessions of a steady link (`MemoryService.link`) count only the time for which it is cut, so that no jump of the clock ends them.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol

import trio

from ottla.replication.cluster.coordination import CoordinationError, Delete, Operation
from ottla.server.cluster.coordination.tree import NodeChange, Result, Tree, TreeNode, Watched, Watches, concerned_by
from ottla.server.testing.memory.agenda import Agenda, Pipe

DELAY_S = (0.0002, 0.002)  # one way, between these two
TICK_S = 2**-20  # of the clock of steady links

Action = Callable[[], Any]


class Client(Protocol):
    """Client's side of a connection: `MemoryCoordination` of `coordination.py`."""

    watches: Watches

    def greeted(self, connection: Connection, session_id: int, sent: float) -> None:
        """Handle the service's greeting on a new connection; 0: the session has ended."""

    def lost(self, connection: Connection) -> None:
        """Handle a connection that broke."""

    def end(self, reason: str) -> None:
        """End the session: "expired", "closed" or "abandoned"."""


class _Session:
    """The service's state of one session."""

    def __init__(self, session_id: int, timeout_s: float, connection: Connection) -> None:
        self.session_id, self.timeout_s = session_id, timeout_s
        self.link = connection.link
        self.heard = self.link.now()
        self.connection: Connection | None = connection
        self.ended = False


class FrozenNode(NamedTuple):
    """A node of the tree in a snapshot."""

    path: str
    data: bytes
    version: int
    creation_id: int
    next_sequence: int


class TreeSnapshot(NamedTuple):
    """The nodes that are not ephemeral, parents first, and the number of the last transaction."""

    nodes: tuple[FrozenNode, ...]
    last_id: int


class MemoryService:
    """The tree that all share, and the sessions."""

    def __init__(
        self, random: random.Random, *, delay_s: tuple[float, float] = DELAY_S, agenda: Agenda | None = None
    ) -> None:
        """An `agenda` run by the caller replaces `run`."""
        self.tree = Tree()
        self.agenda = agenda or Agenda()
        self.random = random
        self.is_up = True
        self._delay_s = delay_s
        self._sessions: dict[int, _Session] = {}
        self._links: list[Link] = []
        self._last_session_id = 0

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        await self.agenda.run(task_status)

    def link(self, *, is_steady: bool = False) -> Link:
        """Return a broker's way to the service. `is_steady`: its sessions grow older only while it is cut."""
        link = Link(self, is_steady=is_steady)
        self._links.append(link)
        return link

    def delay(self) -> float:
        return self.random.uniform(*self._delay_s)

    # ------------------------------------------------------------------ trouble

    def stop(self) -> None:
        """Break all connections and answer no requests; sessions do not expire."""
        self.is_up = False
        for link in self._links:
            link.reset()

    def start(self) -> None:
        self.is_up = True
        # As an ensemble that was restarted: it cannot know how long
        # a session was silent, so each has its whole timeout again.
        for session in self._sessions.values():
            session.heard = session.link.now()

    def expire(self, session_id: int) -> None:
        """End a session at once, as an operator could."""
        if (session := self._sessions.get(session_id)) is not None:
            self.end(session)

    # ------------------------------------------------------------------ snapshots

    def snapshot(self) -> TreeSnapshot:
        """Return the tree as it would be if all sessions ended now."""
        kept = (
            FrozenNode(path, node.data, node.version, node.creation_id, node.next_sequence)
            for path, node in self.tree.nodes.items()
            if not node.owner
        )
        return TreeSnapshot(tuple(kept), self.tree.last_id)

    def restore(self, snapshot: TreeSnapshot) -> None:
        """Put back the tree of a snapshot. All sessions are over, and watches hear nothing: call this without clients."""
        tree = Tree()
        for path, data, version, creation_id, next_sequence in snapshot.nodes:
            node = TreeNode(data, creation_id, version=version)
            node.next_sequence = next_sequence
            tree.restore(path, node)
        # Broker epochs are numbers of transactions. Those that were given since the snapshot must not come again.
        tree.last_id = max(snapshot.last_id, self.tree.last_id)
        self.tree = tree
        for session in self._sessions.values():
            session.ended = True
        self._sessions.clear()

    # ------------------------------------------------------------------ sessions

    def greet(self, connection: Connection, session_id: int, timeout_s: float) -> _Session | None:
        """Continue a session, or create one for id 0; None if it has expired."""
        session = self._sessions.get(session_id) if session_id else self._begin(timeout_s, connection)
        if session is not None:
            # A session has one connection. A request that is still under way on the old one must not be carried out after
            # requests of the new one.
            if session.connection is not None and session.connection is not connection:
                session.connection.close()
            session.connection = connection
            session.heard = session.link.now()
        return session

    def _begin(self, timeout_s: float, connection: Connection) -> _Session:
        self._last_session_id += 1
        session = self._sessions[self._last_session_id] = _Session(self._last_session_id, timeout_s, connection)
        self._look_again(session, timeout_s)
        return session

    def _look_again(self, session: _Session, after_s: float) -> None:
        self.agenda.at(trio.current_time() + after_s, partial(self._expire_if_silent, session))

    def _expire_if_silent(self, session: _Session) -> None:
        if session.ended:
            return
        # One call for each session instead of one for each request:
        # it looks again when the session would be due by now.
        left_s = session.heard + session.timeout_s - session.link.now() if self.is_up else session.timeout_s
        if left_s > 0:
            self._look_again(session, left_s)
        else:
            self.end(session)

    def end(self, session: _Session) -> None:
        if session.ended:
            return
        session.ended = True
        del self._sessions[session.session_id]
        # In one multi: no reader sees a part of a dead broker's nodes.
        owned = self.tree.owned_by(session.session_id)
        self.write([Delete(path) for path in owned], session.session_id)
        if session.connection is not None:
            session.connection.tell_end()

    # ------------------------------------------------------------------ the tree

    def write(self, operations: Sequence[Operation], session_id: int) -> list[Result]:
        results, changes = self.tree.apply(operations, session_id)
        self._notify(changes)
        return results

    def _notify(self, changes: list[NodeChange]) -> None:
        concerned = list(concerned_by(changes))
        for session in list(self._sessions.values()) if concerned else ():
            if session.connection is not None:
                session.connection.tell_changes(concerned)


class Link:
    """One broker's network path to the service, used by its successive sessions."""

    def __init__(self, service: MemoryService, *, is_steady: bool = False) -> None:
        self.service, self._is_steady = service, is_steady
        self._connections: list[Connection] = []
        self.to_service_cut = self.from_service_cut = False
        self._cut_s = 0.0  # in all cuts before the present one
        self._cut_since = math.inf

    def now(self) -> float:
        """Return the clock of this link's sessions in seconds: of a steady link the time for which it has been cut."""
        if not self._is_steady:
            return trio.current_time()
        cut_s = self._cut_s + max(0.0, trio.current_time() - self._cut_since)
        # In parts of a second that any time of the clock can be added to: who waits for the last of them waits once.
        return math.floor(cut_s / TICK_S) * TICK_S

    def connect(self, client: Client) -> Connection:
        connection = Connection(self, client)
        self._connections = [each for each in self._connections if not each.closed]
        self._connections.append(connection)
        return connection

    def cut(self, *, to_service: bool = True, from_service: bool = True) -> None:
        """Hold back messages from now on."""
        self._cut_since = min(self._cut_since, trio.current_time())
        self.to_service_cut |= to_service
        self.from_service_cut |= from_service
        for connection in self._connections:
            if to_service:
                connection.to_service.block()
            if from_service:
                connection.from_service.block()

    def heal(self) -> None:
        self._cut_s, self._cut_since = self.now() if self._is_steady else 0.0, math.inf
        self.to_service_cut = self.from_service_cut = False
        for connection in self._connections:
            connection.to_service.unblock()
            connection.from_service.unblock()

    def reset(self) -> None:
        """Break the connection: the broker notices at once; requests in flight may or may not be applied."""
        for connection in self._connections:
            connection.give_up()
            connection.client.lost(connection)


class Connection:
    """One connection of a session: requests in one direction, answers and notifications in the other."""

    def __init__(self, link: Link, client: Client) -> None:
        service = self._service = link.service
        self.client, self.link = client, link
        self.to_service = Pipe(service.agenda, service.delay, blocked=link.to_service_cut)
        self.from_service = Pipe(service.agenda, service.delay, blocked=link.from_service_cut)
        self.closed = False
        self._session: _Session | None = None

    # ------------------------------------------------------------------ called by the client

    def greet(self, session_id: int, timeout_s: float) -> None:
        # The time of the sending goes along. The service counts
        # from a later moment, so it is safe to count from this one.
        self.to_service.send(partial(self._greeted, session_id, timeout_s, self.link.now()))

    def ask(self, action: Action, answered: Callable[[Any], None]) -> None:
        self.to_service.send(partial(self._serve, action, answered))

    def end_session(self) -> None:
        self.to_service.send(self._end)

    def give_up(self) -> None:
        """Stop listening. The service may still apply a prefix of the requests in flight, before the next connection."""
        self.closed = True
        # A random share, so that requests on their way are done or
        # not done. That is what a broken connection leaves open.
        self.to_service.close(self._service.random.random())
        self.from_service.close()

    # ------------------------------------------------------------------ at the service

    def _greeted(self, session_id: int, timeout_s: float, sent: float) -> None:
        if not self._service.is_up or self.link.from_service_cut:  # TCP's handshake needs both ways
            return
        self._session = self._service.greet(self, session_id, timeout_s)
        known = self._session.session_id if self._session is not None else 0
        self.from_service.send(partial(self.client.greeted, self, known, sent))

    def _serve(self, action: Action, answered: Callable[[Any], None]) -> None:
        session = self._session
        # No answer at all, as from a service that is gone. The client
        # gives the connection up when its probe stays unanswered.
        if session is None or session.ended or not self._service.is_up:
            return
        session.heard = self.link.now()
        outcome: Any
        try:
            outcome = action()
        except CoordinationError as error:
            outcome = error
        self.from_service.send(partial(answered, outcome))

    def _end(self) -> None:
        if self._session is not None and self._service.is_up:
            self._service.end(self._session)

    def close(self) -> None:
        """Drop all messages in both directions."""
        self.closed = True
        self.to_service.close()
        self.from_service.close()

    def tell_end(self) -> None:
        self.from_service.send(partial(self.client.end, "expired"))

    def tell_changes(self, concerned: list[Watched]) -> None:
        watches = self.client.watches
        # In the pipe of the answers: a notice comes before the answer to any read that shows its change.
        if seen := [watched for watched in concerned if watched in watches]:
            self.from_service.send(partial(watches.call, seen))
