"""What a fetch may read: consumers topics that they may read, replicas everything if they may do a ClusterAction."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.server.gate.access import CLUSTER_NAME, may, may_on_cluster
from ottla.server.gate.authorized_operations import AclOperation, ResourceType

if TYPE_CHECKING:
    from ottla.server.gate.access import Authorizer, Guarded
    from ottla.server.gate.context import RequestContext


class FetchRights:
    """The rights of one request. Each is asked for once: a request is decided about when it comes, as in Kafka."""

    __slots__ = ("_context", "_decisions", "_is_follower", "rules")

    def __init__(self, context: RequestContext[Guarded], authorizer: Authorizer, *, is_follower: bool) -> None:
        self._context = context
        self._is_follower = is_follower
        self._decisions: dict[str, bool] = {}
        # By whom, and by which rules. Another request may be refused what this one gets, and the other way round.
        self.rules = (context.principal, context.client_host, authorizer.version)

    def refuse(self, topic: str | None) -> bool:
        """Whether a topic must not be read; None stands for one whose id nobody knows, which is no secret to consumers."""
        name = CLUSTER_NAME if self._is_follower else topic
        if name is None:
            return False
        is_refused = self._decisions.get(name)
        if is_refused is None:
            is_refused = self._decisions[name] = not self._may_read(name)
        return is_refused

    def _may_read(self, name: str) -> bool:
        if self._is_follower:
            return may_on_cluster(self._context, AclOperation.CLUSTER_ACTION)
        return may(self._context, AclOperation.READ, ResourceType.TOPIC, name)
