"""ListOffsets v0: first offsets of segments by the times of their files, as clients from before Kafka 0.10.1 ask.

Burrow and other tools still send it without asking for versions. Kafka 3.9 answers as here
(KafkaApis.handleListOffsetRequestV0); Kafka 4 does not. A partition that is named twice is answered twice. Topics that the
client may not describe come last. Only -1 and -2 are special timestamps. A response has about OFFSETS_MAX offsets at most:
from there on each partition gets one.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

import trio

from ottla.replication.partition.reading import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from ottla.replication.partition.segment_offsets import file_times, needs_file_times, newest_at, offsets_before
from ottla.server.broker import Broker
from ottla.server.dispatch.context import RequestContext
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from ottla.wire.time_slice import TimeSlice

if TYPE_CHECKING:
    from ottla.replication.log.partition_log import PartitionLog

CONSUMER_REPLICA_ID, DEBUGGING_REPLICA_ID = -1, -2
OFFSETS_MAX = 100_000

_looks_in_threads = trio.CapacityLimiter(2)


async def list_older_offsets(
    request: ListOffsetsRequest, context: RequestContext[Broker], denied: Collection[str]
) -> ListOffsetsResponse:
    """Answer ListOffsets v0. `denied`: topics that the client may not describe."""
    lookup, time_slice = _Lookup(request, context.broker), TimeSlice()
    allowed: list[ListOffsetsTopicResponse] = []
    refused: list[ListOffsetsTopicResponse] = []
    for topic in request.topics:
        answers = []
        for wish in topic.partitions:
            await time_slice.yield_if_over()
            if topic.name in denied:
                code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                answers.append(ListOffsetsPartitionResponse(partition_index=wish.partition_index, error_code=code))
            else:
                answers.append(await lookup.answer(topic.name, wish))
        response = ListOffsetsTopicResponse(name=topic.name, partitions=answers)
        (refused if topic.name in denied else allowed).append(response)
    return ListOffsetsResponse(topics=allowed + refused)


class _Lookup:
    def __init__(self, request: ListOffsetsRequest, broker: Broker) -> None:
        self._broker = broker
        self._is_consumer = request.replica_id == CONSUMER_REPLICA_ID
        self._only_from_leader = request.replica_id != DEBUGGING_REPLICA_ID
        self._left = OFFSETS_MAX
        # A request may name one partition many times, and each look at its files takes long.
        self._times: dict[tuple[str, int], list[tuple[int, int]]] = {}

    async def answer(self, topic: str, wish: ListOffsetsPartition) -> ListOffsetsPartitionResponse:
        answer = ListOffsetsPartitionResponse(partition_index=wish.partition_index, error_code=ErrorCode.NONE)
        try:
            if wish.timestamp < 0 and wish.timestamp not in (LATEST_TIMESTAMP, EARLIEST_TIMESTAMP):
                raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
            if wish.max_num_offsets < 0:
                raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)  # Kafka makes an array of this length
            newest = await self._newest_at(topic, wish)
            log, high_watermark = self._log(topic, wish.partition_index)
            count = min(wish.max_num_offsets, max(self._left, 1))
            answer.old_style_offsets = offsets_before(
                log,
                wish.timestamp,
                count,
                newest=newest,
                high_watermark=high_watermark if self._is_consumer else None,
            )
            self._left -= len(answer.old_style_offsets)
        except KafkaError as error:
            answer.error_code = error.code
        return answer

    def _log(self, topic: str, index: int) -> tuple[PartitionLog, int]:
        partition = self._broker.partition(topic, index)
        return partition.log_of_offsets(only_from_leader=self._only_from_leader), partition.high_watermark

    async def _newest_at(self, topic: str, wish: ListOffsetsPartition) -> int | None:
        if not needs_file_times(wish.timestamp, self._broker.now_ms()):
            return None
        key = (topic, wish.partition_index)
        if key not in self._times:
            segments = list(self._log(*key)[0].segments)
            self._times[key] = await trio.to_thread.run_sync(file_times, segments, limiter=_looks_in_threads)
        return newest_at(self._times[key], wish.timestamp)
