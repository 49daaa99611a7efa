"""DescribeCluster: the cluster's id, controller and brokers.

Behaviour
* Only brokers can be asked for (endpoint type 1): controllers have no listener of their own here. Another known type is
  MISMATCHED_ENDPOINT_TYPE, an unknown one UNSUPPORTED_ENDPOINT_TYPE; in v0, which has no type, neither can happen.
* What the client may do to the cluster is told to whoever may describe it: to others it is nothing, and the rest is told
  to everybody.
* All known brokers are live ones, so that asking for fenced brokers too adds none.
"""

from __future__ import annotations

from ottla.replication.cluster.metadata_cache import NO_CONTROLLER
from ottla.server.broker import Broker
from ottla.server.dispatch.access import CLUSTER_NAME, authorized_operations, may_on_cluster
from ottla.server.dispatch.authorized_operations import OPERATIONS_NOT_ASKED, AclOperation, ResourceType
from ottla.server.dispatch.context import RequestContext
from ottla.server.dispatch.dispatch import handles
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

BROKERS = 1
CONTROLLERS = 2


@handles(DescribeClusterRequest)
def describe_cluster(request: DescribeClusterRequest, context: RequestContext[Broker]) -> DescribeClusterResponse:
    if request.endpoint_type != BROKERS:
        return _refused(request.endpoint_type)
    cluster = context.broker.cluster
    brokers = [
        DescribeClusterBroker(broker_id=each.node_id, host=each.host, port=each.port, rack=each.rack)
        for each in cluster.endpoints(context.listener_name)
    ]
    is_reachable = any(each.broker_id == cluster.controller_id for each in brokers)
    return DescribeClusterResponse(
        error_code=ErrorCode.NONE,
        cluster_id=cluster.cluster_id,
        controller_id=cluster.controller_id if is_reachable else NO_CONTROLLER,
        brokers=brokers,
        cluster_authorized_operations=_operations(request, context),
    )


def _operations(request: DescribeClusterRequest, context: RequestContext[Broker]) -> int:
    if not request.include_cluster_authorized_operations:
        return OPERATIONS_NOT_ASKED
    if not may_on_cluster(context, AclOperation.DESCRIBE):
        return 0
    return authorized_operations(context, ResourceType.CLUSTER, CLUSTER_NAME)


def _refused(endpoint_type: int) -> DescribeClusterResponse:
    if endpoint_type == CONTROLLERS:
        code = ErrorCode.MISMATCHED_ENDPOINT_TYPE
        message = "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER"
    else:
        code = ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
        message = f"Unsupported endpoint type {endpoint_type}"
    return DescribeClusterResponse(error_code=code, error_message=message, cluster_id="", brokers=[])
