"""Manager of a shard's share groups (KIP-932).

`heartbeat.py` decides about members, `offsets.py` about offsets. A share group is always what its records say.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ottla.groupcoord.causes import note_refused
from ottla.groupcoord.effects import RECORDS_PER_CALL, TEXT_LENGTH_MAX, TimerKey
from ottla.groupcoord.group import WAS_SILENT
from ottla.groupcoord.manager import GroupType, Handler, ShardContext
from ottla.groupcoord.modern.describing import Large, described_partitions, with_members
from ottla.groupcoord.modern.describing import undescribed as undescribed_as
from ottla.groupcoord.modern.group import JOIN_EPOCH, LEAVE_EPOCH
from ottla.groupcoord.modern.manager import ModernGroupManager
from ottla.groupcoord.records import GroupRecord
from ottla.groupcoord.runtime.answers import Caller
from ottla.groupcoord.runtime.coordinator_shard import FORGETTING_REFUSED
from ottla.groupcoord.share.group import GROUP_TYPE, SESSION, Position, ShareGroup
from ottla.groupcoord.share.group import Member as GroupMember
from ottla.groupcoord.share.heartbeat import HeartbeatResult, Heartbeats, ShareAssignmentComputed
from ottla.groupcoord.share.offsets import (
    AlteredOffsets,
    BegunDeletion,
    ConfirmDeletion,
    ConfirmPartitions,
    DescribeShareGroup,
    ForgetShareTopics,
    GiveUpPartitions,
    IsShareGroup,
    OffsetAdministration,
    PreparedDeletion,
    PrepareDeletion,
    ReadInitialized,
)
from ottla.groupcoord.share.records import FORMATS
from ottla.groupcoord.topic_images import TopicImages
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.messages.share_group import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
    DescribedAssignment,
    DescribedGroup,
    DescribedTopicPartitions,
    Member,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)

ASSIGNOR_NAME = "simple"


class ShareGroupManager(ModernGroupManager[ShareGroup]):
    """Manager of a shard's share groups."""

    group_type = GROUP_TYPE
    group_class = ShareGroup

    def __init__(self, context: ShardContext) -> None:
        super().__init__(context)
        self._heartbeats = Heartbeats(context.effects, context.topics)
        self._offsets = OffsetAdministration(context.topics)
        self._nascent: ShareGroup | None = None
        self.requests = {
            ShareGroupHeartbeatRequest: self._heartbeat,
            AlterShareGroupOffsetsRequest: self._alter_offsets,
            DeleteShareGroupOffsetsRequest: self._delete_offsets,
            ConfirmPartitions: self._reported(lambda group, said: self._offsets.confirm(group, said.partitions)),
            GiveUpPartitions: self._reported(lambda group, said: self._offsets.give_up(group, said.partitions)),
            ConfirmDeletion: self._reported(lambda group, said: self._offsets.confirm_deletion(group, said.topic_ids)),
            PrepareDeletion: self._prepare_deletion,
            ForgetShareTopics: self._forget_topics,
            DescribeShareGroup: self._describe,
            ShareAssignmentComputed: self._take_computed,
        }
        self.reads = {
            ReadInitialized: self._read_initialized,
            IsShareGroup: lambda request: self._group(request.group_id) is not None,
        }
        self.loads = dict.fromkeys((each.key for each in FORMATS), self.load)
        self.timers = {SESSION: self._end_session}

    def loaded(self) -> None:
        for group in self._groups.values():
            if isinstance(group, ShareGroup):
                group.initializing_since_ms = self._effects.now_ms

    # ------------------------------------------------------------------ the keyed state

    def replay(self, record: GroupRecord) -> None:
        group_id = record.key.group_id
        group = self._group(group_id)
        if group is None:
            if record.value is None:
                return
            group = self._groups[group_id] = self._new_group(group_id)
        group.replay(record, self._effects.now_ms)
        if group.is_gone:
            del self._groups[group_id]

    def _new_group(self, group_id: str) -> ShareGroup:
        """Return a new group with this id. The shard adds it when the group's first record is applied."""
        if self._nascent is None or self._nascent.group_id != group_id or not self._nascent.is_gone:
            self._nascent = ShareGroup(group_id, self._effects, self, self._settings_of)
        return self._nascent

    def _found(self, group_id: str, *, or_new: bool = False) -> ShareGroup:
        """Return the share group, or a new one if there is none and `or_new`.

        Raises KafkaError if there is none, or a group of another type.
        """
        if group_id in self._groups or not or_new:
            return self._existing(group_id)
        if len(group_id) > TEXT_LENGTH_MAX:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID)
        return self._new_group(group_id)

    # ------------------------------------------------------------------ members

    def _heartbeat(self, request: ShareGroupHeartbeatRequest, caller: Caller) -> None:
        try:
            if request.member_epoch == LEAVE_EPOCH:
                answer = self._heartbeats.leave(self._found(request.group_id), request)
            else:
                if request.member_epoch != JOIN_EPOCH and request.group_id not in self._groups:
                    raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Share group {request.group_id} not found.")
                group = self._found(request.group_id, or_new=True)
                answer = self._heartbeats.heartbeat(group, request, caller)
        except KafkaError as refusal:
            note_refused(self._effects, request.group_id, request.member_id, caller, refusal.code, refusal.message)
            answer = HeartbeatResult(refused_heartbeat(refusal.code, refusal.message))
        self._effects.answer(caller, answer, lambda error: HeartbeatResult(refused_heartbeat(error, error.message)))

    def _take_computed(self, request: ShareAssignmentComputed, caller: Caller) -> None:
        self._heartbeats.take_computed(self._group(request.group_id), request)
        self._effects.answer(caller, ErrorCode.NONE, lambda error: error)

    def _end_session(self, key: TimerKey) -> None:
        group = self._group(key.group_id)
        if group is not None and key.member_id in group.members:
            self._heartbeats.remove_member(group, key.member_id, WAS_SILENT)

    def _describe(self, request: DescribeShareGroup, caller: Caller) -> None:
        description: object
        try:
            description = described(self._existing(request.group_id), self._topics)
        except KafkaError as refusal:
            description = undescribed(request.group_id, refusal.code, refusal.message)
        self._effects.reply(caller, description)

    # ------------------------------------------------------------------ offsets

    def _alter_offsets(self, request: AlterShareGroupOffsetsRequest, caller: Caller) -> None:
        try:
            answer = self._offsets.alter(self._empty(request.group_id, or_new=True), request)
        except KafkaError as refusal:
            answer = AlteredOffsets(refused_alteration(refusal.code, refusal.message))
        self._effects.answer(caller, answer, lambda error: AlteredOffsets(refused_alteration(error)))

    def _delete_offsets(self, request: DeleteShareGroupOffsetsRequest, caller: Caller) -> None:
        try:
            answer = self._offsets.delete(self._empty(request.group_id), request)
        except KafkaError as refusal:
            answer = BegunDeletion(refused_deletion(refusal.code, refusal.message))
        self._effects.answer(caller, answer, lambda error: BegunDeletion(refused_deletion(error)))

    def _empty(self, group_id: str, *, or_new: bool = False) -> ShareGroup:
        """Return the share group as `_found` does. Raises KafkaError if it has members."""
        group = self._found(group_id, or_new=or_new)
        if error := group.check_delete():
            raise KafkaError(error)
        return group

    def _read_initialized(self, request: ReadInitialized) -> dict[bytes, list[int]]:
        group = self._group(request.group_id)
        if group is None:
            return {}
        return {each: sorted(known.partitions) for each, known in group.share_partitions.initialized.items()}

    # ------------------------------------------------------------------ reports of the share coordinator

    def _reported(self, note: Callable[[ShareGroup, Any], None]) -> Handler:
        """Return a handler of reports: it calls `note` with the group and the report, if the group still exists."""

        def handle(report: Any, caller: Caller) -> None:
            if (group := self._group(report.group_id)) is not None:
                note(group, report)
            self._effects.answer(caller, ErrorCode.NONE, lambda error: error)

        return handle

    # ------------------------------------------------------------------ the end of groups and topics

    def _prepare_deletion(self, request: PrepareDeletion, caller: Caller) -> None:
        group = self._group(request.group_id)
        if group is None:
            answer = PreparedDeletion(ErrorCode.NONE)
        elif error := group.check_delete():
            answer = PreparedDeletion(error)
        else:
            answer = PreparedDeletion(ErrorCode.NONE, self._offsets.prepare_end(group))
        self._effects.answer(caller, answer, PreparedDeletion)

    def _forget_topics(self, request: ForgetShareTopics, caller: Caller) -> None:
        # Not all at once: the service repeats the request until none is left.
        groups = [group for group in self._groups.values() if isinstance(group, ShareGroup)]
        found = [group for group in groups if group.share_partitions.mentions(request.topic_ids)][:RECORDS_PER_CALL]
        for group in found:
            self._offsets.forget_topics(group, request.topic_ids)
        self._effects.answer(caller, len(found), lambda error: FORGETTING_REFUSED)


def refused_heartbeat(error: ErrorCode, message: str | None = None) -> ShareGroupHeartbeatResponse:
    return ShareGroupHeartbeatResponse(error_code=error, error_message=message, member_epoch=0, heartbeat_interval_ms=0)


def refused_alteration(error: ErrorCode, message: str | None = None) -> AlterShareGroupOffsetsResponse:
    return AlterShareGroupOffsetsResponse(error_code=error, error_message=message or error.message, responses=[])


def refused_deletion(error: ErrorCode, message: str | None = None) -> DeleteShareGroupOffsetsResponse:
    return DeleteShareGroupOffsetsResponse(error_code=error, error_message=message or error.message, responses=[])


def undescribed(group_id: str, error: ErrorCode, message: str | None = None) -> DescribedGroup:
    """Return a group description that carries only an error."""
    return undescribed_as(DescribedGroup, group_id, error, message, assignor_name="")


def described(group: ShareGroup, topics: TopicImages) -> DescribedGroup | Large[DescribedGroup]:
    description = DescribedGroup(
        error_code=ErrorCode.NONE,
        group_id=group.group_id,
        group_state=group.state_name,
        group_epoch=group.group_epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=ASSIGNOR_NAME,
        members=[],
    )
    sources = [(member_id, member, group.position(member_id)) for member_id, member in group.members.items()]
    return with_members(description, sources, lambda source: _member(*source, topics))


def _member(member_id: str, member: GroupMember, position: Position, topics: TopicImages) -> Member:
    partitions = described_partitions(DescribedTopicPartitions, position.assigned.items(), topics)
    return Member(
        member_id=member_id,
        rack_id=member.rack_id,
        member_epoch=position.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topics),
        assignment=DescribedAssignment(topic_partitions=partitions),
    )


SHARE = GroupType(
    make=ShareGroupManager,
    formats=FORMATS,
    # Records are in force when they are appended, so that the next request finds them.
    overlapping=frozenset(
        {
            ShareGroupHeartbeatRequest,
            AlterShareGroupOffsetsRequest,
            DeleteShareGroupOffsetsRequest,
            ConfirmPartitions,
            GiveUpPartitions,
            ConfirmDeletion,
            PrepareDeletion,
            ForgetShareTopics,
            DescribeShareGroup,
            ShareAssignmentComputed,
        }
    ),
)
