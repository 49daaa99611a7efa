"""AllocateProducerIds (key 67): a broker asks the controller for a block of producer ids (KIP-730)."""

from ottla.wire.schema import Int16, Int32, Int64, Message, field


class AllocateProducerIdsRequest(Message, key=67, versions="0", flexible="0+"):
    broker_id: int = field(Int32)
    broker_epoch: int = field(Int64, default=-1)


class AllocateProducerIdsResponse(Message, key=67, versions="0", flexible="0+"):
    throttle_time_ms: int = field(Int32)
    error_code: int = field(Int16)
    producer_id_start: int = field(Int64)
    producer_id_len: int = field(Int32)
