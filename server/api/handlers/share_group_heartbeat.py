"""ShareGroupHeartbeat: a member of a share group joins, says that it is there, or leaves, and hears what it may read.

Behaviour
* Members choose their own ids, of at most 36 characters. Member epoch 0 joins and needs topics, -1 leaves.
* Assignments are told when a member joins, names its topics, or its partitions have changed.
* The client has to have the right to read the group and to describe all topics that it names.
* What a heartbeat does to the group: `ottla.groupcoord.share.heartbeat`.
"""

from collections.abc import Collection

from ottla.groupcoord.share.manager import refused_heartbeat
from ottla.groupcoord.share.service import MEMBER_ID_LENGTH_MAX
from ottla.server.broker import Broker
from ottla.server.cluster.features import SHARE_VERSION
from ottla.server.coordinator_factory import groups_of
from ottla.server.dispatch.access import require
from ottla.server.dispatch.authorized_operations import AclOperation, ResourceType
from ottla.server.dispatch.context import RequestContext
from ottla.server.dispatch.deciding import decided
from ottla.server.dispatch.dispatch import handles
from ottla.wire.answers import Answer
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse


@handles(ShareGroupHeartbeatRequest, feature=SHARE_VERSION)
def share_group_heartbeat(
    request: ShareGroupHeartbeatRequest, context: RequestContext[Broker]
) -> Answer[ShareGroupHeartbeatResponse]:
    require(context, AclOperation.READ, ResourceType.GROUP, request.group_id)
    # Of an id that cannot be one Kafka says no more than that.
    has_id = 0 < len(request.member_id) <= MEMBER_ID_LENGTH_MAX
    names = (request.subscribed_topic_names or ()) if has_id else ()

    def go_on(denied: Collection[str]) -> Answer[ShareGroupHeartbeatResponse]:
        if denied:
            return refused_heartbeat(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        return groups_of(context.broker).share.heartbeat(
            request, client_id=context.client_id, client_host=context.client_host
        )

    return decided(context, AclOperation.DESCRIBE, ResourceType.TOPIC, names, go_on)
