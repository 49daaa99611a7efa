"""The context of a listener, which its connections share, and its log lines about connections that end in an error."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import trio

from ottla.replication.reminders import Reminders, log_with_count
from ottla.wire.happenings import DISCONNECT, Note, cut, note_nothing

if TYPE_CHECKING:
    from ottla.server.dispatch.context import RequestContext
    from ottla.server.network.authentication import Authentication
    from ottla.server.network.calls import Calls
    from ottla.server.network.inbox import Inbox, ReceiveBuffers
    from ottla.server.network.readiness import Readiness
    from ottla.server.network.transport import Transport
    from ottla.server.security.quotas.client_quotas import ClientQuotas
    from ottla.server.security.sasl_listener import SaslListener


class ListenerContext(Protocol):
    """Interface of a listener, as its connections use it. `broker` is passed to the handlers of requests."""

    name: str
    security_protocol: str
    broker: Any
    calls: Calls
    readiness: Readiness
    buffers: ReceiveBuffers
    frame_bytes_max: int
    sasl: SaslListener | None
    complaints: Complaints
    quotas: ClientQuotas


def authentication_at(
    listener: ListenerContext,
    context: RequestContext[Any],
    inbox: Inbox,
    transport: Transport,
    send: Callable[[bytes], Awaitable[None]],
) -> Authentication | None:
    """Return the SASL authentication of a connection; None if the listener does not use SASL."""
    if listener.sasl is None:
        return None
    from ottla.server.network.authentication import Authentication  # most brokers need none

    return Authentication(
        listener.sasl,
        calls=listener.calls,
        context=context,
        inbox=inbox,
        readiness=listener.readiness,
        transport=transport,
        send=send,
    )


logger = logging.getLogger("ottla.connection")

KEPT_MAX = 200
TEXT_CHARACTERS_MAX = 200


class Complaints:
    """Log lines about one listener's clients: one a minute per client and problem; at most KEPT_MAX are remembered."""

    def __init__(self, listener_name: str, note: Note = note_nothing) -> None:
        """`note`: takes what happens to connections as happenings."""
        self._listener_name, self.note_happening = listener_name, note
        self._reminders, self._bugs = Reminders(KEPT_MAX), Reminders(KEPT_MAX)

    def close(self, peer: str, client_id: str, reason: str) -> None:
        """Log that the connection of `peer` is closed because the peer violated the protocol."""
        self.note_end(peer, client_id, reason)
        text = "closing the connection of %s (client id %r) to listener %s: %s"
        name = (peer, client_id[:TEXT_CHARACTERS_MAX], reason[:TEXT_CHARACTERS_MAX])
        self._reminders.tell(name, logger.warning, text, peer, client_id, self._listener_name, reason, source=peer)

    def note_end(self, peer: str, client_id: str, reason: str) -> None:
        """Note, without a log line, that the broker closes the connection of `peer`."""
        cause = f"the connection of {_who(client_id, peer)} to listener {self._listener_name} was closed: {reason}"
        self.note_happening(DISCONNECT, cause, source=peer, client_id=client_id, host=peer)

    def note(self, peer: str, client_id: str, what: str) -> None:
        """Log a mistake of a peer whose connection stays open."""
        text = "%s (client id %r) at listener %s: %s"
        name = (peer, client_id[:TEXT_CHARACTERS_MAX], what[:TEXT_CHARACTERS_MAX])
        self._reminders.tell(name, logger.warning, text, peer, client_id, self._listener_name, what, source=peer)

    async def report_bug(self, error: Exception, peer: str, client_id: str, *, is_closing: bool = True) -> None:
        """Log a bug with its traceback, in a thread because this is slow. `is_closing`: it ends the connection."""
        untold = self._bugs.untold(_place(error))
        if untold is None:
            return
        text = f"bug: {'closing the connection' if is_closing else 'no answer to a request'} of %s (client id %r)"
        tell = partial(log_with_count, untold, partial(logger.error, exc_info=error), text, peer, client_id)
        # The line is written even if the broker stops meanwhile: nothing else tells of the bug.
        with trio.CancelScope(shield=True):
            await trio.to_thread.run_sync(tell)


def _who(client_id: str, peer: str) -> str:
    return f"{cut(client_id)!r} at {peer}" if client_id else peer


def _place(error: Exception) -> tuple[type[Exception], str, int]:
    """Return a key for a bug: exception type, file and line; the same bug is logged once a minute."""
    trace = error.__traceback__
    if trace is None:
        return type(error), "", 0
    while trace.tb_next is not None:
        trace = trace.tb_next
    return type(error), trace.tb_frame.f_code.co_filename, trace.tb_lineno
