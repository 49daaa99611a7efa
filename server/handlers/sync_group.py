"""SyncGroup: hand in the assignment as the leader, receive one's part of it as a member.

Behaviour
* Members wait until their leader has handed in the assignment and it is safely in the log.
"""

from ottla.server.gate.context import RequestContext
from ottla.server.gate.dispatch import handles
from ottla.server.ports import HasGroups
from ottla.wire.answers import Answer
from ottla.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse


@handles(SyncGroupRequest, abandonable=True)
def sync_group(request: SyncGroupRequest, context: RequestContext[HasGroups]) -> Answer[SyncGroupResponse]:
    return context.broker.groups.classic.sync_group(request, api_version=context.api_version)
