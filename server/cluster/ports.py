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
    """Interface of this broker's membership in its cluster."""

    @property
    def controller(self) -> ActiveController | None:
        """Active controller if it runs on this broker; None if another broker is the controller, or there is none."""

    @property
    def controller_id(self) -> int:
        """Id of the active controller; -1 while it is unknown."""

    @property
    def session(self) -> Coordination: ...

    @property
    def features(self) -> Features:
        """Feature levels of this broker and of the cluster."""

    @property
    def acls(self) -> AclStore | None:
        """Store of the authorizer's ACLs; None without an authorizer."""

    @property
    def tokens(self) -> TokenStore | None:
        """Store of the delegation tokens; None if delegation tokens are disabled."""

    @property
    def forwarding(self) -> ForwardingManager:
        """Forwarder of requests to the controller. Use it only in a cluster of several brokers."""

    @property
    def is_fenced(self) -> bool:
        """True if this broker's registration is not certainly valid: another broker may have taken its place."""

    @property
    def controller_requests(self) -> ControllerRequests:
        """Handler of the controller's requests to this broker."""

    @property
    def alter_partition_manager(self) -> AlterPartitionManager: ...

    async def await_metadata(self) -> None:
        """Wait until a controller has sent this broker the topics and the live brokers, including this broker."""

    def peer(self, broker_id: int, *, purpose: str) -> Peer:
        """Connect to a broker. Raises PeerUnavailable if no controller has announced the broker."""

    async def ask_controller(self, request: Message, version: int, *, timeout_s: float) -> Any:
        """Send a request to the current controller, without retries. Raises PeerUnavailable."""
