"""AlterReplicaLogDirs (key 34): move replicas of one broker between its log directories (KIP-113).

v2 flexible
"""

from ottla.wire.schema import Array, Int16, Int32, Message, String, Struct, field


class AlterReplicaLogDirTopic(Struct):
    name: str = field(String)
    partitions: list[int] = field(Array(Int32))


class AlterReplicaLogDir(Struct):
    path: str = field(String)
    topics: list[AlterReplicaLogDirTopic] = field(Array(AlterReplicaLogDirTopic))


class AlterReplicaLogDirsRequest(Message, key=34, versions="1-2", flexible="2+"):
    dirs: list[AlterReplicaLogDir] = field(Array(AlterReplicaLogDir))


class AlterReplicaLogDirPartitionResult(Struct):
    partition_index: int = field(Int32)
    error_code: int = field(Int16)


class AlterReplicaLogDirTopicResult(Struct):
    topic_name: str = field(String)
    partitions: list[AlterReplicaLogDirPartitionResult] = field(Array(AlterReplicaLogDirPartitionResult))


class AlterReplicaLogDirsResponse(Message, key=34, versions="1-2", flexible="2+"):
    throttle_time_ms: int = field(Int32)
    results: list[AlterReplicaLogDirTopicResult] = field(Array(AlterReplicaLogDirTopicResult))
