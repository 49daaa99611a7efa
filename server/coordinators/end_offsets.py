"""End offsets of partitions for readers, from their leaders: this broker for its own, others over the network."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Protocol

import trio

from ottla.groupcoord.share.offset_service import EndOffset, TopicPartition
from ottla.replication.cluster.metadata_cache import NO_LEADER
from ottla.replication.cluster.peers import PeerUnavailable
from ottla.replication.log.time_search import TimestampedOffset
from ottla.replication.partition.offset_lookup import LATEST_TIMESTAMP
from ottla.server.coordinators.ways_to_brokers import Port as WaysPort
from ottla.server.coordinators.ways_to_brokers import WaysToBrokers
from ottla.server.ports import HasPartitions
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.wire.time_slice import TimeSlice

if TYPE_CHECKING:
    from ottla.wire.messages.list_offsets import ListOffsetsResponse

VERSION = 7  # Kafka 3.9 knows it
CONSUMER = -1
READ_UNCOMMITTED = 0
NO_OFFSET = -1


class Port(WaysPort, HasPartitions, Protocol):
    """Parts of the broker that this module uses."""


class LeadersEndOffsets:
    """End offsets of partitions, from their leaders."""

    def __init__(self, broker: Port) -> None:
        self._broker = broker
        self._ways = WaysToBrokers(broker, "end-offsets")

    async def end_offsets(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, EndOffset]:
        """The high watermark of each, or why it cannot be told."""
        time_slice = TimeSlice()
        found: dict[TopicPartition, EndOffset] = {}
        elsewhere: dict[int, list[TopicPartition]] = {}
        for topic, index in partitions:
            known = self._broker.cluster.partition(topic, index)
            leader = NO_LEADER if known is None else known.leader
            if leader == self._broker.node_id:
                found[topic, index] = self._here(topic, index)
            elif leader == NO_LEADER:
                found[topic, index] = EndOffset(NO_OFFSET, ErrorCode.LEADER_NOT_AVAILABLE)
            else:
                elsewhere.setdefault(leader, []).append((topic, index))
            await time_slice.yield_if_over()
        async with trio.open_nursery() as nursery:
            for leader, asked in elsewhere.items():
                nursery.start_soon(self._ask, leader, asked, found)
        return found

    def _here(self, topic: str, index: int) -> EndOffset:
        try:
            end = self._broker.partition(topic, index).list_offset(LATEST_TIMESTAMP)
        except KafkaError as error:
            return EndOffset(NO_OFFSET, error.code)
        assert isinstance(end, TimestampedOffset)  # the end needs no search
        return EndOffset(end.offset)

    async def _ask(
        self, leader: int, asked: Collection[TopicPartition], found: dict[TopicPartition, EndOffset]
    ) -> None:
        topics: dict[str, list[ListOffsetsPartition]] = {}
        for topic, index in asked:
            topics.setdefault(topic, []).append(ListOffsetsPartition(partition_index=index, timestamp=LATEST_TIMESTAMP))
        request = ListOffsetsRequest(
            replica_id=CONSUMER,
            isolation_level=READ_UNCOMMITTED,
            topics=[ListOffsetsTopic(name=name, partitions=each) for name, each in topics.items()],
        )
        try:
            response: ListOffsetsResponse = await self._ways.ask(leader, request, VERSION)
        except PeerUnavailable:
            found |= dict.fromkeys(asked, EndOffset(NO_OFFSET, ErrorCode.NETWORK_EXCEPTION))
            return
        for answered in response.topics:
            for each in answered.partitions:
                error = ErrorCode.of(each.error_code)
                found[answered.name, each.partition_index] = EndOffset(each.offset, error)
