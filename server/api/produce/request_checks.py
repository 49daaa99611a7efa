"""Checks of a produce request: what is seen before any partition is asked, and checks of batches in threads.

Answers to Produce and Fetch hint at the leader of a refused partition, and at its address (KIP-951).
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING

import trio

from ottla.replication.log.validator import check_thoroughly
from ottla.server.network.inbox import belongs_to_one_frame
from ottla.server.ports import BrokerParts
from ottla.wire.decompression import TooLargeDecompressed
from ottla.wire.errors import ErrorCode, KafkaError, result_of
from ottla.wire.messages.produce import (
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from ottla.wire.records import LOG_OVERHEAD, MAGIC_V2, RECORDS_OFFSET, BatchHeader, batch_size, unpack_header
from ottla.wire.schema import ZERO_UUID

if TYPE_CHECKING:
    from ottla.replication.cluster.metadata_cache import BrokerEndpoint
    from ottla.replication.log.batch_checks import CheckedRecords
    from ottla.replication.log.partition_log import PartitionLog
    from ottla.replication.partition.partition import Partition

TOPIC_IDS_SINCE = 13
TRANSACTIONAL_FLAG = 0x10
# All flags are in the low byte of the attributes, so reading one byte is enough.
_MAGIC_AT, _ATTRIBUTES_LOW_BYTE_AT = 16, 22
# The size of a batch with its front must fit 31 bits, as in Java's int.
_LENGTH_MAX = 2**31 - 1 - LOG_OVERHEAD


def without_repetitions(topics: list[TopicProduceData]) -> list[TopicProduceData]:
    """Return the topics without repetitions. Of a repeated partition the last data count."""
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
    """Return a topic's name, looked up by its id. Raises KafkaError if this broker does not know the id."""
    state = broker.cluster.topic_by_id.get(topic.topic_id)
    if state is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
    return state.name


def has_own_buffer(request: ProduceRequest) -> bool:
    """True if the request was received into its own buffer, so that its records need not be copied to be kept."""
    for topic in request.topic_data:
        for data in topic.partition_data:
            if data.records is not None:
                # All records of a request lie in the same buffer, so the first ones tell for all.
                return belongs_to_one_frame(data.records.obj)
    return False


def holds_transactional(request: ProduceRequest) -> bool:
    """True if any partition's first batch is transactional. Raises KafkaError if a batch size is beyond 31 bits."""
    for topic in request.topic_data:
        for data in topic.partition_data:
            if is_transactional(data.records):
                return True
    return False


def is_transactional(records: memoryview | None) -> bool:
    """True if the first batch is transactional. Raises KafkaError if the batch size is beyond 31 bits."""
    if records is None:
        return False
    if not batch_size(records, 0, len(records)):
        if len(records) > _MAGIC_AT and int.from_bytes(records[8:12], "big") > _LENGTH_MAX:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "The size of the batch is beyond 31 bits")
        return False
    # Attributes of magic 0 and 1 are elsewhere and know no transactions.
    return records[_MAGIC_AT] == 2 and bool(records[_ATTRIBUTES_LOW_BYTE_AT] & TRANSACTIONAL_FLAG)


def numbered_batch(records: memoryview | None) -> BatchHeader | None:
    """Return the first batch's header if it has a producer id and sequence numbers, else None."""
    if records is None or len(records) < RECORDS_OFFSET or records[_MAGIC_AT] != MAGIC_V2:
        return None
    # Not `read_header`: the magic is known here.
    header = BatchHeader._make(unpack_header(records))
    return header if header.producer_id >= 0 and header.base_sequence >= 0 else None


def check_producer_is_known(partition: Partition, batch: BatchHeader | None) -> None:
    """Raise KafkaError if earlier batches of the producer may still arrive from the partition's previous leader."""
    if batch is None or batch.producer_id < 0 or batch.base_sequence <= 0:
        return
    entry = partition.log.producers.get(batch.producer_id)
    if entry is None or not entry.batches:
        raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "What comes before may come from the leader before this one")


# Two limits, so that a few bombs, one after the other, do not keep ordinary compressed batches waiting.
_small_checks = trio.CapacityLimiter(2)
_large_checks = trio.CapacityLimiter(1)
SMALL_CHECK_BYTES_MAX = 16 * 1024 * 1024
"""Nearly all batches decompress to less. One that does not is checked again behind all others like it, each of which
may take a hundred megabytes: a few kilobytes are enough to ask for that."""


async def checked_in_thread(log: PartitionLog, records: memoryview, now_ms: int) -> CheckedRecords | KafkaError:
    """Check records in a thread; return the checked records, or the KafkaError that refuses them."""
    # The rules are taken on the event loop: the thread must not read the log, which changes meanwhile.
    rules = log.validation_rules()
    small = rules._replace(decompressed_bytes_max=min(SMALL_CHECK_BYTES_MAX, rules.decompressed_bytes_max))
    checked: CheckedRecords | KafkaError | None = None
    # The small limit comes first. Nearly every batch passes it, so the second round costs only those that are large.
    for limits, limiter in ((small, _small_checks), (rules, _large_checks)):
        check = partial(check_thoroughly, records, limits, now_ms=now_ms, topic_partition=log.name)
        # `result_of` makes a value of an error: a raised one would keep the frames of the thread, and with them the
        # records.
        checked = await trio.to_thread.run_sync(result_of, check, limiter=limiter)
        if not isinstance(checked, TooLargeDecompressed):
            break
    assert checked is not None
    return checked


UNKNOWN_LEADER = (-1, -1)


def current_leader(broker: BrokerParts, topic: str, index: int) -> tuple[int, int]:
    """Return a partition's leader id and epoch: from the local replica, which is newer, else from the metadata."""
    partition = broker.replicas.partition(topic, index)
    # LeaderAndIsr changes the replica before UpdateMetadata changes the metadata, so the replica knows the new leader
    # first.
    if partition is not None:
        return partition.leader_id, partition.leader_epoch
    state = broker.cluster.partition(topic, index)
    return UNKNOWN_LEADER if state is None else (state.leader, state.leader_epoch)


def endpoints(broker: BrokerParts, leaders: Iterable[int], listener: str) -> list[BrokerEndpoint]:
    """Return the endpoints, at this listener, of the brokers in `leaders` that are alive."""
    # A broker that leads several of the partitions is named once.
    found = [broker.cluster.endpoint(node_id, listener) for node_id in sorted(set(leaders))]
    return [each for each in found if each is not None]


def tell_leaders(broker: BrokerParts, response: ProduceResponse, listener: str) -> None:
    """Add leaders and their endpoints to the response for partitions with NOT_LEADER_OR_FOLLOWER (KIP-951)."""
    leaders = set()
    for topic in response.responses:
        # From v13 on a request names topics by their ids alone.
        state = broker.cluster.topic_by_id.get(topic.topic_id) if topic.topic_id != ZERO_UUID else None
        name = topic.name if state is None else state.name
        for answer in topic.partition_responses:
            if answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
                leader, epoch = current_leader(broker, name, answer.index)
                answer.current_leader = LeaderIdAndEpoch(leader_id=leader, leader_epoch=epoch)
                leaders.add(leader)
    response.node_endpoints = [
        NodeEndpoint(node_id=each.node_id, host=each.host, port=each.port, rack=each.rack)
        for each in endpoints(broker, leaders, listener)
    ]
