"""Transactions and producers, as administrators see them: DescribeTransactions, ListTransactions and DescribeProducers."""

from ottla.wire.schema import Array, Int16, Int32, Int64, Message, String, Struct, Text, field


class DescribeTransactionsRequest(Message, key=65, versions="0", flexible="0+"):
    """DescribeTransactions (key 65): return a coordinator's state of transactional ids (KIP-664). Only v0."""

    transactional_ids: list[str] = field(Array(String))


class TopicData(Struct):
    topic: str = field(String)
    partitions: list[int] = field(Array(Int32))


class TransactionState(Struct):
    error_code: int = field(Int16)
    transactional_id: str = field(String)
    transaction_state: str = field(String)
    transaction_timeout_ms: int = field(Int32)
    transaction_start_time_ms: int = field(Int64)
    producer_id: int = field(Int64)
    producer_epoch: int = field(Int16)
    topics: list[TopicData] = field(Array(TopicData))


class DescribeTransactionsResponse(Message, key=65, versions="0", flexible="0+"):
    throttle_time_ms: int = field(Int32, default=0)
    transaction_states: list[TransactionState] = field(Array(TransactionState))


class ListTransactionsRequest(Message, key=66, versions="0-2", flexible="0+"):
    """ListTransactions (key 66, KIP-664): list transactional ids. v1 by time (KIP-994); v2 by id pattern (KIP-1152)."""

    state_filters: list[str] = field(Array(String))
    producer_id_filters: list[int] = field(Array(Int64))
    duration_filter: int = field(Int64, versions="1+", default=-1)
    transactional_id_pattern: str | None = field(String, versions="2+", nullable="2+", default=None)


class ListedTransaction(Struct):
    transactional_id: str = field(String)
    producer_id: int = field(Int64)
    transaction_state: str = field(String)


class ListTransactionsResponse(Message, key=66, versions="0-2", flexible="0+"):
    throttle_time_ms: int = field(Int32, default=0)
    error_code: int = field(Int16)
    unknown_state_filters: list[str] = field(Array(String))
    transaction_states: list[ListedTransaction] = field(Array(ListedTransaction))


class TopicRequest(Struct):
    name: str = field(String)
    partition_indexes: list[int] = field(Array(Int32))


class DescribeProducersRequest(Message, key=61, versions="0", flexible="0+"):
    """DescribeProducers (key 61): return a partition leader's producers and open transactions (KIP-664). Only v0."""

    topics: list[TopicRequest] = field(Array(TopicRequest))


class ProducerState(Struct):
    producer_id: int = field(Int64)
    producer_epoch: int = field(Int32)
    last_sequence: int = field(Int32, default=-1)
    last_timestamp: int = field(Int64, default=-1)
    coordinator_epoch: int = field(Int32)
    current_txn_start_offset: int = field(Int64, default=-1)


class PartitionResponse(Struct):
    partition_index: int = field(Int32)
    error_code: int = field(Int16)
    error_message: str | None = field(Text, nullable="0+", default=None)
    active_producers: list[ProducerState] = field(Array(ProducerState))


class TopicResponse(Struct):
    name: str = field(String)
    partitions: list[PartitionResponse] = field(Array(PartitionResponse))


class DescribeProducersResponse(Message, key=61, versions="0", flexible="0+"):
    throttle_time_ms: int = field(Int32, default=0)
    topics: list[TopicResponse] = field(Array(TopicResponse))
