"""Offsets of groups at the service: `OffsetService` adds OffsetFetch to the requests of `commits.py`.

Large answers are made in parts: all offsets of a group, or offsets of very many groups and partitions.
"""

from __future__ import annotations

from collections.abc import Collection, Coroutine, Iterator
from contextlib import suppress
from operator import attrgetter
from typing import Any

import trio

from ottla.groupcoord.offsets.commits import TOPIC_ID_VERSION, OffsetCommits, Topics, elements_in, parts_of
from ottla.groupcoord.offsets.manager import CountOffsets, FetchStableOffsets, SnapshotOffsets
from ottla.groupcoord.offsets.table import OffsetsSnapshot, unfetched
from ottla.groupcoord.runtime.answers import Caller, finished, gathered, then
from ottla.groupcoord.shard import ELEMENTS_PER_SLICE, OffsetRights
from ottla.wire.answers import Given
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.messages.offsets import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

BATCH_VERSION = 8
TOP_LEVEL_ERROR_VERSION = 2
NAME_CHARACTERS_PER_ELEMENT = 64
"""Hashing so much of a name takes as long as looking up an offset."""

PARTITION_INDEXES = attrgetter("partition_indexes")


class OffsetService(OffsetCommits):
    """Handler of all requests about committed offsets, except TxnOffsetCommit."""

    def offset_fetch(
        self, request: OffsetFetchRequest, *, api_version: int, rights: OffsetRights | None = None
    ) -> Given[OffsetFetchResponse] | Coroutine[Any, Any, OffsetFetchResponse]:
        groups = fetches_of(request, api_version)
        is_stable = request.require_stable
        if _is_much(groups) or self._holds_much(groups):
            return self._fetch_in_parts(groups, api_version, rights, require_stable=is_stable)
        answers = [self._fetch_allowed(group, api_version, rights, require_stable=is_stable) for group in groups]
        return gathered(answers, lambda groups: fetch_response(groups, api_version))

    def _holds_much(self, groups: list[OffsetFetchRequestGroup]) -> bool:
        """Return True if groups whose offsets are all requested have too many offsets for one time slice."""
        count = 0
        for group in groups:
            if group.topics is None:
                with suppress(KafkaError):  # which is the answer, and a short one
                    count += self._runtime.read(group.group_id, CountOffsets(group.group_id))
        return count > ELEMENTS_PER_SLICE

    async def _fetch_in_parts(
        self,
        groups: list[OffsetFetchRequestGroup],
        api_version: int,
        rights: OffsetRights | None,
        *,
        require_stable: bool,
    ) -> OffsetFetchResponse:
        answers, in_slice = [], 0
        for group in groups:
            if rights is not None and not rights.may_describe(group.group_id):
                answers.append(refused_fetch(group, ErrorCode.GROUP_AUTHORIZATION_FAILED, api_version))
                await trio.lowlevel.checkpoint()
                continue
            parts = [group] if not group.topics else parts_of_fetch(group, ELEMENTS_PER_SLICE)
            answer = OffsetFetchResponseGroup(group_id=group.group_id, topics=[], error_code=ErrorCode.NONE)
            for part in parts:
                # Before the shard is asked nobody knows how many these are, so they count as a whole slice.
                in_slice += ELEMENTS_PER_SLICE if part.topics is None else _work_of(part)
                if part.topics is None:
                    await self._add_all(answer, part, api_version, rights, require_stable=require_stable)
                else:
                    fetched = await finished(self._fetch(part, api_version, rights, require_stable=require_stable))
                    add_fetched(answer, fetched)
                if in_slice >= ELEMENTS_PER_SLICE // 2:
                    await trio.lowlevel.checkpoint()
                    in_slice = 0
                # The error is that of the group, so the other parts could not say more.
                if answer.error_code:
                    break
            answers.append(answer)
        return await fetch_response_in_slices(answers, api_version)

    async def _add_all(
        self,
        answer: OffsetFetchResponseGroup,
        group: OffsetFetchRequestGroup,
        api_version: int,
        rights: OffsetRights | None,
        *,
        require_stable: bool,
    ) -> None:
        """Add all offsets of a group to `answer`, read in parts from one snapshot."""
        snapshot: OffsetsSnapshot | OffsetFetchResponseGroup = await finished(
            self._snapshot(group, api_version, require_stable=require_stable)
        )
        if isinstance(snapshot, OffsetFetchResponseGroup):
            add_fetched(answer, snapshot)
            return
        for topics in snapshot.parts(ELEMENTS_PER_SLICE):
            part = OffsetFetchResponseGroup(group_id=group.group_id, topics=topics, error_code=ErrorCode.NONE)
            if rights is not None:
                _hide(part, rights)
            if api_version >= TOPIC_ID_VERSION:
                identify_fetched_topics(part, self._topics)
            add_fetched(answer, part)
            await trio.lowlevel.checkpoint()

    def _snapshot(self, group: OffsetFetchRequestGroup, api_version: int, *, require_stable: bool) -> Given[Any]:
        """Request a snapshot of the group's offsets from its shard; the result is the snapshot or an error response."""
        request = SnapshotOffsets(group, require_stable=require_stable)

        def refuse(error: ErrorCode) -> OffsetFetchResponseGroup:
            return refused_fetch(group, error, api_version)

        if require_stable:
            return self._runtime.submit(group.group_id, request, Caller(refuse))
        try:
            return self._runtime.read(group.group_id, request)
        except KafkaError as error:
            return refuse(error.code)

    def _fetch_allowed(
        self, group: OffsetFetchRequestGroup, api_version: int, rights: OffsetRights | None, *, require_stable: bool
    ) -> Given[OffsetFetchResponseGroup]:
        if rights is not None and not rights.may_describe(group.group_id):
            return refused_fetch(group, ErrorCode.GROUP_AUTHORIZATION_FAILED, api_version)
        return self._fetch(group, api_version, rights, require_stable=require_stable)

    def _fetch(
        self, group: OffsetFetchRequestGroup, api_version: int, rights: OffsetRights | None, *, require_stable: bool
    ) -> Given[OffsetFetchResponseGroup]:
        """Fetch offsets of one group. With `require_stable` the fetch waits for all commits in flight."""
        by_id = api_version >= TOPIC_ID_VERSION
        unknown = name_fetched_topics(group, self._topics) if by_id else []
        if rights is not None and group.topics:
            unknown += refuse_fetched_topics(group, rights.denied([each.name for each in group.topics]))

        def finish(response: OffsetFetchResponseGroup) -> OffsetFetchResponseGroup:
            if rights is not None and group.topics is None:
                _hide(response, rights)
            # The shard knows topics by name, but clients of these versions want to read ids.
            if by_id and group.topics is None:
                identify_fetched_topics(response, self._topics)
            # An error of the group stands alone.
            if not response.error_code:
                response.topics += unknown
            return response

        def refuse(error: ErrorCode) -> OffsetFetchResponseGroup:
            return refused_fetch(group, error, api_version)

        if require_stable:
            answer = self._runtime.submit(group.group_id, FetchStableOffsets(group), Caller(refuse))
            return then(answer, finish)
        try:
            return finish(self._runtime.read(group.group_id, group))
        except KafkaError as error:
            return refuse(error.code)


def _hide(response: OffsetFetchResponseGroup, rights: OffsetRights) -> None:
    """Remove from the response the topics that the client may not see."""
    denied = rights.denied([topic.name for topic in response.topics])
    if denied:
        response.topics = [topic for topic in response.topics if topic.name not in denied]


def _is_much(groups: list[OffsetFetchRequestGroup]) -> bool:
    """Return True if `groups` name too many groups, topics and partitions for one time slice."""
    if len(groups) > ELEMENTS_PER_SLICE:
        return True
    return sum(map(_work_of, groups)) > ELEMENTS_PER_SLICE


def _work_of(group: OffsetFetchRequestGroup) -> int:
    """Return the number of elements in a group's fetch, at most a time slice's limit. A long id counts as several."""
    elements = elements_in(group.topics or (), PARTITION_INDEXES, ELEMENTS_PER_SLICE)
    return 1 + len(group.group_id) // NAME_CHARACTERS_PER_ELEMENT + elements


async def fetch_response_in_slices(groups: list[OffsetFetchResponseGroup], api_version: int) -> OffsetFetchResponse:
    """Return the response of `fetch_response`, built in time slices. Large topics are converted in pieces."""
    if api_version >= BATCH_VERSION:
        return OffsetFetchResponse(groups=groups)
    (group,) = groups
    topics: list[OffsetFetchResponseTopic] = []
    for part in parts_of(group.topics, attrgetter("partitions"), ELEMENTS_PER_SLICE):
        for topic, partitions in part:
            older = older_topic(OffsetFetchResponseTopics(name=topic.name, partitions=list(partitions)))
            # A piece without the topic's first partition goes on with the topic before.
            if partitions and topic.partitions[0] is not partitions[0]:
                topics[-1].partitions += older.partitions
            else:
                topics.append(older)
        await trio.lowlevel.checkpoint()
    return OffsetFetchResponse(topics=topics, error_code=group.error_code)


def parts_of_fetch(group: OffsetFetchRequestGroup, elements_max: int) -> Iterator[OffsetFetchRequestGroup]:
    """Split the fetch of a group's offsets into smaller fetches of at most `elements_max` topics and partitions."""
    for part in parts_of(group.topics or (), attrgetter("partition_indexes"), elements_max):
        topics = [
            OffsetFetchRequestTopics(name=topic.name, topic_id=topic.topic_id, partition_indexes=list(piece))
            for topic, piece in part
        ]
        yield OffsetFetchRequestGroup(
            group_id=group.group_id, member_id=group.member_id, member_epoch=group.member_epoch, topics=topics
        )


def add_fetched(whole: OffsetFetchResponseGroup, part: OffsetFetchResponseGroup) -> None:
    """Append the next partial response of a group's fetch to `whole`. An error replaces all results so far."""
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
    """Return the requested groups in the form of version 8.

    A group that is named repeatedly with all its offsets is returned once.
    """
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
    """Fill in the names of topics that are named by id. Remove unknown ids from `group`; return their error results."""
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
    """Remove the topics `denied` to the client from `group`; return error results for them."""
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
    """Fill in the topic ids in a response with all offsets of a group. Remove topics that do not exist."""
    shown = []
    for each in response.topics:
        topic = topics.topics.get(each.name)
        if topic is not None:
            each.topic_id = topic.topic_id
            shown.append(each)
    response.topics = shown


def refused_fetch(group: OffsetFetchRequestGroup, error: ErrorCode, api_version: int) -> OffsetFetchResponseGroup:
    """Return the error response for a group. In version 1 each partition carries the error."""
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
    """Convert a topic's results to their form before version 8, which has no groups."""
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
