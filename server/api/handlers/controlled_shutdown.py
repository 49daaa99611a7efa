"""ControlledShutdown: a broker that is about to stop has the controller move its leaderships away.

Behaviour
* Whoever may not do a ClusterAction is CLUSTER_AUTHORIZATION_FAILED.
* The answer names what the broker still leads, because nobody else is in sync; it may ask again.
* At a broker that is not the controller: STALE_CONTROLLER_EPOCH, which is how Kafka says that the controller has moved.
* An earlier incarnation of the broker is STALE_BROKER_EPOCH, a broker that is not there BROKER_NOT_AVAILABLE, or
  UNKNOWN_SERVER_ERROR if its epoch is told, over which Kafka fails. Before v2 the epoch is not told and not looked at.
"""

from __future__ import annotations

from ottla.replication.cluster.metadata_cache import NO_BROKER_EPOCH
from ottla.server.broker import Broker
from ottla.server.dispatch.access import require_on_cluster
from ottla.server.dispatch.authorized_operations import AclOperation
from ottla.server.dispatch.context import RequestContext
from ottla.server.dispatch.dispatch import handles
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.messages.controlled_shutdown import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
    RemainingPartition,
)


@handles(ControlledShutdownRequest)
async def controlled_shutdown(
    request: ControlledShutdownRequest, context: RequestContext[Broker]
) -> ControlledShutdownResponse:
    require_on_cluster(context, AclOperation.CLUSTER_ACTION)
    controller = context.broker.member.controller
    if controller is None:
        return _refused(ErrorCode.NOT_CONTROLLER)
    try:
        remaining = await controller.controlled_shutdown(request.broker_id, request.broker_epoch)
    except KafkaError as error:
        if error.code is ErrorCode.BROKER_NOT_AVAILABLE and request.broker_epoch != NO_BROKER_EPOCH:
            return _refused(ErrorCode.UNKNOWN_SERVER_ERROR)
        return _refused(error.code)
    return ControlledShutdownResponse(
        error_code=ErrorCode.NONE,
        remaining_partitions=[
            RemainingPartition(topic_name=topic, partition_index=index) for topic, index in remaining
        ],
    )


def _refused(code: ErrorCode) -> ControlledShutdownResponse:
    told = ErrorCode.STALE_CONTROLLER_EPOCH if code is ErrorCode.NOT_CONTROLLER else code
    return ControlledShutdownResponse(error_code=told, remaining_partitions=[])
