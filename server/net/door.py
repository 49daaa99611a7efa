"""What a connection needs of the listener that it came in through."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from ottla.server.auth.sasl_listener import SaslListener
    from ottla.server.net.calls import Calls
    from ottla.server.net.inbox import ReceiveBuffers
    from ottla.server.net.readiness import Readiness
    from ottla.server.net.reports import Complaints
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
