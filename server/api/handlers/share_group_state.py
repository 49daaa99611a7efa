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
    * A share partition of a lower state epoch than the known one is FENCED_STATE_EPOCH. What is so already stays as it
      is.
    * Otherwise it begins at the given offset, and nothing is known of its records.
    * Each share partition has an error of its own. A request without a group gets no results.
    """
    return _answered(request, context, ShareCoordinator.initialize)


@handles(ReadShareGroupStateRequest)
def read_share_group_state(
    request: ReadShareGroupStateRequest, context: RequestContext[Broker]
) -> Answer[ReadShareGroupStateResponse]:
    """ReadShareGroupState: the leader of a share partition reads its state.

    Behaviour
    * A leader of a lower leader epoch than any before it is FENCED_LEADER_EPOCH. A higher one is written down, which
      fences the leaders before it.
    * Each share partition has an error of its own. A request without a group, or with a topic without partitions, gets
      no results.
    """
    return _answered(request, context, ShareCoordinator.read)


@handles(WriteShareGroupStateRequest)
def write_share_group_state(
    request: WriteShareGroupStateRequest, context: RequestContext[Broker]
) -> Answer[WriteShareGroupStateResponse]:
    """WriteShareGroupState: the leader of a share partition writes its state.

    Behaviour
    * Leaders and states of lower epochs than the known ones are FENCED_LEADER_EPOCH and FENCED_STATE_EPOCH.
    * What was not initialized is INVALID_REQUEST.
    * Answered when the state is safely in the log.
    * Each share partition has an error of its own. A request without a group, or with a topic without partitions, gets
      no results.
    """
    return _answered(request, context, ShareCoordinator.write)


@handles(ReadShareGroupStateSummaryRequest)
def read_share_group_state_summary(
    request: ReadShareGroupStateSummaryRequest, context: RequestContext[Broker]
) -> Answer[ReadShareGroupStateSummaryResponse]:
    """ReadShareGroupStateSummary: read start offsets of share partitions, without record states.

    Behaviour
    * No leader has to ask, so no epoch is checked. What is not known starts at -1, with epochs of 0.
    * Each share partition has an error of its own. A request without a group, or with a topic without partitions, gets
      no results.
    """
    return _answered(request, context, ShareCoordinator.read_summary)


@handles(DeleteShareGroupStateRequest)
def delete_share_group_state(
    request: DeleteShareGroupStateRequest, context: RequestContext[Broker]
) -> Answer[DeleteShareGroupStateResponse]:
    """DeleteShareGroupState: delete the state of share partitions.

    Behaviour
    * What is not known is deleted already.
    * Each share partition has an error of its own. A request without a group, or with a topic without partitions, gets
      no results.
    """
    return _answered(request, context, ShareCoordinator.delete)
