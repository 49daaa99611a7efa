"""AddPartitionsToTxn (key 24): partitions take part in a transaction from now on.

v0-v3 are of producers; v4-v5 are of brokers, for many transactions at once, and may only ask whether partitions take part.

v1 answer first, throttle after   v2 PRODUCER_FENCED   v3 flexible   v4 batches, verification (KIP-890)
v5 TRANSACTION_ABORTABLE (KIP-890)
"""

from ottla.wire.schema import Array, Bool, Int16, Int32, Int64, Message, String, Struct, field


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
