"""Connections from this broker to the other brokers, and to itself.

The controller's connections, in both directions, use a listener of their own if control.plane.listener.name names one.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Protocol

from ottla.replication.cluster.peers import Peer, Peers, PeerUnavailable
from ottla.server.cluster.controller_channel import ControllerChannel
from ottla.server.dispatch.context import THIS_BROKER, RequestContext
from ottla.server.dispatch.dispatch import all_routes
from ottla.server.ports import BrokerParts
from ottla.wire.errors import KafkaError

if TYPE_CHECKING:
    from ottla.replication.cluster.metadata_cache import BrokerEndpoint, BrokerRegistration
    from ottla.server.security.authorizer import AclAuthorizer
    from ottla.server.security.tls_listener import TlsListeners
    from ottla.server.security.tokens import DelegationTokens
    from ottla.wire.schema import Message


class LocalPeer:
    """Peer object for this broker itself. It calls the request handlers directly, without a socket."""

    def __init__(self, broker: BrokerParts, client_id: str) -> None:
        self._broker, self._client_id = broker, client_id

    async def ask(self, request: Message, version: int, *, timeout_s: float) -> Any:
        """Call the handler; `timeout_s` is ignored."""
        route = all_routes()[request.api_key]
        context = RequestContext(
            self._broker,
            api_version=version,
            client_id=self._client_id,
            principal=THIS_BROKER,
            now_ms=self._broker.now_ms(),
        )
        try:
            response = route.handler(request, context)
            return await response if isinstance(response, Coroutine) else response
        except KafkaError as error:
            from ottla.wire.error_answers import error_answer  # here, because it is seldom needed

            return error_answer(request, route.response_class, version, error.code, error.message)

    async def aclose(self) -> None:
        """Do nothing: there is no connection to close."""


class BrokerPort(BrokerParts, Protocol):
    """Interface of the broker for the cluster package: the parts of the broker that the package uses."""

    @property
    def authorizer(self) -> AclAuthorizer | None: ...

    @property
    def tls(self) -> TlsListeners | None: ...

    @property
    def tokens(self) -> DelegationTokens | None: ...


class BrokerConnections:
    """Factory of connections to brokers by their ids; for this broker itself it returns a `LocalPeer`."""

    def __init__(self, broker: BrokerPort, *, is_alone: bool) -> None:
        self._broker = broker
        self._listener = broker.config.inter_broker_listener_name
        self._control_plane = broker.config.control_plane_listener_name or self._listener
        self._peers = {} if is_alone else {each: self._peers_at(each) for each in sorted(broker.config.between_brokers)}

    def _peers_at(self, listener: str) -> Peers:
        from ottla.server.peers.tcp import PeerConnectionConfig  # a lone broker connects to nobody

        broker = self._broker
        assert broker.readiness is not None
        member = broker.config.member
        config = PeerConnectionConfig(
            receive_buffer_bytes=broker.config.replication.replica_socket_receive_buffer_bytes,
            connect_timeout_s=member.socket_connection_setup_timeout_ms / 1000,
            connect_timeout_max_s=member.socket_connection_setup_timeout_max_ms / 1000,
            encryption=None if broker.tls is None else broker.tls.get(listener),
            login=broker.config.peer_logins.get(listener),
        )
        return broker.environment.make_peers(broker.readiness, config)

    def to_broker(self, broker_id: int, *, purpose: str) -> Peer:
        """Connect to a broker. Raises PeerUnavailable if no controller has announced the broker."""
        endpoint = self._broker.cluster.endpoint(broker_id, self._listener)
        return self._connect(broker_id, endpoint, self._listener, purpose)

    def endpoint_of_controller(self, broker_id: int) -> BrokerEndpoint | None:
        """Return broker `broker_id`'s address for requests to a controller; None if the broker is unknown."""
        return self._broker.cluster.endpoint(broker_id, self._control_plane)

    def to_controller(self, broker_id: int) -> Peer:
        """Connect to broker `broker_id`, which is the controller. Raises PeerUnavailable if its address is unknown."""
        return self._connect(broker_id, self.endpoint_of_controller(broker_id), self._control_plane, "to-controller")

    def controller_channel(self) -> ControllerChannel:
        """Return a new channel to the controller. The channel connects anew when another broker becomes controller."""
        return ControllerChannel(self.endpoint_of_controller, self.to_controller)

    def from_controller(self, registration: BrokerRegistration) -> Peer:
        """Connect the controller to a broker. Raises PeerUnavailable if the broker lacks the controller's listener."""
        endpoint = registration.endpoints.get(self._control_plane)
        return self._connect(registration.node_id, endpoint, self._control_plane, str(self._broker.node_id))

    def _connect(self, broker_id: int, endpoint: BrokerEndpoint | None, listener: str, client_id: str) -> Peer:
        if broker_id == self._broker.node_id:
            return LocalPeer(self._broker, client_id)
        if endpoint is None or listener not in self._peers:
            raise PeerUnavailable(f"broker {broker_id} is not known on listener {listener}")
        return self._peers[listener].to(endpoint, client_id=client_id)
