"""State of share partitions (KIP-932), which their leaders keep at the share coordinator.

These requests are for brokers. To others, which may not do a ClusterAction, every share partition is CLUSTER_AUTHORIZATION_FAILED.
"""

from collections.abc import Callable
from typing import Any

from ottla.groupcoord.share.coordinator.service import ShareCoordinator
from ottla.server.broker import Broker
from ottla.server.coordinator_factory import share_coordinator_of
from ottla.server.dispatch.access import AclOperation, may_on_cluster
from ottla.server.dispatch.context import RequestContext
from ottla.server.dispatch.dispatch import handles
from ottla.wire.answers import Answer
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.share_group_state import (
    DeleteShareGroupStateRequest,
    DeleteShareGroupStateResponse,
    InitializeShareGroupStateRequest,
    InitializeShareGroupStateResponse,
    ReadShareGroupStateRequest,
    ReadShareGroupStateResponse,
    ReadShareGroupStateSummaryRequest,
    ReadShareGroupStateSummaryResponse,
    WriteShareGroupStateRequest,
    WriteShareGroupStateResponse,
)


def _answered(request: Any, context: RequestContext[Broker], answer: Callable[..., Answer[Any]]) -> Answer[Any]:
    coordinator = share_coordinator_of(context.broker)
    if not may_on_cluster(context, AclOperation.CLUSTER_ACTION):
        return coordinator.refused(request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    return answer(coordinator, request, api_version=context.api_version)


@handles(InitializeShareGroupStateRequest)
def initialize_share_group_state(
    request: InitializeShareGroupStateRequest, context: RequestContext[Broker]
) -> Answer[InitializeShareGroupStateResponse]:
    """InitializeShareGroupState: initialize the state of share partitions.

    Behaviour
    * A state epoch lower than the stored one gets FENCED_STATE_EPOCH. A share partition that already has this state
      stays unchanged.
    * Otherwise the share partition begins at the given offset, without states of records.
    * Each share partition has an error code of its own. A request without a group gets no results.
    """
    return _answered(request, context, ShareCoordinator.initialize)


@handles(ReadShareGroupStateRequest)
def read_share_group_state(
    request: ReadShareGroupStateRequest, context: RequestContext[Broker]
) -> Answer[ReadShareGroupStateResponse]:
    """ReadShareGroupState: read the state of a share partition for its leader.

    Behaviour
    * A leader epoch lower than the highest known one gets FENCED_LEADER_EPOCH. A higher one is stored, which fences the
      earlier leaders.
    * Each share partition has an error code of its own. A request without a group, or with a topic without partitions,
      gets no results.
    """
    return _answered(request, context, ShareCoordinator.read)


@handles(WriteShareGroupStateRequest)
def write_share_group_state(
    request: WriteShareGroupStateRequest, context: RequestContext[Broker]
) -> Answer[WriteShareGroupStateResponse]:
    """WriteShareGroupState: write the state of a share partition for its leader.

    Behaviour
    * Leader and state epochs lower than the stored ones get FENCED_LEADER_EPOCH and FENCED_STATE_EPOCH.
    * A share partition that was not initialized gets INVALID_REQUEST.
    * The response is sent when the log has committed the state.
    * Each share partition has an error code of its own. A request without a group, or with a topic without partitions,
      gets no results.
    """
    return _answered(request, context, ShareCoordinator.write)


@handles(ReadShareGroupStateSummaryRequest)
def read_share_group_state_summary(
    request: ReadShareGroupStateSummaryRequest, context: RequestContext[Broker]
) -> Answer[ReadShareGroupStateSummaryResponse]:
    """ReadShareGroupStateSummary: read start offsets of share partitions, without record states.

    Behaviour
    * Any client may ask, not only the leader, so no epoch is checked. An unknown share partition has start offset -1
      and epochs of 0.
    * Each share partition has an error code of its own. A request without a group, or with a topic without partitions,
      gets no results.
    """
    return _answered(request, context, ShareCoordinator.read_summary)


@handles(DeleteShareGroupStateRequest)
def delete_share_group_state(
    request: DeleteShareGroupStateRequest, context: RequestContext[Broker]
) -> Answer[DeleteShareGroupStateResponse]:
    """DeleteShareGroupState: delete the state of share partitions.

    Behaviour
    * Deleting the state of an unknown share partition is no error.
    * Each share partition has an error code of its own. A request without a group, or with a topic without partitions,
      gets no results.
    """
    return _answered(request, context, ShareCoordinator.delete)
