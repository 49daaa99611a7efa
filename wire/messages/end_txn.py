"""EndTxn (key 26): commit or abort a transaction.

v1 answer first, throttle after   v2 PRODUCER_FENCED   v3 flexible   v4 TRANSACTION_ABORTABLE (KIP-890)
v5 each transaction has an epoch of its own, so the answer names the next one (KIP-890 part 2)
"""

from ottla.wire.schema import Bool, Int16, Int32, Int64, Message, String, field


class EndTxnRequest(Message, key=26, versions="0-5", flexible="3+"):
    transactional_id: str = field(String)
    producer_id: int = field(Int64)
    producer_epoch: int = field(Int16)
    committed: bool = field(Bool)


class EndTxnResponse(Message, key=26, versions="0-5", flexible="3+"):
    throttle_time_ms: int = field(Int32, default=0)
    error_code: int = field(Int16)
    producer_id: int = field(Int64, versions="5+", default=-1)
    producer_epoch: int = field(Int16, versions="5+", default=-1)
