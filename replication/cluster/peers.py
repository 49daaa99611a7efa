"""Port to other brokers: requests get a response or raise PeerUnavailable, after which their effect is unknown.

Adapters are `server/peers/tcp.py` (TCP) and the network of the simulation. Versions are not negotiated: what brokers say to
each other has the versions of Kafka 3.9 (inter.broker.protocol.version 3.9).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from ottla.replication.cluster.metadata_cache import BrokerEndpoint
    from ottla.wire.schema import Message


class PeerUnavailable(Exception):
    """Error raised if a broker is unreachable, hangs up or is late; the request may have taken effect."""


class Peer(Protocol):
    """Connection to one broker, opened by the first request and reopened by the first request after a loss."""

    async def ask(self, request: Message, version: int, *, timeout_s: float) -> Any:
        """Send a request and return its response. Several requests may be in flight; the broker answers them in order.

        The response's bytes are views, valid until the next call. After a loss of the connection all requests in flight
        raise PeerUnavailable.
        """

    async def aclose(self) -> None:
        """Close the connection; pending requests raise PeerUnavailable."""


class Peers(Protocol):
    """Factory of connections to brokers."""

    def to(self, endpoint: BrokerEndpoint, *, client_id: str) -> Peer:
        """Return a connection to the broker at `endpoint`, without opening it yet."""
