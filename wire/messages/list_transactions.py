"""ListTransactions (key 66): the transactional ids that a coordinator knows (KIP-664).

v1 filter by duration (KIP-994)   v2 filter by a pattern of ids (KIP-1152)
"""

from ottla.wire.schema import Array, Int16, Int32, Int64, Message, String, Struct, field


class ListTransactionsRequest(Message, key=66, versions="0-2", flexible="0+"):
    state_filters: list[str] = field(Array(String))
    producer_id_filters: list[int] = field(Array(Int64))
    duration_filter: int = field(Int64, versions="1+", default=-1)
    transactional_id_pattern: str | None = field(String, versions="2+", nullable="2+", default=None)


class TransactionState(Struct):
    transactional_id: str = field(String)
    producer_id: int = field(Int64)
    transaction_state: str = field(String)


class ListTransactionsResponse(Message, key=66, versions="0-2", flexible="0+"):
    throttle_time_ms: int = field(Int32, default=0)
    error_code: int = field(Int16)
    unknown_state_filters: list[str] = field(Array(String))
    transaction_states: list[TransactionState] = field(Array(TransactionState))
