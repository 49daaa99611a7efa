"""The part of a shard that looks after share groups: which of them a request means, and when they begin and end.

A share group is always what its records say. `heartbeat.py` decides about members, `offsets.py` about offsets.
"""

from __future__ import annotations

from collections.abc import Callable

from ottla.groupcoord.effects import RECORDS_PER_CALL, TEXT_LENGTH_MAX, TimerKey
from ottla.groupcoord.group import WAS_SILENT
from ottla.groupcoord.modern.group import JOIN_EPOCH, LEAVE_EPOCH
from ottla.groupcoord.modern.part import ModernGroups
from ottla.groupcoord.part import Host, PartKind
from ottla.groupcoord.records import GroupRecord
from ottla.groupcoord.runtime.outcome import FORGETTING_REFUSED, Caller
from ottla.groupcoord.share import describing
from ottla.groupcoord.share.group import GROUP_TYPE, SESSION, ShareGroup
from ottla.groupcoord.share.heartbeat import Heartbeaten, Heartbeats, ShareAssignmentComputed
from ottla.groupcoord.share.offsets import OffsetAdministration
from ottla.groupcoord.share.records import FORMATS
from ottla.groupcoord.share.requests import (
    AlteredOffsets,
    AskInitialized,
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
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
)
from ottla.wire.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
)
from ottla.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse


class ShareGroups(ModernGroups[ShareGroup]):
    """See the module's docstring."""

    group_type = GROUP_TYPE
    group_class = ShareGroup

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._heartbeats = Heartbeats(host.effects, host.topics)
        self._offsets = OffsetAdministration(host.effects, host.topics)
        self._nascent: ShareGroup | None = None
        self.requests = {
            ShareGroupHeartbeatRequest: self._heartbeat,
            AlterShareGroupOffsetsRequest: self._alter_offsets,
            DeleteShareGroupOffsetsRequest: self._delete_offsets,
            ConfirmPartitions: self._confirm_partitions,
            GiveUpPartitions: self._give_up_partitions,
            ConfirmDeletion: self._confirm_deletion,
            PrepareDeletion: self._prepare_deletion,
            ForgetShareTopics: self._forget_topics,
            DescribeShareGroup: self._describe,
            ShareAssignmentComputed: self._take_computed,
        }
        self.reads = {
            AskInitialized: self._initialized,
            IsShareGroup: lambda asked: self._group(asked.group_id) is not None,
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
        """A group that does not exist before its first record. Whoever makes that record has the group in hand."""
        if self._nascent is None or self._nascent.group_id != group_id or not self._nascent.is_gone:
            self._nascent = ShareGroup(group_id, self._effects, self, self._settings_of)
        return self._nascent

    def _found(self, group_id: str, *, or_new: bool = False) -> ShareGroup:
        """The share group, or one that exists as soon as something is put into it. Raises KafkaError if there is none."""
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
            answer = Heartbeaten(refused_heartbeat(refusal.code, refusal.message))
        self._effects.answer(caller, answer, lambda error: Heartbeaten(refused_heartbeat(error, error.message)))

    def _take_computed(self, request: ShareAssignmentComputed, caller: Caller) -> None:
        self._heartbeats.take_computed(self._group(request.group_id), request)
        self._effects.answer(caller, ErrorCode.NONE, lambda error: error)

    def _end_session(self, key: TimerKey) -> None:
        """A member was silent for too long."""
        group = self._group(key.group_id)
        if group is not None and key.member_id in group.members:
            self._heartbeats.put_out(group, key.member_id, WAS_SILENT)

    def _describe(self, asked: DescribeShareGroup, caller: Caller) -> None:
        description: object
        try:
            description = describing.described(self._existing(asked.group_id), self._topics)
        except KafkaError as refusal:
            description = describing.undescribed(asked.group_id, refusal.code, refusal.message)
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
        """A share group that has no members."""
        group = self._found(group_id, or_new=or_new)
        if error := group.check_delete():
            raise KafkaError(error)
        return group

    def _initialized(self, asked: AskInitialized) -> dict[bytes, list[int]]:
        group = self._group(asked.group_id)
        if group is None:
            return {}
        return {each: sorted(known.partitions) for each, known in group.share_partitions.initialized.items()}

    # ------------------------------------------------------------------ what the share coordinator said

    def _confirm_partitions(self, request: ConfirmPartitions, caller: Caller) -> None:
        self._note(caller, request.group_id, lambda group: self._offsets.confirm(group, request.partitions))

    def _give_up_partitions(self, request: GiveUpPartitions, caller: Caller) -> None:
        self._note(caller, request.group_id, lambda group: self._offsets.give_up(group, request.partitions))

    def _confirm_deletion(self, request: ConfirmDeletion, caller: Caller) -> None:
        self._note(caller, request.group_id, lambda group: self._offsets.confirm_deletion(group, request.topic_ids))

    def _note(self, caller: Caller, group_id: str, note: Callable[[ShareGroup], None]) -> None:
        """Write something down about a group. It may be gone by now, and then there is nothing to write."""
        if (group := self._group(group_id)) is not None:
            note(group)
        self._effects.answer(caller, ErrorCode.NONE, lambda error: error)

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
        # Not all at once: the service asks again until none is left.
        groups = [group for group in self._groups.values() if isinstance(group, ShareGroup)]
        told = [group for group in groups if group.share_partitions.mentions(request.topic_ids)][:RECORDS_PER_CALL]
        for group in told:
            self._offsets.forget_topics(group, request.topic_ids)
        self._effects.answer(caller, len(told), lambda error: FORGETTING_REFUSED)


def refused_heartbeat(error: ErrorCode, message: str | None = None) -> ShareGroupHeartbeatResponse:
    return ShareGroupHeartbeatResponse(error_code=error, error_message=message, member_epoch=0, heartbeat_interval_ms=0)


def refused_alteration(error: ErrorCode, message: str | None = None) -> AlterShareGroupOffsetsResponse:
    return AlterShareGroupOffsetsResponse(error_code=error, error_message=message or error.message, responses=[])


def refused_deletion(error: ErrorCode, message: str | None = None) -> DeleteShareGroupOffsetsResponse:
    return DeleteShareGroupOffsetsResponse(error_code=error, error_message=message or error.message, responses=[])


SHARE = PartKind(
    make=ShareGroups,
    formats=FORMATS,
    # Everything is in force when it is appended, so that the next request finds it.
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
