"""TxnOffsetCommit (key 28): offsets of a group that come into force when a transaction is committed.

v1 answer first, throttle after   v2 leader epoch   v3 flexible; the member and its generation (KIP-447)
v4 TRANSACTION_ABORTABLE (KIP-890)   v5 the coordinator adds the partition to the transaction itself (KIP-890 part 2)
v6 topic ids in place of names (KIP-1319)
"""

from ottla.wire.schema import ZERO_UUID, Array, Int16, Int32, Int64, Message, String, Struct, Uuid, field


class TxnOffsetCommitRequestPartition(Struct):
    partition_index: int = field(Int32)
    committed_offset: int = field(Int64)
    committed_leader_epoch: int = field(Int32, versions="2+", default=-1)
    committed_metadata: str | None = field(String, nullable="0+")


class TxnOffsetCommitRequestTopic(Struct):
    name: str = field(String, versions="0-5", default="")
    topic_id: bytes = field(Uuid, versions="6+", default=ZERO_UUID)
    partitions: list[TxnOffsetCommitRequestPartition] = field(Array(TxnOffsetCommitRequestPartition))


class TxnOffsetCommitRequest(Message, key=28, versions="0-6", flexible="3+"):
    transactional_id: str = field(String)
    group_id: str = field(String)
    producer_id: int = field(Int64)
    producer_epoch: int = field(Int16)
    generation_id_or_member_epoch: int = field(Int32, versions="3+", default=-1)
    member_id: str = field(String, versions="3+", default="")
    group_instance_id: str | None = field(String, versions="3+", nullable="3+", default=None)
    topics: list[TxnOffsetCommitRequestTopic] = field(Array(TxnOffsetCommitRequestTopic))


class TxnOffsetCommitResponsePartition(Struct):
    partition_index: int = field(Int32)
    error_code: int = field(Int16)


class TxnOffsetCommitResponseTopic(Struct):
    name: str = field(String, versions="0-5", default="")
    topic_id: bytes = field(Uuid, versions="6+", default=ZERO_UUID)
    partitions: list[TxnOffsetCommitResponsePartition] = field(Array(TxnOffsetCommitResponsePartition))


class TxnOffsetCommitResponse(Message, key=28, versions="0-6", flexible="3+"):
    throttle_time_ms: int = field(Int32, default=0)
    topics: list[TxnOffsetCommitResponseTopic] = field(Array(TxnOffsetCommitResponseTopic))
