"""DescribeShareGroupOffsets: start offsets and lag of share partitions.

The share coordinator knows the start offsets, whichever broker coordinates the group. A share partition that it does not
know, or has an error for, has no start; that is no error. The lag counts from the end of the partition, which its leader
knows.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

import trio

from ottla.groupcoord.effects import NAMED_MAX
from ottla.groupcoord.shard import GroupRuntime, OffsetRights
from ottla.groupcoord.share.offsets import NO_TOPIC_ID, ReadInitialized
from ottla.groupcoord.topic_images import TopicImages
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.messages.share_group import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
)
from ottla.wire.messages.share_group_state import (
    DeleteShareGroupStateRequest,
    DeleteShareGroupStateResponse,
    InitializeShareGroupStateRequest,
    InitializeShareGroupStateResponse,
    ReadShareGroupStateSummaryRequest,
    ReadShareGroupStateSummaryResponse,
    ReadStatePartition,
    ReadStateSummaryData,
    ReadStateSummaryPartitionResult,
)

NO_START = NO_COUNT = NO_LAG = -1
NO_EPOCH = 0
NAMES_PER_SLICE = 200

TopicPartition = tuple[str, int]


class EndOffset(NamedTuple):
    """End offset of a partition, as consumers see it, or an error of the partition's leader."""

    offset: int
    error: ErrorCode = ErrorCode.NONE


class SharePersister(Protocol):
    """Client of share coordinators. Its responses have all partitions; those that failed have errors."""

    async def initialize(self, request: InitializeShareGroupStateRequest) -> InitializeShareGroupStateResponse: ...

    async def delete(self, request: DeleteShareGroupStateRequest) -> DeleteShareGroupStateResponse: ...

    async def read_summary(self, request: ReadShareGroupStateSummaryRequest) -> ReadShareGroupStateSummaryResponse: ...


class EndOffsets(Protocol):
    """Client of partition leaders, for end offsets."""

    async def end_offsets(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, EndOffset]:
        """Return end offsets by partition. Partitions whose end offset is unknown may be missing."""


class ShareOffsets:
    """Handler of DescribeShareGroupOffsets."""

    def __init__(self, runtime: GroupRuntime, images: TopicImages, persister: SharePersister, ends: EndOffsets) -> None:
        self._runtime = runtime
        self._images = images
        self._persister = persister
        self._ends = ends

    async def describe(
        self, request: DescribeShareGroupOffsetsRequest, rights: OffsetRights | None = None
    ) -> DescribeShareGroupOffsetsResponse:
        groups = []
        for group in request.groups:
            if rights is not None and not rights.may_describe(group.group_id):
                groups.append(_group(group.group_id, [], ErrorCode.GROUP_AUTHORIZATION_FAILED, has_message=False))
            else:
                groups.append(await self._describe(group, rights))
            # A group without topics takes no wait.
            await trio.lowlevel.checkpoint()
        return DescribeShareGroupOffsetsResponse(groups=groups)

    async def _describe(
        self, group: DescribeShareGroupOffsetsRequestGroup, rights: OffsetRights | None
    ) -> DescribeShareGroupOffsetsResponseGroup:
        unknown: list[DescribeShareGroupOffsetsResponseTopic] = []
        if sum([1 + len(topic.partitions) for topic in group.topics or ()]) > NAMED_MAX:
            return _group(group.group_id, [], ErrorCode.INVALID_REQUEST)
        denied = await _denied_in(group, rights)
        try:
            if group.topics is None:
                topics = self._all_of(group.group_id)
            else:
                topics, unknown = self._named([each for each in group.topics if each.topic_name not in denied])
            described = await self._described(group.group_id, topics) if topics else []
        except KafkaError as error:
            return _group(group.group_id, [], error.code)
        if rights is not None and group.topics is None:
            hidden = rights.denied([each.topic_name for each in described])
            described = [each for each in described if each.topic_name not in hidden]
        refused = [_refused(each) for each in group.topics or () if each.topic_name in denied]
        return _group(group.group_id, [*described, *unknown, *refused])

    def _all_of(self, group_id: str) -> dict[bytes, Sequence[int]]:
        """Return the group's initialized partitions of existing topics.

        Raises KafkaError if this broker does not coordinate the group.
        """
        found: Mapping[bytes, Sequence[int]] = self._runtime.read(group_id, ReadInitialized(group_id))
        return {topic_id: each for topic_id, each in found.items() if self._images.image_by_id(topic_id) is not None}

    def _named(
        self, topics: Iterable[DescribeShareGroupOffsetsRequestTopic]
    ) -> tuple[dict[bytes, Sequence[int]], list[DescribeShareGroupOffsetsResponseTopic]]:
        """Return the request's partitions of existing topics, and error results for its other topics."""
        found: dict[bytes, Sequence[int]] = {}
        unknown = []
        for topic in topics:
            image = self._images.image(topic.topic_name)
            if image is None:
                nothing = [_started(partition) for partition in topic.partitions]
                unknown.append(_topic(topic.topic_name, NO_TOPIC_ID, nothing))
            else:
                found[image.topic_id] = list(dict.fromkeys([*found.get(image.topic_id, ()), *topic.partitions]))
        return found, unknown

    async def _described(
        self, group_id: str, topics: Mapping[bytes, Sequence[int]]
    ) -> list[DescribeShareGroupOffsetsResponseTopic]:
        # Kafka sends no invalid partitions to a share coordinator.
        if not group_id or any(not partitions or min(partitions) < 0 for partitions in topics.values()):
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
        names = {each: image.name for each in topics if (image := self._images.image_by_id(each)) is not None}
        response = await self._persister.read_summary(_summary_request(group_id, topics))
        found = {(result.topic_id, each.partition): each for result in response.results for each in result.partitions}
        wanted = [(names[topic_id], index) for (topic_id, index), each in found.items() if _has_lag(each)]
        ends = await self._ends.end_offsets(wanted) if wanted else {}
        return [
            _topic(
                names[topic_id],
                topic_id,
                [
                    _answer(index, found.get((topic_id, index)), ends.get((names[topic_id], index)))
                    for index in partitions
                ],
            )
            for topic_id, partitions in topics.items()
        ]


async def _denied_in(group: DescribeShareGroupOffsetsRequestGroup, rights: OffsetRights | None) -> Collection[str]:
    """Return the named topics that the client may not see."""
    denied: set[str] = set()
    names = [] if rights is None else [topic.topic_name for topic in group.topics or ()]
    for start in range(0, len(names), NAMES_PER_SLICE):
        assert rights is not None
        denied.update(rights.denied(names[start : start + NAMES_PER_SLICE]))
        await trio.lowlevel.checkpoint()
    return denied


def _refused(topic: DescribeShareGroupOffsetsRequestTopic) -> DescribeShareGroupOffsetsResponseTopic:
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    partitions = [_started(each) for each in topic.partitions]
    for each in partitions:
        each.error_code, each.error_message = code, code.message
    return _topic(topic.topic_name, NO_TOPIC_ID, partitions)


def _summary_request(group_id: str, topics: Mapping[bytes, Sequence[int]]) -> ReadShareGroupStateSummaryRequest:
    data = [
        ReadStateSummaryData(
            topic_id=topic_id,
            partitions=[ReadStatePartition(partition=partition, leader_epoch=NO_EPOCH) for partition in partitions],
        )
        for topic_id, partitions in topics.items()
    ]
    return ReadShareGroupStateSummaryRequest(group_id=group_id, topics=data)


def _has_lag(result: ReadStateSummaryPartitionResult) -> bool:
    return not result.error_code and result.start_offset != NO_START and result.delivery_complete_count != NO_COUNT


def _answer(
    partition: int, result: ReadStateSummaryPartitionResult | None, end: EndOffset | None
) -> DescribeShareGroupOffsetsResponsePartition:
    if result is None or result.error_code:
        return _started(partition)
    if not _has_lag(result):
        return _started(partition, result.start_offset, result.leader_epoch)
    error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if end is None else end.error
    if end is None or error:
        return DescribeShareGroupOffsetsResponsePartition(
            partition_index=partition,
            start_offset=0,
            leader_epoch=NO_EPOCH,
            error_code=error,
            error_message=error.message,
        )
    lag = end.offset - result.start_offset - result.delivery_complete_count
    return _started(partition, result.start_offset, result.leader_epoch, lag)


def _started(
    partition: int, start_offset: int = NO_START, leader_epoch: int = NO_EPOCH, lag: int = NO_LAG
) -> DescribeShareGroupOffsetsResponsePartition:
    return DescribeShareGroupOffsetsResponsePartition(
        partition_index=partition,
        start_offset=start_offset,
        leader_epoch=leader_epoch,
        lag=lag,
        error_code=ErrorCode.NONE,
    )


def _topic(
    name: str, topic_id: bytes, partitions: list[DescribeShareGroupOffsetsResponsePartition]
) -> DescribeShareGroupOffsetsResponseTopic:
    return DescribeShareGroupOffsetsResponseTopic(topic_name=name, topic_id=topic_id, partitions=partitions)


def _group(
    group_id: str,
    topics: list[DescribeShareGroupOffsetsResponseTopic],
    error: ErrorCode = ErrorCode.NONE,
    *,
    has_message: bool = True,
) -> DescribeShareGroupOffsetsResponseGroup:
    return DescribeShareGroupOffsetsResponseGroup(
        group_id=group_id,
        topics=topics,
        error_code=error,
        error_message=error.message if error and has_message else None,
    )
