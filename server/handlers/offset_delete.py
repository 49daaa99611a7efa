"""OffsetDelete: forget committed offsets of some partitions.

Behaviour
* Offsets of a topic that the group reads at present stay: GROUP_SUBSCRIBED_TO_TOPIC. Groups of other protocols than the
  consumer's must be empty.
"""

from typing import Any

from ottla.server.gate.context import RequestContext
from ottla.server.gate.dispatch import handles
from ottla.server.ports import HasGroups
from ottla.wire.messages.offset_delete import OffsetDeleteRequest


@handles(OffsetDeleteRequest)
def offset_delete(request: OffsetDeleteRequest, context: RequestContext[HasGroups]) -> Any:
    return context.broker.groups.offset_delete(request)
