"""InitializeShareGroupState: the state of share partitions begins.

Behaviour
* A share partition of a lower state epoch than the known one is FENCED_STATE_EPOCH. What is so already stays as it is.
* Otherwise it begins at the given offset, and nothing is known of its records.
* This is for brokers. To others, which may not do a ClusterAction, every share partition is CLUSTER_AUTHORIZATION_FAILED.
* Each share partition has an error of its own. A request without a group gets no results.
"""

from ottla.server.broker import Broker
from ottla.server.coordinator_factory import share_coordinator_of
from ottla.server.dispatch.access import may_on_cluster
from ottla.server.dispatch.authorized_operations import AclOperation
from ottla.server.dispatch.context import RequestContext
from ottla.server.dispatch.dispatch import handles
from ottla.wire.answers import Answer
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.initialize_share_group_state import (
    InitializeShareGroupStateRequest,
    InitializeShareGroupStateResponse,
)


@handles(InitializeShareGroupStateRequest)
def initialize_share_group_state(
    request: InitializeShareGroupStateRequest, context: RequestContext[Broker]
) -> Answer[InitializeShareGroupStateResponse]:
    if not may_on_cluster(context, AclOperation.CLUSTER_ACTION):
        return share_coordinator_of(context.broker).refused(request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    return share_coordinator_of(context.broker).initialize(request, api_version=context.api_version)
