"""DescribeCluster (key 60): the cluster's id, controller and brokers (KIP-700).

v0 flexible from the start   v1 brokers (1) or controllers (2) can be asked for (KIP-919)   v2 fenced brokers (KIP-1073)
"""

from ottla.wire.schema import Array, Bool, Int8, Int16, Int32, Message, String, Struct, Text, field


class DescribeClusterRequest(Message, key=60, versions="0-2", flexible="0+"):
    include_cluster_authorized_operations: bool = field(Bool)
    endpoint_type: int = field(Int8, versions="1+", default=1)
    include_fenced_brokers: bool = field(Bool, versions="2+", default=False)


class DescribeClusterBroker(Struct):
    broker_id: int = field(Int32)
    host: str = field(String)
    port: int = field(Int32)
    rack: str | None = field(String, nullable="0+", default=None)
    is_fenced: bool = field(Bool, versions="2+", default=False)


class DescribeClusterResponse(Message, key=60, versions="0-2", flexible="0+"):
    throttle_time_ms: int = field(Int32, default=0)
    error_code: int = field(Int16)
    error_message: str | None = field(Text, nullable="0+", default=None)
    endpoint_type: int = field(Int8, versions="1+", default=1)
    cluster_id: str = field(String)
    controller_id: int = field(Int32, default=-1)
    brokers: list[DescribeClusterBroker] = field(Array(DescribeClusterBroker))
    cluster_authorized_operations: int = field(Int32, default=-(1 << 31))
