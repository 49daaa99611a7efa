"""LeaderAndIsr (key 4): a controller tells a broker which partitions it leads and which it follows, and from whom.

Only between brokers that coordinate through ZooKeeper; Kafka 4 has it no more.

v1 new partitions   v2 by topic; broker epoch (KIP-380)   v3 reassignment (KIP-455)   v4 flexible
v5 topic ids (KIP-516); whether the request names all partitions   v6 leader recovery (KIP-704)
v7 controller of the other kind (KIP-866)
"""

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
