"""Stand-ins for what the coordinator needs of the rest of a broker."""

from collections.abc import AsyncGenerator, Callable, Collection, Coroutine
from dataclasses import fields, replace
from typing import Any, NamedTuple

import trio
import trio.testing

from ottla.groupcoord.config import GroupConfig
from ottla.groupcoord.group_settings import GroupSettings
from ottla.groupcoord.records import GroupRecord
from ottla.groupcoord.runtime.coordinator_shard import Appended
from ottla.groupcoord.service import GroupCoordinator, GroupTypes
from ottla.groupcoord.share.offset_service import EndOffset
from ottla.groupcoord.topic_images import TopicImage
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.messages import share_group_state
from ottla.wire.messages.classic_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from ottla.wire.messages.offsets import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic
from ottla.wire.record_decoding import decode_records
from ottla.wire.records import assign_offsets, read_header

FORMATS = GroupTypes().formats

PARTITION_COUNT = 3


def settings_of_broker(config: GroupConfig) -> GroupSettings:
    """What is in force for groups without settings of their own."""
    defaults = GroupSettings()
    return replace(
        defaults,
        **{each.name: getattr(config, f"group_{each.name}", getattr(defaults, each.name)) for each in fields(defaults)},
    )


class Topic(NamedTuple):
    name: str
    topic_id: bytes
    partitions: tuple[int, ...]


class FakeTopics:
    """A fixed set of topics: name -> number of partitions."""

    def __init__(self, **counts: int) -> None:
        self.topics = {name: Topic(name, name.encode().ljust(16, b"."), tuple(range(counts[name]))) for name in counts}

    @property
    def topic_by_id(self) -> dict[bytes, Topic]:
        return {topic.topic_id: topic for topic in self.topics.values()}


class FakeImages:
    """Topics as groups see them, made and changed by the test."""

    def __init__(self, **counts: int) -> None:
        self.version = 0
        self._by_name: dict[str, TopicImage] = {}
        for name, count in counts.items():
            self.put(name, count)

    def put(self, name: str, count: int, racks: tuple[str, ...] = (), topic_id: bytes | None = None) -> None:
        """Make or change a topic, whose partitions all have replicas on these racks."""
        used_id = topic_id or name.encode().ljust(16, b".")
        self._by_name[name] = TopicImage(name, used_id, (frozenset(racks),) * count)
        self.version += 1

    def remove(self, name: str) -> None:
        del self._by_name[name]
        self.version += 1

    def image(self, name: str) -> TopicImage | None:
        return self._by_name.get(name)

    def image_by_id(self, topic_id: bytes) -> TopicImage | None:
        return next((each for each in self._by_name.values() if each.topic_id == topic_id), None)

    def topic_names(self) -> list[str]:
        return sorted(self._by_name)


class FakePartition(NamedTuple):
    """One partition of a `FakeLog`."""

    log: Any
    index: int

    def append(self, batch: bytes, now_ms: int, **options: Any) -> Appended:
        appended: Appended = self.log.append(self.index, batch, now_ms, **options)
        return appended

    def until_committed(self) -> Coroutine[Any, Any, None] | None:
        commit: Coroutine[Any, Any, None] | None = self.log.until_committed(self.index)
        return commit

    def read_batches(self) -> AsyncGenerator[bytes, None]:
        batches: AsyncGenerator[bytes, None] = self.log.read_batches(self.index)
        return batches


class FakeLog:
    """Partitions in memory. With a delay, appends are committed only after it."""

    def __init__(self) -> None:
        self.batches: dict[int, list[bytes]] = {index: [] for index in range(PARTITION_COUNT)}
        self.end_offsets = [0] * PARTITION_COUNT
        self.transaction_versions: list[int] = []
        self.guards: list[object | None] = []
        self._terms = [0] * PARTITION_COUNT
        self.commit_seconds = 0.0
        self.load_seconds = 0.0
        self.refusal: ErrorCode | None = None  # of appends, before anything is written
        self.batch_bytes_max: int | None = None
        self.failure: ErrorCode | None = None  # of commits, after writing
        self.unserved: ErrorCode | None = None  # of partitions, before anything is read
        self.unreadable: ErrorCode | None = None
        self.followers: dict[int, trio.Event] = {}  # set when those of a partition have all that it holds
        self.fenced = False

    def partition_count(self) -> int:
        return PARTITION_COUNT

    def is_fenced(self) -> bool:
        return self.fenced

    def partition(self, index: int) -> FakePartition:
        if self.unserved:
            raise KafkaError(self.unserved)
        return FakePartition(self, index)

    def append(
        self,
        partition: int,
        batch: bytes,
        now_ms: int = 0,
        *,
        transaction_version: int = 0,
        guard: object | None = None,
    ) -> Appended:
        if self.refusal:
            raise KafkaError(self.refusal)
        if self.batch_bytes_max is not None and len(batch) > self.batch_bytes_max:
            raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE)
        self.guards.append(guard)
        self.transaction_versions.append(transaction_version)
        first_offset = self.end_offsets[partition]
        written = bytearray(batch)
        assign_offsets(written, 0, first_offset, 0)
        self.end_offsets[partition] = read_header(written).next_offset
        batch = bytes(written)
        self.batches[partition].append(batch)
        if not self.commit_seconds:
            return Appended(first_offset, None)
        committed_at = trio.current_time() + self.commit_seconds
        return Appended(first_offset, self._commit(partition, batch, committed_at, self._terms[partition]))

    async def _commit(self, partition: int, batch: bytes, committed_at: float, term: int) -> None:
        await trio.sleep_until(committed_at)
        if self.failure:
            # Another leader cuts it off, unless this one has won the partition again and read it.
            if term == self._terms[partition]:
                self.batches[partition] = [each for each in self.batches[partition] if each is not batch]
            raise KafkaError(self.failure)

    def until_committed(self, partition: int) -> Coroutine[Any, Any, None] | None:
        return self._copied(self.followers[partition]) if partition in self.followers else None

    async def _copied(self, event: trio.Event) -> None:
        await event.wait()
        if self.failure:
            raise KafkaError(self.failure)

    async def read_batches(self, partition: int) -> AsyncGenerator[bytes, None]:
        await trio.sleep(self.load_seconds)
        if self.unreadable:
            raise KafkaError(self.unreadable)
        self._terms[partition] += 1
        for batch in self.batches[partition]:
            yield batch

    def records(self) -> list[GroupRecord | None]:
        """Everything that is written, partition by partition."""
        return [
            FORMATS.decode_record(record.key, record.value)
            for batches in self.batches.values()
            for batch in batches
            for record in decode_records(batch)
        ]


class FakeVerifier:
    """Answers for the coordinators of transactions: at once, or later if it is told to."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, str, int, int, int]] = []
        self.error = ErrorCode.NONE
        self.takes_time = False

    def verify(
        self, partition: int, transactional_id: str, producer_id: int, producer_epoch: int, *, api_version: int
    ) -> Any:
        self.asked.append((partition, transactional_id, producer_id, producer_epoch, api_version))
        return self._later() if self.takes_time else self._answer()

    def _answer(self) -> object:
        if self.error:
            raise KafkaError(self.error)
        return f"guard {len(self.asked)}"

    async def _later(self) -> object:
        await trio.lowlevel.checkpoint()
        return self._answer()


class FakeShareCoordinators:
    """Share coordinators that take up everything, but for partitions whose error a test has set, and forget nothing."""

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.known: dict[tuple[str, bytes, int], int] = {}
        self.errors: dict[tuple[bytes, int], ErrorCode] = {}
        self.delivered = 0
        self.seconds = 0.0

    async def initialize(self, request: Any) -> Any:
        results = await self._results(request, share_group_state.StatePartitionResult)
        for topic in request.topics:
            for each in topic.partitions:
                if (topic.topic_id, each.partition) not in self.errors:
                    self.known[request.group_id, topic.topic_id, each.partition] = each.start_offset
        made = [share_group_state.InitializeStateResult(topic_id=each, partitions=results[each]) for each in results]
        return share_group_state.InitializeShareGroupStateResponse(results=made)

    async def delete(self, request: Any) -> Any:
        results = await self._results(request, share_group_state.StatePartitionResult)
        for topic in request.topics:
            for each in topic.partitions:
                if (topic.topic_id, each.partition) not in self.errors:
                    self.known.pop((request.group_id, topic.topic_id, each.partition), None)
        made = [share_group_state.DeleteStateResult(topic_id=each, partitions=results[each]) for each in results]
        return share_group_state.DeleteShareGroupStateResponse(results=made)

    async def read_summary(self, request: Any) -> Any:
        results = await self._results(
            request, share_group_state.ReadStateSummaryPartitionResult, state_epoch=0, leader_epoch=4, start_offset=-1
        )
        for topic_id, partitions in results.items():
            for each in partitions:
                start_offset = self.known.get((request.group_id, topic_id, each.partition), -1)
                each.start_offset = start_offset
                each.delivery_complete_count = self.delivered if start_offset >= 0 else -1
        made = [share_group_state.ReadStateSummaryResult(topic_id=each, partitions=results[each]) for each in results]
        return share_group_state.ReadShareGroupStateSummaryResponse(results=made)

    async def _results(self, request: Any, make: Any, **details: Any) -> dict[bytes, list[Any]]:
        self.asked.append(request)
        await trio.sleep(self.seconds)
        return {
            topic.topic_id: [
                make(
                    partition=each.partition,
                    error_code=self.errors.get((topic.topic_id, each.partition), ErrorCode.NONE),
                    **details,
                )
                for each in topic.partitions
            ]
            for topic in request.topics
        }


class FakeEndOffsets:
    """Partitions that all end at the same offset, unless a test says otherwise."""

    def __init__(self) -> None:
        self.offset = 100
        self.error = ErrorCode.NONE

    async def end_offsets(self, partitions: Collection[tuple[str, int]]) -> dict[tuple[str, int], EndOffset]:
        return {each: EndOffset(self.offset, self.error) for each in partitions}


async def beside_the_loop(function: Callable[[], Any]) -> Any:
    """In place of a thread, which would make tests on a jumping clock unsure."""
    await trio.lowlevel.checkpoint()
    return function()


class Coordination:
    """A running coordinator of all partitions, its log and its topics."""

    def __init__(self, **config: Any) -> None:
        self.log = FakeLog()
        self.topics = FakeTopics(topic=2, other=1)
        self.images = FakeImages(topic=2, other=1)
        self.verifier = FakeVerifier()
        self.share_coordinators, self.ends = FakeShareCoordinators(), FakeEndOffsets()
        self.config = GroupConfig(**config)
        self.settings = settings_of_broker(self.config)
        self.groups = self.new_coordinator()

    def new_coordinator(self) -> GroupCoordinator:
        def wall_clock() -> int:
            return 1_700_000_000_000 + round(trio.current_time() * 1000)

        return GroupCoordinator(
            self.config,
            self.log,
            self.topics,
            self.images,
            lambda: self.verifier,
            lambda group_id: self.settings,
            lambda: (self.share_coordinators, self.ends),
            wall_clock=wall_clock,
            run_in_thread=beside_the_loop,
        )

    async def start(self, nursery: trio.Nursery) -> None:
        """Run the coordinator and wait until all partitions are loaded."""
        await nursery.start(self.groups.run)
        for partition in range(PARTITION_COUNT):
            self.groups.on_election(partition)
        await trio.testing.wait_all_tasks_blocked()

    # ------------------------------------------------------------------ what clients say

    def join(self, member_id: str = "", *, group: str = "group", version: int = 3, **details: Any) -> Any:
        given = {"session_timeout_ms": 10_000, "rebalance_timeout_ms": 30_000, "protocol_type": "consumer"}
        protocols = [JoinGroupRequestProtocol(name="range", metadata=b"")]
        request = JoinGroupRequest(group_id=group, member_id=member_id, protocols=protocols, **(given | details))
        return self.groups.classic.join_group(
            request, api_version=version, client_id="client", client_host="/127.0.0.1"
        )

    def sync(self, joined: Any, *, group: str = "group", assignment: bytes | None = None, version: int = 3) -> Any:
        assignments = []
        if assignment is not None:
            assignments = [
                SyncGroupRequestAssignment(member_id=each.member_id, assignment=assignment) for each in joined.members
            ]
        request = SyncGroupRequest(
            group_id=group, generation_id=joined.generation_id, member_id=joined.member_id, assignments=assignments
        )
        return self.groups.classic.sync_group(request, api_version=version)

    def commit(
        self, offset: int = 5, *, group: str = "group", topic: str = "topic", partitions: tuple[int, ...] = (0,)
    ) -> Any:
        committed = [
            OffsetCommitRequestPartition(partition_index=index, committed_offset=offset, committed_metadata="")
            for index in partitions
        ]
        topics = [OffsetCommitRequestTopic(name=topic, partitions=committed)]
        return self.groups.offsets.offset_commit(
            OffsetCommitRequest(group_id=group, member_id="", topics=topics), api_version=9
        )
