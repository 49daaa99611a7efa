"""A leader to fetch from, without a network: its partitions, its fetch sessions, and what a test makes it say instead."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import trio

from ottla.replication.cluster.metadata_cache import MetadataCache, PartitionState, TopicState
from ottla.replication.cluster.peers import PeerUnavailable
from ottla.replication.log.tests.logs import NOW_MS, TOPIC_ID, contents
from ottla.replication.log.time_search import TimestampedOffset
from ottla.replication.partition.fetch_session import FetchSessionCache
from ottla.replication.partition.idle_partitions import FetchTarget
from ottla.replication.partition.partition import Partition
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from ottla.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from ottla.wire.schema import ZERO_UUID

Instead = Callable[[Any], Any]
"""What to do in place of answering a request: return a response, an awaitable of one, or None to answer all the same."""


class Leader:
    """A broker that leads; `to` makes peers of it."""

    def __init__(self, node_id: int, partitions: Iterable[Partition]) -> None:
        self.node_id = node_id
        self.partitions = {(each.topic, each.index): each for each in partitions}
        self.requests: list[Any] = []
        self.instead: list[Instead] = []
        self.connections = 0
        self.is_reachable = True
        self.sessions = FetchSessionCache(10, self._new_id)
        self._ids = 0
        self.cluster = MetadataCache()
        for topic in {each.topic for each in self.partitions.values()}:
            self.tell_of(topic, next(each.topic_id for each in self.partitions.values() if each.topic == topic))

    def tell_of(self, topic: str, topic_id: bytes | None) -> None:
        """The leader knows a topic."""
        state = PartitionState(self.node_id, 0, (1, 2), (1, 2))
        self.cluster.put_topic(TopicState(topic, topic_id or ZERO_UUID, (state,) * 10))

    def _new_id(self) -> int:
        self._ids += 1
        return self._ids

    def to(self, client: str = "") -> LeaderPeer:
        """A way here."""
        if not self.is_reachable:
            raise PeerUnavailable("not registered")
        self.connections += 1
        return LeaderPeer(self)

    @property
    def fetches(self) -> list[FetchRequest]:
        """The fetch requests that came."""
        return [each for each in self.requests if isinstance(each, FetchRequest)]

    async def answer(self, request: Any, version: int) -> Any:
        """What a broker does with a request."""
        self.requests.append(request)
        if self.instead:
            said = self.instead.pop(0)(request)
            said = await said if isinstance(said, Awaitable) else said
            if said is not None:
                return said
        if not self.is_reachable:
            raise PeerUnavailable("not reachable")
        if isinstance(request, ListOffsetsRequest):
            return self._list_offsets(request)
        return await self._fetch(request, version)

    # --- Fetch

    async def _fetch(self, request: FetchRequest, version: int) -> FetchResponse:
        opened = self.sessions.open(request, version, self.cluster, NOW_MS, "User:broker")
        if opened.error:
            return FetchResponse(error_code=opened.error, responses=[])
        broker, broker_epoch = request.replica_state.replica_id, request.replica_state.replica_epoch
        answers = [(target, self._read(target, broker, broker_epoch)) for target in opened.targets]
        if not any(_is_news(data) for _, data in answers):
            await self._until_news(opened.targets, request.max_wait_ms)
            answers = [(target, self._read(target, broker, broker_epoch)) for target in opened.targets]
        told = opened.select(answers) if opened.begin(answers) else []
        topics: dict[tuple[str, bytes], list[PartitionData]] = {}
        for target, data in told:
            topics.setdefault((target.topic or "", target.topic_id), []).append(data)
        return FetchResponse(
            error_code=opened.error,
            session_id=opened.session_id,
            responses=[
                FetchableTopicResponse(topic=name, topic_id=topic_id, partitions=partitions)
                for (name, topic_id), partitions in topics.items()
            ],
        )

    def _read(self, target: FetchTarget, broker: int, broker_epoch: int) -> PartitionData:
        asked = target.asked
        try:
            if target.topic is None:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
            if (target.topic, asked.partition) not in self.partitions:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            partition = self.partitions[target.topic, asked.partition]
            read = partition.read(
                asked.fetch_offset,
                asked.partition_max_bytes,
                at_least_one_batch=True,
                is_follower=True,
                current_leader_epoch=asked.current_leader_epoch,
                last_fetched_epoch=asked.last_fetched_epoch,
            )
            if read.diverging_epoch is None:
                partition.on_follower_fetch(
                    broker, asked.fetch_offset, asked.log_start_offset, broker_epoch=broker_epoch, now_ms=NOW_MS
                )
        except KafkaError as error:
            return PartitionData(partition_index=asked.partition, error_code=error.code, high_watermark=-1, records=b"")
        data = PartitionData(
            partition_index=asked.partition,
            error_code=0,
            high_watermark=partition.high_watermark,
            log_start_offset=read.log_start_offset,
            records=memoryview(bytearray(contents(read.records))),
        )
        if read.diverging_epoch is not None:
            epoch, end_offset = read.diverging_epoch
            data.diverging_epoch = EpochEndOffset(epoch=epoch, end_offset=end_offset)
        return data

    async def _until_news(self, targets: list[FetchTarget], wait_ms: int) -> None:
        changed = trio.Event()
        watched = [self.partitions.get((target.topic or "", target.asked.partition)) for target in targets]
        for each in watched:
            if each is not None:
                each.watchers.add(changed.set)
        try:
            with trio.move_on_after(wait_ms / 1000):
                await changed.wait()
        finally:
            for each in watched:
                if each is not None:
                    each.watchers.discard(changed.set)

    # --- ListOffsets

    def _list_offsets(self, request: ListOffsetsRequest) -> ListOffsetsResponse:
        return ListOffsetsResponse(
            topics=[
                ListOffsetsTopicResponse(
                    name=topic.name,
                    partitions=[self._list_offset(topic.name, each, request.replica_id) for each in topic.partitions],
                )
                for topic in request.topics
            ]
        )

    def _list_offset(self, topic: str, asked: Any, replica_id: int) -> ListOffsetsPartitionResponse:
        try:
            found = self.partitions[topic, asked.partition_index].list_offset(
                asked.timestamp, current_leader_epoch=asked.current_leader_epoch, for_replica=replica_id >= 0
            )
        except KafkaError as error:
            return ListOffsetsPartitionResponse(partition_index=asked.partition_index, error_code=error.code)
        assert isinstance(found, TimestampedOffset)
        return ListOffsetsPartitionResponse(
            partition_index=asked.partition_index, error_code=0, offset=found.offset, leader_epoch=found.leader_epoch
        )


class LeaderPeer:
    """A `Peer`. A request that is given up takes the connection, and whoever waits there, along."""

    def __init__(self, leader: Leader) -> None:
        self._leader = leader
        self._scopes: set[trio.CancelScope] = set()

    async def ask(self, request: Any, version: int, *, timeout_s: float) -> Any:
        with trio.move_on_after(timeout_s) as scope:
            self._scopes.add(scope)
            try:
                await trio.lowlevel.checkpoint()
                request.encode(version)  # it can be said in this version
                return await self._leader.answer(request, version)
            finally:
                self._scopes.discard(scope)
        raise PeerUnavailable("closed, or too late")

    async def aclose(self) -> None:
        for scope in self._scopes:
            scope.cancel()


def _is_news(data: PartitionData) -> bool:
    return bool(data.records) or data.error_code != 0 or data.diverging_epoch.epoch >= 0


def failing(code: ErrorCode, *, topic_id: bytes = TOPIC_ID) -> FetchResponse:
    """An answer with an error of partition 0."""
    data = PartitionData(partition_index=0, error_code=code, high_watermark=-1, records=b"")
    return FetchResponse(responses=[FetchableTopicResponse(topic="topic", topic_id=topic_id, partitions=[data])])
