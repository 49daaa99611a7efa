"""TLS as a way of a connection's bytes, by OpenSSL on a socket that does not block.

Connections to other brokers are of this kind, and those of listeners where the kernel encrypts what they send. Elsewhere
listeners have `tls_batches.py`, which needs fewer system calls.

Theory
    OpenSSL reads whole records of up to 16 KiB, and only one at a time. So after a read it may hold decrypted bytes, and
    neither the socket nor epoll knows of them: `holds_input`. The step is called again then as if the socket were readable.

    What cannot go on waits for the direction that OpenSSL names. In a read that is nearly always more input, but it may be
    room for what OpenSSL has to send itself, and the other way round.

    A record that was begun is in OpenSSL's buffer until the socket has taken all of it. The next call has to come with the
    same bytes, and perhaps more behind them; `Outbox` repeats them, because it does not know that they were sent.

    Regions of files are read from the page cache into a buffer that all connections of the loop share, piece by piece, and
    encrypted from there. A page that is missing is left to a thread, as with sendfile. Where the kernel encrypts
    (`KernelTlsTransport`) regions go by sendfile.

    A peer that keeps a read going without an end is cut off (`Watch` in `tls_session.py`).

Errors of OpenSSL end the connection: they are ConnectionError here. A stream that ends without a farewell is a stream that
ends, as for Kafka.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import socket
import ssl
import time
from typing import TYPE_CHECKING, Any

from ottla.replication import system
from ottla.replication.reminders import Reminder
from ottla.replication.system import RWF_NOWAIT
from ottla.server.network.readiness import WAIT_READABLE, WAIT_WRITABLE
from ottla.server.network.tls_session import Bios, TlsWaiting, Watch
from ottla.server.network.transport import PageCacheReader, PageMissing, has_left, unread
from ottla.server.security.tls_contexts import KERNEL_TLS
from ottla.wire.time_slice import SLICE_S

if TYPE_CHECKING:
    from ottla.replication.log.storage import FileRegion

RECORD_BYTES = 16 * 1024  # of plain text, at most
PIECE_BYTES = 256 * 1024  # read and encrypted at a time
TURN_S = SLICE_S
_SOL_TLS, _TLS_TX = 282, 1  # Linux's numbers, which Python has no names for
_TCP_ULP = 31
_TLS_CRYPTO_INFO_BYTES = 4
_HEADER_BYTES, _ALERT, _ALERT_BYTES_OF_1_3 = 5, 21, 2 + 1 + 16
_FAREWELL_BYTES_MAX = 128  # with the blocks and digests of the oldest suites


class Pieces:
    """Buffers and watchdog that the TLS connections of one event loop share."""

    __slots__ = ("bios", "ciphertext", "reminder", "view", "watch")

    def __init__(self) -> None:
        self.bios = Bios()
        self.ciphertext = memoryview(bytearray(self.bios.chunk_bytes))
        self.view = memoryview(bytearray(PIECE_BYTES))
        self.watch = Watch()
        self.reminder = Reminder()  # of peers that are cut off


class BrokenTls(ConnectionResetError):
    """Raised if OpenSSL aborted a connection; `reason`: OpenSSL's name of the cause (TLSV1_ALERT_UNKNOWN_CA)."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"TLS: {reason}")
        self.reason = reason


class TlsStream(TlsWaiting):
    """Encrypted byte stream over a socket whose handshake is done."""

    __slots__ = (
        "_begun",
        "_failure",
        "_has_news",
        "_read",
        "_receive_waits_for",
        "_send_waits_for",
        "_tls",
        "_watch",
        "_write",
        "socket",
    )

    def __init__(self, sock: ssl.SSLSocket, watch: Watch) -> None:
        """Create the transport after the handshake, in the event loop's thread. `watch`: watchdog for reads."""
        watch.start()
        self._watch = watch
        self.socket: socket.socket = sock
        self._tls = sock
        self._read, self._write = sock.read, sock.write
        self._receive_waits_for, self._send_waits_for = WAIT_READABLE, WAIT_WRITABLE
        self._begun = (
            0  # bytes of a record that is in OpenSSL's buffer: the next send has to come with as many at least
        )
        # The stream has ended, or failed, behind bytes that were handed over.
        self._has_news = False
        self._failure: OSError | None = None

    # --- bytes

    def receive_into(self, buffer: Any, size: int = 0) -> int:
        """Receive and decrypt all available records. `Transport.receive_into` describes parameters and result."""
        if self._failure is not None:
            self._has_news = False
            raise self._failure  # OpenSSL itself would take it for an end in order
        watch = self._watch
        watch.count += 1
        watch.reading = self.socket
        try:
            return self._receive_into(buffer, size)
        finally:
            watch.reading = None

    def _receive_into(self, buffer: Any, size: int) -> int:
        total, self._has_news = 0, False
        with memoryview(buffer) as view:
            room = min(size, len(view)) if size else len(view)
            try:
                while total < room:
                    count: Any = self._read(room - total, view[total:])  # at most one record
                    total += count
                    # A shorter record is most often the last one, and to look in vain costs as much as a request.
                    if count < RECORD_BYTES:
                        self._has_news = not count and total > 0
                        break
            except ssl.SSLWantReadError:
                self._receive_waits_for = WAIT_READABLE
            except ssl.SSLWantWriteError:
                self._receive_waits_for = WAIT_WRITABLE
            except OSError as error:  # which ssl.SSLError is
                self._failure = broken(error)
                # What came before the error was in order.
                if not total:
                    raise self._failure from None
                self._has_news = True
            else:
                return total
        if not total:
            raise BlockingIOError
        return total

    def send(self, data: Any, flags: int = 0) -> int:
        """Encrypt and send what the socket accepts in one time slice; return the number of data bytes.

        `flags` are ignored. Raises BlockingIOError if nothing was sent.
        """
        sent, size, late_from = 0, len(data), time.monotonic() + TURN_S
        self._begun = 0
        self._send_waits_for = WAIT_WRITABLE
        with memoryview(data) as view:
            try:
                while sent < size:
                    # Record by record: one that was begun is all that the next call has to come with.
                    sent += self._write(view[sent : sent + RECORD_BYTES])
                    if time.monotonic() > late_from:
                        break
            except ssl.SSLWantWriteError:
                self._begun = min(size - sent, RECORD_BYTES)
            except ssl.SSLWantReadError:
                self._send_waits_for = WAIT_READABLE
            except OSError as error:
                raise broken(error) from None
        if not sent and size:
            raise BlockingIOError
        return sent

    @property
    def holds_input(self) -> bool:
        """True if this object has buffered input, an error or the end of the stream that the socket does not report."""
        return self._has_news or self._tls.pending() > 0

    # --- the end

    def peer_has_left(self) -> bool:
        """True if the peer has closed the TCP connection or its sending side. A close_notify alone does not count."""
        return not self._has_news and has_left(self.socket)

    def is_at_end(self) -> bool:
        """True if the peer has closed its sending side and everything was read, except perhaps a TLS close_notify."""
        return not self.holds_input and is_left_with_a_farewell(self.socket)

    def close(self) -> None:
        """Send a TLS close_notify if the socket accepts it, then close the socket."""
        # Errors of all kinds: the connection may have ended, or a record may be half sent.
        with contextlib.suppress(OSError, ValueError):
            self._tls.unwrap()
        with self._watch.closing:
            self.socket.close()


class TlsTransport(TlsStream, PageCacheReader):
    """Encrypted connection of a listener, which sends bytes and file regions; this process encrypts."""

    __slots__ = ("_pieces",)

    def __init__(self, sock: ssl.SSLSocket, pieces: Pieces) -> None:
        super().__init__(sock, pieces.watch)
        self._pieces = pieces

    def send_region(self, region: FileRegion, position: int, length: int) -> int:
        with self._pieces.view[: min(length, PIECE_BYTES)] as view:
            count = read_what_is_there(region.file.fileno(), view, position)
            needed = min(self._begun, length)
            if count < needed:  # pages were in memory when the record was begun
                if os.fstat(region.file.fileno()).st_size >= position + needed:
                    raise PageMissing
                return 0
            return self.send(view[:count]) if count else 0


class KernelTlsTransport(TlsTransport):
    """Encrypted connection of a listener; the kernel encrypts, so file regions are sent without a copy."""

    __slots__ = ()

    def send_region(self, region: FileRegion, position: int, length: int) -> int:
        return system.send_file(self.socket.fileno(), region.file.fileno(), position, length)


def transport_of(sock: ssl.SSLSocket, pieces: Pieces) -> TlsTransport:
    """Return the transport of a connection after its handshake; the kernel encrypts if it can."""
    return (KernelTlsTransport if kernel_encrypts(sock) else TlsTransport)(sock, pieces)


def kernel_may_encrypt(context: ssl.SSLContext) -> bool:
    """True if OpenSSL would pass keys to the kernel; the kernel accepts them only for some cipher suites."""
    return bool(context.options & KERNEL_TLS) and _kernel_has_tls()


@functools.cache
def _kernel_has_tls() -> bool:
    if not system.IS_LINUX:
        return False
    with socket.socket() as probe:
        try:
            probe.setsockopt(socket.IPPROTO_TCP, _TCP_ULP, b"tls")
        except OSError as error:
            return error.errno == errno.ENOTCONN  # the module is there, and wants a connection
    return True


def kernel_encrypts(sock: socket.socket) -> bool:
    """True if the kernel encrypts what is sent on this socket."""
    if not system.IS_LINUX:
        return False
    try:
        return any(sock.getsockopt(_SOL_TLS, _TLS_TX, _TLS_CRYPTO_INFO_BYTES))
    except OSError:  # it has not, or the system knows no such option
        return False


def read_what_is_there(descriptor: int, view: memoryview, position: int) -> int:
    """Read cached bytes into `view`; return the number, 0 at the file's end. Raises PageMissing if none is cached."""
    if RWF_NOWAIT is not None:
        try:
            return os.preadv(descriptor, [view], position, RWF_NOWAIT)
        except BlockingIOError:
            raise PageMissing from None
        except OSError:
            pass  # a file system without RWF_NOWAIT
    return os.preadv(descriptor, [view], position) if hasattr(os, "preadv") else _pread(descriptor, view, position)


def _pread(descriptor: int, view: memoryview, position: int) -> int:
    data = os.pread(descriptor, len(view), position)
    view[: len(data)] = data
    return len(data)


def is_left_with_a_farewell(sock: socket.socket) -> bool:
    """True if the peer has closed its sending side and everything was read, except perhaps a TLS close_notify."""
    left = unread(sock, _FAREWELL_BYTES_MAX + 1)
    return left == b"" or (left is not None and _is_farewell(left) and system.has_closed_its_side(sock))


def _is_farewell(data: bytes) -> bool:
    """True if the data may be a TLS close_notify: a single record of an alert's length. TLS 1.3 hides the type."""
    if len(data) > _FAREWELL_BYTES_MAX or len(data) != _HEADER_BYTES + int.from_bytes(data[3:_HEADER_BYTES]):
        return False
    return data[0] == _ALERT or len(data) <= _HEADER_BYTES + _ALERT_BYTES_OF_1_3


def broken(error: OSError) -> OSError:
    """Translate an error of OpenSSL or a TLS socket into one to raise, which says that the connection is broken."""
    if isinstance(error, ssl.SSLError):
        return BrokenTls(error.reason or str(error))
    return ConnectionResetError("the connection was cut off") if error.errno == errno.ENOTCONN else error
