"""DescribeLogDirs (key 35): what the log directories hold; null topics mean everything.

v1 answer first, throttle after   v2 flexible   v3 top-level error   v4 size of the volumes (KIP-827)
v5 cordoned directories (KIP-1066)
"""

from ottla.wire.schema import Array, Bool, Int16, Int32, Int64, Message, String, Struct, field


class DescribableLogDirTopic(Struct):
    topic: str = field(String)
    partitions: list[int] = field(Array(Int32))


class DescribeLogDirsRequest(Message, key=35, versions="1-5", flexible="2+"):
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


class DescribeLogDirsResponse(Message, key=35, versions="1-5", flexible="2+"):
    throttle_time_ms: int = field(Int32, default=0)
    error_code: int = field(Int16, versions="3+", default=0)
    results: list[DescribeLogDirsResult] = field(Array(DescribeLogDirsResult))
