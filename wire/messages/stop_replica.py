"""StopReplica (key 5): a controller tells a broker to let go of replicas, with or without deleting them.

Only between brokers that coordinate through ZooKeeper; Kafka 4 has it no more.

v1 by topic; broker epoch (KIP-380)   v2 flexible   v3 leader epoch and deletion for each partition (KIP-570)
v4 controller of the other kind (KIP-866)
"""

from ottla.wire.schema import Array, Bool, Int16, Int32, Int64, Message, String, Struct, field


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
