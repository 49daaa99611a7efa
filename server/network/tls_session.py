"""OpenSSL session over memory buffers of ciphertext, so that one system call transfers many records.

Theory
    OpenSSL on a socket reads the header of a record with one system call, and its body with another one. A client that
    writes small records (librdkafka: two for each message) makes that dear. Here the socket is read once for all that it
    holds. The ciphertext goes through OpenSSL's buffers in memory (BIOs), and so does what OpenSSL has to send.

    Such buffers never shrink. So all sessions of an event loop share a pair of them, which is empty whenever none of them is
    inside OpenSSL: what a session has left there is kept with the session (`unread`, `unsent`), and that is nearly always
    nothing. Bytes left behind by mistake would be invalid input of the next session, which OpenSSL rejects.

    A session whose handshake is done in a thread has a pair of its own, as long as it lives.

Waiting
    An encrypted connection waits for the direction that OpenSSL names, and never while OpenSSL holds decrypted bytes
    (`TlsWaiting`).

Endless reads
    `Watch` ends connections that keep the event loop inside one read.

    OpenSSL reads on until it has data, and a peer may send messages without data for as long as it likes: in TLS 1.3 each
    KeyUpdate costs the reader twenty microseconds and the sender 27 bytes. Nothing limits that from within, so a thread looks
    from outside whether the loop has used READ_S of a processor in one read. An ordinary read takes a hundredth of that. The
    time of the processor counts, because on a busy machine any read may last long.

    The connection is cut off with all that it has sent, which ends the read with an error. The thread uses the number of
    the descriptor, which another socket may get once the loop has closed this one. So code that closes a socket takes the
    lock `closing` first.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import ssl
import threading
import time
import weakref
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import trio

from ottla.replication import system
from ottla.replication.reminders import Reminder
from ottla.server.network.readiness import WAIT_READABLE, WAIT_WRITABLE, Step, Wait

if TYPE_CHECKING:
    from ottla.server.network.readiness import Readiness

CHUNK_BYTES = 16 * 1024
PIECE_BYTES = 64 * 1024


class Bios:
    """OpenSSL's input and output buffers.

    `chunk_bytes`: bytes of ciphertext to pass to OpenSSL at a time. `piece_bytes`: bytes of data to encrypt at a time.
    """

    __slots__ = ("chunk_bytes", "incoming", "outgoing", "piece_bytes")

    def __init__(self, chunk_bytes: int = CHUNK_BYTES, piece_bytes: int = PIECE_BYTES) -> None:
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.chunk_bytes, self.piece_bytes = chunk_bytes, piece_bytes


class TlsSession:
    """Server side of a TLS connection, with memory buffers between OpenSSL and a non-blocking socket."""

    __slots__ = ("bios", "socket", "tls", "unread", "unsent")

    def __init__(self, context: ssl.SSLContext, sock: socket.socket, bios: Bios) -> None:
        self.bios = bios
        self.socket = sock
        self.tls = context.wrap_bio(bios.incoming, bios.outgoing, server_side=True)
        self.unread = b""  # ciphertext that has come and is not in OpenSSL yet
        self.unsent: bytes | memoryview = b""  # ciphertext that the socket has not taken

    def fileno(self) -> int:
        """Return the descriptor of the socket, so that this object can be waited for."""
        return self.socket.fileno()

    def getpeercert(self, binary_form: bool) -> Any:
        """Return the peer's certificate, like `ssl.SSLSocket.getpeercert`."""
        return self.tls.getpeercert(binary_form)

    def do_handshake(self) -> None:
        """Run one handshake step. Raises the same errors as `ssl.SSLSocket.do_handshake`."""
        if not self.flush():
            raise ssl.SSLWantWriteError(ssl.SSL_ERROR_WANT_WRITE, "the socket is full")
        try:
            data = self.socket.recv(self.bios.chunk_bytes)
        except BlockingIOError:
            raise ssl.SSLWantReadError(ssl.SSL_ERROR_WANT_READ, "the socket is empty") from None
        if not data:
            raise _ended()
        try:
            self._step(data)
        except ssl.SSLWantReadError:
            if not self.flush():
                raise ssl.SSLWantWriteError(ssl.SSL_ERROR_WANT_WRITE, "the socket is full") from None
            raise
        except ssl.SSLError:
            # The alert, by which the peer learns why.
            with contextlib.suppress(OSError):
                self.flush()
            raise
        self.flush()  # what the socket does not take goes before the first answer

    def _step(self, data: bytes) -> None:
        try:
            self.bios.incoming.write(data)
            self.tls.do_handshake()
        finally:
            self.empty_bios()

    def empty_bios(self) -> None:
        """Move all bytes from OpenSSL's buffers to `unread` and `unsent`; call this after each OpenSSL call."""
        incoming, outgoing = self.bios.incoming, self.bios.outgoing
        if incoming.pending:
            # It came before what was not handed over at all.
            self.unread = incoming.read() + self.unread
        if outgoing.pending:
            self.unsent = b"".join((self.unsent, outgoing.read())) if self.unsent else outgoing.read()

    def flush(self) -> bool:
        """Send unsent ciphertext; True if nothing is left."""
        unsent = self.unsent
        if not unsent:
            return True
        try:
            sent = self.socket.send(unsent)
        except BlockingIOError:
            return False
        if sent == len(unsent):
            self.unsent = b""
            return True
        self.unsent = memoryview(unsent)[sent:]
        return False

    def close(self) -> None:
        """Send a TLS close_notify if the socket accepts it, then close the socket."""
        # Errors of all kinds: the handshake may not be done, or the connection may have ended.
        with contextlib.suppress(OSError, ValueError):
            # A full socket takes no farewell either.
            if not self.unsent:
                try:
                    self.tls.unwrap()
                finally:
                    self.empty_bios()
                    self.flush()
        self.socket.close()


def _ended() -> ssl.SSLEOFError:
    """Return the error that OpenSSL raises when the stream of its socket ends."""
    error = ssl.SSLEOFError(ssl.SSL_ERROR_EOF, "the connection ended")
    error.reason = "UNEXPECTED_EOF_WHILE_READING"
    return error


class TlsWaiting(ABC):
    """Base class of TLS transports, with the methods that wait for the socket.

    Subclasses set the event that a blocked receive or send waits for: readable or writable.
    """

    __slots__ = ()

    socket: socket.socket
    _receive_waits_for: Wait
    _send_waits_for: Wait

    @property
    @abstractmethod
    def holds_input(self) -> bool:
        """True if this object has buffered input, an error or the end of the stream that the socket does not report."""

    @property
    def _may_receive(self) -> bool:
        # What is held while a receive waits for room to send would be asked for in vain, again and again.
        return self._receive_waits_for is WAIT_READABLE and self.holds_input

    def expect(self, count: int) -> None:  # noqa: B027 - there is nothing to be done
        """Do nothing, because the number of encrypted bytes is unknown. `serving` counts missing bytes instead."""

    def _expect(self, count: int) -> None:  # noqa: B027 - most transports cannot do anything about it
        """Make the system report input only when `count` bytes have arrived, because the receiver cannot use fewer."""

    def serving(
        self, readiness: Readiness, missing: Callable[[], int] | None = None
    ) -> Callable[[Step], Awaitable[Any]]:
        """Return a function that calls a step whenever the socket is ready, as `Transport.serving` describes."""

        async def serve(step: Step) -> Any:
            if not readiness.is_inside_the_wait:
                return await self.serve_in_task(step)

            def encrypted_step() -> Any:
                result = step()
                if result is WAIT_READABLE:
                    if self._may_receive:
                        readiness.poke(self.socket)  # not called at once: others have their turn, too
                    elif missing is not None:
                        self._expect(missing())
                    return self._receive_waits_for
                return self._send_waits_for if result is WAIT_WRITABLE else result

            self._expect(0 if missing is None else missing())
            # What was left while nobody looked.
            if self.holds_input:
                readiness.poke(self.socket)
            return await readiness.serve(self.socket, encrypted_step)

        return serve

    async def serve_in_task(self, step: Step) -> Any:
        """Call `step` in this task whenever the socket is ready.

        The calls end when `step` returns a value other than a `Wait`; return this value.
        """
        result: Any = WAIT_READABLE
        while type(result) is Wait:
            if result is WAIT_READABLE and self._may_receive:
                await trio.lowlevel.checkpoint()
            else:
                await self._until(self._receive_waits_for if result is WAIT_READABLE else self._send_waits_for)
            result = step()
        return result

    async def until_sendable(self) -> None:
        """Wait until a blocked send can continue."""
        await self._until(self._send_waits_for)

    @property
    def send_waits_for(self) -> Wait:
        """Event that a blocked send waits for: readable or writable."""
        return self._send_waits_for

    async def _until(self, direction: Wait) -> None:
        readable = direction is WAIT_READABLE
        await (trio.lowlevel.wait_readable if readable else trio.lowlevel.wait_writable)(self.socket)


logger = logging.getLogger("ottla.tls")

READ_S = 0.02
LOOKED_AT_S = 0.02
IDLE_LOOKED_AT_S = 0.1  # while nobody reads


class Watch:
    """Watchdog of one event loop; it ends a read that never returns.

    Readers set `reading` to their socket and increment `count`.
    """

    __slots__ = ("__weakref__", "_has_started", "closing", "count", "reading")

    def __init__(self) -> None:
        self._has_started = False
        self.closing = threading.Lock()
        self.reading: socket.socket | None = None
        self.count = 0

    def start(self) -> None:
        """Start the watchdog for the calling thread's event loop. It stops when this object is garbage-collected."""
        if self._has_started:
            return
        self._has_started = True
        if not hasattr(time, "pthread_getcpuclockid") or not system.CAN_CUT_OFF:
            return
        clock = time.pthread_getcpuclockid(threading.get_ident())
        threading.Thread(target=_look, args=(weakref.ref(self), clock), name="endless reads", daemon=True).start()


def _look(reference: weakref.ref[Watch], clock: int) -> None:
    reminder = Reminder()
    count, began_s = -1, 0.0
    while (watch := reference()) is not None:
        is_idle = watch.reading is None and watch.count == count
        try:
            now_s = time.clock_gettime(clock)
        except OSError:  # the thread of the loop has ended
            return
        if watch.reading is None or watch.count != count:
            # Looked at again, behind the count: what the loop has used before does not count as this read's.
            count = watch.count
            began_s = time.clock_gettime(clock)
        elif now_s - began_s > READ_S:
            _end(watch, count, reminder)
        del watch
        time.sleep(IDLE_LOOKED_AT_S if is_idle else LOOKED_AT_S)


def _end(watch: Watch, count: int, reminder: Reminder) -> None:
    with watch.closing:
        sock = watch.reading
        # Asked once more: that read may be over by now.
        is_cut_off = sock is not None and watch.count == count and system.cut_off(sock)
    if is_cut_off:
        reminder.tell(
            logger.warning, "cut off a peer that sends TLS messages without data, and keeps the event loop with them"
        )
