"""OffsetDelete: forget committed offsets of some partitions.

Behaviour
* Offsets of a topic that the group reads at present stay: GROUP_SUBSCRIBED_TO_TOPIC. Groups of other protocols than the
  consumer's must be empty.
"""

from ottla.server.gate.context import RequestContext
from ottla.server.gate.dispatch import handles
from ottla.server.ports import HasGroups
from ottla.wire.answers import Answer
from ottla.wire.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse


@handles(OffsetDeleteRequest)
def offset_delete(request: OffsetDeleteRequest, context: RequestContext[HasGroups]) -> Answer[OffsetDeleteResponse]:
    return context.broker.groups.offsets.offset_delete(request)
