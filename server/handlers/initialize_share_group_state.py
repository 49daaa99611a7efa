"""InitializeShareGroupState: the state of share partitions begins.

Behaviour
* A share partition of a lower state epoch than the known one is FENCED_STATE_EPOCH. What is so already stays as it is.
* Otherwise it begins at the given offset, and nothing is known of its records.
* Each share partition has an error of its own. A request without a group gets no results.
"""

from ottla.server.gate.context import RequestContext
from ottla.server.gate.dispatch import handles
from ottla.server.ports import HasShareCoordinator
from ottla.wire.answers import Answer
from ottla.wire.messages.initialize_share_group_state import (
    InitializeShareGroupStateRequest,
    InitializeShareGroupStateResponse,
)


@handles(InitializeShareGroupStateRequest, answers_at_length=True)
def initialize_share_group_state(
    request: InitializeShareGroupStateRequest, context: RequestContext[HasShareCoordinator]
) -> Answer[InitializeShareGroupStateResponse]:
    return context.broker.share_coordinator.initialize(request, api_version=context.api_version)
