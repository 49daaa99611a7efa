"""The topic `_schemas`: read by one thread from its beginning on, and written record by record.

The reader goes on for as long as the process runs. Brokers that are away are asked again every second, so a registry may start before
them. A write is complete when its record was read back. So all instances see the same writes in the same order.

If a write gets no answer it is unknown whether its record exists, and its id could be assigned twice. The next
write therefore begins with a record without meaning, and waits until that one is read.
"""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NamedTuple

import trio

from ottla.replication.reminders import Reminder
from ottla.server.cli.administration.topics import create_topic
from ottla.server.cli.client.cluster import EARLIEST, Cluster, TemporaryFailure, leaders_of, offsets_at, only
from ottla.server.cli.client.connection import ANSWER_TIMEOUT_S, BrokerConnection
from ottla.server.cli.client.output import RequestFailed, UsageError
from ottla.server.registry.errors import ApiError, Code
from ottla.server.registry.records import Event, Malformed, Nothing, SchemaPut, decode, encode
from ottla.server.registry.state import RegistryState
from ottla.wire.errors import ErrorCode, KafkaError, ProtocolViolation
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.record_decoding import decode_records
from ottla.wire.record_encoding import encode_pairs
from ottla.wire.records import crc_is_valid, iter_batches

logger = logging.getLogger("ottla.registry")

WRITE_TIMEOUT_S = 10.0
RETRY_S = 1.0
MAX_WAIT_MS = 500
FETCH_BYTES = 4 << 20
REPLICAS = 3
EVENTS_AT_ONCE = 400
"""Events that are taken over in one step of the loop."""

_FETCH_MAX_VERSION, _PRODUCE_MAX_VERSION = 12, 11  # later ones name topics by their ids
_TOO_LARGE = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE)
_NOT_WRITTEN = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.KAFKA_STORAGE_ERROR,
)

Reach = Callable[[], Cluster]
"""Connect to the cluster. Raises RequestFailed."""


class Read(NamedTuple):
    """Result of one fetch: events with offset and time, the next offset, and whether that is the topic's end."""

    events: list[tuple[Event, int, int]]
    position: int
    is_end: bool


class SchemasTopic:
    """Reader and writer of the schemas topic; use it only in the event loop's thread."""

    def __init__(self, reach: Reach, name: str, state: RegistryState) -> None:
        self.state, self.name = state, name
        self.loaded = trio.Event()
        """Set when the topic has been read to its end for the first time."""
        self.problem: str | None = "the topic has not been read yet"
        """Why the topic cannot be read at present."""
        self.cluster_id = ""
        self._reach = reach
        self._position = 0
        self._moved = trio.Event()
        self._writer: _Writer | None = None
        self._is_unsure = True
        self._threads = trio.CapacityLimiter(2)

    async def run(self) -> None:
        """Read the topic until cancelled."""
        reader = _Reader(self)
        try:
            await trio.to_thread.run_sync(reader.run, abandon_on_cancel=True, limiter=self._threads)
        finally:
            reader.stop()
            self._drop_writer()

    # --- reading

    def take(self, read: Read) -> None:
        """Apply the events of a fetch to the state."""
        for event, offset, timestamp in read.events:
            if isinstance(event, SchemaPut):
                event.value.offset, event.value.timestamp = offset, timestamp
            self.state.apply(event)
        self._position = read.position
        if read.is_end:
            self.problem = None
            self.loaded.set()
        moved, self._moved = self._moved, trio.Event()
        moved.set()

    def begin_anew(self) -> None:
        """Clear the state, because the topic was replaced or has lost its beginning."""
        self.state.clear()
        self._position = 0

    async def _reached(self, offset: int) -> None:
        while self._position <= offset:
            await self._moved.wait()

    # --- writing

    def become_unsure(self) -> None:
        """Assume that another instance, possibly the last primary, has written records that are not read yet."""
        self._is_unsure = True

    async def settle(self) -> None:
        """Wait until all records of earlier primaries are read. Raises ApiError."""
        if self._is_unsure:
            await self._write([Nothing()])
            self._is_unsure = False

    async def append(self, events: Sequence[Event]) -> None:
        """Write events as one batch and wait until they are read back. Allows one call at a time. Raises ApiError."""
        await self.settle()
        await self._write(events)

    async def _write(self, events: Sequence[Event]) -> None:
        pairs = [encode(each) for each in events]
        try:
            with trio.fail_after(WRITE_TIMEOUT_S):
                await self._reached(await self._written(pairs))
        except BaseException as failure:
            # Also when the client has gone in the middle: the record may come all the same.
            self._is_unsure = True
            self._drop_writer()
            if isinstance(failure, trio.TooSlowError):
                raise ApiError(Code.TIMEOUT, "Write to the Kafka store timed out") from None
            raise

    async def _written(self, pairs: Sequence[tuple[bytes, bytes | None]]) -> int:
        writer = self._writer = self._writer or _Writer(self._reach, self.name)
        try:
            return await trio.to_thread.run_sync(writer.append, pairs, abandon_on_cancel=True, limiter=self._threads)
        except (RequestFailed, UsageError, TemporaryFailure) as error:
            raise ApiError(Code.STORE, f"The Kafka store cannot be written: {error}") from None

    def _drop_writer(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None


class _Reader:
    """Reader of the schemas topic, running in a thread of its own."""

    def __init__(self, topic: SchemasTopic) -> None:
        self._topic = topic
        self._stopped = threading.Event()
        self._cluster: Cluster | None = None
        self._connection: BrokerConnection | None = None
        self._position = 0
        self._topic_id = b""
        self._is_at_end = False
        self._told, self._unreadable = Reminder(), Reminder()

    def stop(self) -> None:
        """Stop the reader's thread, even if it waits for a response."""
        self._stopped.set()
        _hang_up(self._connection)

    def run(self) -> None:
        with suppress(trio.RunFinishedError, trio.Cancelled):
            while not self._stopped.is_set():
                try:
                    self._follow()
                except (RequestFailed, UsageError, TemporaryFailure, KafkaError, ProtocolViolation, OSError) as error:
                    self._fail(str(error))
                finally:
                    if self._cluster is not None:
                        self._cluster.close()
                self._stopped.wait(RETRY_S)

    def _fail(self, problem: str) -> None:
        if not self._stopped.is_set():
            self._told.tell(logger.warning, "cannot read %s: %s", self._topic.name, problem)
            trio.from_thread.run_sync(setattr, self._topic, "problem", problem)

    def _follow(self) -> None:
        """Read new records until the topic's leader becomes unavailable."""
        name = self._topic.name
        cluster = self._cluster = self._topic._reach()
        self._expect(_made_topic(cluster, name))
        trio.from_thread.run_sync(setattr, self._topic, "cluster_id", cluster.metadata(()).cluster_id or "")
        [leader] = leaders_of(cluster, {name: [0]})
        self._connection = cluster.connected(leader)
        self._is_at_end = False
        try:
            while not self._stopped.is_set():
                self._fetch(cluster, self._connection)
        finally:
            self._connection.close()

    def _expect(self, topic_id: bytes) -> None:
        """Remember the topic's id. If it differs from the last one, the topic was recreated: clear the state.

        Brokers before 2.8 have no topic ids.
        """
        before, self._topic_id = self._topic_id, topic_id
        if any(before) and before != topic_id:
            logger.warning("%s was replaced by another topic; reading it again", self._topic.name)
            trio.from_thread.run_sync(self._topic.begin_anew)
            self._position = 0

    def _fetch(self, cluster: Cluster, connection: BrokerConnection) -> None:
        wanted = FetchPartition(partition=0, fetch_offset=self._position, partition_max_bytes=FETCH_BYTES)
        topics = [FetchTopic(topic=self._topic.name, partitions=[wanted])]
        # A request for the end offset need not wait there.
        wait_ms = MAX_WAIT_MS if self._is_at_end else 0
        request = FetchRequest(max_wait_ms=wait_ms, min_bytes=1, max_bytes=FETCH_BYTES, topics=topics)
        answer = connection.ask(request, at_most=_FETCH_MAX_VERSION)
        part = only(only(answer.responses, self._topic.name).partitions, self._topic.name)
        if part.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self._begin_anew(cluster)
            return
        cluster.check(f"topic {self._topic.name}", part.error_code)
        events = list(self._events(part.records)) if part.records else []
        for start in range(0, len(events) or 1, EVENTS_AT_ONCE):
            some = events[start : start + EVENTS_AT_ONCE]
            is_last = start + EVENTS_AT_ONCE >= len(events)
            position = self._position if is_last else some[-1][1] + 1
            self._is_at_end = is_last and self._position >= part.high_watermark
            read = Read(some, position, self._is_at_end)
            trio.from_thread.run_sync(self._topic.take, read)

    def _begin_anew(self, cluster: Cluster) -> None:
        first = offsets_at(cluster, {self._topic.name: [0]}, EARLIEST)[self._topic.name, 0]
        if self._position:
            logger.warning("%s has lost offset %d; reading it again from %d", self._topic.name, self._position, first)
            trio.from_thread.run_sync(self._topic.begin_anew)
        self._position = first

    def _events(self, buffer: memoryview) -> list[tuple[Event, int, int]]:
        found = []
        for header, start, end in iter_batches(buffer):
            if header.next_offset <= self._position:
                continue
            if not crc_is_valid(buffer, start, end):
                raise RequestFailed(f"the batch at offset {header.base_offset} of {self._topic.name} is damaged")
            if not header.is_control:
                for record in decode_records(buffer, start, header=header):
                    if record.offset >= self._position:
                        found += self._event(record.key, record.value, record.offset, record.timestamp)
            self._position = header.next_offset
        return found

    def _event(
        self, key: bytes | None, value: bytes | None, offset: int, timestamp: int
    ) -> list[tuple[Event, int, int]]:
        try:
            return [(decode(key, value), offset, timestamp)]
        except Malformed as error:
            # Other versions of a registry may write more; they skip what they do not know, too.
            self._unreadable.tell(logger.warning, "record %d of %s is skipped: %s", offset, self._topic.name, error)
            return []


def _made_topic(cluster: Cluster, name: str) -> bytes:
    """Create the topic if it does not exist; return its id. Raises RequestFailed if it cannot store schemas."""
    found = only(cluster.metadata([name]).topics, f"topic {name}")
    if found.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        replicas = min(REPLICAS, len(cluster.brokers()))
        create_topic(cluster, name, 1, replicas, {"cleanup.policy": "compact"}, only_checks=False)
        found = only(cluster.metadata([name]).topics, f"topic {name}")
    cluster.check(f"topic {name}", found.error_code)
    if len(found.partitions) != 1:
        raise RequestFailed(f"topic {name} has {len(found.partitions)} partitions, and has to have 1")
    topic_id: bytes = found.topic_id
    return topic_id


class _Writer:
    """Writer to the schemas topic, with its own connection. While one thread writes, another may close it."""

    def __init__(self, reach: Reach, name: str) -> None:
        self._reach, self._name = reach, name
        self._cluster: Cluster | None = None
        self._is_closed = False

    def append(self, pairs: Sequence[tuple[bytes, bytes | None]]) -> int:
        """Write a batch and return the offset of its last record. Raises ApiError, RequestFailed, TemporaryFailure."""
        batch = encode_pairs(((key, value) for key, value in pairs), int(time.time() * 1000))
        until_s = time.monotonic() + WRITE_TIMEOUT_S
        while True:
            try:
                return self._sent(batch) + len(pairs) - 1
            except TemporaryFailure:
                if time.monotonic() > until_s or self._is_closed:
                    raise
                time.sleep(RETRY_S / 10)

    def _sent(self, batch: bytes) -> int:
        if self._cluster is None:
            self._cluster = self._reach()
        [leader] = leaders_of(self._cluster, {self._name: [0]})
        data = TopicProduceData(
            name=self._name, partition_data=[PartitionProduceData(index=0, records=memoryview(batch))]
        )
        request = ProduceRequest(acks=-1, timeout_ms=int(WRITE_TIMEOUT_S * 1000), topic_data=[data])
        answer = self._cluster.broker(leader).ask(
            request, at_most=_PRODUCE_MAX_VERSION, timeout_s=min(WRITE_TIMEOUT_S, ANSWER_TIMEOUT_S)
        )
        part = only(only(answer.responses, self._name).partition_responses, self._name)
        if part.error_code in _TOO_LARGE:
            raise ApiError(Code.SCHEMA_TOO_LARGE, "Register operation failed because schema is too large")
        if part.error_code in _NOT_WRITTEN:
            raise TemporaryFailure(f"{self._name} takes no records: {ErrorCode.of(part.error_code).name}")
        if part.error_code:
            raise RequestFailed(f"{self._name} takes no records: {ErrorCode.of(part.error_code).name}")
        offset: int = part.base_offset
        return offset

    def close(self) -> None:
        self._is_closed = True
        if self._cluster is not None:
            for each in {self._cluster.first, *self._cluster._connections.values()}:
                _hang_up(each)


def _hang_up(connection: BrokerConnection | None) -> None:
    """Shut down a connection. This wakes a thread that waits for it, which `close` alone would not."""
    if connection is not None:
        with suppress(OSError):
            connection.socket.shutdown(socket.SHUT_RDWR)
        connection.close()
