"""What can be seen of a produce request before any partition is asked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.server.net.inbox import belongs_to_one_frame
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.records import LOG_OVERHEAD, MAGIC_V2, RECORDS_OFFSET, BatchHeader, batch_size, unpack_header

if TYPE_CHECKING:
    from ottla.server.ports import BrokerParts

TOPIC_IDS_SINCE = 13
TRANSACTIONAL_FLAG = 0x10
# All flags are in the low byte of the attributes, so reading one byte is enough.
_MAGIC_AT, _ATTRIBUTES_LOW_BYTE_AT = 16, 22
# The size of a batch with its front must fit 31 bits, as in Java's int.
_LENGTH_MAX = 2**31 - 1 - LOG_OVERHEAD


def without_repetitions(topics: list[TopicProduceData]) -> list[TopicProduceData]:
    """Each topic and partition once, as clients send them."""
    # Nearly all small requests end here; the rest would cost them a few objects for nothing.
    if len(topics) == 1 and len(topics[0].partition_data) == 1:
        return topics
    named: dict[tuple[str, bytes], dict[int, PartitionProduceData]] = {}
    for topic in topics:
        for data in topic.partition_data:
            # A later entry replaces an earlier one: as in Kafka the last records count.
            named.setdefault((topic.name, topic.topic_id), {})[data.index] = data
    return [
        TopicProduceData(name=name, topic_id=topic_id, partition_data=list(partitions.values()))
        for (name, topic_id), partitions in named.items()
    ]


def named_topic(broker: BrokerParts, topic: TopicProduceData) -> str:
    """The name of a topic that is given by its id; KafkaError if this broker does not know the id."""
    state = broker.cluster.topic_by_id.get(topic.topic_id)
    if state is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
    return state.name


def has_a_buffer(request: ProduceRequest) -> bool:
    """Whether the request is so large that it has a receive buffer of its own, in which its records may stay."""
    for topic in request.topic_data:
        for data in topic.partition_data:
            if data.records is not None:
                # All records of a request lie in the same buffer, so the first ones tell for all.
                return belongs_to_one_frame(data.records.obj)
    return False


def holds_transactional(request: ProduceRequest) -> bool:
    """Whether a first batch is transactional; KafkaError if the front of one before it cannot be."""
    for topic in request.topic_data:
        for data in topic.partition_data:
            if is_transactional(data.records):
                return True
    return False


def is_transactional(records: memoryview | None) -> bool:
    """Whether the first batch is transactional; KafkaError if its front cannot be."""
    if records is None:
        return False
    if not batch_size(records, 0, len(records)):
        if len(records) > _MAGIC_AT and int.from_bytes(records[8:12], "big") > _LENGTH_MAX:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "The size of the batch is beyond 31 bits")
        return False
    # Attributes of magic 0 and 1 are elsewhere and know no transactions.
    return records[_MAGIC_AT] == 2 and bool(records[_ATTRIBUTES_LOW_BYTE_AT] & TRANSACTIONAL_FLAG)


def numbered_batch(records: memoryview | None) -> BatchHeader | None:
    """The header of a batch whose producer numbers its records."""
    if records is None or len(records) < RECORDS_OFFSET or records[_MAGIC_AT] != MAGIC_V2:
        return None
    # Not `read_header`: the magic is known here.
    header = BatchHeader._make(unpack_header(records))
    return header if header.producer_id >= 0 and header.base_sequence >= 0 else None
