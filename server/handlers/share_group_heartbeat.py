"""ShareGroupHeartbeat: a member of a share group joins, says that it is there, or leaves, and hears what it may read.

Behaviour
* Members choose their own ids, of at most 36 characters. Member epoch 0 joins and needs topics, -1 leaves.
* Assignments are told when a member joins, names its topics, or its partitions have changed.
* What a heartbeat does to the group: `ottla.groupcoord.groups.share.heartbeat`.
"""

from ottla.groupcoord.groups.kinds import SHARE
from ottla.server.cluster.features import SHARE_VERSION
from ottla.server.gate.context import RequestContext
from ottla.server.gate.dispatch import handles
from ottla.server.ports import HasGroups
from ottla.wire.answers import Answer
from ottla.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse


@handles(ShareGroupHeartbeatRequest, feature=SHARE_VERSION, prepare=SHARE.load)
def share_group_heartbeat(
    request: ShareGroupHeartbeatRequest, context: RequestContext[HasGroups]
) -> Answer[ShareGroupHeartbeatResponse]:
    return context.broker.groups.share.heartbeat(
        request, client_id=context.client_id, client_host=context.client_host
    )
