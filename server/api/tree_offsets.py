"""Offsets in the coordination tree: OffsetCommit v0 and OffsetFetch v0, from before groups had coordinators (Kafka 0.8.1).

Kafka 3.9 keeps them in ZooKeeper (KafkaApis.commitOffsetsToZookeeper, handleOffsetFetchRequestFromZookeeper), apart from the
offsets of the later versions: /consumers/GROUP/offsets/TOPIC/PARTITION is the offset in decimal digits. Metadata is
judged by its length and dropped. A partition without an offset gets UNKNOWN_TOPIC_OR_PARTITION. A group's name that cannot
be part of a path, and a failure of the tree, give UNKNOWN_SERVER_ERROR.

Nothing removes such offsets, so a broker adds at most OFFSETS_MAX of them between its start and its stop. The nodes above
them count as well: a group's name with many slashes has hundreds.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

import trio

from ottla.groupcoord.offsets.commits import MergedTopics, Topics, commits_of, split_commit
from ottla.groupcoord.offsets.table import is_longer
from ottla.groupcoord.shard import ELEMENTS_PER_SLICE
from ottla.replication.cluster.coordination import (
    CoordinationError,
    Create,
    NodeExists,
    NoNode,
    Operation,
    SetData,
    multis,
)
from ottla.server.cluster.session import make_missing
from ottla.server.security.acl_znodes import can_be_stored
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.offsets import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from ottla.wire.settings import parse_integer
from ottla.wire.time_slice import TimeSlice

if TYPE_CHECKING:
    from ottla.replication.cluster.coordination import Coordination
    from ottla.wire.messages.offsets import OffsetCommitRequest, OffsetCommitRequestTopic, OffsetFetchRequest

T = TypeVar("T")

OFFSETS_MAX = 100_000
NAME_MAX = 1_000
"""Longest name of a group here; Kafka has no limit."""
TRIES = 10
NODES_AT_ONCE = 1_000
NO_OFFSET = -1


class TreeOffsets:
    """Committed offsets of a broker's clients in the coordination tree."""

    def __init__(
        self,
        coordination: Coordination,
        *,
        topics: Topics,
        metadata_max: Callable[[], int],
        offsets_max: int = OFFSETS_MAX,
    ) -> None:
        """Create the store.

        `metadata_max` returns the longest metadata text of a commit, in UTF-16 units; `offsets_max` limits new nodes.
        """
        self._coordination, self._topics, self._metadata_max = coordination, topics, metadata_max
        self._room = offsets_max

    async def commit(self, request: OffsetCommitRequest, denied: Collection[str]) -> OffsetCommitResponse:
        """Answer OffsetCommit v0. `denied`: topics that the client may not read."""
        merged = MergedTopics[OffsetCommitResponseTopic]()
        longest, wishes = self._metadata_max(), dict[tuple[str, int], int]()
        accepted: list[OffsetCommitRequestTopic] = []
        # A request may name one partition millions of times.
        for part in commits_of(request, ELEMENTS_PER_SLICE):
            known, refused = split_commit(part, self._topics, by_id=False, denied=denied)
            merged.add(refused)
            accepted += known
            for topic in known:
                for each in topic.partitions:
                    if not is_longer(each.committed_metadata or "", longest):
                        wishes[topic.name, each.partition_index] = each.committed_offset
            await trio.lowlevel.checkpoint()
        failed = await self._write(request.group_id, wishes)
        time_slice = TimeSlice()
        for topic in accepted:
            merged.add([_committed(topic, failed, longest)])
            await time_slice.yield_if_over()
        return OffsetCommitResponse(topics=merged.topics())

    async def _write(self, group_id: str, wishes: Mapping[tuple[str, int], int]) -> set[tuple[str, int]]:
        """Store offsets by topic and partition; return those that were not stored."""
        if not _is_possible(group_id):
            return set(wishes)
        failed: set[tuple[str, int]] = set()
        for part in _parts(wishes.items()):
            try:
                await self._write_part(group_id, dict(part))
            except CoordinationError:
                failed.update(key for key, _ in part)
        return failed

    async def _write_part(self, group_id: str, offsets: Mapping[tuple[str, int], int]) -> None:
        by_path = {_path(group_id, *key): f"{offset}".encode() for key, offset in offsets.items()}
        for _ in range(TRIES):
            found = await self._coordination.get_all(list(by_path))
            missing = [path for path, node in zip(by_path, found, strict=True) if node is None]
            if missing:
                above = _parents(group_id, {topic for topic, _ in offsets})
                new = [node for node in await self._coordination.get_all(above) if node is None]
                if len(missing) + len(new) > self._room:
                    raise CoordinationError(missing[0])
                self._room -= len(new)
                await make_missing(self._coordination, above)
            operations: list[Operation] = [
                Create(path, data) if node is None else SetData(path, data)
                for (path, data), node in zip(by_path.items(), found, strict=True)
            ]
            try:
                for each in multis(operations):
                    await self._coordination.multi(each)
            except (NodeExists, NoNode):
                continue  # somebody else wrote meanwhile; look again
            self._room -= len(missing)
            return
        raise CoordinationError(next(iter(by_path)))

    async def fetch(self, request: OffsetFetchRequest, denied: Collection[str]) -> OffsetFetchResponse:
        """Answer OffsetFetch v0. `denied`: topics that the client may not describe; they come last."""
        topics, time_slice = self._topics.topics, TimeSlice()
        wishes: dict[tuple[str, int], None] = {}
        for topic in request.topics or ():
            count = len(topics[topic.name].partitions) if topic.name in topics and topic.name not in denied else 0
            for index in topic.partition_indexes:
                await time_slice.yield_if_over()
                if 0 <= index < count:
                    wishes[topic.name, index] = None
        found = await self._read(request.group_id, list(wishes))
        answers: dict[str, dict[int, OffsetFetchResponsePartition]] = {}
        for topic in sorted(request.topics or (), key=lambda each: each.name in denied):
            for index in topic.partition_indexes:
                await time_slice.yield_if_over()
                if topic.name in denied:
                    answer = _fetched(index, NO_OFFSET, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
                else:
                    answer = _fetched(
                        index, *found.get((topic.name, index), (NO_OFFSET, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
                    )
                answers.setdefault(topic.name, {})[index] = answer
        return OffsetFetchResponse(
            topics=[
                OffsetFetchResponseTopic(name=name, partitions=list(partitions.values()))
                for name, partitions in answers.items()
            ]
        )

    async def _read(
        self, group_id: str, wishes: Sequence[tuple[str, int]]
    ) -> dict[tuple[str, int], tuple[int, ErrorCode]]:
        """Return the offset or the error of each partition; a partition without an offset is missing in the result."""
        if not _is_possible(group_id):
            return dict.fromkeys(wishes, (NO_OFFSET, ErrorCode.UNKNOWN_SERVER_ERROR))
        found: dict[tuple[str, int], tuple[int, ErrorCode]] = {}
        for part in _parts(wishes):
            try:
                nodes = await self._coordination.get_all([_path(group_id, *key) for key in part])
            except CoordinationError:
                found |= dict.fromkeys(part, (NO_OFFSET, ErrorCode.UNKNOWN_SERVER_ERROR))
                continue
            found |= {key: _decoded(node.data) for key, node in zip(part, nodes, strict=True) if node is not None}
        return found


def _parts(items: Iterable[T]) -> Iterator[list[T]]:
    listed = list(items)
    for start in range(0, len(listed), NODES_AT_ONCE):
        yield listed[start : start + NODES_AT_ONCE]


def _is_possible(group_id: str) -> bool:
    return len(group_id) <= NAME_MAX and all(part and can_be_stored(part) for part in group_id.split("/"))


def _path(group_id: str, topic: str, partition: int) -> str:
    return f"/consumers/{group_id}/offsets/{topic}/{partition}"


def _parents(group_id: str, topics: Iterable[str]) -> list[str]:
    """Return the paths of the nodes above a group's offsets, parents first."""
    names = group_id.split("/")
    above = ["/".join(["/consumers", *names[:count]]) for count in range(1, len(names) + 1)]
    offsets = f"{above[-1]}/offsets"
    return [*above, offsets, *(f"{offsets}/{topic}" for topic in topics)]


def _committed(
    topic: OffsetCommitRequestTopic, failed: Collection[tuple[str, int]], longest: int
) -> OffsetCommitResponseTopic:
    answers = []
    for each in topic.partitions:
        code = ErrorCode.NONE
        if is_longer(each.committed_metadata or "", longest):
            code = ErrorCode.OFFSET_METADATA_TOO_LARGE
        elif (topic.name, each.partition_index) in failed:
            code = ErrorCode.UNKNOWN_SERVER_ERROR
        answers.append(OffsetCommitResponsePartition(partition_index=each.partition_index, error_code=code))
    return OffsetCommitResponseTopic(name=topic.name, partitions=answers)


def _decoded(data: bytes) -> tuple[int, ErrorCode]:
    offset = parse_integer(data.decode(errors="replace"), 64)
    return (NO_OFFSET, ErrorCode.UNKNOWN_SERVER_ERROR) if offset is None else (offset, ErrorCode.NONE)


def _fetched(index: int, offset: int, code: ErrorCode) -> OffsetFetchResponsePartition:
    return OffsetFetchResponsePartition(partition_index=index, committed_offset=offset, metadata="", error_code=code)
