"""TLS between this broker and another one.

Each connection is made with what the listener has in force then, so that changed certificates hold for the next one. Error
messages say which setting to change, because reconnecting does not repair a wrong certificate.

With TLS 1.3 this side has done its handshake before the other one has looked at its certificate. If it is refused the first
answer is an alert, or the end of the connection: `TlsPeerTransport` tells them apart from later ends.
"""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import trio

from ottla.server.network.readiness import WAIT_READABLE, Readiness, Step
from ottla.server.network.tls_handshakes import HandshakeSteps
from ottla.server.network.tls_session import Watch
from ottla.server.network.tls_transport import BrokenTls, TlsStream
from ottla.server.security.mechanism import NotEncrypted

if TYPE_CHECKING:
    from ottla.server.security.tls_listener import TlsListener

RECEIVED_AT_ONCE_MAX = 1024 * 1024
"""Bytes that one step decrypts (about 1 ms); without a limit a fast peer would hold the loop for a whole large answer."""

_HOSTNAME_MISMATCH, _ADDRESS_MISMATCH = 62, 64  # OpenSSL's X509_V_ERR_..., which Python has no names for
_EXPIRED, _NOT_YET_VALID = 10, 9


class PeerEncryption:
    """TLS handshakes with other brokers, with this broker's TLS settings for the inter-broker listener."""

    def __init__(self, listener: TlsListener, readiness: Readiness | None) -> None:
        self._listener, self._readiness = listener, readiness
        self._steps = HandshakeSteps()
        self._watch = Watch()

    async def encrypted(self, sock: socket.socket, host: str) -> TlsPeerTransport:
        """Do the TLS handshake on `sock`; return the encrypted connection. The certificate must name `host`.

        Raises NotEncrypted or OSError after closing `sock`.
        """
        to_others = self._listener.to_others
        current = sock
        try:
            # First, because `ssl` itself would leave the descriptor open if this fails.
            name = host.encode("idna").decode()
            # This takes the descriptor away from the plain socket.
            current = tls = to_others.context.wrap_socket(sock, server_hostname=name, do_handshake_on_connect=False)
            await self._steps.take_all(tls, to_others.cost)
            return TlsPeerTransport(tls, self._readiness, self._listener.name, self._watch)
        except ssl.SSLError as error:
            current.close()
            raise NotEncrypted(words_of(error, self._listener.name, host)) from None
        except ConnectionError as error:
            current.close()
            raise NotEncrypted(_hung_up(error.strerror or "the connection ended", self._listener.name)) from None
        except ValueError:  # UnicodeError, too
            current.close()
            raise NotEncrypted(
                f"{host!r} is no name that a certificate can have; change advertised.listeners there"
            ) from None
        # The requester may have gone meanwhile.
        except BaseException:
            current.close()
            raise


class TlsPeerTransport:
    """Encrypted connection to another broker; implements `PeerTransport`."""

    def __init__(self, sock: ssl.SSLSocket, readiness: Readiness | None, listener_name: str, watch: Watch) -> None:
        stream = TlsStream(sock, watch)
        self.serve: Callable[[Step], Awaitable[Any]] = (
            stream.serve_in_task if readiness is None else stream.serving(readiness)
        )
        self.is_refused = False
        self._stream, self._listener_name = stream, listener_name
        self._has_received = False
        self._write_end: int | None = None

    def expect(self, count: int) -> None:
        """Do nothing: OpenSSL buffers some of the input, so the number of bytes in the socket says nothing."""

    def receive_into(self, buffer: Any) -> int:
        """Receive and decrypt input into the buffer; return the number of bytes, at most RECEIVED_AT_ONCE_MAX."""
        try:
            count = self._stream.receive_into(buffer, RECEIVED_AT_ONCE_MAX)
        except BlockingIOError:
            raise
        except OSError as error:
            if self._has_received:
                raise
            raise self._refusal(error) from None
        if not count and not self._has_received:
            raise self._refusal(None)
        self._has_received = True
        return count

    def send(self, data: Any) -> int:
        """Encrypt and send as many of these bytes as possible; return their number."""
        try:
            return self._stream.send(data)
        except BlockingIOError:
            raise
        except OSError as error:
            if self._has_received:
                raise
            raise self._refusal(self._last_word() or error) from None

    def _last_word(self) -> BrokenTls | None:
        """Return the TLS alert that explains a failed send; None if the peer has sent none."""
        try:
            self._stream.receive_into(bytearray(1))
        except BrokenTls as alert:
            return alert
        except OSError:
            pass
        return None

    def _refusal(self, error: OSError | None) -> ConnectionError:
        self.is_refused = True
        if isinstance(error, BrokenTls) and "ALERT" in error.reason:
            return ConnectionResetError(_words_of_reason(error.reason, self._listener_name))
        return ConnectionResetError(
            "it hung up right after the TLS handshake: does it trust this broker's certificate? Its log says why"
        )

    async def until_sendable(self) -> None:
        """Wait on a duplicate descriptor for a blocked send; trio allows no second wait for the original."""
        if self._write_end is None:
            self._write_end = os.dup(self._stream.socket.fileno())
        is_readable_wanted = self._stream.send_waits_for is WAIT_READABLE
        await (trio.lowlevel.wait_readable if is_readable_wanted else trio.lowlevel.wait_writable)(self._write_end)

    def is_stale(self) -> bool:
        try:
            # Tickets and new keys come without being asked for, and no byte of an answer is in them. So a look at the
            # socket says nothing: OpenSSL has to read.
            self._stream.receive_into(bytearray(1))
        except BlockingIOError:
            return False
        except OSError:
            return True
        return True

    def close(self) -> None:
        write_end, self._write_end = self._write_end, None
        self._stream.close()
        if write_end is not None:
            os.close(write_end)


def words_of(error: ssl.SSLError, listener: str, host: str) -> str:
    """Return a text that explains a failed handshake with the broker at `host`, and names a remedy."""
    if isinstance(error, ssl.SSLCertVerificationError):
        if error.verify_code in (_HOSTNAME_MISMATCH, _ADDRESS_MISMATCH):
            return (
                f"its certificate is not for {host}: give it one that names this host among its subject alternative names"
                f" (ssl.endpoint.identification.algorithm checks that)"
            )
        if error.verify_code in (_EXPIRED, _NOT_YET_VALID):
            return f"its certificate is refused ({error.verify_message}): renew it, or set the clock right"
        return (
            f"its certificate is refused ({error.verify_message}):"
            f" ssl.truststore of listener {listener} has to hold the authority that signed it"
        )
    return _words_of_reason(error.reason or "", listener)


def _words_of_reason(reason: str, listener: str) -> str:
    """Return a text for OpenSSL's `reason`.

    A reason with ALERT, such as TLSV1_ALERT_UNKNOWN_CA, was sent by the other broker.
    """
    if "ALERT" not in reason:
        if reason in ("NO_PROTOCOLS_AVAILABLE", "UNSUPPORTED_PROTOCOL", "NO_CIPHERS_AVAILABLE"):
            return f"it speaks no version of TLS that this broker may use ({reason}): compare ssl.enabled.protocols"
        if not reason or "EOF" in reason:
            return _hung_up(reason or "the connection ended", listener)
        return f"it answers what is not TLS ({reason}): does its listener {listener} speak TLS?"
    if "CERTIFICATE_REQUIRED" in reason:
        return f"it asks for a certificate, and this broker has none to show: set ssl.keystore of listener {listener}"
    if "PROTOCOL_VERSION" in reason or "HANDSHAKE_FAILURE" in reason or "INSUFFICIENT_SECURITY" in reason:
        return (
            f"it has ended the TLS handshake ({reason}): compare ssl.enabled.protocols, ssl.cipher.suites"
            " and ssl.client.auth of both brokers"
        )
    return (
        f"it has ended the TLS handshake ({reason}): its ssl.truststore has to hold the authority that signed this broker's"
        f" certificate, which has to be valid for clients, too. Its log says why"
    )


def _hung_up(how: str, listener: str) -> str:
    return (
        f"it hung up during the TLS handshake ({how}): does its listener {listener} speak TLS,"
        " and does it trust this broker's certificate? Its log says why"
    )
