"""A consumer group as the shard, offsets and administrators see it. `state.py` has its state, `heartbeat.py` moves it."""

from __future__ import annotations

from collections.abc import Callable

from ottla.groupcoord.consumer.member import UNREVOKED_PARTITIONS, Member
from ottla.groupcoord.consumer.state import ConsumerState
from ottla.groupcoord.effects import Effects, Steps, in_pieces
from ottla.groupcoord.group_settings import GroupSettingsSource
from ottla.groupcoord.modern.hosted import CommittingGroup
from ottla.wire.errors import ErrorCode

GROUP_TYPE = "consumer"

SESSION, REVOCATION = "consumer-session", "consumer-revocation"
JOIN, SYNC = "consumer-join", "consumer-sync"
"""Kinds of deadlines: of every member; for giving up partitions; of classic members, for joining again and for asking for
their assignment."""


class ConsumerGroup(ConsumerState, CommittingGroup[Member]):
    """See the module's docstring."""

    group_type = GROUP_TYPE
    timer_kinds = (SESSION, REVOCATION, JOIN, SYNC)

    def __init__(
        self,
        group_id: str,
        effects: Effects,
        settings_of: GroupSettingsSource,
        end: Callable[[ConsumerGroup], None],
    ) -> None:
        ConsumerState.__init__(self, group_id)
        CommittingGroup.__init__(self, effects, settings_of)
        self._end = end

    # ------------------------------------------------------------------ offsets

    def epoch_of(self, member: Member) -> int:
        return member.epoch

    def stale(self, member: Member) -> ErrorCode:
        return ErrorCode.ILLEGAL_GENERATION if member.uses_classic_protocol else ErrorCode.STALE_MEMBER_EPOCH

    def may_commit(self, member: Member, epoch: int, topic_id: bytes, topic: str, partition: int) -> bool:
        return member.may_commit(topic_id, partition, epoch)

    def is_subscribed_to(self, topic: str) -> bool:
        return topic in self.subscriptions

    def delete(self) -> None:
        self._end(self)

    # ------------------------------------------------------------------ deadlines

    def start_sessions(self) -> Steps:
        return in_pieces(list(self.members.values()), self.start_deadlines)

    def start_deadlines(self, member: Member) -> None:
        """Let a member have a whole session, and all of its time for giving up partitions."""
        self.start_session(member)
        if member.state is UNREVOKED_PARTITIONS and not member.uses_classic_protocol:
            self.schedule(REVOCATION, member.member_id, member.words.rebalance_timeout_ms)

    def start_session(self, member: Member) -> None:
        """Put the end of a member's session off."""
        # Classic members have chosen their timeout. The broker chooses that of the others.
        classic = member.uses_classic_protocol
        timeout_ms = member.classic_session_timeout_ms if classic else self.settings.consumer_session_timeout_ms
        self.schedule(SESSION, member.member_id, timeout_ms)
