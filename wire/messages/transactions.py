"""Steps of a transaction: AddPartitionsToTxn, AddOffsetsToTxn, TxnOffsetCommit, EndTxn and WriteTxnMarkers."""

from ottla.wire.schema import ZERO_UUID, Array, Bool, Int8, Int16, Int32, Int64, Message, String, Struct, Uuid, field


class AddPartitionsToTxnTopic(Struct):
    name: str = field(String)
    partitions: list[int] = field(Array(Int32))


class AddPartitionsToTxnTransaction(Struct):
    transactional_id: str = field(String, versions="4+")
    producer_id: int = field(Int64, versions="4+")
    producer_epoch: int = field(Int16, versions="4+")
    verify_only: bool = field(Bool, versions="4+", default=False)
    topics: list[AddPartitionsToTxnTopic] = field(Array(AddPartitionsToTxnTopic), versions="4+")


class AddPartitionsToTxnRequest(Message, key=24, versions="0-5", flexible="3+"):
    """AddPartitionsToTxn (key 24): add partitions to a transaction.

    Producers send v0-v3. Brokers send v4-v5, for many transactions at a time. They may also only ask whether partitions
    belong to the transaction.

    v1 answers before throttling   v2 PRODUCER_FENCED   v3 flexible   v4 batches, verification (KIP-890)
    v5 TRANSACTION_ABORTABLE (KIP-890)
    """

    transactions: list[AddPartitionsToTxnTransaction] = field(
        Array(AddPartitionsToTxnTransaction), versions="4+", default=[]
    )
    v3_and_below_transactional_id: str = field(String, versions="0-3", default="")
    v3_and_below_producer_id: int = field(Int64, versions="0-3", default=0)
    v3_and_below_producer_epoch: int = field(Int16, versions="0-3", default=0)
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = field(
        Array(AddPartitionsToTxnTopic), versions="0-3", default=[]
    )


class AddPartitionsToTxnPartitionResult(Struct):
    partition_index: int = field(Int32)
    partition_error_code: int = field(Int16)


class AddPartitionsToTxnTopicResult(Struct):
    name: str = field(String)
    results_by_partition: list[AddPartitionsToTxnPartitionResult] = field(Array(AddPartitionsToTxnPartitionResult))


class AddPartitionsToTxnResult(Struct):
    transactional_id: str = field(String, versions="4+")
    topic_results: list[AddPartitionsToTxnTopicResult] = field(Array(AddPartitionsToTxnTopicResult), versions="4+")


class AddPartitionsToTxnResponse(Message, key=24, versions="0-5", flexible="3+"):
    throttle_time_ms: int = field(Int32, default=0)
    error_code: int = field(Int16, versions="4+", default=0)
    results_by_transaction: list[AddPartitionsToTxnResult] = field(
        Array(AddPartitionsToTxnResult), versions="4+", default=[]
    )
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = field(
        Array(AddPartitionsToTxnTopicResult), versions="0-3", default=[]
    )


class AddOffsetsToTxnRequest(Message, key=25, versions="0-4", flexible="3+"):
    """AddOffsetsToTxn (key 25): add a group's offsets to a transaction.

    v1 answers before throttling   v2 PRODUCER_FENCED   v3 flexible   v4 TRANSACTION_ABORTABLE (KIP-890)
    """

    transactional_id: str = field(String)
    producer_id: int = field(Int64)
    producer_epoch: int = field(Int16)
    group_id: str = field(String)


class AddOffsetsToTxnResponse(Message, key=25, versions="0-4", flexible="3+"):
    throttle_time_ms: int = field(Int32, default=0)
    error_code: int = field(Int16)


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
    """TxnOffsetCommit (key 28): commit a group's offsets as part of a transaction.

    v1 answers before throttling   v2 leader epoch   v3 flexible; the member and its generation (KIP-447)
    v4 TRANSACTION_ABORTABLE (KIP-890)   v5 the coordinator adds the partition to the transaction (KIP-890 part 2)
    v6 topic ids in place of names (KIP-1319)
    """

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


class EndTxnRequest(Message, key=26, versions="0-5", flexible="3+"):
    """EndTxn (key 26): commit or abort a transaction.

    v1 answers before throttling   v2 PRODUCER_FENCED   v3 flexible   v4 TRANSACTION_ABORTABLE (KIP-890)
    v5 each transaction has its own epoch; the response has the next one (KIP-890 part 2)
    """

    transactional_id: str = field(String)
    producer_id: int = field(Int64)
    producer_epoch: int = field(Int16)
    committed: bool = field(Bool)


class EndTxnResponse(Message, key=26, versions="0-5", flexible="3+"):
    throttle_time_ms: int = field(Int32, default=0)
    error_code: int = field(Int16)
    producer_id: int = field(Int64, versions="5+", default=-1)
    producer_epoch: int = field(Int16, versions="5+", default=-1)


class WritableTxnMarkerTopic(Struct):
    name: str = field(String)
    partition_indexes: list[int] = field(Array(Int32))


class WritableTxnMarker(Struct):
    producer_id: int = field(Int64)
    producer_epoch: int = field(Int16)
    transaction_result: bool = field(Bool)
    topics: list[WritableTxnMarkerTopic] = field(Array(WritableTxnMarkerTopic))
    coordinator_epoch: int = field(Int32)
    transaction_version: int = field(Int8, versions="2+", default=0)


class WriteTxnMarkersRequest(Message, key=27, versions="0-2", flexible="1+"):
    """WriteTxnMarkers (key 27): a transaction coordinator asks partition leaders to write transaction markers.

    v1 flexible   v2 transaction version (KIP-1228)
    """

    markers: list[WritableTxnMarker] = field(Array(WritableTxnMarker))


class WritableTxnMarkerPartitionResult(Struct):
    partition_index: int = field(Int32)
    error_code: int = field(Int16)


class WritableTxnMarkerTopicResult(Struct):
    name: str = field(String)
    partitions: list[WritableTxnMarkerPartitionResult] = field(Array(WritableTxnMarkerPartitionResult))


class WritableTxnMarkerResult(Struct):
    producer_id: int = field(Int64)
    topics: list[WritableTxnMarkerTopicResult] = field(Array(WritableTxnMarkerTopicResult))


class WriteTxnMarkersResponse(Message, key=27, versions="0-2", flexible="1+"):
    markers: list[WritableTxnMarkerResult] = field(Array(WritableTxnMarkerResult))
