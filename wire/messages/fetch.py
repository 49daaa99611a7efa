"""Fetch (key 1): read record batches, as a consumer or as a following replica.

From v7 on a session keeps the partitions of earlier requests, so that a request names only what changed (KIP-227).

v0-v1 answer message sets of magic 0, v2-v3 of magic 1, v4 and above record batches (magic 2).
v1 throttle time   v3 limit for the whole answer; partitions are served in the order asked   v4 isolation, aborted
transactions   v5 log start offset   v6 KAFKA_STORAGE_ERROR   v7 sessions   v8 answers before throttling
v9 leader epoch fencing (KIP-320)   v10 zstd (KIP-110)   v11 rack of the consumer, preferred replica (KIP-392)
v12 flexible; diverging epoch, current leader   v13 topic ids in place of names (KIP-516)   v14 tiered offsets (KIP-405)
v15 replica state with broker epoch (KIP-903)   v16 endpoints of new leaders (KIP-951)
v17 replica's directory (KIP-853)   v18 replica's high watermark (KIP-1166)
"""

from collections.abc import Sized

from ottla.wire.schema import ZERO_UUID, Array, Int8, Int16, Int32, Int64, Message, Records, String, Struct, Uuid, field


class ReplicaState(Struct):
    replica_id: int = field(Int32, versions="15+", default=-1)
    replica_epoch: int = field(Int64, versions="15+", default=-1)


class FetchPartition(Struct):
    partition: int = field(Int32)
    current_leader_epoch: int = field(Int32, versions="9+", default=-1)
    fetch_offset: int = field(Int64)
    last_fetched_epoch: int = field(Int32, versions="12+", default=-1)
    log_start_offset: int = field(Int64, versions="5+", default=-1)
    partition_max_bytes: int = field(Int32)
    replica_directory_id: bytes = field(Uuid, versions="17+", tag=0, default=ZERO_UUID)
    high_watermark: int = field(Int64, versions="18+", tag=1, default=(1 << 63) - 1)


class FetchTopic(Struct):
    topic: str = field(String, versions="0-12", default="")
    topic_id: bytes = field(Uuid, versions="13+", default=ZERO_UUID)
    partitions: list[FetchPartition] = field(Array(FetchPartition))


class ForgottenTopic(Struct):
    topic: str = field(String, versions="7-12", default="")
    topic_id: bytes = field(Uuid, versions="13+", default=ZERO_UUID)
    partitions: list[int] = field(Array(Int32), versions="7+")


class FetchRequest(Message, key=1, versions="0-18", flexible="12+"):
    cluster_id: str | None = field(String, versions="12+", nullable="12+", tag=0, default=None)
    replica_id: int = field(Int32, versions="0-14", default=-1)
    replica_state: ReplicaState = field(ReplicaState, versions="15+", tag=1, default=ReplicaState())
    max_wait_ms: int = field(Int32)
    min_bytes: int = field(Int32)
    max_bytes: int = field(Int32, versions="3+", default=0x7FFFFFFF)
    isolation_level: int = field(Int8, versions="4+", default=0)
    session_id: int = field(Int32, versions="7+", default=0)
    session_epoch: int = field(Int32, versions="7+", default=-1)
    topics: list[FetchTopic] = field(Array(FetchTopic))
    forgotten_topics_data: list[ForgottenTopic] = field(Array(ForgottenTopic), versions="7+", default=[])
    rack_id: str = field(String, versions="11+", default="")


class EpochEndOffset(Struct):
    epoch: int = field(Int32, versions="12+", default=-1)
    end_offset: int = field(Int64, versions="12+", default=-1)


class LeaderIdAndEpoch(Struct):
    leader_id: int = field(Int32, versions="12+", default=-1)
    leader_epoch: int = field(Int32, versions="12+", default=-1)


class SnapshotId(Struct):
    end_offset: int = field(Int64, default=-1)
    epoch: int = field(Int32, default=-1)


class AbortedTransaction(Struct):
    producer_id: int = field(Int64, versions="4+")
    first_offset: int = field(Int64, versions="4+")


class PartitionData(Struct):
    partition_index: int = field(Int32)
    error_code: int = field(Int16)
    high_watermark: int = field(Int64)
    last_stable_offset: int = field(Int64, versions="4+", default=-1)
    log_start_offset: int = field(Int64, versions="5+", default=-1)
    diverging_epoch: EpochEndOffset = field(EpochEndOffset, versions="12+", tag=0, default=EpochEndOffset())
    current_leader: LeaderIdAndEpoch = field(LeaderIdAndEpoch, versions="12+", tag=1, default=LeaderIdAndEpoch())
    snapshot_id: SnapshotId = field(SnapshotId, versions="12+", tag=2, default=SnapshotId())
    aborted_transactions: list[AbortedTransaction] | None = field(
        Array(AbortedTransaction), versions="4+", nullable="4+", default=[]
    )
    preferred_read_replica: int = field(Int32, versions="11+", default=-1)
    records: Sized | None = field(Records, nullable="0+")


class FetchableTopicResponse(Struct):
    topic: str = field(String, versions="0-12", default="")
    topic_id: bytes = field(Uuid, versions="13+", default=ZERO_UUID)
    partitions: list[PartitionData] = field(Array(PartitionData))


class NodeEndpoint(Struct):
    node_id: int = field(Int32, versions="16+")
    host: str = field(String, versions="16+")
    port: int = field(Int32, versions="16+")
    rack: str | None = field(String, versions="16+", nullable="16+", default=None)


class FetchResponse(Message, key=1, versions="0-18", flexible="12+"):
    throttle_time_ms: int = field(Int32, versions="1+", default=0)
    error_code: int = field(Int16, versions="7+", default=0)
    session_id: int = field(Int32, versions="7+", default=0)
    responses: list[FetchableTopicResponse] = field(Array(FetchableTopicResponse))
    node_endpoints: list[NodeEndpoint] = field(Array(NodeEndpoint), versions="16+", tag=0, default=[])
