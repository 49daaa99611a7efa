"""Log directories of a broker: AlterReplicaLogDirs and DescribeLogDirs."""

from ottla.wire.schema import Array, Bool, Int16, Int32, Int64, Message, String, Struct, field


class AlterReplicaLogDirTopic(Struct):
    name: str = field(String)
    partitions: list[int] = field(Array(Int32))


class AlterReplicaLogDir(Struct):
    path: str = field(String)
    topics: list[AlterReplicaLogDirTopic] = field(Array(AlterReplicaLogDirTopic))


class AlterReplicaLogDirsRequest(Message, key=34, versions="0-2", flexible="2+"):
    """AlterReplicaLogDirs (key 34): move a broker's replicas between its log directories (KIP-113). v2 flexible."""

    dirs: list[AlterReplicaLogDir] = field(Array(AlterReplicaLogDir))


class AlterReplicaLogDirPartitionResult(Struct):
    partition_index: int = field(Int32)
    error_code: int = field(Int16)


class AlterReplicaLogDirTopicResult(Struct):
    topic_name: str = field(String)
    partitions: list[AlterReplicaLogDirPartitionResult] = field(Array(AlterReplicaLogDirPartitionResult))


class AlterReplicaLogDirsResponse(Message, key=34, versions="0-2", flexible="2+"):
    throttle_time_ms: int = field(Int32)
    results: list[AlterReplicaLogDirTopicResult] = field(Array(AlterReplicaLogDirTopicResult))


class DescribableLogDirTopic(Struct):
    topic: str = field(String)
    partitions: list[int] = field(Array(Int32))


class DescribeLogDirsRequest(Message, key=35, versions="0-5", flexible="2+"):
    """DescribeLogDirs (key 35): return the sizes of logs and of their volumes; null topics mean all topics.

    v1 answers before throttling   v2 flexible   v3 top-level error   v4 size of the volumes (KIP-827)
    v5 cordoned directories (KIP-1066)
    """

    topics: list[DescribableLogDirTopic] | None = field(Array(DescribableLogDirTopic), nullable="0+")


class DescribeLogDirsPartition(Struct):
    partition_index: int = field(Int32)
    partition_size: int = field(Int64)
    offset_lag: int = field(Int64)
    is_future_key: bool = field(Bool)


class DescribeLogDirsTopic(Struct):
    name: str = field(String)
    partitions: list[DescribeLogDirsPartition] = field(Array(DescribeLogDirsPartition))


class DescribeLogDirsResult(Struct):
    error_code: int = field(Int16)
    log_dir: str = field(String)
    topics: list[DescribeLogDirsTopic] = field(Array(DescribeLogDirsTopic))
    total_bytes: int = field(Int64, versions="4+", default=-1)
    usable_bytes: int = field(Int64, versions="4+", default=-1)
    is_cordoned: bool = field(Bool, versions="5+", default=False)


class DescribeLogDirsResponse(Message, key=35, versions="0-5", flexible="2+"):
    throttle_time_ms: int = field(Int32, default=0)
    error_code: int = field(Int16, versions="3+", default=0)
    results: list[DescribeLogDirsResult] = field(Array(DescribeLogDirsResult))
