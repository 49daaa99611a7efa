"""The requests of share groups: members, descriptions, offsets; and what the share coordinator is asked for them.

A shard writes down what it wants of the share coordinator, and says so in its answer. This asks, when that is committed, and
tells the shard what came of it. Members do not wait for that: they hear of their partitions with a later heartbeat.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from typing import Any

import trio

from ottla.groupcoord.effects import NAMED_MAX
from ottla.groupcoord.group_shards import GroupShards
from ottla.groupcoord.modern.describing import Descriptions
from ottla.groupcoord.modern.group import JOIN_EPOCH, LEAVE_EPOCH
from ottla.groupcoord.runtime.answers import WaitingCaller, finished
from ottla.groupcoord.runtime.coordinator_runtime import TopicForgetter
from ottla.groupcoord.share.describing import undescribed
from ottla.groupcoord.share.heartbeat import Heartbeaten
from ottla.groupcoord.share.offset_service import EndOffsets, ShareOffsets, SharePersister
from ottla.groupcoord.share.part import refused_alteration, refused_deletion, refused_heartbeat
from ottla.groupcoord.share.requests import (
    AlteredOffsets,
    BegunDeletion,
    ConfirmDeletion,
    ConfirmPartitions,
    DescribeShareGroup,
    ForgetShareTopics,
    GiveUpPartitions,
    IsShareGroup,
    PreparedDeletion,
    PrepareDeletion,
)
from ottla.groupcoord.topic_images import TopicImages
from ottla.wire.answers import Given, Worked
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
)
from ottla.wire.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponseTopic,
)
from ottla.wire.messages.delete_share_group_state import DeleteShareGroupStateRequest
from ottla.wire.messages.initialize_share_group_state import InitializeShareGroupStateRequest
from ottla.wire.messages.share_group_describe import ShareGroupDescribeRequest, ShareGroupDescribeResponse
from ottla.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from ottla.wire.settings import trimmed

logger = logging.getLogger("ottla.groupcoord")

TOO_MANY = f"A request may name {NAMED_MAX} topics and partitions."
MEMBER_ID_LENGTH_MAX = 36  # that of a UUID

FENCED = ErrorCode.FENCED_STATE_EPOCH

Errors = dict[tuple[bytes, int], ErrorCode]
"""By topic id and partition, what the share coordinator has refused."""


class _Heartbeat(WaitingCaller[ShareGroupHeartbeatResponse]):
    """A member's heartbeat. What it has made necessary begins when it is committed, whether or not the member waits."""

    __slots__ = ("_initialize",)

    def __init__(
        self, initialize: Callable[[InitializeShareGroupStateRequest], None], *, client_id: str, client_host: str
    ) -> None:
        super().__init__(refused_heartbeat, client_id=client_id, client_host=client_host)
        self._initialize = initialize

    def answer(self, response: Any) -> None:
        if isinstance(response, Heartbeaten):
            if response.to_initialize is not None and self.response is None:
                self._initialize(response.to_initialize)
            response = response.response
        super().answer(response)


class ShareService:
    """See the module's docstring."""

    def __init__(self, shards: GroupShards, images: TopicImages, persister: SharePersister, ends: EndOffsets) -> None:
        self._shards = shards
        self._descriptions = Descriptions(shards, DescribeShareGroup, undescribed)
        self._persister = persister
        self._forgetting = TopicForgetter(shards.runtime, ForgetShareTopics)
        self.offsets = ShareOffsets(shards, images, persister, ends)

    # ------------------------------------------------------------------ members

    def heartbeat(
        self, request: ShareGroupHeartbeatRequest, *, client_id: str, client_host: str
    ) -> Given[ShareGroupHeartbeatResponse]:
        # Of an id that cannot be one, Kafka's answer says nothing more.
        has_id = 0 < len(request.member_id) <= MEMBER_ID_LENGTH_MAX
        problem = _problem_of(request) if has_id else None
        if problem is not None or not has_id:
            return refused_heartbeat(ErrorCode.INVALID_REQUEST, problem)
        caller = _Heartbeat(self._begin_initialization, client_id=client_id, client_host=client_host)
        return self._shards.submit(request.group_id, request, caller)

    def describe(
        self, request: ShareGroupDescribeRequest, *, operations: Callable[[str], int]
    ) -> Worked[Given[ShareGroupDescribeResponse]]:
        """`operations` tells what may be done with a group."""
        return self._descriptions.of(
            request.group_ids,
            lambda groups: ShareGroupDescribeResponse(groups=groups),
            operations=operations if request.include_authorized_operations else None,
        )

    # ------------------------------------------------------------------ initialization

    def _begin_initialization(self, request: InitializeShareGroupStateRequest) -> None:
        self._shards.runtime.spawn(self._initialize, request)

    async def _initialize(self, request: InitializeShareGroupStateRequest) -> None:
        """Let the share coordinators take up partitions, and the shard know how that went."""
        response = await self._persister.initialize(request)
        errors = _errors_in(response.results)
        for error in set(errors.values()):
            logger.warning("partitions of share group %s are not initialized: %s", request.group_id, error.name)
        # There may be ten thousand of them.
        await trio.lowlevel.checkpoint()
        taken_up = _partitions_in(response.results, lambda key: key not in errors)
        # Whoever is fenced was overtaken: somebody begins the same partitions at a later epoch, and answers for them.
        given_up = _partitions_in(response.results, lambda key: errors.get(key, FENCED) is not FENCED)
        if given_up:
            await self._tell(request.group_id, GiveUpPartitions(request.group_id, given_up))
        if taken_up and await self._tell(request.group_id, ConfirmPartitions(request.group_id, taken_up)):
            await self._tell(request.group_id, GiveUpPartitions(request.group_id, taken_up))

    async def _tell(self, group_id: str, news: Any) -> ErrorCode:
        """Tell the shard what came of it. A shard that cannot write it down asks again, or the next coordinator does."""
        error: ErrorCode = await finished(self._shards.submit(group_id, news, WaitingCaller(lambda error: error)))
        return error

    # ------------------------------------------------------------------ offsets

    async def alter_offsets(self, request: AlterShareGroupOffsetsRequest) -> AlterShareGroupOffsetsResponse:
        """Set where share partitions start. What the share coordinator refuses is begun again by the next members.

        They begin again what nobody has confirmed, so what was set counts only when that is written down.
        """
        if not request.group_id:
            return refused_alteration(ErrorCode.INVALID_GROUP_ID)
        if sum([1 + len(topic.partitions) for topic in request.topics]) > NAMED_MAX:
            return refused_alteration(ErrorCode.INVALID_REQUEST, TOO_MANY)
        caller = WaitingCaller(lambda error: AlteredOffsets(refused_alteration(error)))
        altered = await finished(self._shards.submit(request.group_id, request, caller))
        response, to_initialize = altered
        if to_initialize is None:
            return response
        results = (await self._persister.initialize(to_initialize)).results
        errors = _errors_in(results)
        for topic in response.responses:
            for partition in topic.partitions:
                error = errors.get((topic.topic_id, partition.partition_index))
                if error is not None and not partition.error_code:
                    partition.error_code, partition.error_message = error, error.message
        partitions = _partitions_in(results, lambda key: key not in errors)
        if partitions:
            refused = await self._tell(request.group_id, ConfirmPartitions(request.group_id, partitions))
            if refused:
                return refused_alteration(refused)
        return response

    async def delete_offsets(self, request: DeleteShareGroupOffsetsRequest) -> DeleteShareGroupOffsetsResponse:
        """Forget the offsets of topics, first at the share coordinator."""
        if not request.group_id:
            return refused_deletion(ErrorCode.INVALID_GROUP_ID)
        if len(request.topics) > NAMED_MAX:
            return refused_deletion(ErrorCode.INVALID_REQUEST, TOO_MANY)
        caller = WaitingCaller(lambda error: BegunDeletion(refused_deletion(error)))
        begun = await finished(self._shards.submit(request.group_id, request, caller))
        response, doomed, to_delete = begun
        if to_delete is None:
            return response
        errors = await self._delete(to_delete)
        deleted = [topic_id for topic_id in doomed if topic_id not in errors]
        if deleted and (error := await self._tell(request.group_id, ConfirmDeletion(request.group_id, deleted))):
            return refused_deletion(error)
        refused = [_deleted(doomed[each], each, error) for each, error in errors.items()]
        response.responses = [*[_deleted(doomed[each], each) for each in deleted], *response.responses, *refused]
        return response

    async def _delete(self, request: DeleteShareGroupStateRequest) -> dict[bytes, ErrorCode]:
        """Let the share coordinators forget partitions: why they could not, by topic."""
        response = await self._persister.delete(request)
        errors: dict[bytes, ErrorCode] = {}
        for (topic_id, _), error in _errors_in(response.results).items():
            errors.setdefault(topic_id, error)
        return errors

    # ------------------------------------------------------------------ the end of groups and topics

    def has(self, group_id: str) -> bool:
        """Whether there is a share group of this id. Raises KafkaError if this broker does not coordinate it."""
        found: bool = self._shards.read(group_id, IsShareGroup(group_id))
        return found

    async def prepare_deletion(self, group_id: str) -> ErrorCode:
        """Let the share coordinators forget everything of a group that is to be deleted."""
        caller = WaitingCaller(PreparedDeletion)
        prepared = await finished(self._shards.submit(group_id, PrepareDeletion(group_id), caller))
        error, to_delete = prepared
        if error or to_delete is None:
            return error
        return next(iter((await self._delete(to_delete)).values()), ErrorCode.NONE)

    async def on_topics_deleted(self, topic_ids: Collection[bytes]) -> None:
        """Deleted topics are in no group any more. The share coordinators have noticed themselves."""
        await self._forgetting.forget(topic_ids)


def _problem_of(request: ShareGroupHeartbeatRequest) -> str | None:
    """Why no group at all would take this heartbeat."""
    for name, text in (("MemberId", request.member_id), ("GroupId", request.group_id), ("RackId", request.rack_id)):
        if text is not None and not trimmed(text):
            return f"{name} can't be empty."
    if request.member_epoch == JOIN_EPOCH and not request.subscribed_topic_names:
        return "SubscribedTopicNames must be set in first request."
    if request.member_epoch < LEAVE_EPOCH:
        return "MemberEpoch is invalid."
    if len(request.subscribed_topic_names or ()) > NAMED_MAX:
        return TOO_MANY
    return None


def _errors_in(results: Any) -> Errors:
    return {
        (result.topic_id, each.partition): ErrorCode.of(each.error_code)
        for result in results
        for each in result.partitions
        if each.error_code
    }


def _partitions_in(results: Any, is_meant: Callable[[tuple[bytes, int]], bool]) -> Mapping[bytes, list[int]]:
    found: dict[bytes, list[int]] = {}
    for result in results:
        partitions = [each.partition for each in result.partitions if is_meant((result.topic_id, each.partition))]
        if partitions:
            found[result.topic_id] = partitions
    return found


def _deleted(name: str, topic_id: bytes, error: ErrorCode = ErrorCode.NONE) -> DeleteShareGroupOffsetsResponseTopic:
    return DeleteShareGroupOffsetsResponseTopic(
        topic_name=name, topic_id=topic_id, error_code=error, error_message=error.message if error else None
    )
