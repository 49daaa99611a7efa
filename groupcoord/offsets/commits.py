"""OffsetCommit and OffsetDelete at the service.

The service answers requests about missing topics itself; the group's shard answers the rest.

Requests about offsets name topics by name, or since version 10 by id. The coordinator keeps both: the name is part of the
record's key, the id tells a topic from a later one of the same name. A long request is taken in parts.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import trio

from ottla.groupcoord.offsets.manager import ForgetTopics
from ottla.groupcoord.offsets.table import refused_commit
from ottla.groupcoord.runtime.answers import Caller, finished, then
from ottla.groupcoord.runtime.coordinator_runtime import TopicForgetter
from ottla.groupcoord.shard import ELEMENTS_PER_SLICE, GroupRuntime
from ottla.wire.answers import Given, Worked
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
    OffsetDeleteRequest,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)

if TYPE_CHECKING:
    from ottla.wire.messages.transactions import TxnOffsetCommitRequestTopic, TxnOffsetCommitResponseTopic

T = TypeVar("T")
P = TypeVar("P")

TOPIC_ID_VERSION = 10


class Topic(Protocol):
    """Interface of a topic with the attributes that commits of offsets need."""

    @property
    def name(self) -> str: ...

    @property
    def topic_id(self) -> bytes: ...

    @property
    def partitions(self) -> Sequence[Any]: ...


class Topics(Protocol):
    """Interface to the existing topics, by name and by id."""

    @property
    def topics(self) -> Mapping[str, Topic]: ...

    @property
    def topic_by_id(self) -> Mapping[bytes, Any]: ...


# ---------------------------------------------------------------------- parts of large requests


def elements_in(topics: Sequence[T], partitions_of: Callable[[T], Sequence[Any]], enough: int) -> int:
    """Return the number of topics and partitions. Counting stops when it is more than `enough`."""
    count = len(topics)
    for topic in topics:
        if count > enough:
            break
        count += len(partitions_of(topic))
    return count


def parts_of(
    topics: Sequence[T], partitions_of: Callable[[T], Sequence[P]], elements_max: int
) -> Iterator[list[tuple[T, Sequence[P]]]]:
    """Yield topics in order, in lists of at most `elements_max` topics and partitions. A large topic is split."""
    part: list[tuple[T, Sequence[P]]] = []
    room = elements_max
    for topic in topics:
        partitions = partitions_of(topic)
        start = 0
        # A topic without partitions is passed on, too, because it gets an answer of its own.
        while start == 0 or start < len(partitions):
            # The topic itself counts as one element.
            piece = partitions[start : start + room - 1]
            part.append((topic, piece))
            start += max(len(piece), 1)
            room -= len(piece) + 1
            # The next topic and one partition of it need room for two.
            if room < 2:
                yield part
                part, room = [], elements_max
    if part:
        yield part


def names_of(
    requested: Iterable[OffsetCommitRequestTopic | TxnOffsetCommitRequestTopic], topics: Topics, *, by_id: bool
) -> Iterator[str]:
    """Yield the names of a request's topics; unknown topic ids are skipped."""
    for each in requested:
        if not by_id:
            yield each.name
        elif (topic := topics.topic_by_id.get(each.topic_id)) is not None:
            yield topic.name


# ---------------------------------------------------------------------- commit


def split_commit(
    request: OffsetCommitRequest, topics: Topics, *, by_id: bool, denied: Collection[str] = ()
) -> tuple[list[OffsetCommitRequestTopic], list[OffsetCommitResponseTopic]]:
    """Return a commit's existing topics, with name and id, and error results for all other topics.

    `by_id`: topics are named by their ids. `denied`: topics that the client has no right to, existing or not.
    """
    known: list[OffsetCommitRequestTopic] = []
    refused: list[OffsetCommitResponseTopic] = []
    for requested in request.topics:
        topic = topics.topic_by_id.get(requested.topic_id) if by_id else topics.topics.get(requested.name)
        # If the id is known and the partition is not, nothing is wrong with the id.
        missing = ErrorCode.UNKNOWN_TOPIC_ID if by_id and topic is None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if topic is not None:
            # The record needs both: its key has the name, and the id tells the topic from a later one of that name.
            requested.name, requested.topic_id = topic.name, topic.topic_id
        if requested.name in denied:
            topic, missing = None, ErrorCode.TOPIC_AUTHORIZATION_FAILED
        count = 0 if topic is None else len(topic.partitions)
        kept = [each for each in requested.partitions if 0 <= each.partition_index < count]
        if kept:
            known.append(OffsetCommitRequestTopic(name=requested.name, topic_id=requested.topic_id, partitions=kept))
        answers = [
            OffsetCommitResponsePartition(partition_index=each.partition_index, error_code=missing)
            for each in requested.partitions
            if not 0 <= each.partition_index < count
        ]
        # A topic that does not exist is answered even if the request names no partition of it.
        if answers or topic is None:
            refused.append(
                OffsetCommitResponseTopic(name=requested.name, topic_id=requested.topic_id, partitions=answers)
            )
    return known, refused


A = TypeVar("A", OffsetCommitResponseTopic, OffsetDeleteResponseTopic, "TxnOffsetCommitResponseTopic")


class MergedTopics(Generic[A]):
    """Merger of partial responses to one request. In the result each topic occurs once."""

    def __init__(self, *answers: Iterable[A]) -> None:
        self._topics: dict[str | bytes, A] = {}
        for each in answers:
            self.add(each)

    def add(self, topics: Iterable[A]) -> None:
        for topic in topics:
            # A topic with an unknown id has no name, so the id has to tell it from others. Deletions know no ids.
            other = self._topics.setdefault(topic.name or getattr(topic, "topic_id", ""), topic)
            if other is not topic:
                other.partitions.extend(topic.partitions)

    def topics(self) -> list[A]:
        return list(self._topics.values())


def commits_of(request: OffsetCommitRequest, elements_max: int) -> Iterator[OffsetCommitRequest]:
    """Split a commit into smaller commits of at most `elements_max` topics and partitions."""
    for part in parts_of(request.topics, attrgetter("partitions"), elements_max):
        yield with_topics(
            request,
            [
                OffsetCommitRequestTopic(name=topic.name, topic_id=topic.topic_id, partitions=list(piece))
                for topic, piece in part
            ],
        )


def with_topics(request: OffsetCommitRequest, topics: list[OffsetCommitRequestTopic]) -> OffsetCommitRequest:
    return OffsetCommitRequest(
        group_id=request.group_id,
        generation_id_or_member_epoch=request.generation_id_or_member_epoch,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        retention_time_ms=request.retention_time_ms,
        topics=topics,
    )


# ---------------------------------------------------------------------- delete


def split_deletion(
    request: OffsetDeleteRequest, topics: Topics, denied: Collection[str] = ()
) -> tuple[OffsetDeleteRequest, list[OffsetDeleteResponseTopic]]:
    """Return the existing partitions of a deletion, and error results for the others.

    `denied`: topics that the client has no right to, existing or not.
    """
    known: list[OffsetDeleteRequestTopic] = []
    refused: list[OffsetDeleteResponseTopic] = []
    for requested in request.topics:
        is_denied = requested.name in denied
        topic = None if is_denied else topics.topics.get(requested.name)
        missing = ErrorCode.TOPIC_AUTHORIZATION_FAILED if is_denied else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        count = 0 if topic is None else len(topic.partitions)
        kept = [each for each in requested.partitions if 0 <= each.partition_index < count]
        if kept:
            known.append(OffsetDeleteRequestTopic(name=requested.name, partitions=kept))
        answers = [
            OffsetDeleteResponsePartition(partition_index=each.partition_index, error_code=missing)
            for each in requested.partitions
            if not 0 <= each.partition_index < count
        ]
        if answers or topic is None:
            refused.append(OffsetDeleteResponseTopic(name=requested.name, partitions=answers))
    return OffsetDeleteRequest(group_id=request.group_id, topics=known), refused


def deletions_of(request: OffsetDeleteRequest, elements_max: int) -> Iterator[OffsetDeleteRequest]:
    """Split an OffsetDelete request into smaller requests of at most `elements_max` topics and partitions."""
    for part in parts_of(request.topics, attrgetter("partitions"), elements_max):
        topics = [OffsetDeleteRequestTopic(name=topic.name, partitions=list(piece)) for topic, piece in part]
        yield OffsetDeleteRequest(group_id=request.group_id, topics=topics)


# ---------------------------------------------------------------------- the service


class OffsetCommits:
    """Handler of OffsetCommit and OffsetDelete."""

    def __init__(self, runtime: GroupRuntime, topics: Topics) -> None:
        self._runtime = runtime
        self._topics = topics
        self._forgetter = TopicForgetter(runtime, ForgetTopics)

    def offset_commit(
        self, request: OffsetCommitRequest, *, api_version: int, denied: Collection[str] = ()
    ) -> Worked[Given[OffsetCommitResponse]]:
        """Handle OffsetCommit. `denied`: topics that the client has no right to."""
        if elements_in(request.topics, attrgetter("partitions"), ELEMENTS_PER_SLICE) > ELEMENTS_PER_SLICE:
            return self._commit_in_parts(request, api_version, denied)
        known, refused = split_commit(request, self._topics, by_id=api_version >= TOPIC_ID_VERSION, denied=denied)
        if not known:
            return OffsetCommitResponse(topics=refused)
        commit = with_topics(request, known)
        caller = Caller(lambda error: refused_commit(commit, error), api_version=api_version)
        answer = self._runtime.submit(commit.group_id, commit, caller)
        if not refused:
            return answer
        return then(
            answer, lambda response: OffsetCommitResponse(topics=MergedTopics(refused, response.topics).topics())
        )

    async def _commit_in_parts(
        self, request: OffsetCommitRequest, api_version: int, denied: Collection[str]
    ) -> OffsetCommitResponse:
        merged = MergedTopics[OffsetCommitResponseTopic]()
        for part in commits_of(request, ELEMENTS_PER_SLICE):
            response = await finished(self.offset_commit(part, api_version=api_version, denied=denied))
            merged.add(response.topics)
            await trio.lowlevel.checkpoint()
        return OffsetCommitResponse(topics=merged.topics())

    def offset_delete(
        self, request: OffsetDeleteRequest, denied: Collection[str] = ()
    ) -> Worked[Given[OffsetDeleteResponse]]:
        """Handle OffsetDelete. `denied`: topics that the client has no right to."""
        if elements_in(request.topics, attrgetter("partitions"), ELEMENTS_PER_SLICE) > ELEMENTS_PER_SLICE:
            return self._delete_offsets_in_parts(request, denied)
        known, refused = split_deletion(request, self._topics, denied)

        def refuse(error: ErrorCode) -> OffsetDeleteResponse:
            return OffsetDeleteResponse(error_code=error, topics=[])

        if not request.group_id:
            return refuse(ErrorCode.INVALID_GROUP_ID)
        answer = self._runtime.submit(request.group_id, known, Caller(refuse))
        if not refused:
            return answer

        def finish(response: OffsetDeleteResponse) -> OffsetDeleteResponse:
            # An error of the whole request stands alone.
            return response if response.error_code else _deleted(MergedTopics(refused, response.topics))

        return then(answer, finish)

    async def _delete_offsets_in_parts(
        self, request: OffsetDeleteRequest, denied: Collection[str]
    ) -> OffsetDeleteResponse:
        merged = MergedTopics[OffsetDeleteResponseTopic]()
        for part in deletions_of(request, ELEMENTS_PER_SLICE):
            response = await finished(self.offset_delete(part, denied))
            if response.error_code:
                return response
            merged.add(response.topics)
            await trio.lowlevel.checkpoint()
        return _deleted(merged)

    async def on_topics_deleted(self, topics: Mapping[str, bytes]) -> None:
        """Delete the offsets of deleted topics (name -> id). If the log refuses that, retry in the background."""
        await self._forgetter.forget(topics)


def _deleted(merged: MergedTopics[OffsetDeleteResponseTopic]) -> OffsetDeleteResponse:
    return OffsetDeleteResponse(error_code=ErrorCode.NONE, topics=merged.topics())
