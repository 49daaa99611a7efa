"""A session of OpenSSL that is handed ciphertext and hands out ciphertext, so that one system call is for many records.

Theory
    OpenSSL on a socket reads the header of a record with one system call, and its body with another one. A client that
    writes small records (librdkafka: two for each message) makes that dear. Here the socket is read once for all that it
    holds. The ciphertext goes through OpenSSL's buffers in memory (BIOs), and so does what OpenSSL has to send.

    Such buffers never shrink. So all sessions of an event loop share a pair of them, which is empty whenever none of them is
    inside OpenSSL: what a session has left there is kept with the session (`unread`, `unsent`), and that is nearly always
    nothing. Were something left behind all the same, it would be noise to the next session, which OpenSSL refuses.

    A session whose handshake is done in a thread has a pair of its own, as long as it lives.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
from typing import Any

CHUNK_BYTES = 16 * 1024
PIECE_BYTES = 64 * 1024


class Bios:
    """The two buffers, and how much is put into them at a time: bytes of ciphertext, and bytes that are to be encrypted."""

    __slots__ = ("chunk_bytes", "incoming", "outgoing", "piece_bytes")

    def __init__(self, chunk_bytes: int = CHUNK_BYTES, piece_bytes: int = PIECE_BYTES) -> None:
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.chunk_bytes, self.piece_bytes = chunk_bytes, piece_bytes


class TlsSession:
    """A listener's side of one connection, on a socket that does not block; see the module's docstring."""

    __slots__ = ("bios", "socket", "tls", "unread", "unsent")

    def __init__(self, context: ssl.SSLContext, sock: socket.socket, bios: Bios) -> None:
        self.bios = bios
        self.socket = sock
        self.tls = context.wrap_bio(bios.incoming, bios.outgoing, server_side=True)
        self.unread = b""  # ciphertext that has come and is not in OpenSSL yet
        self.unsent: bytes | memoryview = b""  # ciphertext that the socket has not taken

    def fileno(self) -> int:
        """For those who wait for the socket."""
        return self.socket.fileno()

    def getpeercert(self, binary_form: bool) -> Any:
        """As `ssl.SSLSocket.getpeercert`."""
        return self.tls.getpeercert(binary_form)

    def do_handshake(self) -> None:
        """As `ssl.SSLSocket.do_handshake`, errors included."""
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
        """Take out what OpenSSL has left. Whoever was inside OpenSSL calls this before anything else."""
        incoming, outgoing = self.bios.incoming, self.bios.outgoing
        if incoming.pending:
            # It came before what was not handed over at all.
            self.unread = incoming.read() + self.unread
        if outgoing.pending:
            self.unsent = b"".join((self.unsent, outgoing.read())) if self.unsent else outgoing.read()

    def flush(self) -> bool:
        """Send what is left of the ciphertext; whether nothing is left now."""
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
        """Say farewell, if the socket takes it, and close."""
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
    """What OpenSSL makes of a socket whose stream ends."""
    error = ssl.SSLEOFError(ssl.SSL_ERROR_EOF, "the connection ended")
    error.reason = "UNEXPECTED_EOF_WHILE_READING"
    return error
