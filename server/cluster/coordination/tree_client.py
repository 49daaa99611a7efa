"""Coordination through a tree that another process of this machine holds (`tree_server.py`): one object is one session.

    coordination = ServedCoordination(path, timeout_s=6.0, connection_timeout_s=6.0)
    await nursery.start(coordination.run)  # returns when the session is there; run() holds it until it is cancelled

The session: connecting -> connected -> ended. A session is its connection and never resumes. A client that loses its
session tries to open a new one until a broker holds the tree again.

Being sure: what `probed_session.py` says, so that a member that hangs is fenced before the holder gives it up. But the
holder may also die, and another process may open the tree for all other members, before this process notices. So each read
of `session_sure_until` checks that the other end of the connection is still open; the kernel closes that end when the
holder's process ends. The answer counts for LOOK_S: no process begins, opens the tree and has others elected in that time.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import trio

from ottla.replication.cluster.coordination import (
    AccessDenied,
    CoordinationError,
    CoordinationUnavailable,
    Node,
    NoNode,
    OnChange,
    Operation,
    SessionExpired,
    WriteRefused,
)
from ottla.server.cluster.coordination import messages
from ottla.server.cluster.coordination.messages import DONE, FAILED, PART, Frame, Hello, Malformed
from ottla.server.cluster.coordination.probed_session import ProbedSession
from ottla.server.cluster.coordination.sockets import FramedSocket, connected, is_own
from ottla.server.cluster.coordination.tree import Result, Watches, key_of

logger = logging.getLogger("ottla.coordination")

ATTEMPT_S: Final = 0.05  # between attempts to connect
LOOK_S: Final = 0.002
REFUSED_S: Final = 1.0  # after a write for which there was no room
REQUESTS_MAX: Final = 100  # under way at a time
ITEMS_MAX: Final = 10_000_000  # of one answer

Read = Callable[[bytes], Sequence[Any]]


class _Request:
    """Request of one task that waits for the response, with the response's parts received so far."""

    __slots__ = ("answered", "error", "found", "read")

    def __init__(self, read: Read) -> None:
        self.read = read
        self.found: list[Any] = []
        self.error: CoordinationError | None = None
        self.answered = trio.Event()

    def hear(self, frame: Frame) -> bool:
        """Process one frame of the response; return True if it was the last. Raises Malformed."""
        if frame.kind == FAILED:
            self.fail(messages.read_failure(frame.body))
            return True
        if frame.kind not in (PART, DONE):
            raise Malformed(f"an answer of kind {frame.kind}")
        self.found += self.read(frame.body)
        if len(self.found) > ITEMS_MAX:
            raise Malformed(f"more than {ITEMS_MAX} nodes")
        if frame.kind == DONE:
            self.answered.set()
        return frame.kind == DONE

    def fail(self, error: CoordinationError) -> None:
        self.error = error
        self.answered.set()


class ServedCoordination(ProbedSession):
    """Session with a coordination tree that another process serves over a Unix socket (the `Coordination` port)."""

    def __init__(
        self, path: str, *, timeout_s: float, connection_timeout_s: float | None = None, last_session: int = 0
    ) -> None:
        """Create a session with the tree served at `path`.

        `last_session`: id of this broker's former session. When the new session has begun, no request of the former one
        is applied any more.
        """
        self._sure_until = self._looked = -math.inf
        super().__init__(timeout_s)
        self._path = path
        self._connection_timeout_s = timeout_s if connection_timeout_s is None else connection_timeout_s
        self.last_session = last_session
        self._connection: FramedSocket | None = None
        self._greeted = trio.Event()
        self._end_reason = ""
        self._requests: dict[int, _Request] = {}
        self._probes: dict[int, float] = {}
        self._last_number = 0
        self._under_way = trio.Semaphore(REQUESTS_MAX)
        self._watches = Watches()
        self._is_refused = False

    # ------------------------------------------------------------------ the port

    async def get(self, path: str) -> Node:
        (node,) = await self.get_all([path])
        if node is None:
            raise NoNode(path)
        return node

    async def get_all(self, paths: Sequence[str]) -> list[Node | None]:
        found: list[Node | None] = []
        for start in range(0, len(paths), messages.PATHS_MAX) or [0]:
            some = paths[start : start + messages.PATHS_MAX]
            answer = await self._ask(messages.NODES, messages.paths(some), messages.read_nodes)
            if len(answer) != len(some):
                raise CoordinationUnavailable(self._path)
            found += answer
        return found

    async def children(self, path: str) -> list[str]:
        return await self._ask(messages.CHILDREN, messages.texts(path), messages.read_texts)

    async def children_data(self, path: str) -> Mapping[str, Node]:
        return dict(await self._ask(messages.CHILDREN_DATA, messages.texts(path), messages.read_named_nodes))

    async def multi(self, operations: Sequence[Operation]) -> list[Result]:
        try:
            results = await self._ask(messages.MULTI, messages.operations(operations), messages.read_results)
        except WriteRefused:
            self._is_refused = True
            raise
        self._is_refused = False
        return results

    def watch_node(self, path: str, on_change: OnChange) -> Callable[[], None]:
        return self._watch("node", path, on_change)

    def watch_children(self, path: str, on_change: OnChange) -> Callable[[], None]:
        return self._watch("children", path, on_change)

    def _watch(self, kind: str, path: str, on_change: OnChange) -> Callable[[], None]:
        watched = (kind, key_of(path))
        is_new = watched not in self._watches
        cancel = self._watches.watch(kind, path, on_change)
        if is_new:
            self._send(messages.WATCH, messages.watched(watched))

        def cancel_here_and_there() -> None:
            was_watched = watched in self._watches
            cancel()
            if was_watched and watched not in self._watches:
                self._send(messages.UNWATCH, messages.watched(watched))

        return cancel_here_and_there

    async def until_available(self) -> None:
        await super().until_available()
        # Who was refused for want of room would try again at once, and again.
        if self._is_refused:
            await trio.sleep(REFUSED_S)
            await super().until_available()

    # ------------------------------------------------------------------ requests

    def _send(self, kind: int, body: bytes = b"") -> int:
        """Send a frame unless the session has ended; return the frame's number."""
        self._last_number = self._last_number % 0xFFFFFFFF + 1
        if self._connection is not None:
            self._connection.send(messages.frame(kind, self._last_number, body))
        return self._last_number

    async def _ask(self, kind: int, body: bytes, read: Read) -> list[Any]:
        request = await self._put(kind, body, _Request(read))
        await request.answered.wait()
        if request.error is not None:
            raise request.error
        return request.found

    async def _put(self, kind: int, body: bytes, request: _Request) -> _Request:
        # Until it is answered, and not until nobody waits for that: the holder has to do it all the same.
        await self._under_way.acquire()
        try:
            # Or what this member wants to say would be too much for its own connection, and end the session.
            if self._connection is not None and not self._connection.has_room:
                await self._connection.until_room()
            if self._ended:
                raise SessionExpired(self._path)
            if not self._is_connected:
                raise CoordinationUnavailable(self._path)
        except BaseException:
            self._under_way.release()
            raise
        self._requests[self._send(kind, body)] = request
        return request

    # ------------------------------------------------------------------ the life of the session

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Begin the session and hold it until it ends; when cancelled, end it.

        Raises CoordinationUnavailable or AccessDenied, with a line for the operator, if the session cannot begin.
        """
        deadline = trio.current_time() + self._connection_timeout_s
        connection = await self._connect(deadline)
        try:
            async with trio.open_nursery() as nursery:
                self._connection = connection
                nursery.start_soon(connection.run_sender)
                nursery.start_soon(self._receive, connection)
                nursery.start_soon(self._log_if_late)
                if await self._is_greeted(deadline):
                    task_status.started()
                    await self._keep_sure()
                nursery.cancel_scope.cancel()
        finally:
            self._end("closed" if self.session_id else "no answer")
        if not self.session_id:
            raise CoordinationUnavailable(f"{self._path}: {self._end_reason}")

    async def _connect(self, deadline: float) -> FramedSocket:
        late = trio.current_time() + self._timeout_s
        while True:
            try:
                sock = connected(self._path)
            except PermissionError as error:
                raise AccessDenied(f"{self._path}: {error.strerror}") from None
            except OSError as error:  # no process holds the tree at present, or very many connect to it
                if trio.current_time() >= deadline:
                    raise CoordinationUnavailable(
                        f"{self._path}: nobody serves it ({error.strerror or error})"
                    ) from None
                if trio.current_time() >= late:
                    late = math.inf
                    text = (
                        "This broker waits until a process serves the coordination tree at %s (%s):"
                        " start ottla cluster again, or look into the log of the supervisor"
                    )
                    logger.warning(text, self._path, error.strerror or error)
                await trio.sleep(ATTEMPT_S)
                continue
            if not is_own(sock):
                sock.close()
                raise AccessDenied(f"{self._path} is served by another user")
            return FramedSocket(sock, frame_bytes_max=messages.ANSWER_BYTES_MAX)

    async def _log_if_late(self) -> None:
        """Log a line if the server does not begin the session in time; the server may hang, or wait for its disk."""
        await trio.sleep(self._timeout_s)
        if not self.session_id and not self._ended:
            text = (
                "This broker waits for the process that serves the coordination tree at %s, which has not answered for %.0f s:"
                " look at its disk, and kill it if it hangs"
            )
            logger.warning(text, self._path, self._timeout_s)

    async def _is_greeted(self, deadline: float) -> bool:
        self._probe_sent = self.session_now()
        self._send(messages.HELLO, messages.hello(Hello(int(self._timeout_s * 1000), self.last_session)))
        with trio.move_on_at(deadline):
            while not self._ended and not self.session_id:
                await self._changed.wait()
        return self.session_id != 0

    def _await_greeting(self, frame: Frame) -> None:
        if frame.kind == FAILED:
            raise Malformed(f"no session: {messages.read_failure(frame.body)!r}")
        if frame.kind != messages.GREETED:
            raise Malformed("no greeting")
        greeted = messages.read_greeted(frame.body)
        self.session_id, self._timeout_s = greeted.session_id, greeted.timeout_ms / 1000
        logger.info("Session 0x%x at %s, timeout %d ms", self.session_id, self._path, greeted.timeout_ms)
        for watched in self._watches:  # of those who came before there was a session
            self._send(messages.WATCH, messages.watched(watched))
        # The holder counts from the arrival of the greeting's request, which is later than its sending.
        self._note_contact(self._probe_sent)

    async def _receive(self, connection: FramedSocket) -> None:
        reason = "the connection is lost"
        try:
            while (frames := await connection.receive()) is not None:
                for frame in frames:
                    self._hear(frame)
        except Malformed as problem:
            reason = str(problem)
        self._end(reason)

    def _hear(self, frame: Frame) -> None:
        if not self.session_id:
            self._await_greeting(frame)
        elif frame.kind == messages.CHANGED:
            self._watches.call([messages.read_watched(frame.body)])
        elif (sent := self._probes.pop(frame.number, None)) is not None:
            self._probe_answered(sent)
        elif (request := self._requests.get(frame.number)) is None:
            raise Malformed(f"an answer to request {frame.number}, which nobody has asked")
        elif request.hear(frame):
            del self._requests[frame.number]
            self._under_way.release()

    def _end(self, reason: str) -> None:
        if self._ended:
            return
        self._no_longer_sure()
        self._end_reason = reason
        if self._connection is not None:
            self._connection.close()
        if self.session_id:
            level = logging.INFO if reason == "closed" else logging.WARNING
            logger.log(level, "The session 0x%x at %s has ended: %s", self.session_id, self._path, reason)
        # First everybody's requests fail, then the listeners hear why.
        for request in self._requests.values():
            request.fail(SessionExpired(self._path))
            self._under_way.release()
        self._requests.clear()
        self._session_changed()
        self._call_session_listeners()

    # ------------------------------------------------------------------ being sure of the session

    @property
    def session_sure_until(self) -> float:
        connection, now = self._connection, trio.current_time()
        if connection is None or connection.is_closed:
            return -math.inf
        if now >= self._looked + LOOK_S:
            if connection.is_lost:
                return -math.inf
            self._looked = now
        return self._sure_until

    @session_sure_until.setter
    def session_sure_until(self, until: float) -> None:
        self._sure_until = until

    @property
    def _is_connected(self) -> bool:
        return self.session_id != 0 and not self._ended

    def _send_probe(self, sent: float) -> None:
        self._probes[self._send(messages.PROBE)] = sent

    async def _give_up_connection(self) -> None:
        await trio.lowlevel.checkpoint()  # if it was this loop that was late, the answer is waiting
        if self._is_connected and self._probe_open:
            self._end("the holder of the tree does not answer")
