"""Requests between brokers and the controller: LeaderAndIsr, StopReplica, UpdateMetadata, AlterPartition and ControlledShutdown."""

from __future__ import annotations

from itertools import chain
from operator import attrgetter

from ottla.replication.cluster.metadata_cache import NO_BROKER_EPOCH
from ottla.server.broker import Broker
from ottla.server.dispatch.access import AclOperation, may_on_cluster, require_on_cluster
from ottla.server.dispatch.context import RequestContext
from ottla.server.dispatch.dispatch import handles
from ottla.server.network.sliced_work import answer_partitions
from ottla.wire.answers import Answer, Worked
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.messages.controller_requests import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    ControlledShutdownRequest,
    ControlledShutdownResponse,
    LeaderAndIsrPartitionError,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
    RemainingPartition,
    StopReplicaPartitionError,
    StopReplicaRequest,
    StopReplicaResponse,
    UpdateMetadataRequest,
    UpdateMetadataResponse,
)


@handles(LeaderAndIsrRequest)
def leader_and_isr(request: LeaderAndIsrRequest, context: RequestContext[Broker]) -> Answer[LeaderAndIsrResponse]:
    """LeaderAndIsr: make this broker leader or follower of partitions, as the controller decides.

    Behaviour: see `replication/replica_manager/controller_requests.py`.
    * Only versions with topic ids are served: those of inter.broker.protocol.version 2.8 and later.
    * Without the right to ClusterAction the request and every partition get CLUSTER_AUTHORIZATION_FAILED.
    """
    if not may_on_cluster(context, AclOperation.CLUSTER_ACTION):
        return _refused_to_lead(request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    return context.broker.member.controller_requests.lead_and_follow(request)


def _refused_to_lead(request: LeaderAndIsrRequest, code: ErrorCode) -> Worked[LeaderAndIsrResponse]:
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


@handles(StopReplicaRequest)
def stop_replica(request: StopReplicaRequest, context: RequestContext[Broker]) -> Answer[StopReplicaResponse]:
    """StopReplica: stop, and perhaps delete, replicas of this broker, as the controller decides.

    Behaviour: see `replication/replica_manager/controller_requests.py`.
    * Only versions with leader epochs are served: those of inter.broker.protocol.version 2.6 and later.
    * Without the right to ClusterAction the request and every partition get CLUSTER_AUTHORIZATION_FAILED.
    """
    if not may_on_cluster(context, AclOperation.CLUSTER_ACTION):
        return _refused_to_stop(request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    return context.broker.member.controller_requests.stop(request)


def _refused_to_stop(request: StopReplicaRequest, code: ErrorCode) -> Worked[StopReplicaResponse]:
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


@handles(UpdateMetadataRequest)
def update_metadata(request: UpdateMetadataRequest, context: RequestContext[Broker]) -> Answer[UpdateMetadataResponse]:
    """UpdateMetadata: update the metadata cache with the live brokers and partition leaders that the controller sends.

    Behaviour: see `replication/replica_manager/controller_requests.py`.
    * Only versions with topic ids are served: those of inter.broker.protocol.version 2.8 and later.
    * A client without the right to ClusterAction gets CLUSTER_AUTHORIZATION_FAILED.
    """
    require_on_cluster(context, AclOperation.CLUSTER_ACTION)
    return context.broker.member.controller_requests.update_metadata(request)


@handles(AlterPartitionRequest)
async def alter_partition(request: AlterPartitionRequest, context: RequestContext[Broker]) -> AlterPartitionResponse:
    """AlterPartition: change a partition's in-sync replicas on behalf of its leader, at the controller (KIP-497).

    Behaviour: see the table in `replication/controller/alter_partition.py`. A client without the right to ClusterAction
    gets CLUSTER_AUTHORIZATION_FAILED. A broker that is not the controller answers NOT_CONTROLLER.
    """
    require_on_cluster(context, AclOperation.CLUSTER_ACTION)
    controller = context.broker.member.controller
    if controller is None:
        raise KafkaError(ErrorCode.NOT_CONTROLLER)
    return await controller.alter_partition(request, context.api_version)


@handles(ControlledShutdownRequest)
async def controlled_shutdown(
    request: ControlledShutdownRequest, context: RequestContext[Broker]
) -> ControlledShutdownResponse:
    """ControlledShutdown: move the leaderships of a broker that is about to stop to other brokers.

    Behaviour
    * A client without the right to ClusterAction gets CLUSTER_AUTHORIZATION_FAILED.
    * The response names the partitions that the broker still leads, because no other replica is in sync; the broker may
      send the request again.
    * A broker that is not the controller answers STALE_CONTROLLER_EPOCH, as Kafka does if the controller has moved.
    * An earlier incarnation of the broker gets STALE_BROKER_EPOCH. A broker that is not registered gets
      BROKER_NOT_AVAILABLE, or UNKNOWN_SERVER_ERROR if the request has an epoch, because Kafka fails then. Requests
      before v2 have no epoch.
    """
    require_on_cluster(context, AclOperation.CLUSTER_ACTION)
    controller = context.broker.member.controller
    if controller is None:
        raise KafkaError(ErrorCode.STALE_CONTROLLER_EPOCH)
    try:
        remaining = await controller.controlled_shutdown(request.broker_id, request.broker_epoch)
    except KafkaError as error:
        if error.code is ErrorCode.BROKER_NOT_AVAILABLE and request.broker_epoch != NO_BROKER_EPOCH:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR) from error
        if error.code is ErrorCode.NOT_CONTROLLER:
            raise KafkaError(ErrorCode.STALE_CONTROLLER_EPOCH) from error
        raise
    return ControlledShutdownResponse(
        error_code=ErrorCode.NONE,
        remaining_partitions=[
            RemainingPartition(topic_name=topic, partition_index=index) for topic, index in remaining
        ],
    )
