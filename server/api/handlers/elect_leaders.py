"""ElectLeaders: let partitions be led by their preferred replica, or by any at all (KIP-183, KIP-460).

Behaviour
* Only for those who may alter the cluster. To others every partition that they name is CLUSTER_AUTHORIZATION_FAILED.
* One result per partition; errors are in `replication/controller/elect_leaders.py`. A null list asks for all partitions: those for
  which there is nothing to do are left out of the answer then.
* A partition that was elected is answered when this broker's metadata shows the new leader, or after the
  timeout with REQUEST_TIMED_OUT.
* More than 10,000 named partitions are POLICY_VIOLATION; all of them can be asked for whatever their number.
* At a broker that is not the controller, and cannot reach it in time, every partition is NOT_CONTROLLER.
* Below v1 there are only preferred elections. An unknown type of election is UNKNOWN_SERVER_ERROR, as in Kafka, which
  fails over it.
"""

from __future__ import annotations

from collections.abc import Coroutine
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING

import trio

from ottla.replication.cluster.metadata_cache import NO_LEADER
from ottla.replication.controller.elect_leaders import ElectionType, single_broker_election
from ottla.server.broker import Broker
from ottla.server.cluster.administration import until_shown
from ottla.server.dispatch.access import AclOperation, refusal_on_cluster
from ottla.server.dispatch.context import RequestContext
from ottla.server.dispatch.dispatch import handles
from ottla.server.network.sliced_work import answer_partitions
from ottla.wire.answers import Worked
from ottla.wire.errors import ErrorCode, KafkaError, bare
from ottla.wire.limits import PARTITIONS_TO_CHANGE_MAX
from ottla.wire.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from ottla.wire.time_slice import TimeSlice

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from ottla.replication.cluster.metadata_cache import MetadataCache
    from ottla.replication.controller.decisions import TopicPartition

Results = dict["TopicPartition", KafkaError | None]


@handles(ElectLeadersRequest)
async def elect_leaders(request: ElectLeadersRequest, context: RequestContext[Broker]) -> ElectLeadersResponse:
    denied = refusal_on_cluster(context, AclOperation.ALTER, "ElectLeaders")
    if denied is not None:
        refusal = _denied(request, denied)
        return await refusal if isinstance(refusal, Coroutine) else refusal
    cluster = context.broker.cluster
    if not context.broker.is_in_cluster:
        return await _elect_alone(request, cluster)
    if sum(len(topic.partitions) for topic in request.topic_partitions or ()) > PARTITIONS_TO_CHANGE_MAX:
        return _response({}, ErrorCode.POLICY_VIOLATION)
    if request.topic_partitions is not None:
        named = ((topic.topic, index) for topic in request.topic_partitions for index in topic.partitions)
    else:
        named = ((topic.name, index) for topic in cluster.topics.values() for index in range(len(topic.partitions)))
    asked = dict.fromkeys(named)  # each once, in an order that every run of a simulation has
    if request.election_type not in ElectionType._value2member_map_:
        return _response(
            dict.fromkeys(asked, KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)), ErrorCode.UNKNOWN_SERVER_ERROR
        )
    results = await _elect(asked, request, context)
    if request.topic_partitions is None:
        results = {
            partition: error
            for partition, error in results.items()
            if error is None or error.code is not ErrorCode.ELECTION_NOT_NEEDED
        }
    return _response(results)


def _denied(request: ElectLeadersRequest, error: KafkaError) -> Worked[ElectLeadersResponse]:
    named = request.topic_partitions or []

    def respond(results: list[list[PartitionResult]]) -> ElectLeadersResponse:
        return ElectLeadersResponse(
            throttle_time_ms=0,
            error_code=error.code,
            replica_election_results=[
                ReplicaElectionResult(topic=topic.topic, partition_result=each)
                for topic, each in zip(named, results, strict=True)
            ],
        )

    return answer_partitions(named, attrgetter("partitions"), lambda _, index: _result(index, error), respond)


async def _elect_alone(request: ElectLeadersRequest, cluster: MetadataCache) -> ElectLeadersResponse:
    """Return the response of a broker without a cluster; it repeats topics that the request repeats."""
    if request.topic_partitions is not None:
        asked: list[tuple[str, Sequence[int]]] = [(topic.topic, topic.partitions) for topic in request.topic_partitions]
    else:
        asked = [(topic.name, range(len(topic.partitions))) for topic in cluster.topics.values()]
    problem = None
    if request.timeout_ms <= 0 and request.topic_partitions != []:
        problem = KafkaError(ErrorCode.REQUEST_TIMED_OUT)
    elif request.election_type not in ElectionType._value2member_map_:
        problem = KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown election type {request.election_type}")

    def why_not(topic: str, index: int) -> KafkaError:
        return problem or single_broker_election(cluster, topic, index, ElectionType(request.election_type))

    results = []
    time_slice = TimeSlice()
    for topic, indexes in asked if problem is None or request.topic_partitions is not None else ():
        partitions = []
        for index in indexes:
            error = why_not(topic, index)
            # Of all partitions only those are told of that do not have the leader that they should.
            if request.topic_partitions is not None or error.code is not ErrorCode.ELECTION_NOT_NEEDED:
                partitions.append(
                    PartitionResult(partition_id=index, error_code=error.code, error_message=error.message)
                )
            await time_slice.yield_if_over()
        results.append(ReplicaElectionResult(topic=topic, partition_result=partitions))
    code = ErrorCode.NONE if problem is None else problem.code
    return ElectLeadersResponse(throttle_time_ms=0, error_code=code, replica_election_results=results)


async def _elect(
    asked: Collection[TopicPartition], request: ElectLeadersRequest, context: RequestContext[Broker]
) -> Results:
    cluster, controller = context.broker.cluster, context.broker.member.controller
    if controller is None:
        return dict.fromkeys(asked, KafkaError(ErrorCode.NOT_CONTROLLER))
    deadline = trio.current_time() + request.timeout_ms / 1000
    try:
        results: Results = dict(await controller.elect_leaders(ElectionType(request.election_type), asked))
    except KafkaError as error:
        return dict.fromkeys(asked, bare(error))
    elected = [
        (partition, controller.states.partition(partition)) for partition, error in results.items() if error is None
    ]
    awaited = {partition: state.leader_epoch for partition, state in elected if state is not None}

    def are_shown() -> bool:
        for partition in [each for each, epoch in awaited.items() if _is_led(cluster, each, epoch)]:
            del awaited[partition]
        return not awaited

    if not await until_shown(cluster, are_shown, timeout_s=deadline - trio.current_time()):
        results |= dict.fromkeys(awaited, KafkaError(ErrorCode.REQUEST_TIMED_OUT))
    return results


def _is_led(cluster: MetadataCache, partition: TopicPartition, epoch: int) -> bool:
    """True if the metadata cache shows a leader of leader epoch `epoch` or later."""
    state = cluster.partition(*partition)
    return state is not None and state.leader != NO_LEADER and state.leader_epoch >= epoch


def _response(results: Results, code: ErrorCode = ErrorCode.NONE) -> ElectLeadersResponse:
    return ElectLeadersResponse(
        throttle_time_ms=0,
        error_code=code,
        replica_election_results=[
            ReplicaElectionResult(
                topic=topic, partition_result=[_result(index, results[topic, index]) for _, index in group]
            )
            for topic, group in groupby(sorted(results), key=lambda partition: partition[0])
        ],
    )


def _result(index: int, error: KafkaError | None) -> PartitionResult:
    if error is None:
        return PartitionResult(partition_id=index, error_code=ErrorCode.NONE, error_message=None)
    message = error.message
    if error.code is ErrorCode.ELECTION_NOT_NEEDED:
        message = message or error.code.message
    return PartitionResult(partition_id=index, error_code=error.code, error_message=message)
