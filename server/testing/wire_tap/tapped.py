"""Transport of a tapped connection.

While no rule is in force the bytes go their ordinary way, and the tap looks at them. Else they go through the conversation, which
may hold, change or make some. What then waits here, for its time or for a full socket, is sent by the connection's own step
(`_tapped`): it is called for that as if the socket were ready, and a system task keeps the time.

Files in memory have no descriptor. A region of such a file is sent from a view of it, without a copy if the storage lends views.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import trio

from ottla.replication.log.storage import NotCached
from ottla.server.network.readiness import WAIT_READABLE, WAIT_WRITABLE, Wait
from ottla.server.network.transport import PageMissing, PlainTransport
from ottla.server.testing.memory.storage import MemoryFile
from ottla.server.testing.wire_tap.conversation import Tap
from ottla.server.testing.wire_tap.ruled_conversation import RuledConversation
from ottla.server.testing.wire_tap.rules import Rules

if TYPE_CHECKING:
    from ottla.replication.log.storage import FileRegion
    from ottla.server.network.readiness import Readiness, Step
    from ottla.server.testing.wire_tap.wire_request import WireConnection

PIECE_BYTES = 256 * 1024
"""Bytes that are read from a file at a time, where it lends no view: a socket rarely takes more at once."""

READS_AT_ONCE = 16
_PAUSED = object()
"""Result of a step that waits for the time of a late request or answer, and for nothing else."""


class TappedTransport(PlainTransport):
    """Unencrypted connection that a tap listens to, and that rules may change."""

    __slots__ = (
        "_heard",
        "_is_stuck",
        "_poked",
        "_readiness",
        "_receive",
        "_rules",
        "_said",
        "_send",
        "_timer",
        "_timer_due",
        "conversation",
    )

    def __init__(self, sock: socket.socket, connection: WireConnection, tap: Tap, rules: Rules) -> None:
        super().__init__(sock)
        self.conversation = RuledConversation(connection, tap, rules)
        self._rules = rules
        self._heard, self._said = self.conversation.heard, self.conversation.said
        self._receive, self._send = sock.recv_into, sock.send
        # A socket's own method takes flags, too.
        self.receive_into = self._receive_tapped  # type: ignore[assignment]
        self.send = self._send_tapped
        self.close = self._close
        self._readiness: Readiness | None = None
        self._timer: trio.CancelScope | None = None
        self._timer_due = 0.0
        self._poked = trio.Event()
        self._is_stuck = False  # the last send was refused because too much waits for its time

    # ------------------------------------------------------------------ bytes

    def _receive_tapped(self, buffer: Any, size: int = 0) -> int:
        if self._rules.active or not self.conversation.is_idle:
            return self._receive_ruled(buffer, size or len(buffer))
        count = self._receive(buffer, size)
        if count:
            self._heard(buffer, count)
        return count

    def _send_tapped(self, data: Any, flags: int = 0) -> int:
        if self._rules.active or not self.conversation.is_idle:
            with memoryview(data) as view:
                return self._send_ruled(view, flags)
        sent = self._send(data, flags)
        if sent:
            self._said(data, sent)
        return sent

    def _receive_ruled(self, buffer: Any, room: int) -> int:
        conversation = self.conversation
        conversation.tick(trio.current_time())
        for _ in range(READS_AT_ONCE):
            self._flush()
            if waiting := conversation.to_broker:
                count = min(room, len(waiting))
                buffer[:count] = waiting[:count]
                del waiting[:count]
                return count
            self._end_if_closing()
            if conversation.is_closing or conversation.holds_much_of_client:
                break
            data = self.socket.recv(min(room, PIECE_BYTES))
            if data:
                conversation.received(data, trio.current_time())
            elif not conversation.end_of_input(trio.current_time()):
                return 0
        self._set_timer()
        raise BlockingIOError

    def _send_ruled(self, view: memoryview, flags: int) -> int:
        conversation, at = self.conversation, 0
        conversation.tick(trio.current_time())
        while at < len(view):
            if not self._flush():
                break
            self._end_if_closing()
            passes, count = conversation.next_piece(view[at:])
            if not passes:
                if conversation.holds_much_of_broker:
                    self._is_stuck = True
                    break
                conversation.take(view[at : at + count], trio.current_time())
                at += count
                continue
            try:
                sent = self._send(view[at : at + count], flags)
            except BlockingIOError:
                break
            self._said(view[at:], sent)
            at += sent
            if sent < count:
                break
        self._flush()
        self._end_if_closing()
        self._set_timer()
        if not at and len(view):
            raise BlockingIOError
        return at

    def _flush(self) -> bool:
        """Send bytes of the conversation itself; return True if none are left."""
        waiting = self.conversation.to_client
        while waiting:
            try:
                sent = self._send(bytes(waiting[:PIECE_BYTES]))
            except BlockingIOError:
                return False
            del waiting[:sent]
        return True

    def _end_if_closing(self) -> None:
        """Raise ConnectionResetError if a rule has ended the connection and everything before that was sent."""
        conversation = self.conversation
        if conversation.is_closing and not conversation.to_client and not conversation.to_broker:
            # So that the client reads what was sent, although it may have sent more itself.
            with contextlib.suppress(OSError):
                self.socket.shutdown(socket.SHUT_WR)
            raise ConnectionResetError("a rule of the wire tap closes the connection")

    # ------------------------------------------------------------------ waiting

    def serving(
        self, readiness: Readiness, missing: Callable[[], int] | None = None
    ) -> Callable[[Step], Awaitable[Any]]:
        self._readiness = readiness

        async def serve(step: Step) -> Any:
            def tapped() -> Any:
                return step() if self.conversation.is_idle and not self._rules.active else self._tapped(step)

            while True:
                if not self.conversation.is_idle:
                    self._poke()  # something may have become due while nobody served the socket
                if readiness.is_inside_the_wait:
                    result = await readiness.serve(self.socket, tapped)
                else:
                    result = await self._serve_in_task(tapped)
                if result is not _PAUSED:
                    return result
                await self._until_poked()

        return serve

    def _tapped(self, step: Step) -> Any:
        """Take a step between what is due here before and after it."""
        conversation = self.conversation
        conversation.tick(trio.current_time())
        if not self._flush():
            return WAIT_WRITABLE
        self._is_stuck = False
        result = step()
        is_flushed = self._flush()
        self._end_if_closing()
        self._set_timer()
        if type(result) is not Wait:
            return result
        if not is_flushed:
            return WAIT_WRITABLE
        if self._is_stuck or conversation.holds_much_of_client:
            return _PAUSED
        if conversation.to_broker or conversation.is_closing:
            self._poke()
        return result

    async def _serve_in_task(self, step: Step) -> Any:
        result: Any = WAIT_READABLE
        while type(result) is Wait:
            async with trio.open_nursery() as nursery:

                async def wait(until: Callable[[], Awaitable[None]], nursery: trio.Nursery = nursery) -> None:
                    await until()
                    nursery.cancel_scope.cancel()

                nursery.start_soon(wait, self._until_poked)
                nursery.start_soon(wait, self._until_readable if result is WAIT_READABLE else self._until_writable)
            result = step()
        return result

    async def _until_readable(self) -> None:
        await trio.lowlevel.wait_readable(self.socket)

    async def _until_writable(self) -> None:
        await trio.lowlevel.wait_writable(self.socket)

    async def _until_poked(self) -> None:
        await self._poked.wait()
        self._poked = trio.Event()

    async def until_sendable(self) -> None:
        if self._is_stuck:
            self._is_stuck = False
            await self._until_poked()
        else:
            await self._until_writable()

    def let_through(self) -> None:
        """Give the broker the request that is held back."""
        self.conversation.hold_no_longer()
        self._poke()

    def _poke(self) -> None:
        self._poked.set()
        if self._readiness is not None and self._readiness.is_inside_the_wait:
            self._readiness.poke(self.socket)

    def _set_timer(self) -> None:
        due = self.conversation.next_due
        if due is None or (self._timer is not None and self._timer_due <= due):
            return
        self._stop_timer()
        self._timer, self._timer_due = trio.CancelScope(), due
        # The connection's task sleeps elsewhere, and a transport has no nursery.
        trio.lowlevel.spawn_system_task(self._poke_at, due, self._timer, name="a late answer of the wire tap")

    async def _poke_at(self, due: float, scope: trio.CancelScope) -> None:
        with scope:
            await trio.sleep_until(due)
            if self._timer is scope:
                self._timer = None
            self._poke()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # ------------------------------------------------------------------ the end

    def is_at_end(self) -> bool:
        return self.conversation.is_idle and super().is_at_end()

    def _close(self) -> None:
        self._stop_timer()
        self.conversation.end()
        self.socket.close()

    # ------------------------------------------------------------------ regions of files

    def send_region(self, region: FileRegion, position: int, length: int) -> int:
        is_plain = not self._rules.active and self.conversation.is_idle and not self.conversation.needs_bytes
        if is_plain and has_descriptor(region):
            sent = super().send_region(region, position, length)
            self.conversation.said_unseen(sent)
            return sent
        try:
            if (view_at := getattr(region.file, "view_at", None)) is not None:
                with view_at(position, length) as view:
                    return self.send(view) if len(view) else 0
            data = region.file.read_at(position, min(length, PIECE_BYTES))
        except NotCached:
            raise PageMissing from None
        return self.send(data) if data else 0

    def is_in_memory(self, region: FileRegion, position: int, length: int) -> bool:
        return not has_descriptor(region) or super().is_in_memory(region, position, length)

    def read_in_memory(self, region: FileRegion) -> bytearray | None:
        if has_descriptor(region):
            return super().read_in_memory(region)
        try:
            return bytearray(region.read())
        except (NotCached, OSError):
            return None


def has_descriptor(region: FileRegion) -> bool:
    """True if the region's file is one of the operating system."""
    if isinstance(region.file, MemoryFile):  # which would be copied to have one
        return False
    try:
        region.file.fileno()
    except OSError:  # a copy in memory
        return False
    return True
