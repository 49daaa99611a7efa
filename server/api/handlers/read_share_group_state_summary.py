"""ReadShareGroupStateSummary: where share partitions start, without the states of their records.

Behaviour
* No leader has to ask, so no epoch is checked. What is not known starts at -1, with epochs of 0.
* This is for brokers. To others, which may not do a ClusterAction, every share partition is CLUSTER_AUTHORIZATION_FAILED.
* Each share partition has an error of its own. A request without a group, or with a topic without partitions, gets no
  results.
"""

from ottla.server.broker import Broker
from ottla.server.coordinator_factory import share_coordinator_of
from ottla.server.dispatch.access import may_on_cluster
from ottla.server.dispatch.authorized_operations import AclOperation
from ottla.server.dispatch.context import RequestContext
from ottla.server.dispatch.dispatch import handles
from ottla.wire.answers import Answer
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.read_share_group_state_summary import (
    ReadShareGroupStateSummaryRequest,
    ReadShareGroupStateSummaryResponse,
)


@handles(ReadShareGroupStateSummaryRequest)
def read_share_group_state_summary(
    request: ReadShareGroupStateSummaryRequest, context: RequestContext[Broker]
) -> Answer[ReadShareGroupStateSummaryResponse]:
    if not may_on_cluster(context, AclOperation.CLUSTER_ACTION):
        return share_coordinator_of(context.broker).refused(request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    return share_coordinator_of(context.broker).read_summary(request, api_version=context.api_version)
