"""AlterPartition: a leader asks the controller to change a partition's in-sync replicas (KIP-497).

Behaviour: the table in `replication/controller/alter_partition.py`. Whoever may not do a ClusterAction is
CLUSTER_AUTHORIZATION_FAILED. At a broker that is not the controller: NOT_CONTROLLER.
"""

from __future__ import annotations

from ottla.server.broker import Broker
from ottla.server.dispatch.access import require_on_cluster
from ottla.server.dispatch.authorized_operations import AclOperation
from ottla.server.dispatch.context import RequestContext
from ottla.server.dispatch.dispatch import handles
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse


@handles(AlterPartitionRequest)
async def alter_partition(request: AlterPartitionRequest, context: RequestContext[Broker]) -> AlterPartitionResponse:
    require_on_cluster(context, AclOperation.CLUSTER_ACTION)
    controller = context.broker.member.controller
    if controller is None:
        return _refused(ErrorCode.NOT_CONTROLLER)
    try:
        return await controller.alter_partition(request, context.api_version)
    except KafkaError as error:
        return _refused(error.code)


def _refused(code: ErrorCode) -> AlterPartitionResponse:
    return AlterPartitionResponse(throttle_time_ms=0, error_code=code, topics=[])
