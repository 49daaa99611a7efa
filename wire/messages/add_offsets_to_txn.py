"""AddOffsetsToTxn (key 25): the offsets of a group take part in a transaction from now on.

v1 answer first, throttle after   v2 PRODUCER_FENCED   v3 flexible   v4 TRANSACTION_ABORTABLE (KIP-890)
"""

from ottla.wire.schema import Int16, Int32, Int64, Message, String, field


class AddOffsetsToTxnRequest(Message, key=25, versions="0-4", flexible="3+"):
    transactional_id: str = field(String)
    producer_id: int = field(Int64)
    producer_epoch: int = field(Int16)
    group_id: str = field(String)


class AddOffsetsToTxnResponse(Message, key=25, versions="0-4", flexible="3+"):
    throttle_time_ms: int = field(Int32, default=0)
    error_code: int = field(Int16)
