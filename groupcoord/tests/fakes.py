"""Stand-ins for what the coordinator needs of the rest of a broker."""

from collections.abc import AsyncGenerator, Coroutine
from typing import Any, NamedTuple

import trio
import trio.testing

from ottla.groupcoord.config import GroupConfig
from ottla.groupcoord.groups.records import GroupRecord, decode_record
from ottla.groupcoord.service import GroupCoordinator
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from ottla.wire.records import decode_records

PARTITION_COUNT = 3


class Topic(NamedTuple):
    name: str
    topic_id: bytes
    partitions: tuple[int, ...]


class FakeTopics:
    """A fixed set of topics: name -> number of partitions."""

    def __init__(self, **counts: int) -> None:
        self._by_name = {
            name: Topic(name, name.encode().ljust(16, b"."), tuple(range(counts[name]))) for name in counts
        }

    def topic(self, name: str) -> Topic | None:
        return self._by_name.get(name)

    @property
    def topic_by_id(self) -> dict[bytes, Topic]:
        return {topic.topic_id: topic for topic in self._by_name.values()}


class FakeLog:
    """Partitions in memory. With a delay, appends are committed only after it."""

    def __init__(self) -> None:
        self.batches: dict[int, list[bytes]] = {index: [] for index in range(PARTITION_COUNT)}
        self._terms = [0] * PARTITION_COUNT
        self.commit_seconds = 0.0
        self.load_seconds = 0.0
        self.refusal: ErrorCode | None = None  # of appends, before anything is written
        self.failure: ErrorCode | None = None  # of commits, after writing
        self.unreadable: ErrorCode | None = None
        self.fenced = False

    def partition_count(self) -> int:
        return PARTITION_COUNT

    def is_fenced(self) -> bool:
        return self.fenced

    def append(self, partition: int, batch: bytes) -> Coroutine[Any, Any, None] | None:
        if self.refusal:
            raise KafkaError(self.refusal)
        self.batches[partition].append(batch)
        if not self.commit_seconds:
            return None
        return self._commit(partition, batch, trio.current_time() + self.commit_seconds, self._terms[partition])

    async def _commit(self, partition: int, batch: bytes, committed_at: float, term: int) -> None:
        await trio.sleep_until(committed_at)
        if self.failure:
            # Another leader cuts it off, unless this one has won the partition again and read it.
            if term == self._terms[partition]:
                self.batches[partition] = [each for each in self.batches[partition] if each is not batch]
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
            decode_record(record.key, record.value)
            for batches in self.batches.values()
            for batch in batches
            for record in decode_records(batch)
        ]


class Coordination:
    """A running coordinator of all partitions, its log and its topics."""

    def __init__(self, **config: Any) -> None:
        self.log = FakeLog()
        self.topics = FakeTopics(topic=2, other=1)
        self.config = GroupConfig(**config)
        self.groups = self.new_coordinator()

    def new_coordinator(self) -> GroupCoordinator:
        return GroupCoordinator(self.config, self.log, self.topics, wall_clock=lambda: 1_700_000_000_000)

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
        return self.groups.join_group(request, api_version=version, client_id="client", client_host="/127.0.0.1")

    def sync(self, joined: Any, *, group: str = "group", assignment: bytes | None = None, version: int = 3) -> Any:
        assignments = []
        if assignment is not None:
            assignments = [
                SyncGroupRequestAssignment(member_id=each.member_id, assignment=assignment) for each in joined.members
            ]
        request = SyncGroupRequest(
            group_id=group, generation_id=joined.generation_id, member_id=joined.member_id, assignments=assignments
        )
        return self.groups.sync_group(request, api_version=version)

    def commit(
        self, offset: int = 5, *, group: str = "group", topic: str = "topic", partitions: tuple[int, ...] = (0,)
    ) -> Any:
        committed = [
            OffsetCommitRequestPartition(partition_index=index, committed_offset=offset, committed_metadata="")
            for index in partitions
        ]
        topics = [OffsetCommitRequestTopic(name=topic, partitions=committed)]
        return self.groups.offset_commit(
            OffsetCommitRequest(group_id=group, member_id="", topics=topics), api_version=9
        )
