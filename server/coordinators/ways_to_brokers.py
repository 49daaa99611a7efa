"""Ways to the other brokers, for whoever asks now this one and now that one. One that has moved is found again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from ottla.server.ports import HasCluster, HasMember, HasSettings

if TYPE_CHECKING:
    from ottla.replication.cluster.metadata_cache import BrokerEndpoint
    from ottla.replication.cluster.peers import Peer
    from ottla.wire.schema import Message

TIMEOUT_S = 30.0


class Port(HasCluster, HasMember, HasSettings, Protocol):
    """Parts of the broker that this module uses."""


class WaysToBrokers:
    """Connections to the other brokers, for one purpose."""

    def __init__(self, broker: Port, purpose: str) -> None:
        self._broker = broker
        self._purpose = purpose
        self._peers: dict[int, tuple[BrokerEndpoint | None, Peer]] = {}

    async def ask(self, broker_id: int, request: Message, version: int) -> Any:
        """Ask another broker, once. Raises PeerUnavailable."""
        return await (await self._peer(broker_id)).ask(request, version, timeout_s=TIMEOUT_S)

    async def _peer(self, broker_id: int) -> Peer:
        endpoint = self._broker.cluster.endpoint(broker_id, self._broker.config.inter_broker_listener_name)
        known = self._peers.get(broker_id)
        if known is not None and known[0] == endpoint:
            return known[1]
        peer = self._broker.member.peer(broker_id, purpose=f"broker-{self._broker.node_id}-{self._purpose}")
        self._peers[broker_id] = endpoint, peer
        # Closed last: others who ask meanwhile share the new one.
        if known is not None:
            await known[1].aclose()
        return peer
