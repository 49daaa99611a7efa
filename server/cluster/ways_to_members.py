"""Ways from this member of a cluster to the others.

The controller's connections, in both directions, use a listener of their own if control.plane.listener.name names one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from ottla.replication.cluster.peers import Peer, Peers, PeerUnavailable
from ottla.server.cluster.local_peer import LocalPeer
from ottla.server.cluster.way_to_controller import WayToController
from ottla.server.peers.speech import Speech
from ottla.server.ports import HasCluster, HasEnvironment, HasReadiness, HasSettings

if TYPE_CHECKING:
    from ottla.replication.cluster.metadata_cache import BrokerEndpoint, BrokerRegistration
    from ottla.server.auth.tls_listener import TlsListeners
    from ottla.server.cluster.forwarding import Election, ForwardingManager


class Port(HasCluster, HasReadiness, HasSettings, HasEnvironment, Protocol):
    """What is needed of the broker here."""

    @property
    def tls(self) -> TlsListeners | None: ...


class WaysToMembers:
    """Makes ways. To this broker itself it is a direct one."""

    def __init__(self, broker: Port, *, is_alone: bool) -> None:
        self._broker = broker
        self._listener = broker.config.inter_broker_listener_name
        self._control_plane = broker.config.control_plane_listener_name or self._listener
        self._peers = {} if is_alone else {each: self._peers_at(each) for each in broker.config.between_brokers}

    def _peers_at(self, listener: str) -> Peers:
        broker = self._broker
        assert broker.readiness is not None
        member = broker.config.member
        speech = Speech(
            receive_buffer_bytes=broker.config.replication.replica_socket_receive_buffer_bytes,
            connect_timeout_s=member.socket_connection_setup_timeout_ms / 1000,
            connect_timeout_max_s=member.socket_connection_setup_timeout_max_ms / 1000,
            encryption=None if broker.tls is None else broker.tls.get(listener),
            login=broker.config.peer_logins.get(listener),
        )
        return broker.environment.make_peers(broker.readiness, speech)

    def to(self, broker_id: int, *, purpose: str) -> Peer:
        """A new way to a broker. PeerUnavailable: the controller has not named such a broker."""
        endpoint = self._broker.cluster.endpoint(broker_id, self._listener)
        return self._way(broker_id, endpoint, self._listener, purpose)

    def endpoint_of_controller(self, broker_id: int) -> BrokerEndpoint | None:
        """Where that broker is reached if it is the controller; None: nobody knows."""
        return self._broker.cluster.endpoint(broker_id, self._control_plane)

    def to_controller(self, broker_id: int) -> Peer:
        """A new way to the broker that is the controller. PeerUnavailable: it is not known."""
        return self._way(broker_id, self.endpoint_of_controller(broker_id), self._control_plane, "to-controller")

    def following_controller(self) -> WayToController:
        """A new way to whichever broker is the controller."""
        return WayToController(self.endpoint_of_controller, self.to_controller)

    def forwarding(self, election: Election) -> ForwardingManager:
        """What hands requests on that only the controller carries out."""
        from ottla.server.cluster.forwarding import ForwardingManager  # here, because most brokers are alone

        return ForwardingManager(
            election, self.following_controller, lambda: self._broker.config.server.request_timeout_ms
        )

    def of_controller(self, registration: BrokerRegistration) -> Peer:
        """The way from this broker, as the controller, to one that has registered. PeerUnavailable: it has no such listener."""
        endpoint = registration.endpoints.get(self._control_plane)
        return self._way(registration.node_id, endpoint, self._control_plane, str(self._broker.node_id))

    def _way(self, broker_id: int, endpoint: BrokerEndpoint | None, listener: str, client_id: str) -> Peer:
        if broker_id == self._broker.node_id:
            return LocalPeer(self._broker, client_id)
        if endpoint is None or listener not in self._peers:
            raise PeerUnavailable(f"broker {broker_id} is not known on listener {listener}")
        return self._peers[listener].to(endpoint, client_id=client_id)
