"""Log directories of a broker: AlterReplicaLogDirs and DescribeLogDirs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from ottla.server.broker import Broker
from ottla.server.dispatch.access import AclOperation, may_on_cluster, require_on_cluster
from ottla.server.dispatch.context import RequestContext
from ottla.server.dispatch.dispatch import handles
from ottla.wire.answers import Worked
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.messages.log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from ottla.wire.time_slice import TimeSlice

if TYPE_CHECKING:
    from ottla.replication.log.storage import LogDirectory
    from ottla.replication.partition.partition import Partition
    from ottla.replication.replica_manager.future_replica import FutureReplica
    from ottla.replication.replica_manager.manager import ReplicaManager


@handles(AlterReplicaLogDirsRequest)
async def alter_replica_log_dirs(
    request: AlterReplicaLogDirsRequest, context: RequestContext[Broker]
) -> AlterReplicaLogDirsResponse:
    """AlterReplicaLogDirs: move replicas of this broker to other log directories.

    Behaviour
    * The client needs the right to alter the cluster; otherwise every replica gets CLUSTER_AUTHORIZATION_FAILED, as
      often as it is named.
    * `replication/replica_manager/log_dir_moves.py` has a table of the results. NONE means that the move has begun, not
      that it is complete: DescribeLogDirs lists future replicas until they have replaced the current ones.
    * A partition that does not exist gets UNKNOWN_TOPIC_OR_PARTITION; one without a replica here gets
      REPLICA_NOT_AVAILABLE. In both cases the directory is remembered for a later replica.
    * If a replica is sent to several directories, the last one counts, and the response has the replica once.
    """
    require_on_cluster(context, AclOperation.ALTER)
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


PARTITIONS_PER_SLICE = 1_000

Wanted = dict[str, set[int]] | None


@handles(DescribeLogDirsRequest)
def describe_log_dirs(
    request: DescribeLogDirsRequest, context: RequestContext[Broker]
) -> Worked[DescribeLogDirsResponse]:
    """DescribeLogDirs: return the sizes of logs, and of the volumes that hold them.

    Behaviour
    * The client needs the right to describe the cluster; otherwise the response has no directories. Responses before v3
      have no field for the error.
    * Null topics mean every partition; otherwise only the named partitions are listed. A topic without a replica in a
      directory is omitted there.
    * An offline directory has KAFKA_STORAGE_ERROR and no partitions. A directory whose volume's size cannot be read has
      UNKNOWN_SERVER_ERROR.
    * A replica that is being moved into a directory is listed there as a future replica; its lag is the part that is
      not copied yet.
    * A directory in cordoned.log.dirs is reported as cordoned (KIP-1066), unless it is offline.
    """
    if not may_on_cluster(context, AclOperation.DESCRIBE):
        return DescribeLogDirsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, results=[])
    wanted: Wanted = None
    if request.topics is not None:
        wanted = {}
        for topic in request.topics:
            wanted.setdefault(topic.topic, set()).update(topic.partitions)
    return _described(context.broker.replicas, wanted)


async def _described(replicas: ReplicaManager, wanted: Wanted) -> DescribeLogDirsResponse:
    results = [await _directory(replicas, directory, wanted) for directory in replicas.log_directories]
    return DescribeLogDirsResponse(results=results)


async def _directory(replicas: ReplicaManager, directory: LogDirectory, wanted: Wanted) -> DescribeLogDirsResult:
    if not directory.is_online:
        return DescribeLogDirsResult(error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=directory.path, topics=[])
    by_topic: dict[str, list[DescribeLogDirsPartition]] = {}
    for number, partition in enumerate(replicas.partitions(), 1):
        is_here = partition.log.log_directory is directory
        if is_here and (wanted is None or partition.index in wanted.get(partition.topic, ())):
            by_topic.setdefault(partition.topic, []).append(_partition(partition))
        if number % PARTITIONS_PER_SLICE == 0:
            await trio.lowlevel.checkpoint()
    for move in replicas.moves.moves_to(directory):
        partition = move.partition
        if wanted is None or partition.index in wanted.get(partition.topic, ()):
            by_topic.setdefault(partition.topic, []).append(_future(move))
    try:
        total_bytes, usable_bytes = directory.storage.space(directory.path)
    except OSError:
        return DescribeLogDirsResult(error_code=ErrorCode.UNKNOWN_SERVER_ERROR, log_dir=directory.path, topics=[])
    return DescribeLogDirsResult(
        error_code=ErrorCode.NONE,
        log_dir=directory.path,
        topics=[DescribeLogDirsTopic(name=name, partitions=partitions) for name, partitions in by_topic.items()],
        total_bytes=total_bytes,
        usable_bytes=usable_bytes,
        is_cordoned=directory.is_cordoned,
    )


def _partition(partition: Partition) -> DescribeLogDirsPartition:
    return DescribeLogDirsPartition(
        partition_index=partition.index,
        partition_size=partition.log.size_in_bytes,
        offset_lag=max(partition.high_watermark - partition.log_end_offset, 0),
        is_future_key=False,
    )


def _future(move: FutureReplica) -> DescribeLogDirsPartition:
    return DescribeLogDirsPartition(
        partition_index=move.partition.index,
        partition_size=move.log.size_in_bytes,
        offset_lag=move.offset_lag,
        is_future_key=True,
    )
