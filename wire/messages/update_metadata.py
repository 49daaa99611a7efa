"""UpdateMetadata (key 6): a controller tells a broker who lives and who leads what, so that it can tell clients.

Only between brokers that coordinate through ZooKeeper; Kafka 4 has it no more.

v1 endpoints   v2 rack   v3 listener names   v4 offline replicas (KIP-112)   v5 by topic; broker epoch (KIP-380)
v6 flexible   v7 topic ids (KIP-516)   v8 controller of the other kind (KIP-866)
"""

from ottla.wire.schema import ZERO_UUID, Array, Bool, Int8, Int16, Int32, Int64, Message, String, Struct, Uuid, field


class UpdateMetadataPartitionState(Struct):
    topic_name: str = field(String, versions="0-4", default="")
    partition_index: int = field(Int32)
    controller_epoch: int = field(Int32)
    leader: int = field(Int32)
    leader_epoch: int = field(Int32)
    isr: list[int] = field(Array(Int32))
    zk_version: int = field(Int32)
    replicas: list[int] = field(Array(Int32))
    offline_replicas: list[int] = field(Array(Int32), versions="4+", default=[])


class UpdateMetadataTopicState(Struct):
    topic_name: str = field(String, versions="5+", default="")
    topic_id: bytes = field(Uuid, versions="7+", default=ZERO_UUID)
    partition_states: list[UpdateMetadataPartitionState] = field(
        Array(UpdateMetadataPartitionState), versions="5+", default=[]
    )


class UpdateMetadataEndpoint(Struct):
    port: int = field(Int32, versions="1+", default=0)
    host: str = field(String, versions="1+", default="")
    listener: str = field(String, versions="3+", default="")
    security_protocol: int = field(Int16, versions="1+", default=0)


class UpdateMetadataBroker(Struct):
    id: int = field(Int32)
    v0_host: str = field(String, versions="0", default="")
    v0_port: int = field(Int32, versions="0", default=0)
    endpoints: list[UpdateMetadataEndpoint] = field(Array(UpdateMetadataEndpoint), versions="1+", default=[])
    rack: str | None = field(String, versions="2+", nullable="0+", default="")


class UpdateMetadataRequest(Message, key=6, versions="0-8", flexible="6+"):
    controller_id: int = field(Int32)
    is_kraft_controller: bool = field(Bool, versions="8+", default=False)
    type: int = field(Int8, versions="8+", tag=0, default=0)
    controller_epoch: int = field(Int32)
    broker_epoch: int = field(Int64, versions="5+", default=-1)
    ungrouped_partition_states: list[UpdateMetadataPartitionState] = field(
        Array(UpdateMetadataPartitionState), versions="0-4", default=[]
    )
    topic_states: list[UpdateMetadataTopicState] = field(Array(UpdateMetadataTopicState), versions="5+", default=[])
    live_brokers: list[UpdateMetadataBroker] = field(Array(UpdateMetadataBroker))


class UpdateMetadataResponse(Message, key=6, versions="0-8", flexible="6+"):
    error_code: int = field(Int16)
