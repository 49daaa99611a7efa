"""AlterPartition (key 56): a leader asks the controller to change a partition's in-sync replicas (KIP-497).

Request and response name their parts alike, so the parts stand inside them.

v2 topic ids in place of names (KIP-841)   v3 broker epochs of the new ISR (KIP-903)
"""

from ottla.wire.schema import ZERO_UUID, Array, Int8, Int16, Int32, Int64, Message, Struct, Uuid, field


class BrokerState(Struct):
    broker_id: int = field(Int32, versions="3+", default=0)
    broker_epoch: int = field(Int64, versions="3+", default=-1)


class AlterPartitionRequest(Message, key=56, versions="2-3", flexible="0+"):
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
