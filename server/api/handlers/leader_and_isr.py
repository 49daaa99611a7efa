"""LeaderAndIsr: the controller says what this broker leads and follows; see `replication/replica_manager/controller_requests.py`.

Behaviour
* Only versions that know topic ids are served: those of inter.broker.protocol.version 2.8 and later.
* To whoever may not do a ClusterAction the whole and every partition are CLUSTER_AUTHORIZATION_FAILED.
"""

from __future__ import annotations

from operator import attrgetter

from ottla.server.broker import Broker
from ottla.server.dispatch.access import may_on_cluster
from ottla.server.dispatch.authorized_operations import AclOperation
from ottla.server.dispatch.context import RequestContext
from ottla.server.dispatch.dispatch import handles
from ottla.server.network.sliced_work import answer_partitions
from ottla.wire.answers import Answer, Worked
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.leader_and_isr import (
    LeaderAndIsrPartitionError,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
)


@handles(LeaderAndIsrRequest)
def leader_and_isr(request: LeaderAndIsrRequest, context: RequestContext[Broker]) -> Answer[LeaderAndIsrResponse]:
    if not may_on_cluster(context, AclOperation.CLUSTER_ACTION):
        return _refused(request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    return context.broker.member.controller_requests.lead_and_follow(request)


def _refused(request: LeaderAndIsrRequest, code: ErrorCode) -> Worked[LeaderAndIsrResponse]:
    def respond(errors: list[list[LeaderAndIsrPartitionError]]) -> LeaderAndIsrResponse:
        topics = [
            LeaderAndIsrTopicError(topic_id=topic.topic_id, partition_errors=each)
            for topic, each in zip(request.topic_states, errors, strict=True)
        ]
        return LeaderAndIsrResponse(error_code=code, topics=topics)

    return answer_partitions(
        request.topic_states,
        attrgetter("partition_states"),
        lambda _, state: LeaderAndIsrPartitionError(partition_index=state.partition_index, error_code=code),
        respond,
    )
