"""Ports to a member of a cluster, for handlers and the administration."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from ottla.replication.cluster.coordination import Coordination
    from ottla.replication.cluster.peers import Peer
    from ottla.replication.replica_manager.alter_partition_manager import AlterPartitionManager
    from ottla.replication.replica_manager.controller_requests import ControllerRequests
    from ottla.server.cluster.acl_store import AclStore
    from ottla.server.cluster.controller.active_controller import ActiveController
    from ottla.server.cluster.features import Features
    from ottla.server.cluster.forwarding import ForwardingManager
    from ottla.server.cluster.token_store import TokenStore
    from ottla.wire.schema import Message


class Member(Protocol):
    """A member of a cluster: this broker."""

    @property
    def controller(self) -> ActiveController | None:
        """Active controller on this broker; None while another broker, or none, is the controller."""

    @property
    def controller_id(self) -> int:
        """Id of the active controller; -1 while it is unknown."""

    @property
    def session(self) -> Coordination: ...

    @property
    def features(self) -> Features:
        """The features that have levels, and the levels in use."""

    @property
    def acls(self) -> AclStore | None:
        """The rules of the authorizer; None without one."""

    @property
    def tokens(self) -> TokenStore | None:
        """The delegation tokens; None if there is no key for them."""

    @property
    def forwarding(self) -> ForwardingManager:
        """Forwards requests that only the controller carries out. For members of a cluster."""

    @property
    def is_fenced(self) -> bool:
        """True if this broker may have been replaced."""

    @property
    def controller_requests(self) -> ControllerRequests:
        """Carries out the controller's requests."""

    @property
    def alter_partition_manager(self) -> AlterPartitionManager: ...

    async def await_metadata(self) -> None:
        """Return when a controller has sent this broker the live brokers, itself among them, and the topics."""

    def peer(self, broker_id: int, *, purpose: str) -> Peer:
        """Connect to a broker. PeerUnavailable: the controller has not announced that broker."""

    async def ask_controller(self, request: Message, version: int, *, timeout_s: float) -> Any:
        """Send a request to the current controller, once. Raises PeerUnavailable."""
