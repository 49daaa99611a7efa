"""What a connection needs of the listener that it came in through."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from ottla.server.auth.sasl_listener import SaslListener
    from ottla.server.gate.context import RequestContext
    from ottla.server.net.authentication import Authentication
    from ottla.server.net.calls import Calls
    from ottla.server.net.inbox import Inbox, ReceiveBuffers
    from ottla.server.net.readiness import Readiness
    from ottla.server.net.reports import Complaints
    from ottla.server.net.transport import Transport
    from ottla.server.quotas.client_quotas import ClientQuotas


class Door(Protocol):
    """What a connection takes from the listener that it came in through. `broker` goes to the handlers unseen."""

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
    door: Door,
    context: RequestContext[Any],
    inbox: Inbox,
    transport: Transport,
    send: Callable[[bytes], Awaitable[None]],
) -> Authentication | None:
    """What finds out who the peer of a connection is; None where nobody asks."""
    if door.sasl is None:
        return None
    from ottla.server.net.authentication import Authentication  # most brokers need none

    return Authentication(
        door.sasl,
        calls=door.calls,
        context=context,
        inbox=inbox,
        readiness=door.readiness,
        transport=transport,
        send=send,
    )
