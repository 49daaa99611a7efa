"""TLS handshakes of accepted connections.

Theory
    A connection first waits for the peer's first bytes; until then it is a socket and a sleeping task. The bytes tell what
    the peer speaks. Who speaks TLS gets a session of OpenSSL, and as many steps of a handshake as it takes.

    The dearest step is mostly one signature. Steps that the event loop can afford are done there, one at each turn of the loop,
    so that many simultaneous connections do not hold up others. A dear key (RSA 4096) signs in a thread. Which kind a key is is
    measured with its first handshakes, in a thread as well (`HandshakeSteps`).

    Unless the kernel can encrypt what is sent, OpenSSL is not put on the socket itself (`tls_session.py`).

Limits
    A handshake may take HANDSHAKE_S. An address may have PER_ADDRESS_MAX of them under way, and all together HANDSHAKES_MAX.
    One more ends the oldest: of this address, or of the address that has most. So who opens very many only pushes out its own.

Log
    Mistakes of peers are logged in one line a minute for each address.
"""

from __future__ import annotations

import logging
import socket
import ssl
import time
from typing import TYPE_CHECKING, NamedTuple

import trio

from ottla.replication.reminders import Reminders
from ottla.server.network.protocol_detection import HTTP, HTTP_ANSWER, detect_protocol
from ottla.server.network.tls_batches import BatchedTlsTransport
from ottla.server.network.tls_session import CHUNK_BYTES, Bios, TlsSession
from ottla.server.network.tls_transport import Pieces, TlsTransport, kernel_may_encrypt, transport_of
from ottla.server.security.certificates import MalformedDer
from ottla.server.security.principal_mapping import NoRuleFits
from ottla.wire.happenings import DISCONNECT, Note, note_nothing

if TYPE_CHECKING:
    from ottla.server.security.tls_listener import KeyCost, TlsListener

logger = logging.getLogger("ottla.tls")

HANDSHAKE_S = 10.0
HANDSHAKES_MAX = 2_000
PER_ADDRESS_MAX = 500
LOOK_BYTES = 8
HTTP_BYTES = 64 * 1024


class Welcomed(NamedTuple):
    """Encrypted connection after its handshake, with the client's principal."""

    transport: BatchedTlsTransport | TlsTransport
    principal: str


class _Refused(Exception):
    """Raised if the peer violated the protocol before the handshake; the text says how."""


class Handshakes:
    """TLS handshakes of all listeners of one event loop."""

    def __init__(
        self,
        *,
        handshake_s: float = HANDSHAKE_S,
        handshakes_max: int = HANDSHAKES_MAX,
        per_address_max: int = PER_ADDRESS_MAX,
        note: Note = note_nothing,
    ) -> None:
        self._note = note
        self._handshake_s = handshake_s
        self._under_way = _UnderWay(handshakes_max, per_address_max)
        self._steps = HandshakeSteps()
        self._pieces = Pieces()
        self._reminders = Reminders()

    async def welcome(self, sock: socket.socket, host: str, listener: TlsListener) -> Welcomed | None:
        """Do the TLS handshake on an accepted socket; return the encrypted connection.

        None: the handshake failed, and the socket is closed.
        """
        scope = trio.CancelScope(deadline=trio.current_time() + self._handshake_s)
        self._under_way.add(host, scope)
        current: socket.socket | TlsSession = sock
        welcomed = None
        try:
            with scope:
                await self._look(sock)
                current = tls = self._begun(sock, listener)
                await self._steps.take_all(tls, listener.cost)
                principal = listener.principal(tls.getpeercert(binary_form=True))
                welcomed = Welcomed(self._transport_of(tls), principal)
        except _Refused as refusal:
            self._tell(host, listener, str(refusal))
        except ssl.SSLError as error:
            self._tell(host, listener, _words(error))
        except (NoRuleFits, MalformedDer) as error:
            self._tell(host, listener, f"its certificate names no user: {error}")
        except OSError:
            pass  # the peer went away
        finally:
            self._under_way.discard(host, scope)
            if welcomed is None:
                current.close()
        if scope.cancelled_caught:
            is_late = trio.current_time() >= scope.deadline
            late = f"its handshake was not done within {self._handshake_s:g} s"
            self._tell(host, listener, late if is_late else "too many handshakes are under way, and it has the oldest")
        return welcomed

    def _begun(self, sock: socket.socket, listener: TlsListener) -> ssl.SSLSocket | TlsSession:
        context = listener.context
        # The kernel gets the keys of a session on the socket itself only, which takes the descriptor away from `sock`.
        if kernel_may_encrypt(context):
            return context.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)
        # A cost that is low stays low, so what is shared never gets into a thread.
        return TlsSession(context, sock, self._pieces.bios if listener.cost.is_low else Bios(CHUNK_BYTES, CHUNK_BYTES))

    def _transport_of(self, tls: ssl.SSLSocket | TlsSession) -> BatchedTlsTransport | TlsTransport:
        pieces = self._pieces
        return BatchedTlsTransport(tls, pieces) if isinstance(tls, TlsSession) else transport_of(tls, pieces)

    async def _look(self, sock: socket.socket) -> None:
        """Wait for the peer's first bytes. Raises _Refused if they are not TLS."""
        await trio.lowlevel.wait_readable(sock)
        first = sock.recv(LOOK_BYTES, socket.MSG_PEEK)
        if not first:
            raise ConnectionResetError("the peer left before it said anything")
        protocol = detect_protocol(first)
        if protocol == HTTP:
            sock.recv(HTTP_BYTES)  # what is left unread would take the answer with it when the socket is closed
            sock.send(HTTP_ANSWER)
        if protocol != "TLS":
            raise _Refused(f"it speaks {protocol}, and this listener speaks TLS")

    def _tell(self, host: str, listener: TlsListener, what: str) -> None:
        cause = f"the connection of {host} to listener {listener.name} was closed in its TLS handshake: {what}"
        self._note(DISCONNECT, cause, source=host, host=host)
        self._reminders.tell(
            host, logger.warning, "closing a connection of %s to listener %s: %s", host, listener.name, what
        )


def _words(error: ssl.SSLError) -> str:
    reason = error.reason or ""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is refused: {error.verify_message}"
    if reason == "PEER_DID_NOT_RETURN_A_CERTIFICATE":
        return "it has shown no certificate, and ssl.client.auth asks for one"
    if reason in ("NO_SHARED_CIPHER", "UNSUPPORTED_PROTOCOL", "WRONG_VERSION_NUMBER", "VERSION_TOO_LOW"):
        return f"it speaks no version or cipher suite of TLS that this listener may use ({reason})"
    if "ALERT" in reason:
        return f"it has ended the handshake, perhaps because it does not trust this broker's certificate ({reason})"
    return f"the handshake failed ({reason or 'the connection ended'})"


class _UnderWay:
    """Handshakes in progress, by address and cancel scope, oldest first."""

    def __init__(self, total_max: int, per_address_max: int) -> None:
        self._total_max, self._per_address_max = total_max, per_address_max
        self._by_host: dict[str, dict[trio.CancelScope, None]] = {}
        self._total = 0

    def add(self, host: str, scope: trio.CancelScope) -> None:
        """Count a handshake. If there are too many, cancel the oldest one of the address with most handshakes."""
        own = self._by_host.setdefault(host, {})
        own[scope] = None
        self._total += 1
        if len(own) > self._per_address_max:
            self._end_oldest(host)
        elif self._total > self._total_max:
            self._end_oldest(max(self._by_host, key=lambda each: len(self._by_host[each])))

    def discard(self, host: str, scope: trio.CancelScope) -> None:
        """Stop counting a handshake that has ended."""
        own = self._by_host.get(host, {})
        if scope in own:
            del own[scope]
            self._total -= 1
            if not own:
                del self._by_host[host]

    def _end_oldest(self, host: str) -> None:
        scope = next(iter(self._by_host[host]))
        # No longer counted, or the next one too many would end it once more.
        self.discard(host, scope)
        scope.cancel()


class HandshakeSteps:
    """Runner of handshake steps for all connections, which limits their share of time.

    One step runs in each round of the event loop. Slow steps run in a thread instead, one at a time.
    """

    def __init__(self) -> None:
        self._turn = trio.Lock()
        self._thread = trio.CapacityLimiter(1)

    async def take_all(self, tls: ssl.SSLSocket | TlsSession, cost: KeyCost) -> None:
        """Do the whole handshake on a non-blocking socket, slow steps in a thread. Raises OSError or ssl.SSLError."""
        dearest_s = 0.0
        in_thread = not cost.is_low
        while True:
            try:
                if in_thread:
                    # Not abandoned: a thread must not use a socket that is closed meanwhile.
                    dearest_s = max(dearest_s, await trio.to_thread.run_sync(_timed_step, tls, limiter=self._thread))
                else:
                    await self._step_on_loop(tls)
            except ssl.SSLWantReadError:
                await trio.lowlevel.wait_readable(tls)
            except ssl.SSLWantWriteError:
                await trio.lowlevel.wait_writable(tls)
            else:
                break
        if in_thread and not cost.is_known:
            cost.note(dearest_s)

    async def _step_on_loop(self, tls: ssl.SSLSocket | TlsSession) -> None:
        # Who waits for the lock is woken at the next turn of the loop: one step each turn.
        async with self._turn:
            tls.do_handshake()


def _timed_step(tls: ssl.SSLSocket | TlsSession) -> float:
    """Run one handshake step; return its CPU time in seconds."""
    began = time.thread_time()
    tls.do_handshake()
    return time.thread_time() - began
