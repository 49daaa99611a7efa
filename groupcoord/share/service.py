"""The requests about share groups, and the requests that they cause at the share coordinator.

A shard records what it needs of the share coordinator and returns it with its response. When that is committed, this service
sends the request and reports the outcome to the shard. Members do not wait for it: they get their partitions with a later
heartbeat.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any

import trio

from ottla.groupcoord.effects import NAMED_MAX
from ottla.groupcoord.modern.describing import Descriptions
from ottla.groupcoord.modern.group import JOIN_EPOCH, LEAVE_EPOCH
from ottla.groupcoord.runtime.answers import Caller, finished
from ottla.groupcoord.runtime.coordinator_runtime import TopicForgetter
from ottla.groupcoord.shard import GroupRuntime
from ottla.groupcoord.share.heartbeat import HeartbeatResult
from ottla.groupcoord.share.manager import refused_alteration, refused_deletion, refused_heartbeat, undescribed
from ottla.groupcoord.share.offset_service import EndOffsets, ShareOffsets, SharePersister
from ottla.groupcoord.share.offsets import (
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
from ottla.wire.messages.share_group import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponseTopic,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)
from ottla.wire.messages.share_group_state import DeleteShareGroupStateRequest, InitializeShareGroupStateRequest
from ottla.wire.settings import trimmed

logger = logging.getLogger("ottla.groupcoord")

TOO_MANY = f"A request may name {NAMED_MAX} topics and partitions."
MEMBER_ID_LENGTH_MAX = 36  # that of a UUID

FENCED = ErrorCode.FENCED_STATE_EPOCH

Errors = dict[tuple[bytes, int], ErrorCode]
"""Errors of the share coordinator, by topic id and partition."""


class _Heartbeat(Caller):
    """Caller of a heartbeat. At the commit partitions are initialized, even if the client has disconnected."""

    __slots__ = ("_initialize",)

    def __init__(
        self, initialize: Callable[[InitializeShareGroupStateRequest], None], *, client_id: str, client_host: str
    ) -> None:
        super().__init__(refused_heartbeat, client_id=client_id, client_host=client_host)
        self._initialize = initialize

    def answer(self, response: Any) -> None:
        if isinstance(response, HeartbeatResult):
            if response.to_initialize is not None and self.response is None:
                self._initialize(response.to_initialize)
            response = response.response
        super().answer(response)


class ShareService:
    """Handler of share groups' heartbeats, descriptions and offsets."""

    def __init__(self, runtime: GroupRuntime, images: TopicImages, persister: SharePersister, ends: EndOffsets) -> None:
        self._runtime = runtime
        self._descriptions = Descriptions(runtime, DescribeShareGroup, undescribed)
        self._persister = persister
        self._forgetting = TopicForgetter(runtime, ForgetShareTopics)
        self.offsets = ShareOffsets(runtime, images, persister, ends)

    # ------------------------------------------------------------------ members

    def heartbeat(
        self, request: ShareGroupHeartbeatRequest, *, client_id: str, client_host: str
    ) -> Given[ShareGroupHeartbeatResponse]:
        # For an invalid member id Kafka's answer has no message.
        has_id = 0 < len(request.member_id) <= MEMBER_ID_LENGTH_MAX
        problem = _problem_of(request) if has_id else None
        if problem is not None or not has_id:
            return refused_heartbeat(ErrorCode.INVALID_REQUEST, problem)
        caller = _Heartbeat(
            partial(self._runtime.spawn, self._initialize), client_id=client_id, client_host=client_host
        )
        return self._runtime.submit(request.group_id, request, caller)

    def describe(
        self, request: ShareGroupDescribeRequest, *, operations: Callable[[str], int]
    ) -> Worked[Given[ShareGroupDescribeResponse]]:
        """Describe groups. `operations` returns the client's authorized operations on a group."""
        return self._descriptions.of(
            request.group_ids,
            lambda groups: ShareGroupDescribeResponse(groups=groups),
            operations=operations if request.include_authorized_operations else None,
        )

    # ------------------------------------------------------------------ initialization

    async def _initialize(self, request: InitializeShareGroupStateRequest) -> None:
        """Initialize partitions at the share coordinators, and report the results to the group's shard."""
        response = await self._persister.initialize(request)
        errors = _errors_in(response.results)
        for error in set(errors.values()):
            logger.warning("partitions of share group %s are not initialized: %s", request.group_id, error.name)
        # There may be 10,000 results.
        await trio.lowlevel.checkpoint()
        taken_up = _partitions_in(response.results, lambda key: key not in errors)
        # A fenced request was overtaken: another one initializes the same partitions at a later epoch, and reports on them.
        given_up = _partitions_in(response.results, lambda key: errors.get(key, FENCED) is not FENCED)
        if given_up:
            await self._report(request.group_id, GiveUpPartitions(request.group_id, given_up))
        if taken_up and await self._report(request.group_id, ConfirmPartitions(request.group_id, taken_up)):
            await self._report(request.group_id, GiveUpPartitions(request.group_id, taken_up))

    async def _report(self, group_id: str, report: Any) -> ErrorCode:
        """Report to the group's shard. Return NONE or the log's error, after which the request is repeated later."""
        error: ErrorCode = await finished(self._runtime.submit(group_id, report, Caller(lambda error: error)))
        return error

    # ------------------------------------------------------------------ offsets

    async def alter_offsets(self, request: AlterShareGroupOffsetsRequest) -> AlterShareGroupOffsetsResponse:
        """Handle AlterShareGroupOffsets: set the start offsets of share partitions.

        An offset takes effect when its success is recorded. Until then heartbeats initialize the partition again.
        """
        if not request.group_id:
            return refused_alteration(ErrorCode.INVALID_GROUP_ID)
        if sum([1 + len(topic.partitions) for topic in request.topics]) > NAMED_MAX:
            return refused_alteration(ErrorCode.INVALID_REQUEST, TOO_MANY)
        caller = Caller(lambda error: AlteredOffsets(refused_alteration(error)))
        altered: AlteredOffsets = await finished(self._runtime.submit(request.group_id, request, caller))
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
            refused = await self._report(request.group_id, ConfirmPartitions(request.group_id, partitions))
            if refused:
                return refused_alteration(refused)
        return response

    async def delete_offsets(self, request: DeleteShareGroupOffsetsRequest) -> DeleteShareGroupOffsetsResponse:
        """Handle DeleteShareGroupOffsets: delete topics' offsets at the share coordinator, then in the group."""
        if not request.group_id:
            return refused_deletion(ErrorCode.INVALID_GROUP_ID)
        if len(request.topics) > NAMED_MAX:
            return refused_deletion(ErrorCode.INVALID_REQUEST, TOO_MANY)
        caller = Caller(lambda error: BegunDeletion(refused_deletion(error)))
        begun: BegunDeletion = await finished(self._runtime.submit(request.group_id, request, caller))
        response, doomed, to_delete = begun
        if to_delete is None:
            return response
        errors = await self._delete(to_delete)
        deleted = [topic_id for topic_id in doomed if topic_id not in errors]
        if deleted and (error := await self._report(request.group_id, ConfirmDeletion(request.group_id, deleted))):
            return refused_deletion(error)
        refused = [_deleted(doomed[each], each, error) for each, error in errors.items()]
        response.responses = [*[_deleted(doomed[each], each) for each in deleted], *response.responses, *refused]
        return response

    async def _delete(self, request: DeleteShareGroupStateRequest) -> dict[bytes, ErrorCode]:
        """Delete state at the share coordinators. Return the error of each topic that failed."""
        response = await self._persister.delete(request)
        errors: dict[bytes, ErrorCode] = {}
        for (topic_id, _), error in _errors_in(response.results).items():
            errors.setdefault(topic_id, error)
        return errors

    # ------------------------------------------------------------------ the end of groups and topics

    def has(self, group_id: str) -> bool:
        """Tell whether a share group has this id. Raises KafkaError if this broker does not coordinate the group."""
        found: bool = self._runtime.read(group_id, IsShareGroup(group_id))
        return found

    async def prepare_deletion(self, group_id: str) -> ErrorCode:
        """Delete a group's state at the share coordinators, before the group is deleted. Return an error or NONE."""
        caller = Caller(PreparedDeletion)
        prepared: PreparedDeletion = await finished(self._runtime.submit(group_id, PrepareDeletion(group_id), caller))
        error, to_delete = prepared
        if error or to_delete is None:
            return error
        return next(iter((await self._delete(to_delete)).values()), ErrorCode.NONE)

    async def on_topics_deleted(self, topic_ids: Collection[bytes]) -> None:
        """Remove deleted topics from all groups. Share coordinators remove the topics' state by themselves."""
        await self._forgetting.forget(topic_ids)


def _problem_of(request: ShareGroupHeartbeatRequest) -> str | None:
    """Return the error message for a heartbeat that is invalid in every group; None if there is no such error."""
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


def _partitions_in(results: Any, is_wanted: Callable[[tuple[bytes, int]], bool]) -> Mapping[bytes, list[int]]:
    found: dict[bytes, list[int]] = {}
    for result in results:
        partitions = [each.partition for each in result.partitions if is_wanted((result.topic_id, each.partition))]
        if partitions:
            found[result.topic_id] = partitions
    return found


def _deleted(name: str, topic_id: bytes, error: ErrorCode = ErrorCode.NONE) -> DeleteShareGroupOffsetsResponseTopic:
    return DeleteShareGroupOffsetsResponseTopic(
        topic_name=name, topic_id=topic_id, error_code=error, error_message=error.message if error else None
    )
