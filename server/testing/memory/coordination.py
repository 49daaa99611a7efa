"""An ensemble in memory for several brokers in one process: for tests, and for a cluster on virtual time.

    service = MemoryService(random.Random(seed))
    await nursery.start(service.run)
    link = service.link()                        # one broker's way to the service, which can be cut
    coordination = MemoryCoordination(link)      # one session
    await nursery.start(coordination.run)        # returns when the session is there; run() holds it

A session is as `probed_session.py` has it: connecting -> connected <-> cut off -> ended. Every request takes its way to the
service and its answer the way back, each with a delay from the service's `random`; what goes one way keeps its order,
as it does on a connection. Watch notices come the same way as answers. The service counts a session's timeout from the
last request that reached it; the client probes, gives up a connection that does not answer, and connects again.

Trouble, by call: `Link.cut` lets messages wait (one way or both) until the client gives the connection up, `Link.reset`
breaks the connection at once, so that requests on their way are done or not done, `MemoryService.stop` takes the service
away and stops its clock, `MemoryService.expire` ends a session, and `MemoryCoordination.abandon` is a process that
dies: nothing is said to the service.

Sessions of a steady link (`MemoryService.link`) count only the time for which it is cut, so that no jump of the clock ends them.
"""

from __future__ import annotations

import heapq
import math
import random
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import count
from typing import Any, NamedTuple

import trio

from ottla.replication.cluster.coordination import (
    CoordinationError,
    CoordinationUnavailable,
    Delete,
    Node,
    OnChange,
    Operation,
    SessionExpired,
)
from ottla.server.cluster.coordination.probed_session import ProbedSession
from ottla.server.cluster.coordination.tree import NodeChange, Result, Tree, TreeNode, Watched, Watches, concerned_by

ATTEMPT_SHARE = 1 / 6  # of the session timeout, to connect
RETRY_S = 0.1
DELAY_S = (0.0002, 0.002)  # one way, between these two
TICK_S = 2**-20  # of the clock of steady links

Call = Callable[[], None]
Action = Callable[[], Any]


class Agenda:
    """Timed calls, made by one task; equal times keep their order of registration."""

    def __init__(self) -> None:
        self._due: list[tuple[float, int, Call]] = []
        self._numbers = count()  # the order within one time, and calls themselves cannot be compared
        self._earlier = trio.Event()

    def at(self, when: float, call: Call) -> None:
        number = next(self._numbers)
        heapq.heappush(self._due, (when, number, call))
        # The task sleeps until the first call is due. It has to know of an earlier one.
        if self._due[0][1] == number:
            self._earlier.set()

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Make the calls until cancelled."""
        task_status.started()
        while True:
            while self._due and self._due[0][0] <= trio.current_time():
                heapq.heappop(self._due)[2]()
            # After the calls, and without an await before the sleep: a call may have asked for others.
            self._earlier = trio.Event()
            with trio.move_on_at(self._due[0][0] if self._due else math.inf):
                await self._earlier.wait()


class Pipe:
    """One-way message channel: delayed messages in order, held back while blocked."""

    def __init__(self, agenda: Agenda, delay: Callable[[], float], *, blocked: bool = False) -> None:
        self._agenda, self._delay = agenda, delay
        self._messages: deque[Call] = deque()
        self._held = 0  # so many of the last messages have not set out
        self._last = -math.inf
        self._blocked = blocked
        self._closed = False

    def send(self, deliver: Call) -> None:
        if self._closed:
            return
        self._messages.append(deliver)
        if self._blocked:
            self._held += 1
        else:
            self._set_out()

    def block(self) -> None:
        """Hold back later messages; those already sent arrive."""
        self._blocked = True

    def unblock(self) -> None:
        self._blocked = False
        held, self._held = self._held, 0
        for _ in range(held):
            self._set_out()

    def close(self, still_arrive: float = 0.0) -> None:
        """Accept no more messages; deliver only this leading share of those in transit."""
        self._closed = True
        # The last messages are lost, as when a connection breaks: a
        # receiver has the beginning of what was sent, never gaps.
        keep = int((len(self._messages) - self._held) * still_arrive)
        self._held = 0
        while len(self._messages) > keep:
            self._messages.pop()

    def _set_out(self) -> None:
        # A shorter delay must not let a message overtake the one before it.
        self._last = max(self._last, trio.current_time() + self._delay())
        self._agenda.at(self._last, self._arrive)

    def _arrive(self) -> None:
        # The pipe may have been closed since this was planned, and its message dropped.
        if len(self._messages) > self._held:
            self._messages.popleft()()


class _Session:
    """The service's state of one session."""

    def __init__(self, session_id: int, timeout_s: float, connection: _Connection) -> None:
        self.session_id, self.timeout_s = session_id, timeout_s
        self.link = connection.link
        self.heard = self.link.now()
        self.connection: _Connection | None = connection
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
    """The tree that all share, and the sessions; see the module's docstring."""

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

    def greet(self, connection: _Connection, session_id: int, timeout_s: float) -> _Session | None:
        """Continue a session, or create one for id 0; None if it has expired."""
        session = self._sessions.get(session_id) if session_id else self._begin(timeout_s, connection)
        if session is not None:
            # A session has one connection. What is still on its way on the
            # old one must not be done after what comes on the new one.
            if session.connection is not None and session.connection is not connection:
                session.connection.close()
            session.connection = connection
            session.heard = session.link.now()
        return session

    def _begin(self, timeout_s: float, connection: _Connection) -> _Session:
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
        self._connections: list[_Connection] = []
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

    def connect(self, client: MemoryCoordination) -> _Connection:
        connection = _Connection(self, client)
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


class _Connection:
    """One connection of a session: requests in one direction, answers and notifications in the other."""

    def __init__(self, link: Link, client: MemoryCoordination) -> None:
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
    """The `Coordination` port over a `MemoryService`; see the module's docstring."""

    def __init__(self, link: Link, *, timeout_s: float = 18.0, connection_timeout_s: float = 18.0) -> None:
        super().__init__(timeout_s)
        self.watches = Watches()
        self._link = link
        self._service = link.service
        self._connection_timeout_s = connection_timeout_s
        self._connection: _Connection | None = None  # None while cut off
        self._attempt: _Connection | None = None
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

    def greeted(self, connection: _Connection, session_id: int, sent: float) -> None:
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

    def lost(self, connection: _Connection) -> None:
        """A connection broke."""
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
