"""ReadShareGroupState: the leader of a share partition reads its state.

Behaviour
* A leader of a lower leader epoch than any before it is FENCED_LEADER_EPOCH. A higher one is written down, which fences the
  leaders before it.
* Each share partition has an error of its own. A request without a group, or with a topic without partitions, gets no
  results.
"""

from ottla.server.gate.context import RequestContext
from ottla.server.gate.dispatch import handles
from ottla.server.ports import HasShareCoordinator
from ottla.wire.answers import Answer
from ottla.wire.messages.read_share_group_state import ReadShareGroupStateRequest, ReadShareGroupStateResponse


@handles(ReadShareGroupStateRequest, answers_at_length=True)
def read_share_group_state(
    request: ReadShareGroupStateRequest, context: RequestContext[HasShareCoordinator]
) -> Answer[ReadShareGroupStateResponse]:
    return context.broker.share_coordinator.read(request, api_version=context.api_version)
