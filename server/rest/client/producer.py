"""Producer: records go through lanes, one for each partition, and are answered when all in-sync replicas have them.

States of a lane
    idle        there is no task for it
    sending     one batch is under way. Records that come meanwhile wait, and make up the next batch, so a busy lane
                writes large batches by itself.
    settling    a leader refused the batch with a retriable error, or a connection was lost: the same batch is sent again
                until DELIVERY_S have passed since its first attempt

An idempotent producer (KIP-98) sends again without a second copy, because the leader remembers its last batches. As there
is one batch under way the sequence moves on only when the batch is written or surely not written. If its fate stays
unknown its records are answered with an error, and the lane goes on under another producer id. A cluster that gives out
no producer ids gets every batch once.

A batch that is too large is cut into halves until it fits, or is a single record.
"""

from __future__ import annotations

import logging
import random
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import trio

from ottla.server.cli.client.batches import NOBODY, batch_of, pairs_area
from ottla.server.cli.client.connection import ANSWER_TIMEOUT_S
from ottla.server.cli.client.producer import MAY_BE_WRITTEN, NEVER_MS, SEQUENCES, Place, partition_of
from ottla.server.rest.client.cluster import (
    COORDINATOR_MOVED,
    MOVED,
    RETRY_S,
    KafkaCluster,
    Partition,
    Topic,
    Wait,
    retried,
)
from ottla.server.rest.errors import Code, KafkaFailure, RestError, Unreachable, check, partition_not_found
from ottla.wire.compression import Compression
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.messages.producer_ids import InitProducerIdRequest
from ottla.wire.record_encoding import encode_batch
from ottla.wire.records import Record

logger = logging.getLogger("ottla.rest")

DELIVERY_S = 30.0
BATCH_BYTES_MAX = 900_000
"""Limit of keys and values, so that a batch stays below Kafka's message.max.bytes; a larger record has a batch of its own."""
BATCH_RECORDS_MAX = 2_000
STICKY_BYTES = 16 * 1024
"""Bytes without keys that go to one partition before another one is chosen; Kafka's batch.size."""
_NAMES_MAX_VERSION = 11  # of Produce: 12 is for transactions, and later ones name topics by their ids
_TOO_LARGE = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE)
_RENEWING = (
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ErrorCode.UNKNOWN_PRODUCER_ID,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
)
_NO_IDS_YET = (*COORDINATOR_MOVED, ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.REQUEST_TIMED_OUT)
Headers = tuple[tuple[bytes, bytes | None], ...]


class Outgoing(NamedTuple):
    """Record to be written. `partition` None: choose it by the key, or any. `timestamp_ms` None: the current time."""

    key: bytes | None
    value: bytes | None
    partition: int | None = None
    headers: Headers = ()
    timestamp_ms: int | None = None

    @property
    def size(self) -> int:
        headers = sum(len(name) + len(value or b"") for name, value in self.headers)
        return len(self.key or b"") + len(self.value or b"") + headers


class Written(NamedTuple):
    """Outcome of a record that was written to all in-sync replicas."""

    partition: int
    offset: int
    timestamp_ms: int


Outcome = Written | RestError


class _Chunk(NamedTuple):
    """Records that came with one request and go into one batch. `tell` gets their outcomes."""

    records: list[Outgoing]
    size: int
    tell: Callable[[list[Outcome]], None]


class KafkaProducer:
    """Producer of records for all topics."""

    def __init__(self, cluster: KafkaCluster) -> None:
        self.cluster = cluster
        self._lanes: dict[Partition, _Lane] = {}
        self._sticky: dict[str, tuple[int, int]] = {}
        self._first_place: Place | None = None
        self._first_lock = trio.Lock()

    async def write(self, topic: str, records: Sequence[Outgoing]) -> list[Outcome]:
        """Write records; return their outcomes, in order. Raises RestError if none can be written.

        If the caller is cancelled, records that are already queued are written nevertheless.
        """
        found = await self.cluster.topic(topic, creates=True)
        outcomes: list[Outcome | None] = [None] * len(records)
        places: dict[int, list[int]] = {}
        for index, record in enumerate(records):
            number = self._partition(found, record)
            if number in found.by_number:
                places.setdefault(number, []).append(index)
            else:
                outcomes[index] = partition_not_found()
        done = trio.Event()
        left = len(places)

        def tell(indexes: list[int], told: list[Outcome]) -> None:
            nonlocal left
            for index, outcome in zip(indexes, told, strict=True):
                outcomes[index] = outcome
            left -= 1
            if not left:
                done.set()

        for number, indexes in places.items():
            self._enqueue((topic, number), [records[each] for each in indexes], indexes, tell)
        if left:
            await done.wait()
        return [each for each in outcomes if each is not None]

    def _enqueue(
        self,
        place: Partition,
        records: list[Outgoing],
        indexes: list[int],
        tell: Callable[[list[int], list[Outcome]], None],
    ) -> None:
        lane = self._lanes.get(place)
        if lane is None:
            lane = self._lanes[place] = _Lane(self, place)
        parts = list(_cut(records))
        told: list[Outcome] = []

        def tell_part(outcomes: list[Outcome]) -> None:
            # Chunks of one lane are told in their order.
            told.extend(outcomes)
            if len(told) == len(records):
                tell(indexes, told)

        for part, size in parts:
            lane.add(_Chunk(part, size, tell_part))

    def _partition(self, topic: Topic, record: Outgoing) -> int:
        if record.partition is not None:
            return record.partition
        if record.key is not None:
            return partition_of(record.key, [each.partition_index for each in topic.partitions])
        number, left = self._sticky.get(topic.name, (-1, 0))
        if left <= 0 or number not in topic.by_number:
            led = [each.partition_index for each in topic.partitions if each.leader_id >= 0]
            number, left = random.choice(led or list(topic.by_number)), STICKY_BYTES
        self._sticky[topic.name] = number, left - record.size
        return number

    async def first_place(self) -> Place:
        """Return the producer id that new partition queues share; NOBODY if the cluster grants no id."""
        async with self._first_lock:
            if self._first_place is None:
                self._first_place = await self.new_place()
            return self._first_place

    async def new_place(self) -> Place:
        """Request a producer id; NOBODY if the cluster grants none. Raises RestError."""
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=NEVER_MS)

        def take(answer: Any) -> Place:
            # Before Kafka 2.8 a right of its own was needed.
            if answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
                return Place(*NOBODY)
            check(answer.error_code)
            return Place(answer.producer_id, answer.producer_epoch, 0)

        try:
            # A broker that has just started waits for its own ids.
            return await retried(lambda: self.cluster.ask_any(request, take), _NO_IDS_YET)
        except RestError as error:
            if error.code == Code.KAFKA_BAD_REQUEST:  # it is older than Kafka 0.11
                return Place(*NOBODY)
            raise


def _cut(records: list[Outgoing]) -> list[tuple[list[Outgoing], int]]:
    """Split records into parts that fit one batch each; return the parts with their sizes."""
    parts: list[tuple[list[Outgoing], int]] = []
    part: list[Outgoing] = []
    size = 0
    for record in records:
        if part and (size + record.size > BATCH_BYTES_MAX or len(part) == BATCH_RECORDS_MAX):
            parts.append((part, size))
            part, size = [], 0
        part.append(record)
        size += record.size
    parts.append((part, size))
    return parts


class _Lane:
    """Queue of records for one partition, in arrival order."""

    def __init__(self, producer: KafkaProducer, place: Partition) -> None:
        self._producer, self._place = producer, place
        self._chunks: deque[_Chunk] = deque()
        self._is_running = False
        self._next: Place | None = None
        self._is_unsure = False  # a batch may be written or not, whose sequences nobody may use again

    def add(self, chunk: _Chunk) -> None:
        self._chunks.append(chunk)
        if not self._is_running:
            self._is_running = True
            self._producer.cluster.nursery.start_soon(self._run)

    async def _run(self) -> None:
        try:
            while self._chunks:
                await self._deliver(self._taken())
        finally:
            self._is_running = False

    def _taken(self) -> list[_Chunk]:
        """Remove the chunks for the next batch from the queue and return them."""
        taken = [self._chunks.popleft()]
        size, count = taken[0].size, len(taken[0].records)
        while self._chunks:
            size, count = size + self._chunks[0].size, count + len(self._chunks[0].records)
            if size > BATCH_BYTES_MAX or count > BATCH_RECORDS_MAX:
                break
            taken.append(self._chunks.popleft())
        return taken

    async def _deliver(self, chunks: list[_Chunk]) -> None:
        records = [record for chunk in chunks for record in chunk.records]
        try:
            outcomes = await self._written(records)
        except Exception:  # those who wait have to be told
            logger.exception("bug: writing to %s-%d", *self._place)
            outcomes = [RestError(Code.INTERNAL, "The proxy has a bug here, which its log tells of.")] * len(records)
        start = 0
        for chunk in chunks:
            end = start + len(chunk.records)
            chunk.tell(outcomes[start:end])
            start = end

    async def _written(self, records: list[Outgoing]) -> list[Outcome]:
        try:
            return await self._settled(records)
        except KafkaFailure as error:
            if error.error in _TOO_LARGE and len(records) > 1:
                middle = len(records) // 2
                return await self._written(records[:middle]) + await self._written(records[middle:])
            return [error] * len(records)
        except RestError as error:
            return [error] * len(records)

    async def _settled(self, records: list[Outgoing]) -> list[Outcome]:
        """Send a batch for up to DELIVERY_S seconds; return its records' outcomes. Raises RestError."""
        until_s = trio.current_time() + DELIVERY_S
        now_ms = int(time.time() * 1000)
        if self._is_unsure:
            self._next, self._is_unsure = await self._producer.new_place(), False
        place = self._next or await self._producer.first_place()
        may_be_written = False
        while True:
            try:
                found = await self._sent(_encoded(records, now_ms, place))
            except (KafkaFailure, Unreachable) as error:
                fate_is_unknown = error.is_sent if isinstance(error, Unreachable) else error.error in MAY_BE_WRITTEN
                may_be_written = may_be_written or fate_is_unknown
                if isinstance(error, KafkaFailure) and error.error in _RENEWING and not may_be_written:
                    place = self._next = await self._producer.new_place()
                elif not self._goes_on(error, place, until_s, may_be_written=may_be_written):
                    self._is_unsure = may_be_written and place.producer_id >= 0
                    raise
                await trio.sleep(RETRY_S)
                continue
            sequence = (place.sequence + len(records)) % SEQUENCES if place.producer_id >= 0 else place.sequence
            self._next = place._replace(sequence=sequence)
            return _outcomes(self._place[1], found, records, now_ms)

    def _goes_on(
        self, error: KafkaFailure | Unreachable, place: Place, until_s: float, *, may_be_written: bool
    ) -> bool:
        """Return True if the batch shall be sent again after `error`."""
        if trio.current_time() > until_s or (may_be_written and place.producer_id < 0):
            return False
        self._producer.cluster.forget_topic(self._place[0])
        return isinstance(error, Unreachable) or error.error.retriable or error.error in MOVED

    async def _sent(self, batch: bytes) -> Any:
        topic, number = self._place
        leader = await self._producer.cluster.leader(topic, number)
        part = PartitionProduceData(index=number, records=memoryview(batch))
        data = TopicProduceData(name=topic, partition_data=[part])
        request = ProduceRequest(acks=-1, timeout_ms=int(ANSWER_TIMEOUT_S * 1000), topic_data=[data])

        def take(answer: Any) -> Any:
            found = [each for told in answer.responses for each in told.partition_responses if each.index == number]
            if len(found) != 1:
                raise Unreachable(f"The leader does not say what became of records for {topic}-{number}.", is_sent=True)
            if found[0].error_code != ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
                check(found[0].error_code, found[0].error_message)
            return found[0]

        return await self._producer.cluster.ask_waiting(
            Wait.WRITE, leader, request, take, at_most=_NAMES_MAX_VERSION, timeout_s=ANSWER_TIMEOUT_S + 5
        )


def _encoded(records: Sequence[Outgoing], now_ms: int, place: Place) -> bytes:
    if any(each.headers or each.timestamp_ms is not None for each in records):
        whole = (Record(0, _time(each, now_ms), each.key, each.value, each.headers) for each in records)
        return encode_batch(
            whole, producer_id=place.producer_id, producer_epoch=place.epoch, base_sequence=place.sequence
        )
    area = pairs_area(((each.key, each.value) for each in records), b"\0")
    return batch_of(area, len(records), now_ms, Compression.NONE, place)


def _outcomes(partition: int, found: Any, records: Sequence[Outgoing], now_ms: int) -> list[Outcome]:
    appended_ms, base = found.log_append_time_ms, found.base_offset
    return [
        Written(partition, base + index if base >= 0 else -1, appended_ms if appended_ms >= 0 else _time(each, now_ms))
        for index, each in enumerate(records)
    ]


def _time(record: Outgoing, now_ms: int) -> int:
    return now_ms if record.timestamp_ms is None else record.timestamp_ms
