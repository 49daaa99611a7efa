"""How members leave a consumer group: of their own will, for a while, or because they were silent for too long.

The group's epoch rises at once. The others get the partitions that have become free at their next heartbeats. When only
classic members are left the group becomes a classic one (`migration.py`), if group.consumer.migration.policy allows that.
"""

from __future__ import annotations

from collections.abc import Sequence

from ottla.groupcoord.consumer import records
from ottla.groupcoord.consumer.group import ConsumerGroup
from ottla.groupcoord.consumer.heartbeat import known_static, removal
from ottla.groupcoord.consumer.member import UNREVOKED_PARTITIONS, Member
from ottla.groupcoord.consumer.migration import Migration
from ottla.groupcoord.consumer.pattern_refresh import PatternRefresh
from ottla.groupcoord.consumer.rebalancing import Rebalancing
from ottla.groupcoord.effects import Steps, in_pieces
from ottla.groupcoord.modern.assignments import with_epoch, without_epochs
from ottla.groupcoord.modern.group import STATIC_LEAVE_EPOCH
from ottla.groupcoord.part import Host
from ottla.groupcoord.rebalance_log import HAS_LEFT, WAS_SILENT, member_reason
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)


class Leaving:
    """See the module's docstring."""

    def __init__(self, host: Host, rebalancing: Rebalancing, patterns: PatternRefresh, migration: Migration) -> None:
        self._effects = host.effects
        self._topics = host.topics
        self._rebalancing = rebalancing
        self._patterns = patterns
        self._migration = migration

    def leave(self, group: ConsumerGroup, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse:
        """Let the sender of a last heartbeat go."""
        if request.instance_id is None:
            known = group.members.get(request.member_id)
            if known is None:
                problem = f"Member {request.member_id} is not a member of group {request.group_id}."
                raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, problem)
            member = known
        else:
            member = known_static(group.static_member(request.instance_id), request.member_id, request.instance_id)
        if request.instance_id is not None and request.member_epoch == STATIC_LEAVE_EPOCH:
            self._go_for_a_while(group, member)
        else:
            self.remove(group, [member], HAS_LEFT)
        return ConsumerGroupHeartbeatResponse(
            error_code=ErrorCode.NONE,
            member_id=request.member_id,
            member_epoch=request.member_epoch,
            heartbeat_interval_ms=0,
        )

    def _go_for_a_while(self, group: ConsumerGroup, member: Member) -> None:
        """A static member keeps its partitions until its session ends, for whoever comes back in its name."""
        # Under its next id it will have had them from the first epoch on.
        kept = with_epoch(without_epochs(member.progress.assigned), 0)
        progress = member.progress._replace(epoch=STATIC_LEAVE_EPOCH, assigned=kept, revoking={})
        self._rebalancing.put(records.current_record(group.group_id, member.member_id, progress.written()))

    def remove(self, group: ConsumerGroup, members: Sequence[Member], reason: str) -> None:
        """Take members out of their group."""
        if not members:
            return
        if self._migration.may_downgrade(group, members):
            self._effects.carry_on(self._migration.downgrade(group, members, must_rebalance=True))
        else:
            self._effects.carry_on(self._remove(group, members, reason))

    def _remove(self, group: ConsumerGroup, members: Sequence[Member], reason: str) -> Steps:
        group_id = group.group_id
        self._effects.work += len(group.subscriptions)
        self._rebalancing.restart_if_refused(group_id)

        def end(member: Member) -> None:
            for record in removal(group_id, member.member_id):
                self._rebalancing.put(record)
            group.cancel_member(member.member_id)

        yield from in_pieces(members, end)
        self._patterns.forget_unused(group, tuple(each.pattern for each in members if each.pattern))
        group.seen_topics = self._topics.version
        self._rebalancing.begin_epoch(group, group.hash_of(self._topics), _words(members, reason))
        if group.is_empty:
            # There is nothing to assign. Without a time the next member does not have to wait for its assignment.
            self._rebalancing.put(records.target_epoch_record(group_id, group.group_epoch, 0))

    # ------------------------------------------------------------------ deadlines

    def end_session(self, group: ConsumerGroup, member: Member) -> None:
        self.remove(group, [member], WAS_SILENT)

    def end_revocation(self, group: ConsumerGroup, member: Member) -> None:
        """A member had to give up partitions, and its rebalance timeout is over."""
        if member.state is UNREVOKED_PARTITIONS:
            self.remove(group, [member], "did not give up its partitions in time")

    def end_join(self, group: ConsumerGroup, member: Member) -> None:
        self.remove(group, [member], "did not join again in time")

    def end_sync(self, group: ConsumerGroup, member: Member) -> None:
        self.remove(group, [member], "did not ask for its assignment in time")


def _words(members: Sequence[Member], reason: str) -> str:
    others = len(members) - 1
    return member_reason(members[0].member_id, reason) + (f", and {others} others" if others else "")
