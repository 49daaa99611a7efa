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
    """The broker cannot be reached, hung up, or did not answer in time; the request may have taken effect."""


class Peer(Protocol):
    """Connection to one broker. It connects at the first request, and again after a loss of the connection."""

    async def ask(self, request: Message, version: int, *, timeout_s: float) -> Any:
        """Send a request and return its response. Several may be on their way; they are answered in order.

        Bytes in the response are views that hold until the next call. Raises PeerUnavailable, after which the connection
        is gone, and with it whatever else was on its way.
        """

    async def aclose(self) -> None:
        """Close the connection; pending requests raise PeerUnavailable."""


class Peers(Protocol):
    """Makes connections to brokers."""

    def to(self, endpoint: BrokerEndpoint, *, client_id: str) -> Peer:
        """Connection to the broker at this endpoint. Nothing is sent yet."""
