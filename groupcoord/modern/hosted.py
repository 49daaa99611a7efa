"""A group of a newer kind as its shard sees it, where all such groups answer alike; and the deadlines of its members."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Generic, TypeVar

from ottla.groupcoord.effects import Effects, Steps, in_pieces
from ottla.groupcoord.group import PartitionCheck
from ottla.groupcoord.group_settings import GroupSettings, GroupSettingsSource
from ottla.groupcoord.runtime.outcome import Caller
from ottla.groupcoord.timers import TimerKey
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.list_groups import ListedGroup

MemberT = TypeVar("MemberT")

EPOCHS_SINCE_OFFSET_COMMIT = 9
"""The first version of OffsetCommit that knows member epochs."""

NO_EPOCH = -1
"""What a commit has in place of an epoch if its sender does not say who it is."""


class HostedGroup(ABC, Generic[MemberT]):
    """See the module's docstring. A kind of groups puts one of these classes over its state."""

    group_type: str
    """Kafka's name of the kind, which is that of its members' protocol, too."""
    timer_kinds: tuple[str, ...]
    """The kinds of deadlines that a member may have."""

    group_id: str
    members: dict[str, MemberT]

    def __init__(self, effects: Effects, settings_of: GroupSettingsSource) -> None:
        self._effects = effects
        self._settings_of = settings_of

    @property
    def settings(self) -> GroupSettings:
        """What is in force for the group now."""
        return self._settings_of(self.group_id)

    @property
    @abstractmethod
    def state_name(self) -> str:
        """Its state, as clients see it."""

    def listed(self) -> ListedGroup:
        return ListedGroup(
            group_id=self.group_id,
            protocol_type=self.group_type,
            group_state=self.state_name,
            group_type=self.group_type,
        )

    # ------------------------------------------------------------------ its end

    def check_delete(self) -> ErrorCode:
        return ErrorCode.NON_EMPTY_GROUP if self.members else ErrorCode.NONE

    # ------------------------------------------------------------------ deadlines

    def schedule(self, kind: str, member_id: str, delay_ms: int) -> None:
        key = TimerKey(kind, self.group_id, member_id)
        self._effects.timers.schedule(key, self._effects.now_ms + max(delay_ms, 0))

    def schedule_if_absent(self, kind: str, member_id: str, delay_ms: int) -> None:
        if not self.is_scheduled(kind, member_id):
            self.schedule(kind, member_id, delay_ms)

    def is_scheduled(self, kind: str, member_id: str) -> bool:
        return self._effects.timers.deadline_ms(TimerKey(kind, self.group_id, member_id)) is not None

    def cancel(self, kind: str, member_id: str) -> None:
        """End a deadline. If the log refuses what is written with that, it stands again."""
        key, timers = TimerKey(kind, self.group_id, member_id), self._effects.timers
        deadline_ms = timers.deadline_ms(key)
        if deadline_ms is None:
            return
        timers.cancel(key)

        def restore() -> None:
            # A later call may have begun a new one.
            if timers.deadline_ms(key) is None:
                timers.schedule(key, deadline_ms)

        self._effects.restore_if_refused(restore)

    def cancel_member(self, member_id: str) -> None:
        for kind in self.timer_kinds:
            self.cancel(kind, member_id)

    def cancel_timers(self) -> None:
        for member_id in self.members:
            self.cancel_member(member_id)

    def end_deadlines(self) -> Steps:
        """End all deadlines of members for good: a group of another kind has taken the place of this one."""
        timers = self._effects.timers

        def end(member_id: str) -> None:
            for kind in self.timer_kinds:
                timers.cancel(TimerKey(kind, self.group_id, member_id))

        return in_pieces(list(self.members), end)

    # ------------------------------------------------------------------ callers: nobody is ever parked here

    def abandon(self, caller: Caller) -> None:
        """A heartbeat never waits for other members."""

    def unload(self, error: ErrorCode) -> None:
        """A heartbeat never waits for other members."""


class CommittingGroup(HostedGroup[MemberT]):
    """One whose members commit offsets here."""

    def check_offset_commit(
        self,
        member_id: str,
        group_instance_id: str | None,
        generation_id: int,
        *,
        api_version: int,
        is_transactional: bool = False,
    ) -> ErrorCode | PartitionCheck:
        """A commit of an older epoch counts for partitions that the member has had since then."""
        if generation_id < 0 and not self.members:
            return ErrorCode.NONE
        # A transactional client of old does not say who it is.
        if is_transactional and generation_id == NO_EPOCH and not member_id and group_instance_id is None:
            return ErrorCode.NONE
        member = self.members.get(member_id)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        stale = self.stale(member)
        if not is_transactional and api_version < EPOCHS_SINCE_OFFSET_COMMIT and stale is ErrorCode.STALE_MEMBER_EPOCH:
            return ErrorCode.UNSUPPORTED_VERSION
        epoch = self.epoch_of(member)
        if generation_id == epoch:
            return ErrorCode.NONE
        if generation_id > epoch:
            return stale
        return lambda topic_id, topic, partition: (
            ErrorCode.NONE if self.may_commit(member, generation_id, topic_id, topic, partition) else stale
        )

    def check_offset_fetch(self, member_id: str | None, member_epoch: int) -> ErrorCode:
        if member_id is None and member_epoch < 0:
            return ErrorCode.NONE
        member = None if member_id is None else self.members.get(member_id)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return ErrorCode.NONE if member_epoch == self.epoch_of(member) else self.stale(member)

    @abstractmethod
    def epoch_of(self, member: MemberT) -> int:
        """The epoch that a member has reached."""

    def stale(self, member: MemberT) -> ErrorCode:
        """What a member hears that comes with another epoch than its own."""
        return ErrorCode.STALE_MEMBER_EPOCH

    @abstractmethod
    def may_commit(self, member: MemberT, epoch: int, topic_id: bytes, topic: str, partition: int) -> bool:
        """Whether the member has had a partition since this epoch."""

    def check_offset_delete(self) -> ErrorCode:
        return ErrorCode.NONE

    def offsets_retained_since(self, commit_timestamp_ms: int) -> int | None:
        return commit_timestamp_ms

    @property
    def is_forgettable(self) -> bool:
        return not self.members
