"""StopReplica: the controller takes replicas from this broker; see `replication/replica_manager/controller_requests.py`.

Behaviour
* Only versions that carry leader epochs are served: those of inter.broker.protocol.version 2.6 and later.
* To whoever may not do a ClusterAction the whole and every partition are CLUSTER_AUTHORIZATION_FAILED.
"""

from __future__ import annotations

from itertools import chain
from operator import attrgetter

from ottla.server.broker import Broker
from ottla.server.dispatch.access import may_on_cluster
from ottla.server.dispatch.authorized_operations import AclOperation
from ottla.server.dispatch.context import RequestContext
from ottla.server.dispatch.dispatch import handles
from ottla.server.network.sliced_work import answer_partitions
from ottla.wire.answers import Answer, Worked
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.stop_replica import StopReplicaPartitionError, StopReplicaRequest, StopReplicaResponse


@handles(StopReplicaRequest)
def stop_replica(request: StopReplicaRequest, context: RequestContext[Broker]) -> Answer[StopReplicaResponse]:
    if not may_on_cluster(context, AclOperation.CLUSTER_ACTION):
        return _refused(request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    return context.broker.member.controller_requests.stop(request)


def _refused(request: StopReplicaRequest, code: ErrorCode) -> Worked[StopReplicaResponse]:
    def respond(errors: list[list[StopReplicaPartitionError]]) -> StopReplicaResponse:
        return StopReplicaResponse(error_code=code, partition_errors=list(chain.from_iterable(errors)))

    return answer_partitions(
        request.topic_states,
        attrgetter("partition_states"),
        lambda topic, state: StopReplicaPartitionError(
            topic_name=topic.topic_name, partition_index=state.partition_index, error_code=code
        ),
        respond,
    )
