"""DeleteShareGroupState: the state of share partitions ends.

Behaviour
* What is not known is deleted already.
* Each share partition has an error of its own. A request without a group, or with a topic without partitions, gets no
  results.
"""

from ottla.server.gate.context import RequestContext
from ottla.server.gate.dispatch import handles
from ottla.server.ports import HasShareCoordinator
from ottla.wire.answers import Answer
from ottla.wire.messages.delete_share_group_state import DeleteShareGroupStateRequest, DeleteShareGroupStateResponse


@handles(DeleteShareGroupStateRequest, answers_at_length=True)
def delete_share_group_state(
    request: DeleteShareGroupStateRequest, context: RequestContext[HasShareCoordinator]
) -> Answer[DeleteShareGroupStateResponse]:
    return context.broker.share_coordinator.delete(request, api_version=context.api_version)
