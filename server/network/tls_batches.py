"""TLS that decrypts all records of a socket after one read, and sends many records with one call.

Theory
    `tls_session.py` says how ciphertext goes in and out. A receive reads a chunk of it and decrypts the records in it, one
    after the other. It goes on with another chunk as long as the socket fills them, for some milliseconds.

    A piece of an answer is encrypted as a whole. If the socket takes only a part, the rest waits as ciphertext, and the piece
    counts as sent when all of it is gone: until then the next `send` comes with the same bytes, and raises BlockingIOError
    again. So `Outbox` knows what the socket has not taken.

    A client that writes a record for each message would wake the broker for each of them. Who waits for the rest of a frame
    has no use for a part of it, so the kernel is asked to wait for more (`_expect`).

Limits
    A peer may send messages without data for as long as it likes: in TLS 1.3 each KeyUpdate costs the reader twenty to fifty
    microseconds and the sender 27 bytes. OpenSSL works through all that it is handed, so a chunk bounds what one peer makes
    it do in one go (some 30 ms). If it ever takes that long, this connection gets small chunks. If there are no data among
    more bytes than one record can have, the connection is cut off.

    While ciphertext waits for the socket nothing is received, or else what OpenSSL answers to such messages would pile up.

Errors of OpenSSL end the connection, as in `tls_transport.py`.
"""

from __future__ import annotations

import logging
import math
import socket
import ssl
import time
from typing import TYPE_CHECKING, Any

from ottla.server.network.readiness import WAIT_READABLE, WAIT_WRITABLE
from ottla.server.network.tls_session import TlsWaiting
from ottla.server.network.tls_transport import broken, is_left_with_a_farewell, read_what_is_there
from ottla.server.network.transport import PageCacheReader, has_left
from ottla.wire.errors import bare
from ottla.wire.time_slice import SLICE_S

if TYPE_CHECKING:
    from ottla.replication.log.storage import FileRegion
    from ottla.server.network.tls_session import TlsSession
    from ottla.server.network.tls_transport import Pieces

logger = logging.getLogger("ottla.tls")

DATALESS_BYTES_MAX = 20 * 1024  # a record is 18 KiB at most
DEAR_S = 0.005  # 16 KiB of records of one byte take 1 ms
TURN_S = 2 * SLICE_S
SMALL_CHUNK_BYTES = 2 * 1024
# More would save little. And a peer that is slow but steady must not look idle.
EXPECTED_BYTES_MAX = 8 * 1024


class BatchedTlsTransport(TlsWaiting, PageCacheReader):
    """Encrypted connection of a listener; passes several TLS records at a time to OpenSSL and the socket."""

    __slots__ = (
        "_begun",
        "_chunk_bytes",
        "_dataless_bytes",
        "_expected",
        "_failure",
        "_has_ended",
        "_has_news",
        "_holds_record",
        "_in_openssl",
        "_incoming",
        "_pieces",
        "_read",
        "_receive_waits_for",
        "_send_waits_for",
        "_session",
        "_write",
        "socket",
    )

    def __init__(self, session: TlsSession, pieces: Pieces) -> None:
        """Create the transport after the handshake, in the event loop's thread."""
        self._session, self._pieces = session, pieces
        self.socket = session.socket
        self._read, self._write = session.tls.read, session.tls.write
        self._incoming = session.bios.incoming
        self._chunk_bytes = session.bios.chunk_bytes
        self._receive_waits_for, self._send_waits_for = WAIT_READABLE, WAIT_WRITABLE
        self._begun = 0  # bytes of the piece whose ciphertext waits for the socket
        self._holds_record = False  # OpenSSL has decrypted more than there was room for
        self._in_openssl = 0  # bytes there that belong to no complete record, at most
        self._dataless_bytes = 0  # since there were data
        self._expected = 1  # bytes that the kernel waits for
        # The stream has ended, or failed; news if that is behind bytes that were handed over.
        self._has_ended = self._has_news = False
        self._failure: OSError | None = None

    # --- in

    def receive_into(self, buffer: Any, size: int = 0) -> int:
        """Receive and decrypt all available records. `Transport.receive_into` describes parameters and result."""
        self._has_news = False
        if self._failure is None and not self._has_ended:
            total = 0
            if self._session.flush():
                with memoryview(buffer) as view:
                    total = self._receive(view[:size] if size else view)
            self._receive_waits_for = WAIT_WRITABLE if self._session.unsent else WAIT_READABLE
            if total:
                self._has_news = self._has_ended or self._failure is not None
                return total
        if self._failure is not None:
            raise self._failure
        if self._has_ended:
            return 0
        raise BlockingIOError

    def _receive(self, view: memoryview) -> int:
        """Receive and decrypt in chunks; return the number of data bytes. The next call raises any error."""
        room = len(view)
        total = self._decrypt(view) if self._holds_record else 0
        late_from = time.monotonic() + TURN_S
        try:
            while total < room and not self._has_ended and self._failure is None:
                # Ciphertext is longer than its data. What there is no room for has to be kept.
                wanted = min(self._chunk_bytes, room - total + (room - total >> 4) + 64)
                chunk = self._feed(wanted)
                total += self._decrypt_judging(view[total:], chunk)
                # The socket is empty, or it is the turn of others.
                if chunk < wanted or time.monotonic() > late_from:
                    break
            self._session.flush()  # what OpenSSL has answered
        except BlockingIOError:
            pass
        # What came before the error was in order.
        except OSError as error:
            self._failure = bare(broken(error))
        return total

    def _decrypt_judging(self, view: memoryview, chunk: int) -> int:
        """Decrypt a chunk; return the number of data bytes. If this is slow for little data, reduce the chunk size."""
        # Time of the processor: on a busy machine anything may last long.
        began_s = time.thread_time() if chunk > SMALL_CHUNK_BYTES else math.inf
        count = self._decrypt(view)
        if 2 * count < chunk and time.thread_time() - began_s > DEAR_S:
            self._chunk_bytes = SMALL_CHUNK_BYTES
        self._dataless_bytes = 0 if count else self._dataless_bytes + chunk
        if self._dataless_bytes > DATALESS_BYTES_MAX:
            text = "cut off %s, which sends TLS messages without data"
            self._pieces.reminder.tell(logger.warning, text, _host(self.socket))
            raise ConnectionResetError("TLS messages without data")
        return count

    def _feed(self, wanted: int) -> int:
        """Pass at most `wanted` bytes of ciphertext to OpenSSL; return their number."""
        session = self._session
        if session.unread:
            data, session.unread = session.unread[:wanted], session.unread[wanted:]
            return self._incoming.write(data)
        ciphertext = self._pieces.ciphertext
        count = self.socket.recv_into(ciphertext, wanted)
        if count:
            self._incoming.write(ciphertext[:count])
        else:
            self._has_ended = True
        return count

    def _decrypt(self, view: memoryview) -> int:
        """Decrypt the ciphertext that OpenSSL holds, as far as `view` has room; return the number of data bytes."""
        incoming, read = self._incoming, self._read
        room, count, rest = len(view), 0, incoming.pending
        try:
            while rest or self._holds_record:
                self._holds_record = False
                got: Any = read(room - count, view[count:])  # at most one record
                if not got:
                    self._has_ended = True  # by a farewell
                    break
                count += got
                if count == room:
                    self._holds_record = self._session.tls.pending() > 0
                    break
                rest = incoming.pending
            self._in_openssl = 0
        except ssl.SSLWantReadError:
            # A record has begun in what was left; or earlier, if nothing was complete.
            self._in_openssl = rest if count else self._in_openssl + rest
        except OSError as error:
            self._failure = bare(broken(error))
        finally:
            self._session.empty_bios()
        if self._has_ended:
            self._session.unread = b""  # bytes behind a close_notify stay unread
        return count

    # --- out

    def send(self, data: Any, flags: int = 0) -> int:
        """Encrypt and send what the socket accepts in one time slice; return the number of data bytes.

        `flags` are ignored. Raises BlockingIOError if nothing was sent.
        """
        session = self._session
        if not session.flush():
            raise BlockingIOError
        sent, self._begun = self._begun, 0
        size, late_from = len(data), time.monotonic() + TURN_S
        assert sent <= size
        with memoryview(data) as view:
            while sent < size:
                end = min(size, sent + session.bios.piece_bytes)
                self._encrypt(view[sent:end])
                if not session.flush():
                    self._begun = end - sent
                    break
                sent = end
                if time.monotonic() > late_from:  # an answer without records may be long
                    break
        if not sent and size:
            raise BlockingIOError
        return sent

    def _encrypt(self, piece: memoryview) -> None:
        done = 0
        try:
            while done < len(piece):
                done += self._write(piece[done:])
        except OSError as error:
            raise broken(error) from None
        finally:
            self._session.empty_bios()

    def send_region(self, region: FileRegion, position: int, length: int) -> int:
        """Encrypt and send bytes of a file region from the page cache; see `Transport.send_region`."""
        if begun := self._begun:
            # Its pages may be gone, but they are encrypted already.
            if not self._session.flush():
                raise BlockingIOError
            self._begun = 0
            return begun
        with self._pieces.view[: min(length, len(self._pieces.view))] as view:
            count = read_what_is_there(region.file.fileno(), view, position)
            return self.send(view[:count]) if count else 0

    # --- waiting

    @property
    def holds_input(self) -> bool:
        """True if this object has buffered input, an error or the end of the stream that the socket does not report."""
        return self._has_news or self._holds_record or bool(self._session.unread)

    def _expect(self, count: int) -> None:
        """Make the kernel report input only when `count` bytes have arrived, if the system can."""
        # Of a record that has begun OpenSSL has a part already. Ciphertext is longer than its data, so this is never too much.
        expected = max(1, min(count - self._in_openssl, EXPECTED_BYTES_MAX))
        if expected != self._expected:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, expected)
            self._expected = expected

    # --- the end

    def peer_has_left(self) -> bool:
        """True if the peer has closed the TCP connection or its sending side. A close_notify alone does not count."""
        return not self._has_news and has_left(self.socket)

    def is_at_end(self) -> bool:
        """True if the peer has closed its sending side and everything was read, except perhaps a TLS close_notify."""
        return not self.holds_input and is_left_with_a_farewell(self.socket)

    def close(self) -> None:
        """Send a TLS close_notify if the socket accepts it, then close the socket."""
        self._failure = None  # the traceback of the error refers to this connection: a reference cycle
        self._session.close()


def _host(sock: socket.socket) -> str:
    try:
        return str(sock.getpeername()[0])
    except (OSError, IndexError):  # it has left, or is no connection of TCP
        return "a peer"
