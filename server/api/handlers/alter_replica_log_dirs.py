"""AlterReplicaLogDirs: move replicas of this broker to other log directories.

Behaviour
* Only for those who may alter the cluster. To others every replica is CLUSTER_AUTHORIZATION_FAILED, as often as it is named.
* What each replica is answered is the table in `replication/replica_manager/log_dir_moves.py`. NONE means that the move has begun, not that
  it is over: DescribeLogDirs tells of future replicas until they have taken over.
* A partition that does not exist is UNKNOWN_TOPIC_OR_PARTITION; one that exists without a replica here is
  REPLICA_NOT_AVAILABLE. Either way the directory is remembered for when the replica comes.
* Of a replica that is sent to several directories the last counts, and it is answered once.
"""

from __future__ import annotations

from ottla.server.broker import Broker
from ottla.server.dispatch.access import may_on_cluster
from ottla.server.dispatch.authorized_operations import AclOperation
from ottla.server.dispatch.context import RequestContext
from ottla.server.dispatch.dispatch import handles
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from ottla.wire.time_slice import TimeSlice


@handles(AlterReplicaLogDirsRequest)
async def alter_replica_log_dirs(
    request: AlterReplicaLogDirsRequest, context: RequestContext[Broker]
) -> AlterReplicaLogDirsResponse:
    if not may_on_cluster(context, AclOperation.ALTER):
        return await _refused(request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    paths: dict[str, dict[int, str]] = {}
    for asked in request.dirs:
        for topic in asked.topics:
            paths.setdefault(topic.name, {}).update(dict.fromkeys(topic.partitions, asked.path))
    results = []
    time_slice = TimeSlice()
    for name, by_index in paths.items():
        partitions = []
        for index, path in by_index.items():
            code = await _move(name, index, path, context)
            partitions.append(AlterReplicaLogDirPartitionResult(partition_index=index, error_code=code))
            await time_slice.yield_if_over()
        if partitions:
            results.append(AlterReplicaLogDirTopicResult(topic_name=name, partitions=partitions))
    return AlterReplicaLogDirsResponse(throttle_time_ms=0, results=results)


async def _refused(request: AlterReplicaLogDirsRequest, code: ErrorCode) -> AlterReplicaLogDirsResponse:
    results = []
    time_slice = TimeSlice()
    for asked in request.dirs:
        for topic in asked.topics:
            partitions = []
            for index in topic.partitions:
                partitions.append(AlterReplicaLogDirPartitionResult(partition_index=index, error_code=code))
                await time_slice.yield_if_over()
            results.append(AlterReplicaLogDirTopicResult(topic_name=topic.name, partitions=partitions))
            await time_slice.yield_if_over()
    return AlterReplicaLogDirsResponse(throttle_time_ms=0, results=results)


async def _move(topic: str, index: int, path: str, context: RequestContext[Broker]) -> ErrorCode:
    broker = context.broker
    replicas, moves = broker.replicas, broker.replicas.moves
    try:
        target = moves.destination(topic, index, path)
        partition = replicas.partition(topic, index)
        is_known = broker.cluster.partition(topic, index) is not None
        if partition is not None:
            await moves.move(partition, target)
            return ErrorCode.NONE
        if is_known and replicas.is_offline(topic, index):
            return ErrorCode.KAFKA_STORAGE_ERROR
        moves.prefer(topic, index, target)
        return ErrorCode.REPLICA_NOT_AVAILABLE if is_known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    except KafkaError as error:
        return error.code
