"""ControlledShutdown (key 7): a broker that is about to stop asks the controller to move its leaderships away.

Only between brokers that coordinate through ZooKeeper. The request header of v0 has no client id.

v2 broker epoch (KIP-380)   v3 flexible
"""

from ottla.wire.schema import Array, Int16, Int32, Int64, Message, String, Struct, field


class ControlledShutdownRequest(Message, key=7, versions="0-3", flexible="3+"):
    broker_id: int = field(Int32)
    broker_epoch: int = field(Int64, versions="2+", default=-1)


class RemainingPartition(Struct):
    topic_name: str = field(String)
    partition_index: int = field(Int32)


class ControlledShutdownResponse(Message, key=7, versions="0-3", flexible="3+"):
    error_code: int = field(Int16)
    remaining_partitions: list[RemainingPartition] = field(Array(RemainingPartition))
