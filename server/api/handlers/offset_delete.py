"""OffsetDelete: forget committed offsets of some partitions.

Behaviour
* Offsets of a topic that the group reads at present stay: GROUP_SUBSCRIBED_TO_TOPIC. Groups of other protocols than the
  consumer's must be empty.
* The client has to have the right to delete the group. Topics that it may not read are TOPIC_AUTHORIZATION_FAILED, whether they
  exist or not.
"""

from collections.abc import Collection

from ottla.server.broker import Broker
from ottla.server.coordinator_factory import groups_of
from ottla.server.dispatch.access import require
from ottla.server.dispatch.authorized_operations import AclOperation, ResourceType
from ottla.server.dispatch.context import RequestContext
from ottla.server.dispatch.deciding import decided
from ottla.server.dispatch.dispatch import handles
from ottla.wire.answers import Answer
from ottla.wire.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse


@handles(OffsetDeleteRequest)
def offset_delete(request: OffsetDeleteRequest, context: RequestContext[Broker]) -> Answer[OffsetDeleteResponse]:
    require(context, AclOperation.DELETE, ResourceType.GROUP, request.group_id)

    def delete(denied: Collection[str]) -> Answer[OffsetDeleteResponse]:
        return groups_of(context.broker).offsets.offset_delete(request, denied)

    names = (topic.name for topic in request.topics)
    return decided(context, AclOperation.READ, ResourceType.TOPIC, names, delete)
