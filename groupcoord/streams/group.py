"""A streams group as the shard, offsets and administrators see it. `state.py` has its state, `heartbeat.py` moves it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from ottla.groupcoord.effects import Effects, Steps, in_pieces
from ottla.groupcoord.group_settings import GroupSettingsSource
from ottla.groupcoord.modern.group import CommittingGroup
from ottla.groupcoord.streams.members import Member, MemberState
from ottla.groupcoord.streams.state import StreamsState
from ottla.groupcoord.streams.tasks import Task

GROUP_TYPE = "streams"

SESSION, REVOCATION = "streams-session", "streams-revocation"
FIRST_ASSIGNMENT = "streams-first-assignment"
"""Kinds of deadlines: of every member; for giving up tasks; of the group, for the first members to come."""


class StreamsGroup(StreamsState, CommittingGroup[Member]):
    """See the module's docstring."""

    group_type = GROUP_TYPE
    timer_kinds = (SESSION, REVOCATION)

    def __init__(
        self, group_id: str, effects: Effects, settings_of: GroupSettingsSource, end: Callable[[StreamsGroup], None]
    ) -> None:
        """`end` deletes the group, which is empty then."""
        StreamsState.__init__(self, group_id)
        CommittingGroup.__init__(self, effects, settings_of)
        self._end = end

    # ------------------------------------------------------------------ offsets

    def epoch_of(self, member: Member) -> int:
        return member.member_epoch

    def may_commit(self, member: Member, epoch: int, topic_id: bytes, topic: str, partition: int) -> bool:
        """The offsets of a task's sources are committed by whoever has had the task since then."""
        if self.topology is None:
            return False
        task = Task(self.topology.subtopology_of_source.get(topic, ""), partition)
        since = member.assigned.active.get(task)
        if since is None:
            since = member.pending_revocation.active.get(task)
        return since is not None and since <= epoch

    def is_subscribed_to(self, topic: str) -> bool:
        if not self.members or self.topology is None:
            return False
        return topic in self.topology.subtopology_of_source

    def delete(self) -> None:
        self._end(self)

    # ------------------------------------------------------------------ deadlines

    def start_sessions(self) -> Steps:
        return in_pieces(list(self.members.values()), self._start_deadlines)

    def _start_deadlines(self, member: Member) -> None:
        self.start_session(member.member_id)
        if member.state is MemberState.UNREVOKED_TASKS:
            self.await_revocation(member)

    def start_session(self, member_id: str) -> None:
        """Put the end of a member's session off."""
        self.schedule(SESSION, member_id, self.settings.streams_session_timeout_ms)

    def await_revocation(self, member: Member) -> None:
        """Give a member its rebalance timeout to give up tasks, counted from when it reached this epoch."""
        self.rebalance_epochs[member.member_id] = member.member_epoch
        self.schedule(REVOCATION, member.member_id, member.rebalance_timeout_ms)

    def cancel_revocation(self, member_id: str) -> None:
        epoch = self.rebalance_epochs.pop(member_id, None)
        if epoch is not None:
            self._effects.restore_if_refused(partial(self.rebalance_epochs.setdefault, member_id, epoch))
        self.cancel(REVOCATION, member_id)

    def delay_assignment(self) -> None:
        """Wait for more members before the first assignment, unless that wait has begun already."""
        delay_ms = self.settings.streams_initial_rebalance_delay_ms
        if delay_ms > 0:
            self.schedule_if_absent(FIRST_ASSIGNMENT, "", delay_ms)

    @property
    def is_assignment_delayed(self) -> bool:
        return self.is_scheduled(FIRST_ASSIGNMENT, "")

    def cancel_timers(self) -> None:
        super().cancel_timers()
        self.cancel(FIRST_ASSIGNMENT, "")
