"""ReadShareGroupStateSummary: where share partitions start, without the states of their records.

Behaviour
* No leader has to ask, so no epoch is checked. What is not known starts at -1, with epochs of 0.
* Each share partition has an error of its own. A request without a group, or with a topic without partitions, gets no
  results.
"""

from ottla.server.gate.context import RequestContext
from ottla.server.gate.dispatch import handles
from ottla.server.ports import HasShareCoordinator
from ottla.wire.answers import Answer
from ottla.wire.messages.read_share_group_state_summary import (
    ReadShareGroupStateSummaryRequest,
    ReadShareGroupStateSummaryResponse,
)


@handles(ReadShareGroupStateSummaryRequest, answers_at_length=True)
def read_share_group_state_summary(
    request: ReadShareGroupStateSummaryRequest, context: RequestContext[HasShareCoordinator]
) -> Answer[ReadShareGroupStateSummaryResponse]:
    return context.broker.share_coordinator.read_summary(request, api_version=context.api_version)
