"""The group coordinator: Kafka's group and offset requests, each taken to the shard of its group.

Methods take the wire request and return the wire response, or a `PendingAnswer` where others must be waited for: the
other members, or a commit. A coroutine works off a request about very many things, part by part. Heartbeats and plain
fetches of offsets never wait. Checks that need no group come here, before the question whether this broker is the coordinator at all, as in Kafka's GroupCoordinatorService.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextlib import suppress
from functools import partial
from itertools import chain
from operator import attrgetter
from typing import Any, TypeVar

import trio

from ottla.groupcoord.config import GroupConfig
from ottla.groupcoord.groups.classic.java_hashing import absolute_string_hash
from ottla.groupcoord.groups.classic.rebalancing import TEXT_LENGTH_MAX, refused_join, refused_sync
from ottla.groupcoord.groups.offsets import refused_commit
from ottla.groupcoord.groups.records import decode_record, encode_records
from ottla.groupcoord.groups.shard import (
    FORGETTING_REFUSED,
    DeleteGroup,
    FetchStableOffsets,
    ForgetTopics,
    Request,
    Shard,
    in_listing,
    undescribed,
)
from ottla.groupcoord.groups.topics import (
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
    refused_fetch,
    split_commit,
    split_deletion,
    with_topics,
)
from ottla.groupcoord.runtime.answers import finished, gathered, then
from ottla.groupcoord.runtime.callers import WaitingCaller
from ottla.groupcoord.runtime.coordinator_runtime import Runtime, wall_clock_ms
from ottla.groupcoord.runtime.partition_runtime import PartitionRuntime
from ottla.groupcoord.runtime.ports import CoordinatorLog, ShardKind
from ottla.wire.answers import Given, Worked
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from ottla.wire.messages.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse
from ottla.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from ottla.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from ottla.wire.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from ottla.wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from ottla.wire.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from ottla.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from ottla.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse

ELEMENTS_PER_TURN = 500
"""A request about more topics, partitions and members than this is taken in parts."""

NAME_CHARACTERS_PER_ELEMENT = 64
"""Hashing so much of a name takes as long as looking up an offset."""

OVERLAPPING = (OffsetCommitRequest, JoinGroupRequest, SyncGroupRequest, LeaveGroupRequest)
PARTITION_INDEXES = attrgetter("partition_indexes")
GROUPS_PER_TURN = 4  # their names may be very long
FORGETTING_RETRY_S = 1.0

T = TypeVar("T")


class GroupCoordinator:
    """The classic groups of this broker and their committed offsets."""

    def __init__(
        self,
        config: GroupConfig,
        log: CoordinatorLog,
        topics: Topics,
        *,
        make_uuid: Callable[[], str] | None = None,
        wall_clock: Callable[[], int] = wall_clock_ms,
    ) -> None:
        self._config = config
        self._log = log
        self._topics = topics
        self._to_forget: dict[
            PartitionRuntime[Shard], deque[Mapping[str, bytes]]
        ] = {}  # deleted topics, until that is possible
        kind = ShardKind(
            topic="the offsets topic",
            make=partial(Shard, config, make_uuid=make_uuid or random_uuid),
            encode=encode_records,
            decode=decode_record,
            # These look at members alone. All others look at offsets, or end groups.
            may_overlap=lambda request: type(request) in OVERLAPPING,
            # A commit changes no member either, so several may go into one append.
            may_share_append=lambda request: type(request) is OffsetCommitRequest,
        )
        self._runtime = Runtime(kind, log, wall_clock_ms=wall_clock)

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Load, expire and commit until cancelled. Before and after, requests get COORDINATOR_NOT_AVAILABLE."""
        await self._runtime.run(task_status)

    def on_election(self, partition: int) -> None:
        """This broker leads a partition of the offsets topic from now on."""
        self._runtime.on_election(partition)

    def on_resignation(self, partition: int) -> None:
        """This broker no longer leads a partition of the offsets topic."""
        self._runtime.on_resignation(partition)

    def partition_for(self, group_id: str) -> int:
        """The partition of the offsets topic whose leader coordinates the group."""
        # Kafka's own formula, because brokers of both makes in one cluster have to agree on the coordinator.
        return absolute_string_hash(group_id) % self._log.partition_count()

    # ------------------------------------------------------------------ membership

    def join_group(
        self, request: JoinGroupRequest, *, api_version: int, client_id: str, client_host: str
    ) -> Given[JoinGroupResponse]:
        config = self._config

        def refuse(error: ErrorCode) -> JoinGroupResponse:
            return refused_join(request.member_id, error, api_version)

        if not 0 < len(request.group_id) <= TEXT_LENGTH_MAX:
            return refuse(ErrorCode.INVALID_GROUP_ID)
        timeout_ms = request.session_timeout_ms
        if not config.group_min_session_timeout_ms <= timeout_ms <= config.group_max_session_timeout_ms:
            return refuse(ErrorCode.INVALID_SESSION_TIMEOUT)
        # A join waits for other members, often for long. It is given up when its connection is gone.
        caller = WaitingCaller(
            refuse, api_version=api_version, client_id=client_id, client_host=client_host, is_abandonable=True
        )
        return self._submit(request.group_id, request, caller)

    def sync_group(self, request: SyncGroupRequest, *, api_version: int) -> Given[SyncGroupResponse]:
        """Since version 5 the protocol's type and name are mandatory."""
        if api_version >= 5 and (request.protocol_type is None or request.protocol_name is None):
            return refused_sync(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if not request.group_id:
            return refused_sync(ErrorCode.INVALID_GROUP_ID)
        caller = WaitingCaller(refused_sync, api_version=api_version, is_abandonable=True)
        return self._submit(request.group_id, request, caller)

    def heartbeat(self, request: HeartbeatRequest) -> HeartbeatResponse:
        """While the group is being loaded, every heartbeat is good: nobody can tell yet."""
        if not request.group_id:
            return HeartbeatResponse(error_code=ErrorCode.INVALID_GROUP_ID)
        now_ms = self._runtime.now_ms()
        try:
            error = self._partition_of(request.group_id).shard(now_ms).heartbeat(request, now_ms=now_ms)
        except KafkaError as refusal:
            error = refusal.code
        if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            error = ErrorCode.NONE
        return HeartbeatResponse(error_code=error)

    def leave_group(self, request: LeaveGroupRequest, *, api_version: int) -> Worked[Given[LeaveGroupResponse]]:
        """Before version 3 one member leaves, and its error is that of the whole answer."""
        if api_version < 3:
            # The older form is turned into the newer one, so that the shard knows only one.
            request.members = [MemberIdentity(member_id=request.member_id)]
        if len(request.members) > ELEMENTS_PER_TURN:
            return self._leave_in_parts(request, api_version)

        def refuse(error: ErrorCode) -> LeaveGroupResponse:
            return LeaveGroupResponse(error_code=error)

        def finish(response: LeaveGroupResponse) -> LeaveGroupResponse:
            if api_version >= 3 or response.error_code:
                return response
            return LeaveGroupResponse(error_code=response.members[0].error_code)

        if not request.group_id:
            return refuse(ErrorCode.INVALID_GROUP_ID)
        return then(self._submit(request.group_id, request, WaitingCaller(refuse)), finish)

    async def _leave_in_parts(self, request: LeaveGroupRequest, api_version: int) -> LeaveGroupResponse:
        whole = LeaveGroupResponse(error_code=ErrorCode.NONE, members=[])
        for start in range(0, len(request.members), ELEMENTS_PER_TURN):
            members = request.members[start : start + ELEMENTS_PER_TURN]
            part = LeaveGroupRequest(group_id=request.group_id, members=members)
            response: LeaveGroupResponse = await finished(self.leave_group(part, api_version=api_version))
            if response.error_code:
                return response
            whole.members += response.members
            await trio.lowlevel.checkpoint()
        return whole

    # ------------------------------------------------------------------ offsets

    def offset_commit(self, request: OffsetCommitRequest, *, api_version: int) -> Worked[Given[OffsetCommitResponse]]:
        if elements_in(request.topics, attrgetter("partitions"), ELEMENTS_PER_TURN) > ELEMENTS_PER_TURN:
            return self._commit_in_parts(request, api_version)
        known, refused = split_commit(request, self._topics, api_version)
        if not known:
            return OffsetCommitResponse(topics=refused)
        answer = self._commit(with_topics(request, known), api_version)
        return then(answer, lambda response: merge_commits(refused, response)) if refused else answer

    def _commit(self, request: OffsetCommitRequest, api_version: int) -> Given[OffsetCommitResponse]:
        caller = WaitingCaller(lambda error: refused_commit(request, error), api_version=api_version)
        return self._submit(request.group_id, request, caller)

    async def _commit_in_parts(self, request: OffsetCommitRequest, api_version: int) -> OffsetCommitResponse:
        merged = MergedCommits()
        for part in commits_of(request, ELEMENTS_PER_TURN):
            response = await finished(self.offset_commit(part, api_version=api_version))
            merged.add(response.topics)
            await trio.lowlevel.checkpoint()
        return merged.response()

    def offset_fetch(
        self, request: OffsetFetchRequest, *, api_version: int
    ) -> Given[OffsetFetchResponse] | Coroutine[Any, Any, OffsetFetchResponse]:
        groups = fetches_of(request, api_version)
        is_stable = request.require_stable
        if _is_much(groups) or self._holds_much(groups):
            return self._fetch_in_parts(groups, api_version, require_stable=is_stable)
        answers = [self._fetch(group, api_version, require_stable=is_stable) for group in groups]
        return gathered(answers, lambda groups: fetch_response(groups, api_version))

    def _holds_much(self, groups: list[OffsetFetchRequestGroup]) -> bool:
        """Whether the groups of which all offsets are asked for have more than may be given at once."""
        count = 0
        for group in groups:
            if group.topics is None:
                with suppress(KafkaError):  # which is the answer, and a short one
                    count += self._shard_of(group.group_id).offset_count(group.group_id)
        return count > ELEMENTS_PER_TURN

    async def _fetch_in_parts(
        self, groups: list[OffsetFetchRequestGroup], api_version: int, *, require_stable: bool
    ) -> OffsetFetchResponse:
        answers, since_turn = [], 0
        for group in groups:
            parts = [group] if not group.topics else parts_of_fetch(group, ELEMENTS_PER_TURN)
            answer = OffsetFetchResponseGroup(group_id=group.group_id, topics=[], error_code=ErrorCode.NONE)
            for part in parts:
                # Before the shard is asked nobody knows how many these are, so they count as a whole turn.
                since_turn += ELEMENTS_PER_TURN if part.topics is None else _work_of(part)
                fetched = await finished(self._fetch(part, api_version, require_stable=require_stable))
                add_fetched(answer, fetched)
                if since_turn >= ELEMENTS_PER_TURN // 2:
                    await trio.lowlevel.checkpoint()
                    since_turn = 0
                # The error is that of the group, so the other parts could not say more.
                if answer.error_code:
                    break
            answers.append(answer)
        return await fetch_response_in_turns(answers, api_version)

    def _fetch(
        self, group: OffsetFetchRequestGroup, api_version: int, *, require_stable: bool
    ) -> Given[OffsetFetchResponseGroup]:
        """Offsets that must be stable wait for the commits that are on their way."""
        by_id = api_version >= TOPIC_ID_VERSION
        unknown = name_fetched_topics(group, self._topics) if by_id else []

        def finish(response: OffsetFetchResponseGroup) -> OffsetFetchResponseGroup:
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
            answer = self._submit(group.group_id, FetchStableOffsets(group), WaitingCaller(refuse))
            return then(answer, finish)
        try:
            return finish(self._shard_of(group.group_id).fetch_offsets(group))
        except KafkaError as error:
            return refuse(error.code)

    def offset_delete(self, request: OffsetDeleteRequest) -> Worked[Given[OffsetDeleteResponse]]:
        if elements_in(request.topics, attrgetter("partitions"), ELEMENTS_PER_TURN) > ELEMENTS_PER_TURN:
            return self._delete_offsets_in_parts(request)
        known, refused = split_deletion(request, self._topics)

        def refuse(error: ErrorCode) -> OffsetDeleteResponse:
            return OffsetDeleteResponse(error_code=error, topics=[])

        if not request.group_id:
            return refuse(ErrorCode.INVALID_GROUP_ID)
        answer = self._submit(request.group_id, known, WaitingCaller(refuse))
        return then(answer, lambda response: merge_deletions(refused, response)) if refused else answer

    async def _delete_offsets_in_parts(self, request: OffsetDeleteRequest) -> OffsetDeleteResponse:
        """An error of the whole request stands alone."""
        merged = MergedDeletions()
        for part in deletions_of(request, ELEMENTS_PER_TURN):
            response = await finished(self.offset_delete(part))
            if response.error_code:
                return response
            merged.add(response.topics)
            await trio.lowlevel.checkpoint()
        return merged.response()

    async def on_topics_deleted(self, topics: Mapping[str, bytes]) -> None:
        """Forget the offsets of deleted topics: name -> topic id. Where that is refused it goes on in the background."""
        for partition in self._runtime.partitions():
            if not await self._forget(topics, partition):
                waiting = self._to_forget.setdefault(partition, deque())
                waiting.append(topics)
                # One task for each partition, however many topics are deleted while the log refuses.
                if len(waiting) == 1:
                    self._runtime.spawn(self._forget_persistently, partition)

    async def _forget(self, topics: Mapping[str, bytes], partition: PartitionRuntime[Shard]) -> bool:
        """Whether no offset of these topics is left in a partition."""
        caller = WaitingCaller(lambda error: FORGETTING_REFUSED)
        count: int = await finished(partition.submit(ForgetTopics(topics), caller))
        while count > 0:
            await trio.lowlevel.checkpoint()
            caller = WaitingCaller(lambda error: FORGETTING_REFUSED)
            count = await finished(partition.submit(ForgetTopics(topics), caller))
        return count != FORGETTING_REFUSED

    async def _forget_persistently(self, partition: PartitionRuntime[Shard]) -> None:
        """The log may refuse for a while, or the partition may not be loaded yet."""
        waiting = self._to_forget[partition]
        try:
            while waiting and self._runtime.leads(partition):
                if await self._forget(waiting[0], partition):
                    waiting.popleft()
                else:
                    await trio.sleep(FORGETTING_RETRY_S)
        finally:
            del self._to_forget[partition]

    # ------------------------------------------------------------------ administration

    def describe_groups(self, request: DescribeGroupsRequest, *, api_version: int) -> DescribeGroupsResponse:
        """Each group once, however often it is named."""
        groups = [self._describe(group_id, api_version) for group_id in dict.fromkeys(request.groups)]
        return DescribeGroupsResponse(groups=groups)

    def _describe(self, group_id: str, api_version: int) -> DescribedGroup:
        try:
            return self._shard_of(group_id).describe(group_id, api_version)
        except KafkaError as error:
            return undescribed(group_id, error.code)

    def list_groups(self, request: ListGroupsRequest) -> Worked[ListGroupsResponse]:
        """The groups of all partitions that this broker coordinates, or an error while some are being loaded."""
        try:
            self._check_running()
            now_ms = self._runtime.now_ms()
            # A partition that could not be loaded must not keep the groups of all others from being listed.
            led = [each for each in self._runtime.partitions() if each.absent is not ErrorCode.NOT_COORDINATOR]
            shards = [partition.shard(now_ms) for partition in led]
        except KafkaError as error:
            return ListGroupsResponse(error_code=error.code, groups=[])
        is_wanted = in_listing(request.states_filter, request.types_filter)
        parts = (part for shard in shards for part in shard.list_groups(is_wanted, at_once=ELEMENTS_PER_TURN))
        if sum([shard.group_count for shard in shards]) > ELEMENTS_PER_TURN:
            return self._list_in_turns(parts)
        return ListGroupsResponse(error_code=ErrorCode.NONE, groups=list(chain.from_iterable(parts)))

    async def _list_in_turns(self, parts: Iterable[list[ListedGroup]]) -> ListGroupsResponse:
        groups: list[ListedGroup] = []
        for part in parts:
            groups += part
            await trio.lowlevel.checkpoint()
        return ListGroupsResponse(error_code=ErrorCode.NONE, groups=groups)

    def delete_groups(self, request: DeleteGroupsRequest) -> Worked[Given[DeleteGroupsResponse]]:
        """Each group once, however often it is named."""
        group_ids = list(dict.fromkeys(request.groups_names))
        if len(group_ids) > GROUPS_PER_TURN:
            return self._delete_in_turns(group_ids)
        return gathered([self._delete(group_id) for group_id in group_ids], deletion_response)

    async def _delete_in_turns(self, group_ids: list[str]) -> DeleteGroupsResponse:
        results: list[DeletableGroupResult] = []
        for start in range(0, len(group_ids), GROUPS_PER_TURN):
            # All of them are asked before one is awaited, so that their commits are waited for together.
            answers = [self._delete(group_id) for group_id in group_ids[start : start + GROUPS_PER_TURN]]
            results += await finished(gathered(answers, list))
            await trio.lowlevel.checkpoint()
        return deletion_response(results)

    def _delete(self, group_id: str) -> Given[DeletableGroupResult]:
        caller = WaitingCaller(lambda error: DeletableGroupResult(group_id=group_id, error_code=error))
        return self._submit(group_id, DeleteGroup(group_id), caller)

    # ------------------------------------------------------------------ the way to a shard

    def _check_running(self) -> None:
        if not self._runtime.is_running:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)

    def _partition_of(self, group_id: str) -> PartitionRuntime[Shard]:
        self._check_running()
        partition = self._runtime.partition(self.partition_for(group_id))
        if partition is None or self._runtime.is_suspended:
            # A fenced broker may have been replaced without knowing it, so it says nothing about groups.
            raise KafkaError(ErrorCode.NOT_COORDINATOR)
        return partition

    def _shard_of(self, group_id: str) -> Shard:
        """The shard of a group, for reading now."""
        return self._partition_of(group_id).shard(self._runtime.now_ms())

    def _submit(self, group_id: str, request: Request, caller: WaitingCaller[T]) -> Given[T]:
        try:
            return self._partition_of(group_id).submit(request, caller)
        except KafkaError as error:
            return caller.refuse(error.code)


def _is_much(groups: list[OffsetFetchRequestGroup]) -> bool:
    """Whether there is more to do than may be done at once."""
    if len(groups) > ELEMENTS_PER_TURN:
        return True
    return sum(map(_work_of, groups)) > ELEMENTS_PER_TURN


def _work_of(group: OffsetFetchRequestGroup) -> int:
    """How much there is to do for a group, its name included, as far as it matters for one turn."""
    elements = elements_in(group.topics or (), PARTITION_INDEXES, ELEMENTS_PER_TURN)
    return 1 + len(group.group_id) // NAME_CHARACTERS_PER_ELEMENT + elements


async def fetch_response_in_turns(groups: list[OffsetFetchResponseGroup], api_version: int) -> OffsetFetchResponse:
    """`fetch_response` of a long answer, giving way between its topics; a topic of many partitions comes in pieces."""
    if api_version >= BATCH_VERSION:
        return OffsetFetchResponse(groups=groups)
    (group,) = groups
    topics: list[OffsetFetchResponseTopic] = []
    for part in parts_of(group.topics, attrgetter("partitions"), ELEMENTS_PER_TURN):
        for topic, partitions in part:
            older = older_topic(OffsetFetchResponseTopics(name=topic.name, partitions=list(partitions)))
            # A piece without the topic's first partition goes on with the topic before.
            if partitions and topic.partitions[0] is not partitions[0]:
                topics[-1].partitions += older.partitions
            else:
                topics.append(older)
        await trio.lowlevel.checkpoint()
    return OffsetFetchResponse(topics=topics, error_code=group.error_code)


def deletion_response(results: list[DeletableGroupResult]) -> DeleteGroupsResponse:
    return DeleteGroupsResponse(results=results)


# ---------------------------------------------------------------------- the ids of members


def random_uuid() -> str:
    """A random UUID (version 4) in text form."""
    digits = bytearray(os.urandom(16))
    digits[6] = digits[6] & 0x0F | 0x40
    digits[8] = digits[8] & 0x3F | 0x80
    text = digits.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
