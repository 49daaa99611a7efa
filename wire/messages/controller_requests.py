"""Requests between brokers and the controller: LeaderAndIsr, StopReplica, UpdateMetadata, AlterPartition and ControlledShutdown."""

from ottla.wire.schema import ZERO_UUID, Array, Bool, Int8, Int16, Int32, Int64, Message, String, Struct, Uuid, field


class LeaderAndIsrPartitionState(Struct):
    topic_name: str = field(String, versions="0-1", default="")
    partition_index: int = field(Int32)
    controller_epoch: int = field(Int32)
    leader: int = field(Int32)
    leader_epoch: int = field(Int32)
    isr: list[int] = field(Array(Int32))
    partition_epoch: int = field(Int32)
    replicas: list[int] = field(Array(Int32))
    adding_replicas: list[int] = field(Array(Int32), versions="3+", default=[])
    removing_replicas: list[int] = field(Array(Int32), versions="3+", default=[])
    is_new: bool = field(Bool, versions="1+", default=False)
    leader_recovery_state: int = field(Int8, versions="6+", default=0)


class LeaderAndIsrTopicState(Struct):
    topic_name: str = field(String, versions="2+", default="")
    topic_id: bytes = field(Uuid, versions="5+", default=ZERO_UUID)
    partition_states: list[LeaderAndIsrPartitionState] = field(
        Array(LeaderAndIsrPartitionState), versions="2+", default=[]
    )


class LeaderAndIsrLiveLeader(Struct):
    broker_id: int = field(Int32)
    host_name: str = field(String)
    port: int = field(Int32)


class LeaderAndIsrRequest(Message, key=4, versions="0-7", flexible="4+"):
    """LeaderAndIsr (key 4): the controller tells a broker which partitions it leads, and which leaders it follows.

    Only between brokers that coordinate through ZooKeeper; removed in Kafka 4.

    v1 new partitions   v2 partitions grouped by topic; broker epoch (KIP-380)   v3 reassignment (KIP-455)   v4 flexible
    v5 topic ids (KIP-516); whether the request names all partitions   v6 leader recovery (KIP-704)
    v7 whether the sender is a KRaft controller (KIP-866)
    """

    controller_id: int = field(Int32)
    is_kraft_controller: bool = field(Bool, versions="7+", default=False)
    controller_epoch: int = field(Int32)
    broker_epoch: int = field(Int64, versions="2+", default=-1)
    type: int = field(Int8, versions="5+", default=0)
    ungrouped_partition_states: list[LeaderAndIsrPartitionState] = field(
        Array(LeaderAndIsrPartitionState), versions="0-1", default=[]
    )
    topic_states: list[LeaderAndIsrTopicState] = field(Array(LeaderAndIsrTopicState), versions="2+", default=[])
    live_leaders: list[LeaderAndIsrLiveLeader] = field(Array(LeaderAndIsrLiveLeader))


class LeaderAndIsrPartitionError(Struct):
    topic_name: str = field(String, versions="0-4", default="")
    partition_index: int = field(Int32)
    error_code: int = field(Int16)


class LeaderAndIsrTopicError(Struct):
    topic_id: bytes = field(Uuid, versions="5+", default=ZERO_UUID)
    partition_errors: list[LeaderAndIsrPartitionError] = field(
        Array(LeaderAndIsrPartitionError), versions="5+", default=[]
    )


class LeaderAndIsrResponse(Message, key=4, versions="0-7", flexible="4+"):
    error_code: int = field(Int16)
    partition_errors: list[LeaderAndIsrPartitionError] = field(
        Array(LeaderAndIsrPartitionError), versions="0-4", default=[]
    )
    topics: list[LeaderAndIsrTopicError] = field(Array(LeaderAndIsrTopicError), versions="5+", default=[])


class StopReplicaPartitionV0(Struct):
    topic_name: str = field(String, versions="0", default="")
    partition_index: int = field(Int32, versions="0", default=0)


class StopReplicaTopicV1(Struct):
    name: str = field(String, versions="1-2", default="")
    partition_indexes: list[int] = field(Array(Int32), versions="1-2", default=[])


class StopReplicaPartitionState(Struct):
    partition_index: int = field(Int32, versions="3+", default=0)
    leader_epoch: int = field(Int32, versions="3+", default=-1)
    delete_partition: bool = field(Bool, versions="3+", default=False)


class StopReplicaTopicState(Struct):
    topic_name: str = field(String, versions="3+", default="")
    partition_states: list[StopReplicaPartitionState] = field(
        Array(StopReplicaPartitionState), versions="3+", default=[]
    )


class StopReplicaRequest(Message, key=5, versions="0-4", flexible="2+"):
    """StopReplica (key 5): the controller tells a broker to stop replicas, and optionally to delete them.

    Only between brokers that coordinate through ZooKeeper; removed in Kafka 4.

    v1 partitions grouped by topic; broker epoch (KIP-380)   v2 flexible
    v3 leader epoch and deletion for each partition (KIP-570)   v4 whether the sender is a KRaft controller (KIP-866)
    """

    controller_id: int = field(Int32)
    is_kraft_controller: bool = field(Bool, versions="4+", default=False)
    controller_epoch: int = field(Int32)
    broker_epoch: int = field(Int64, versions="1+", default=-1)
    delete_partitions: bool = field(Bool, versions="0-2", default=False)
    ungrouped_partitions: list[StopReplicaPartitionV0] = field(Array(StopReplicaPartitionV0), versions="0", default=[])
    topics: list[StopReplicaTopicV1] = field(Array(StopReplicaTopicV1), versions="1-2", default=[])
    topic_states: list[StopReplicaTopicState] = field(Array(StopReplicaTopicState), versions="3+", default=[])


class StopReplicaPartitionError(Struct):
    topic_name: str = field(String)
    partition_index: int = field(Int32)
    error_code: int = field(Int16)


class StopReplicaResponse(Message, key=5, versions="0-4", flexible="2+"):
    error_code: int = field(Int16)
    partition_errors: list[StopReplicaPartitionError] = field(Array(StopReplicaPartitionError))


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
    """UpdateMetadata (key 6): the controller sends a broker the cluster metadata that its clients need.

    Only between brokers that coordinate through ZooKeeper; removed in Kafka 4.

    v1 endpoints   v2 rack   v3 listener names   v4 offline replicas (KIP-112)
    v5 partitions grouped by topic; broker epoch (KIP-380)   v6 flexible   v7 topic ids (KIP-516)
    v8 whether the sender is a KRaft controller (KIP-866)
    """

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


class BrokerState(Struct):
    broker_id: int = field(Int32, versions="3+", default=0)
    broker_epoch: int = field(Int64, versions="3+", default=-1)


class AlterPartitionRequest(Message, key=56, versions="2-3", flexible="0+"):
    """AlterPartition (key 56): a leader asks the controller to change a partition's in-sync replicas (KIP-497).

    Structs inside request and response have the same names, so they are nested classes.

    v2 topic ids in place of names (KIP-841)   v3 broker epochs of the new ISR (KIP-903)
    """

    class TopicData(Struct):
        class PartitionData(Struct):
            partition_index: int = field(Int32)
            leader_epoch: int = field(Int32)
            new_isr: list[int] = field(Array(Int32), versions="0-2", default=[])
            new_isr_with_epochs: list[BrokerState] = field(Array(BrokerState), versions="3+", default=[])
            leader_recovery_state: int = field(Int8, versions="1+", default=0)
            partition_epoch: int = field(Int32)

        topic_id: bytes = field(Uuid, versions="2+", default=ZERO_UUID)
        partitions: list[PartitionData] = field(Array(PartitionData))

    broker_id: int = field(Int32)
    broker_epoch: int = field(Int64, default=-1)
    topics: list[TopicData] = field(Array(TopicData))


class AlterPartitionResponse(Message, key=56, versions="2-3", flexible="0+"):
    class TopicData(Struct):
        class PartitionData(Struct):
            partition_index: int = field(Int32)
            error_code: int = field(Int16)
            leader_id: int = field(Int32)
            leader_epoch: int = field(Int32)
            isr: list[int] = field(Array(Int32))
            leader_recovery_state: int = field(Int8, versions="1+", default=0)
            partition_epoch: int = field(Int32)

        topic_id: bytes = field(Uuid, versions="2+", default=ZERO_UUID)
        partitions: list[PartitionData] = field(Array(PartitionData))

    throttle_time_ms: int = field(Int32)
    error_code: int = field(Int16)
    topics: list[TopicData] = field(Array(TopicData))


class ControlledShutdownRequest(Message, key=7, versions="0-3", flexible="3+"):
    """ControlledShutdown (key 7): a broker that is going to stop asks the controller to elect other leaders.

    Only between brokers that coordinate through ZooKeeper. The request header of v0 has no client id.

    v2 broker epoch (KIP-380)   v3 flexible
    """

    broker_id: int = field(Int32)
    broker_epoch: int = field(Int64, versions="2+", default=-1)


class RemainingPartition(Struct):
    topic_name: str = field(String)
    partition_index: int = field(Int32)


class ControlledShutdownResponse(Message, key=7, versions="0-3", flexible="3+"):
    error_code: int = field(Int16)
    remaining_partitions: list[RemainingPartition] = field(Array(RemainingPartition))
