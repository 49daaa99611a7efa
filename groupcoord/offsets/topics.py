"""The topics of offset requests: which exist, which id belongs to which name, and answers put together again.

Commits, fetches and deletions of offsets name topics by name, or since version 10 by id. The coordinator keeps both: the
name is part of the record's key, the id tells a topic from a later one of the same name. What names nothing that exists
is answered here; the rest goes to the shard, and the two answers are merged.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from ottla.groupcoord.offsets.table import unfetched
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
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

if TYPE_CHECKING:
    from ottla.wire.messages.transactions import TxnOffsetCommitRequestTopic, TxnOffsetCommitResponseTopic

T = TypeVar("T")
P = TypeVar("P")

TOPIC_ID_VERSION = 10
BATCH_VERSION = 8
TOP_LEVEL_ERROR_VERSION = 2


class Topic(Protocol):
    """A topic as the offsets' service sees it."""

    @property
    def name(self) -> str: ...

    @property
    def topic_id(self) -> bytes: ...

    @property
    def partitions(self) -> Sequence[Any]: ...


class Topics(Protocol):
    """The topics that exist."""

    def topic(self, name: str) -> Topic | None: ...

    @property
    def topic_by_id(self) -> Mapping[bytes, Any]: ...


# ---------------------------------------------------------------------- parts of large requests


def elements_in(topics: Sequence[T], partitions_of: Callable[[T], Sequence[Any]], enough: int) -> int:
    """Count topics and partitions, up to a little more than `enough`."""
    count = len(topics)
    for topic in topics:
        if count > enough:
            break
        count += len(partitions_of(topic))
    return count


def parts_of(
    topics: Sequence[T], partitions_of: Callable[[T], Sequence[P]], elements_max: int
) -> Iterator[list[tuple[T, Sequence[P]]]]:
    """The topics in order, in lists of at most so many elements; one with many partitions comes in pieces."""
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
    """The names of topics that a request is about. Ids that nobody knows are passed over."""
    for each in requested:
        if not by_id:
            yield each.name
        elif (topic := topics.topic_by_id.get(each.topic_id)) is not None:
            yield topic.name


# ---------------------------------------------------------------------- commit


def split_commit(
    request: OffsetCommitRequest, topics: Topics, *, by_id: bool, denied: Collection[str] = ()
) -> tuple[list[OffsetCommitRequestTopic], list[OffsetCommitResponseTopic]]:
    """Split a commit: topics that exist, each with its name and its id, and the answers to the rest.

    `by_id`: the request names topics by their ids. `denied`: topics that the client has no right to, whether they exist or not.
    """
    known: list[OffsetCommitRequestTopic] = []
    refused: list[OffsetCommitResponseTopic] = []
    for requested in request.topics:
        topic = topics.topic_by_id.get(requested.topic_id) if by_id else topics.topic(requested.name)
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


A = TypeVar("A", OffsetCommitResponseTopic, "TxnOffsetCommitResponseTopic")


class MergedTopics(Generic[A]):
    """Answers to the parts of one commit, each topic once."""

    def __init__(self) -> None:
        self._topics: dict[str | bytes, A] = {}

    def add(self, topics: Iterable[A]) -> None:
        for topic in topics:
            # A topic with an unknown id has no name, so the id has to tell it from others.
            other = self._topics.setdefault(topic.name or topic.topic_id, topic)
            if other is not topic:
                other.partitions.extend(topic.partitions)

    def topics(self) -> list[A]:
        return list(self._topics.values())


class MergedCommits(MergedTopics[OffsetCommitResponseTopic]):
    """Answers to the parts of one plain commit, each topic once."""

    def response(self) -> OffsetCommitResponse:
        return OffsetCommitResponse(topics=self.topics())


def merge_commits(answers: list[OffsetCommitResponseTopic], response: OffsetCommitResponse) -> OffsetCommitResponse:
    """Append `response` to these answers, each topic once."""
    merged = MergedCommits()
    merged.add(answers)
    merged.add(response.topics)
    return merged.response()


def commits_of(request: OffsetCommitRequest, elements_max: int) -> Iterator[OffsetCommitRequest]:
    """A commit as several smaller ones."""
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


# ---------------------------------------------------------------------- fetch


def parts_of_fetch(group: OffsetFetchRequestGroup, elements_max: int) -> Iterator[OffsetFetchRequestGroup]:
    """The fetch of a group's offsets as several smaller ones."""
    for part in parts_of(group.topics or (), attrgetter("partition_indexes"), elements_max):
        topics = [
            OffsetFetchRequestTopics(name=topic.name, topic_id=topic.topic_id, partition_indexes=list(piece))
            for topic, piece in part
        ]
        yield OffsetFetchRequestGroup(
            group_id=group.group_id, member_id=group.member_id, member_epoch=group.member_epoch, topics=topics
        )


def add_fetched(whole: OffsetFetchResponseGroup, part: OffsetFetchResponseGroup) -> None:
    """Put the answer to the next part of a fetch behind the others; an error is that of the whole."""
    if part.error_code:
        whole.error_code, whole.topics = part.error_code, part.topics
        return
    for topic in part.topics:
        # Parts come in order, so only the last topic can go on in the next part.
        last = whole.topics[-1] if whole.topics else None
        if last is not None and (last.name, last.topic_id) == (topic.name, topic.topic_id):
            last.partitions += topic.partitions
        else:
            whole.topics.append(topic)


def fetches_of(request: OffsetFetchRequest, api_version: int) -> list[OffsetFetchRequestGroup]:
    """The groups asked for, in the form of the newer versions. All offsets of one group are given only once."""
    if api_version < BATCH_VERSION:
        topics = None
        if request.topics is not None:
            topics = [
                OffsetFetchRequestTopics(name=topic.name, partition_indexes=topic.partition_indexes)
                for topic in request.topics
            ]
        return [OffsetFetchRequestGroup(group_id=request.group_id, topics=topics)]
    groups = []
    whole: set[str] = set()
    for group in request.groups:
        if group.topics is None:
            # A short request that repeats a group must not get an answer that is many times as long.
            if group.group_id in whole:
                continue
            whole.add(group.group_id)
        groups.append(group)
    return groups


def name_fetched_topics(group: OffsetFetchRequestGroup, topics: Topics) -> list[OffsetFetchResponseTopics]:
    """Give the topics asked for by id their names; those that nobody knows are taken out and answered."""
    known: list[OffsetFetchRequestTopics] = []
    unknown: list[OffsetFetchResponseTopics] = []
    for requested in group.topics or ():
        topic = topics.topic_by_id.get(requested.topic_id)
        if topic is not None:
            requested.name = topic.name
            known.append(requested)
        else:
            answers = [unfetched(index, ErrorCode.UNKNOWN_TOPIC_ID) for index in requested.partition_indexes]
            unknown.append(OffsetFetchResponseTopics(topic_id=requested.topic_id, partitions=answers))
    if group.topics is not None:
        group.topics = known
    return unknown


def refuse_fetched_topics(group: OffsetFetchRequestGroup, denied: Collection[str]) -> list[OffsetFetchResponseTopics]:
    """Take topics that the client may not see out of what is asked for; the answers about them."""
    requested = group.topics or ()
    refused = [each for each in requested if each.name in denied]
    if refused:
        group.topics = [each for each in requested if each.name not in denied]
    return [
        OffsetFetchResponseTopics(
            name=each.name,
            topic_id=each.topic_id,
            partitions=[unfetched(index, ErrorCode.TOPIC_AUTHORIZATION_FAILED) for index in each.partition_indexes],
        )
        for each in refused
    ]


def identify_fetched_topics(response: OffsetFetchResponseGroup, topics: Topics) -> None:
    """Give the topics of an answer with all offsets their ids; a topic without one cannot be shown."""
    shown = []
    for each in response.topics:
        topic = topics.topic(each.name)
        if topic is not None:
            each.topic_id = topic.topic_id
            shown.append(each)
    response.topics = shown


def refused_fetch(group: OffsetFetchRequestGroup, error: ErrorCode, api_version: int) -> OffsetFetchResponseGroup:
    """The answer for a group that cannot be looked up; version 1 can say so only per partition."""
    answers = []
    if api_version < TOP_LEVEL_ERROR_VERSION:
        for topic in group.topics or ():
            partitions = [unfetched(index, error) for index in topic.partition_indexes]
            answers.append(OffsetFetchResponseTopics(name=topic.name, partitions=partitions))
        error = ErrorCode.NONE
    return OffsetFetchResponseGroup(group_id=group.group_id, topics=answers, error_code=error)


def fetch_response(groups: list[OffsetFetchResponseGroup], api_version: int) -> OffsetFetchResponse:
    if api_version >= BATCH_VERSION:
        return OffsetFetchResponse(groups=groups)
    (group,) = groups
    return OffsetFetchResponse(topics=[older_topic(topic) for topic in group.topics], error_code=group.error_code)


def older_topic(topic: OffsetFetchResponseTopics) -> OffsetFetchResponseTopic:
    """The answer about a topic as versions without groups have it."""
    partitions = [
        OffsetFetchResponsePartition(
            partition_index=each.partition_index,
            committed_offset=each.committed_offset,
            committed_leader_epoch=each.committed_leader_epoch,
            metadata=each.metadata,
            error_code=each.error_code,
        )
        for each in topic.partitions
    ]
    return OffsetFetchResponseTopic(name=topic.name, partitions=partitions)


# ---------------------------------------------------------------------- delete


def split_deletion(
    request: OffsetDeleteRequest, topics: Topics, denied: Collection[str] = ()
) -> tuple[OffsetDeleteRequest, list[OffsetDeleteResponseTopic]]:
    """The part of a deletion that names existing partitions, and the answers to the rest; `denied` as for a commit."""
    known: list[OffsetDeleteRequestTopic] = []
    refused: list[OffsetDeleteResponseTopic] = []
    for requested in request.topics:
        is_denied = requested.name in denied
        topic = None if is_denied else topics.topic(requested.name)
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
    """A deletion as several smaller ones."""
    for part in parts_of(request.topics, attrgetter("partitions"), elements_max):
        topics = [OffsetDeleteRequestTopic(name=topic.name, partitions=list(piece)) for topic, piece in part]
        yield OffsetDeleteRequest(group_id=request.group_id, topics=topics)


class MergedDeletions:
    """Answers to the parts of one deletion, each topic once."""

    def __init__(self) -> None:
        self._topics: dict[str, OffsetDeleteResponseTopic] = {}

    def add(self, topics: Iterable[OffsetDeleteResponseTopic]) -> None:
        for topic in topics:
            other = self._topics.setdefault(topic.name, topic)
            if other is not topic:
                other.partitions += topic.partitions

    def response(self) -> OffsetDeleteResponse:
        return OffsetDeleteResponse(error_code=ErrorCode.NONE, topics=list(self._topics.values()))


def merge_deletions(answers: list[OffsetDeleteResponseTopic], response: OffsetDeleteResponse) -> OffsetDeleteResponse:
    """Append `response` to these answers; an error of the whole request stands alone."""
    if response.error_code:
        return response
    merged = MergedDeletions()
    merged.add(answers)
    merged.add(response.topics)
    return merged.response()
