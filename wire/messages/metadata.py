"""Metadata (key 3): brokers, controller and the leaders of topics; it may create the topics asked for.

"All topics" is an empty list in v0 and null from v1 on, where an empty list means no topic.

v1 racks, controller, internal flag   v2 cluster id   v3 throttle time   v4 auto-creation can be declined
v5 offline replicas   v6 answers before throttling   v7 leader epochs   v8 authorized operations   v9 flexible
v10 topic ids (to be used in requests from v12 only)   v11 cluster operations move to DescribeCluster (KIP-700)
v12 ask by topic id   v13 top-level error
"""

from ottla.wire.schema import ZERO_UUID, Array, Bool, Int16, Int32, Message, String, Struct, Uuid, field


class MetadataRequestTopic(Struct):
    topic_id: bytes = field(Uuid, versions="10+", default=ZERO_UUID)
    name: str | None = field(String, nullable="10+")


class MetadataRequest(Message, key=3, versions="0-13", flexible="9+"):
    topics: list[MetadataRequestTopic] | None = field(Array(MetadataRequestTopic), nullable="1+")
    allow_auto_topic_creation: bool = field(Bool, versions="4+", default=True)
    include_cluster_authorized_operations: bool = field(Bool, versions="8-10", default=False)
    include_topic_authorized_operations: bool = field(Bool, versions="8+", default=False)


class MetadataResponseBroker(Struct):
    node_id: int = field(Int32)
    host: str = field(String)
    port: int = field(Int32)
    rack: str | None = field(String, versions="1+", nullable="1+", default=None)


class MetadataResponsePartition(Struct):
    error_code: int = field(Int16)
    partition_index: int = field(Int32)
    leader_id: int = field(Int32)
    leader_epoch: int = field(Int32, versions="7+", default=-1)
    replica_nodes: list[int] = field(Array(Int32))
    isr_nodes: list[int] = field(Array(Int32))
    offline_replicas: list[int] = field(Array(Int32), versions="5+", default=[])


class MetadataResponseTopic(Struct):
    error_code: int = field(Int16)
    name: str | None = field(String, nullable="12+")
    topic_id: bytes = field(Uuid, versions="10+", default=ZERO_UUID)
    is_internal: bool = field(Bool, versions="1+", default=False)
    partitions: list[MetadataResponsePartition] = field(Array(MetadataResponsePartition))
    topic_authorized_operations: int = field(Int32, versions="8+", default=-(1 << 31))


class MetadataResponse(Message, key=3, versions="0-13", flexible="9+"):
    throttle_time_ms: int = field(Int32, versions="3+", default=0)
    brokers: list[MetadataResponseBroker] = field(Array(MetadataResponseBroker))
    cluster_id: str | None = field(String, versions="2+", nullable="2+", default=None)
    controller_id: int = field(Int32, versions="1+", default=-1)
    topics: list[MetadataResponseTopic] = field(Array(MetadataResponseTopic))
    cluster_authorized_operations: int = field(Int32, versions="8-10", default=-(1 << 31))
    error_code: int = field(Int16, versions="13+", default=0)
