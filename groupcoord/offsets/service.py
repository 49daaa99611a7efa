"""The requests about committed offsets, and the offsets of deleted topics."""

from __future__ import annotations

from collections.abc import Collection, Coroutine, Mapping
from contextlib import suppress
from operator import attrgetter
from typing import Any

import trio

from ottla.groupcoord.offsets.manager import (
    CountOffsets,
    FetchStableOffsets,
    ForgetTopics,
    SnapshotOffsets,
)
from ottla.groupcoord.offsets.table import OffsetsSnapshot, refused_commit
from ottla.groupcoord.offsets.topics import (
    BATCH_VERSION,
    TOPIC_ID_VERSION,
    MergedCommits,
    MergedDeletions,
    Topics,
    add_fetched,
    commits_of,
    deletions_of,
    elements_in,
    fetch_response,
    fetches_of,
    identify_fetched_topics,
    merge_commits,
    merge_deletions,
    name_fetched_topics,
    older_topic,
    parts_of,
    parts_of_fetch,
    refuse_fetched_topics,
    refused_fetch,
    split_commit,
    split_deletion,
    with_topics,
)
from ottla.groupcoord.runtime.answers import WaitingCaller, finished, gathered, then
from ottla.groupcoord.runtime.coordinator_runtime import TopicForgetter
from ottla.groupcoord.shard import ELEMENTS_PER_SLICE, GroupShards, OffsetRights
from ottla.wire.answers import Given, Worked
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

NAME_CHARACTERS_PER_ELEMENT = 64
"""Hashing so much of a name takes as long as looking up an offset."""

PARTITION_INDEXES = attrgetter("partition_indexes")


class OffsetService:
    """Requests about committed offsets."""

    def __init__(self, shards: GroupShards, topics: Topics) -> None:
        self._shards = shards
        self._topics = topics
        self._forgetter = TopicForgetter(shards.runtime, ForgetTopics)

    # ------------------------------------------------------------------ commit and fetch

    def offset_commit(
        self, request: OffsetCommitRequest, *, api_version: int, denied: Collection[str] = ()
    ) -> Worked[Given[OffsetCommitResponse]]:
        """`denied`: topics that the client has no right to."""
        if elements_in(request.topics, attrgetter("partitions"), ELEMENTS_PER_SLICE) > ELEMENTS_PER_SLICE:
            return self._commit_in_parts(request, api_version, denied)
        known, refused = split_commit(request, self._topics, by_id=api_version >= TOPIC_ID_VERSION, denied=denied)
        if not known:
            return OffsetCommitResponse(topics=refused)
        answer = self._commit(with_topics(request, known), api_version)
        return then(answer, lambda response: merge_commits(refused, response)) if refused else answer

    def _commit(self, request: OffsetCommitRequest, api_version: int) -> Given[OffsetCommitResponse]:
        caller = WaitingCaller(lambda error: refused_commit(request, error), api_version=api_version)
        return self._shards.submit(request.group_id, request, caller)

    async def _commit_in_parts(
        self, request: OffsetCommitRequest, api_version: int, denied: Collection[str]
    ) -> OffsetCommitResponse:
        merged = MergedCommits()
        for part in commits_of(request, ELEMENTS_PER_SLICE):
            response = await finished(self.offset_commit(part, api_version=api_version, denied=denied))
            merged.add(response.topics)
            await trio.lowlevel.checkpoint()
        return merged.response()

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
        """True if the groups of which all offsets are asked for have more than may be given at once."""
        count = 0
        for group in groups:
            if group.topics is None:
                with suppress(KafkaError):  # which is the answer, and a short one
                    count += self._shards.read(group.group_id, CountOffsets(group.group_id))
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
        """Add all offsets of a group, which are those of one moment."""
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
        """An `OffsetsSnapshot`, or the answer that refuses it."""
        request = SnapshotOffsets(group, require_stable=require_stable)

        def refuse(error: ErrorCode) -> OffsetFetchResponseGroup:
            return refused_fetch(group, error, api_version)

        if require_stable:
            return self._shards.submit(group.group_id, request, WaitingCaller(refuse))
        try:
            return self._shards.read(group.group_id, request)
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
        """Offsets that must be stable wait for the commits that are on their way."""
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
            answer = self._shards.submit(group.group_id, FetchStableOffsets(group), WaitingCaller(refuse))
            return then(answer, finish)
        try:
            return finish(self._shards.read(group.group_id, group))
        except KafkaError as error:
            return refuse(error.code)

    def offset_delete(
        self, request: OffsetDeleteRequest, denied: Collection[str] = ()
    ) -> Worked[Given[OffsetDeleteResponse]]:
        """`denied`: topics that the client has no right to."""
        if elements_in(request.topics, attrgetter("partitions"), ELEMENTS_PER_SLICE) > ELEMENTS_PER_SLICE:
            return self._delete_offsets_in_parts(request, denied)
        known, refused = split_deletion(request, self._topics, denied)

        def refuse(error: ErrorCode) -> OffsetDeleteResponse:
            return OffsetDeleteResponse(error_code=error, topics=[])

        if not request.group_id:
            return refuse(ErrorCode.INVALID_GROUP_ID)
        answer = self._shards.submit(request.group_id, known, WaitingCaller(refuse))
        return then(answer, lambda response: merge_deletions(refused, response)) if refused else answer

    async def _delete_offsets_in_parts(
        self, request: OffsetDeleteRequest, denied: Collection[str]
    ) -> OffsetDeleteResponse:
        """An error of the whole request stands alone."""
        merged = MergedDeletions()
        for part in deletions_of(request, ELEMENTS_PER_SLICE):
            response = await finished(self.offset_delete(part, denied))
            if response.error_code:
                return response
            merged.add(response.topics)
            await trio.lowlevel.checkpoint()
        return merged.response()

    async def on_topics_deleted(self, topics: Mapping[str, bytes]) -> None:
        """Forget the offsets of deleted topics: name -> topic id. Where that is refused it goes on in the background."""
        await self._forgetter.forget(topics)


def _hide(response: OffsetFetchResponseGroup, rights: OffsetRights) -> None:
    """Say nothing of topics that the client may not see."""
    denied = rights.denied([topic.name for topic in response.topics])
    if denied:
        response.topics = [topic for topic in response.topics if topic.name not in denied]


def _is_much(groups: list[OffsetFetchRequestGroup]) -> bool:
    """True if there is more to do than may be done at once."""
    if len(groups) > ELEMENTS_PER_SLICE:
        return True
    return sum(map(_work_of, groups)) > ELEMENTS_PER_SLICE


def _work_of(group: OffsetFetchRequestGroup) -> int:
    """Cost of the fetch for one group in elements, its name included; counted only up to what one slice takes."""
    elements = elements_in(group.topics or (), PARTITION_INDEXES, ELEMENTS_PER_SLICE)
    return 1 + len(group.group_id) // NAME_CHARACTERS_PER_ELEMENT + elements


async def fetch_response_in_slices(groups: list[OffsetFetchResponseGroup], api_version: int) -> OffsetFetchResponse:
    """`fetch_response` of a long answer, giving way between its topics; a topic of many partitions comes in pieces."""
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
