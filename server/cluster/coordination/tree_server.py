"""The embedded tree served to other processes of this machine, over a Unix socket that only their user may use.

    async with trio.open_nursery() as nursery:
        await nursery.start(hold_tree, directory, directory / SOCKET_NAME)   # or serve_tree, for a tree that is open

The broker that runs this server is the *holder*; the others are *members* (`tree_client.py` is their side). Several
machines cannot share such a tree: they use ZooKeeper.

A session is a connection. It begins with HELLO, and is over as soon as the connection is, by whichever side or death. A
member that says nothing for its session timeout, because it hangs or was stopped, is hung up on. While the holder itself was
stopped, or late, no member's time runs.

What the port promises, and why it holds here:

* Order. Everything to a member goes through one queue: notices of changes when the tree changes, results and reads as they
  are made. So a notice comes before whatever shows its change. Multis stand in the tree's queue as they were received.
* The end of a session stands there behind all that it has asked for. A member's next session names its last one (HELLO), and
  is greeted when that one's end has been carried out: no write of the last one is done after a read of the next one.
* The death of the holder ends all sessions. What was acknowledged is in the journal. Sessions and transactions of the next
  holder have higher ids than all before (`Tree.begin_incarnation`), so that no broker epoch comes twice.

* A long read does not look like a holder that is gone. A member's reads are answered one after the other, and its probes between
  the parts of an answer.

What a member may cost: REQUESTS_MAX requests at a time, and of their bytes REQUESTS_BYTES_MAX; WATCHES_MAX watches, of which all
members together have WATCHES_BYTES_MAX in memory; and what waits to be sent to it (`sockets.py`). Below these it is made to wait, or hung up on. One question holds the event loop for
OPERATIONS_MAX operations or PATHS_MAX reads at most.
"""

from __future__ import annotations

import logging
import os
import socket
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import AbstractContextManager, closing, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import trio

from ottla.replication.cluster.coordination import CoordinationError
from ottla.replication.log.faults import Fault, classify
from ottla.server.cluster.coordination import messages
from ottla.server.cluster.coordination.embedded import EmbeddedCoordination, Writer
from ottla.server.cluster.coordination.messages import Frame, Malformed
from ottla.server.cluster.coordination.sockets import FramedSocket, is_own, listening

if TYPE_CHECKING:
    from ottla.server.cluster.coordination.tree import Watched

logger = logging.getLogger("ottla.coordination")

SOCKET_NAME: Final = "coordination.socket"
MEMBERS_MAX: Final = 500
HELLO_S: Final = 5.0
REQUESTS_MAX: Final = 200  # more than a member has under way by itself, so that its probes are always received
REQUESTS_BYTES_MAX: Final = 8 << 20
WATCHES_MAX: Final = 100_000
WATCHES_BYTES_MAX: Final = 256 << 20
WATCH_BYTES: Final = 1_200  # of memory, beside its path, which is there as text and in the frame that tells of a change
TIMEOUT_MS_MIN, TIMEOUT_MS_MAX = 100, 600_000
LATE_SHARE: Final = 1 / 6  # of the session timeout: how late a look may be before the holder counts as having been away
RETRY_S, RETRY_S_MAX = 1.0, 5.0  # before another attempt

Answer = Callable[[], Awaitable[None]]


class TreeBroken(Exception):
    """Error: the journal cannot be written any more, because of `failure`. The text is one line for the operator."""

    def __init__(self, path: str, failure: OSError) -> None:
        super().__init__(f"{path} cannot be written: {failure}")
        self.failure = failure


async def hold_tree(
    directory: Path,
    where: Path | socket.socket,
    *,
    last_incarnation: int = 0,
    on_other_incarnation: Callable[[int], None] = lambda incarnation: None,
    task_status: trio.TaskStatus[int] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Open the coordination tree whose journal is in `directory`, and serve it until cancelled, in one process only.

    `where`: path of the Unix socket, or a listening socket. `last_incarnation`: incarnation of the former server; above
    0, members are waiting; 0: there was none. `task_status` gets the incarnation. Each time the tree is opened again,
    `on_other_incarnation` gets the new one. While there are members, a full disk does not end the server: it goes on
    while writes fail. If it cannot go on (a sync failed) or begin, it opens the tree again until this succeeds. Raises
    OSError if the journal or the socket cannot be used, LogDirectoryProblem, and TreeBroken.
    """
    incarnation, patience = last_incarnation, _Patience()
    tell: Callable[[int], None] = task_status.started

    def begin(begun: int) -> None:
        nonlocal incarnation, tell
        incarnation = begun
        tell(incarnation)
        tell = on_other_incarnation

    while True:
        try:
            await _hold_until_broken(directory, where, incarnation, patience, begin)
        except (OSError, TreeBroken) as problem:
            await patience.with_(problem, has_members=incarnation > 0)


async def _hold_until_broken(
    directory: Path,
    where: Path | socket.socket,
    last_incarnation: int,
    patience: _Patience,
    begin: Callable[[int], None],
) -> None:
    # First the socket, whose lock only one process has: to open the journal is to put another file in its place, and what a
    # holder that lives writes from then on would be nowhere. No other frame has the tree: it is freed before it is read again.
    with _listener(where) as listener, await _opened(directory, last_incarnation, patience) as embedded:
        patience.is_over()
        begin(embedded.incarnation)
        await serve_tree(embedded, listener)


async def _opened(directory: Path, last_incarnation: int, patience: _Patience) -> closing[EmbeddedCoordination]:
    while True:
        embedded = EmbeddedCoordination(directory, is_served=True, last_incarnation=last_incarnation)
        try:
            await trio.to_thread.run_sync(embedded.open)
        except OSError as problem:
            embedded.close()
            # The socket stays. Who connects is greeted later, and need not try again and again.
            await patience.with_(problem, has_members=last_incarnation > 0)
        else:
            return closing(embedded)


class _Patience:
    """Retry rule for the tree's server when the disk is full or file descriptors are used up.

    After a failed sync the tree may safely be opened again: this writes the entire tree to a new file, and acknowledged
    changes were synced before.
    """

    def __init__(self) -> None:
        self.is_over()

    def is_over(self) -> None:
        """Reset the delay between attempts, because the tree is open."""
        self._delay_s = RETRY_S
        self._is_logged = False

    async def with_(self, problem: OSError | TreeBroken, *, has_members: bool) -> None:
        """Wait before another attempt. Raise `problem` instead if there are no members, or if the disk is broken."""
        failure = problem.failure if isinstance(problem, TreeBroken) else problem
        # Without members no client waits, and the starter of the holder has to see the reason of the failure.
        if not has_members or classify(failure) is Fault.BROKEN:
            raise problem
        if not self._is_logged:
            self._is_logged = True
            logger.error("The coordination tree is away, and its members wait until there is room: %s", problem)
        # They hold the calls that have failed, and these a file, perhaps one that is removed already: until somebody looks for
        # cycles its room would not be free.
        problem.__traceback__ = failure.__traceback__ = None
        await trio.sleep(self._delay_s)
        self._delay_s = min(self._delay_s * 2, RETRY_S_MAX)


async def serve_tree(
    embedded: EmbeddedCoordination,
    where: Path | socket.socket,
    *,
    task_status: trio.TaskStatus[int] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve an open tree (`is_served`) until cancelled; `where`: the socket's path, or a listening socket.

    `task_status` gets the incarnation when the tree is served. Raises TreeBroken, and OSError; HeldElsewhere means that
    another process serves the tree.
    """
    assert embedded.is_served
    with _listener(where) as listener:
        async with trio.open_nursery() as nursery:
            service = _Service(embedded, nursery)
            nursery.start_soon(service.accept, listener)
            task_status.started(embedded.incarnation)
            failure = await embedded.until_broken()
            nursery.cancel_scope.cancel()
        raise TreeBroken(embedded.path, failure)


def _listener(where: Path | socket.socket) -> AbstractContextManager[socket.socket]:
    return listening(os.path.abspath(where)) if isinstance(where, Path) else nullcontext(where)


class _Service:
    """Server of the tree: its members, and their sessions by id."""

    def __init__(self, embedded: EmbeddedCoordination, nursery: trio.Nursery) -> None:
        self.embedded, self._nursery = embedded, nursery
        self._sessions: dict[int, _Member] = {}
        self._connections = 0
        self.watches_bytes = 0  # of all members

    async def accept(self, listener: socket.socket) -> None:
        while True:
            await trio.lowlevel.wait_readable(listener)
            try:
                sock, _ = listener.accept()
            except BlockingIOError:
                continue
            except OSError as error:  # there are no descriptors
                logger.warning("A member cannot be accepted: %s", error)
                await trio.sleep(RETRY_S)
                continue
            sock.setblocking(False)
            self._let_in(sock)

    def _let_in(self, sock: socket.socket) -> None:
        if not is_own(sock):
            logger.warning("A process of another user was turned away")
            sock.close()
        elif self._connections >= MEMBERS_MAX:
            logger.warning("%d members are connected already; another one was turned away", self._connections)
            sock.close()
        else:
            self._connections += 1
            self._nursery.start_soon(self._run, FramedSocket(sock, frame_bytes_max=messages.REQUEST_BYTES_MAX))

    async def _run(self, connection: FramedSocket) -> None:
        try:
            await _Member(self, connection).run()
        except Malformed as problem:
            logger.warning("A member that does not speak as members do was hung up on: %s", problem)
        finally:
            connection.close()
            self._connections -= 1

    # ------------------------------------------------------------------ sessions

    async def begin(self, member: _Member, last_session: int) -> int:
        """End the member's former session, `last_session`, then begin a new one; return the new session's id."""
        if (last := self._sessions.get(last_session)) is not None:
            last.hang_up()
        session_id = self.embedded.new_session()
        # It owns nothing yet. But when this has been carried out, so has all that stood there before.
        await self.embedded.outcome_of(self.embedded.end_session(session_id))
        self._sessions[session_id] = member
        return session_id

    def end(self, session_id: int) -> None:
        """End a session: delete its ephemeral nodes in the background."""
        if self._sessions.pop(session_id, None) is not None:
            self._nursery.start_soon(self._carry_out, self.embedded.end_session(session_id))

    async def _carry_out(self, end: Writer) -> None:
        try:
            await self.embedded.outcome_of(end)
        except CoordinationError:  # of a broken journal only: `serve_tree` ends with it
            logger.debug("A session was not ended, the tree is broken")


class _Member:
    """One member's connection to the server, with the member's requests and session."""

    def __init__(self, service: _Service, connection: FramedSocket) -> None:
        self._service = service
        self._tree = service.embedded
        self._connection = connection
        self._session_id = 0
        self._timeout_s = HELLO_S
        self._silent_since = trio.current_time()
        self._watches: dict[Watched, Callable[[], None]] = {}
        self._pending = self._pending_bytes = 0
        self._reads: deque[tuple[Answer, int]] = deque()
        self._decided = trio.Event()  # replaced each time

    async def run(self) -> None:
        """Serve the member until its connection ends. Raises Malformed."""
        problem: Malformed | None = None
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._connection.run_sender)
                nursery.start_soon(self._mind_silence)
                try:
                    await self._serve(nursery)
                except Malformed as malformed:
                    problem = malformed
                # First the member learns it, then others can see that it is gone.
                self.hang_up()
                nursery.cancel_scope.cancel()
        finally:
            self.hang_up()
        if problem is not None:
            raise problem

    def hang_up(self) -> None:
        """End the session and close its connection."""
        self._connection.close()
        for watched in list(self._watches):
            self._unwatch(watched)
        self._service.end(self._session_id)

    # ------------------------------------------------------------------ silence

    async def _mind_silence(self) -> None:
        """Close the connection if the member sends nothing for as long as the session's timeout."""
        while not self._connection.is_closed:
            look = self._silent_since + self._timeout_s
            # In several steps, because a late look tells that this process was away, and heard nobody.
            look = min(look, trio.current_time() + self._timeout_s * LATE_SHARE)
            await trio.sleep_until(look)
            now = trio.current_time()
            self._silent_since = max(self._silent_since, self._connection.sent_at)
            if now - look > self._timeout_s * LATE_SHARE or self._is_owed:
                self._silent_since = now
            elif now >= self._silent_since + self._timeout_s:
                if self._session_id:
                    logger.warning(
                        "Session 0x%x has ended: nothing was heard for %d ms", self._session_id, self._timeout_s * 1000
                    )
                self.hang_up()

    @property
    def _is_owed(self) -> bool:
        """True if the member's silence is the server's fault: bytes are unread, or requests are not carried out."""
        connection = self._connection
        return connection.has_room and (self._is_busy or connection.has_come)

    # ------------------------------------------------------------------ requests

    async def _serve(self, nursery: trio.Nursery) -> None:
        while (frames := await self._connection.receive()) is not None:
            self._silent_since = trio.current_time()
            for frame in frames:
                await self._until_room()
                # While it waited, the session may have ended. What would come behind its end would stay for ever.
                if self._connection.is_closed:
                    return
                if self._session_id:
                    self._take(frame, nursery)
                else:
                    await self._greet(frame)

    async def _until_room(self) -> None:
        await self._connection.until_room()
        while self._is_busy:
            await self._decided.wait()

    @property
    def _is_busy(self) -> bool:
        return self._pending >= REQUESTS_MAX or self._pending_bytes >= REQUESTS_BYTES_MAX

    async def _greet(self, frame: Frame) -> None:
        if frame.kind != messages.HELLO:
            raise Malformed("no HELLO")
        asked = messages.read_hello(frame.body)
        timeout_ms = min(max(asked.timeout_ms, TIMEOUT_MS_MIN), TIMEOUT_MS_MAX)
        try:
            session_id = await self._service.begin(self, asked.last_session)
        except CoordinationError as error:  # the journal is broken
            self._say(messages.FAILED, frame.number, messages.failure(error))
            return
        self._session_id, self._timeout_s = session_id, timeout_ms / 1000
        self._say(messages.GREETED, frame.number, messages.greeted(messages.Greeted(session_id, timeout_ms)))

    def _take(self, frame: Frame, nursery: trio.Nursery) -> None:
        body, number = frame.body, frame.number
        match frame.kind:
            case messages.MULTI:
                self._begin_multi(number, body, nursery)
            case messages.NODES:
                self._begin_read(partial(self._say_nodes, number, messages.read_paths(body)), len(body), nursery)
            case messages.CHILDREN | messages.CHILDREN_DATA as kind:
                answer = self._say_names if kind == messages.CHILDREN else self._say_named_nodes
                self._begin_read(partial(answer, number, messages.read_path(body)), len(body), nursery)
            case messages.WATCH:
                self._watch(messages.read_watched(body))
            case messages.UNWATCH:
                self._unwatch(messages.read_watched(body))
            case messages.PROBE:
                self._say(messages.DONE, number)
            case kind:
                raise Malformed(f"a question of kind {kind}")

    def _note_pending(self, requests: int, size: int) -> None:
        self._pending += requests
        self._pending_bytes += size
        if requests < 0:
            self._decided.set()
            self._decided = trio.Event()

    # ------------------------------------------------------------------ reads

    def _begin_read(self, answer: Answer, size: int, nursery: trio.Nursery) -> None:
        # In a task of its own: probes come and are answered between the parts of a long answer.
        self._note_pending(1, size)
        self._reads.append((answer, size))
        if len(self._reads) == 1:
            nursery.start_soon(self._answer_reads)

    async def _answer_reads(self) -> None:
        """Answer read requests one after another, so that at most one response is queued for sending."""
        while self._reads:
            answer, size = self._reads[0]
            await self._connection.until_room()
            await answer()
            self._reads.popleft()
            self._note_pending(-1, -size)

    def _say(self, kind: int, number: int, body: bytes = b"") -> None:
        self._connection.send(messages.frame(kind, number, body))

    async def _say_all(self, number: int, items: Iterable[bytes]) -> None:
        """Send a long response in parts, as fast as the peer receives them, and serve other members in between."""
        last: bytes | None = None
        for part in messages.in_parts(items):
            if last is not None:
                self._say(messages.PART, number, last)
                await self._connection.until_room()
            last = part
        assert last is not None
        self._say(messages.DONE, number, last)

    async def _say_nodes(self, number: int, paths: list[str]) -> None:
        await self._say_all(number, map(messages.node, self._tree.nodes_now(paths)))

    async def _say_names(self, number: int, path: str) -> None:
        await self._say_children(number, path, lambda names: map(messages.texts, names))

    async def _say_named_nodes(self, number: int, path: str) -> None:
        await self._say_children(number, path, partial(self._named_nodes, path))

    async def _say_children(self, number: int, path: str, items: Callable[[list[str]], Iterator[bytes]]) -> None:
        try:
            names = await self._tree.children(path)
        except CoordinationError as error:
            self._say(messages.FAILED, number, messages.failure(error))
        else:
            await self._say_all(number, items(names))

    def _named_nodes(self, path: str, names: list[str]) -> Iterator[bytes]:
        parent = "" if path == "/" else path
        for name in names:
            # Looked up part by part. What has gone meanwhile is left out, as with ZooKeeper.
            (found,) = self._tree.nodes_now([f"{parent}/{name}"])
            if found is not None:
                yield messages.texts(name) + messages.node(found)

    def _watch(self, watched: Watched) -> None:
        if watched in self._watches:
            return
        if len(self._watches) >= WATCHES_MAX:
            raise Malformed(f"more than {WATCHES_MAX} watches")
        if self._service.watches_bytes + _watch_bytes(watched) > WATCHES_BYTES_MAX:
            raise Malformed(f"with it all watches would take more than {WATCHES_BYTES_MAX} bytes")
        self._service.watches_bytes += _watch_bytes(watched)
        kind, path = watched
        watch = self._tree.watch_node if kind == "node" else self._tree.watch_children
        told = messages.frame(messages.CHANGED, 0, messages.watched(watched))
        self._watches[watched] = watch(path, lambda _: self._connection.send(told, at_once=False))

    def _unwatch(self, watched: Watched) -> None:
        if (cancel := self._watches.pop(watched, None)) is not None:
            cancel()
            self._service.watches_bytes -= _watch_bytes(watched)

    # ------------------------------------------------------------------ multis

    def _begin_multi(self, number: int, body: bytes, nursery: trio.Nursery) -> None:
        # Into the queue at once, because tasks begin in any order.
        writer = self._tree.ask_for(self._session_id, messages.read_operations(body))
        self._note_pending(1, len(body))
        nursery.start_soon(self._end_multi, number, writer, len(body))

    async def _end_multi(self, number: int, writer: Writer, size: int) -> None:
        try:
            results = await self._tree.outcome_of(writer)
        except CoordinationError as error:
            self._say(messages.FAILED, number, messages.failure(error))
        else:
            await self._say_all(number, map(messages.result, results))
        finally:
            self._note_pending(-1, -size)


def _watch_bytes(watched: Watched) -> int:
    return WATCH_BYTES + 2 * len(watched[1])
