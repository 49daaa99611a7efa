"""DescribeTransactions (key 65): the state of transactional ids, as their coordinator knows it (KIP-664).

v0 is the only version.
"""

from ottla.wire.schema import Array, Int16, Int32, Int64, Message, String, Struct, field


class DescribeTransactionsRequest(Message, key=65, versions="0", flexible="0+"):
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
