"""Producer ids: InitProducerId and AllocateProducerIds."""

from ottla.wire.schema import Int16, Int32, Int64, Message, String, field


class InitProducerIdRequest(Message, key=22, versions="0-5", flexible="2+"):
    """InitProducerId (key 22): get a producer id and epoch for an idempotent or transactional producer.

    v1 answers before throttling   v2 flexible   v3 the producer's present id and epoch, which it keeps (KIP-360)
    v4 PRODUCER_FENCED   v5 TRANSACTION_ABORTABLE (KIP-890)
    """

    transactional_id: str | None = field(String, nullable="0+")
    transaction_timeout_ms: int = field(Int32)
    producer_id: int = field(Int64, versions="3+", default=-1)
    producer_epoch: int = field(Int16, versions="3+", default=-1)


class InitProducerIdResponse(Message, key=22, versions="0-5", flexible="2+"):
    throttle_time_ms: int = field(Int32, default=0)
    error_code: int = field(Int16)
    producer_id: int = field(Int64, default=-1)
    producer_epoch: int = field(Int16)


class AllocateProducerIdsRequest(Message, key=67, versions="0", flexible="0+"):
    """AllocateProducerIds (key 67): a broker asks the controller for a block of producer ids (KIP-730)."""

    broker_id: int = field(Int32)
    broker_epoch: int = field(Int64, default=-1)


class AllocateProducerIdsResponse(Message, key=67, versions="0", flexible="0+"):
    throttle_time_ms: int = field(Int32)
    error_code: int = field(Int16)
    producer_id_start: int = field(Int64)
    producer_id_len: int = field(Int32)
