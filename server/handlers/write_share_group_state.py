"""WriteShareGroupState: the leader of a share partition writes its state.

Behaviour
* Leaders and states of lower epochs than the known ones are FENCED_LEADER_EPOCH and FENCED_STATE_EPOCH.
* What was not initialized is INVALID_REQUEST.
* Answered when the state is safely in the log.
* Each share partition has an error of its own. A request without a group, or with a topic without partitions, gets no
  results.
"""

from ottla.server.gate.context import RequestContext
from ottla.server.gate.dispatch import handles
from ottla.server.ports import HasShareCoordinator
from ottla.wire.answers import Answer
from ottla.wire.messages.write_share_group_state import WriteShareGroupStateRequest, WriteShareGroupStateResponse


@handles(WriteShareGroupStateRequest, answers_at_length=True)
def write_share_group_state(
    request: WriteShareGroupStateRequest, context: RequestContext[HasShareCoordinator]
) -> Answer[WriteShareGroupStateResponse]:
    return context.broker.share_coordinator.write(request, api_version=context.api_version)
