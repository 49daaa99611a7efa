"""One group of the classic protocol (Kafka: ClassicGroup and the classic part of GroupMetadataManager).

    Empty  --join-->  PreparingRebalance  --all joined, or time is up-->  CompletingRebalance  --leader syncs-->  Stable
      ^                 |    ^     ^                                               |                                |
      +--nobody joined--+    |     +----member comes, goes, changes; no sync-------+                                |
                             +-------------member comes, goes, changes; leader joins again; no sync-----------------+
    any state --unloaded--> Dead

                        Empty            PreparingRebalance         CompletingRebalance       Stable
    join, new member    starts joining   takes part                 new rebalance             new rebalance
      static, id known  -                replaces, takes part       replaces, new rebalance   replaces; new rebalance
                                                                                              only if the vote changes
    join, known member  unknown member   takes part                 same answer again, or new rebalance if it changed
                                                                                              (or if it is the leader)
    sync                unknown member   REBALANCE_IN_PROGRESS      waits; leader's one ends  the stored assignment
    heartbeat           unknown member   REBALANCE_IN_PROGRESS      NONE                      NONE
    leave, session out  unknown member   may complete the joining   new rebalance             new rebalance
    commit of offsets   by nobody's      by a member of the         REBALANCE_IN_PROGRESS     by a member
                        name             generation

* The first rebalance of an empty group ends by time alone: group.initial.rebalance.delay.ms, again as long as new
  members keep coming, up to their rebalance timeout. Later ones end when every member has joined and no handed-out
  member id is pending, or after the longest rebalance timeout; then dynamic members that did not come back are dropped,
  static ones stay until their session ends. A generation without a joined member goes on waiting.
* Members that got a generation and never ask for their assignment are dropped after the rebalance timeout.
* What is written is the whole group at the end of a rebalance (or when it became empty, or when a static member was
  replaced in Stable). It is read only when the partition is loaded; between two records the group lives in memory. What
  depends on the record being written (Stable, and every answer that promises it) waits in a settlement; the answers then
  wait for the record's commit.
* Each waiting caller gets an answer: at once if its member is dropped, replaced or parked a second time.

Invariants: members exist in PreparingRebalance only as parked or not yet back; in CompletingRebalance and Stable no join is
pending; outside CompletingRebalance no sync is pending; the leader is a member.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from ottla.groupcoord.causes import address_of, note_left, note_refused, note_removed, said
from ottla.groupcoord.classic import causes
from ottla.groupcoord.classic.group import (
    COMPLETING_REBALANCE,
    DEAD,
    EMPTY,
    ENTERED_FROM,
    JOIN,
    PREPARING_REBALANCE,
    SESSION,
    STABLE,
    SYNC,
    ClassicState,
    joined,
    refused_join,
    refused_sync,
    synced,
)
from ottla.groupcoord.classic.members import (
    NO_LEADER,
    UNKNOWN_MEMBER_ID,
    Member,
    Protocols,
    Replaced,
    is_storable,
)
from ottla.groupcoord.effects import TEXT_LENGTH_MAX, Effects, Steps, TimerKey, in_pieces
from ottla.groupcoord.group import REASON_LENGTH_MAX, LastRebalance, tell_rebalance
from ottla.groupcoord.runtime.answers import Caller
from ottla.groupcoord.runtime.coordinator_shard import Settlement
from ottla.wire.errors import ErrorCode
from ottla.wire.happenings import in_seconds
from ottla.wire.messages.classic_group import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)

NEW_MEMBER_JOIN_TIMEOUT_MS = 300_000
"""A new member has no member id to heartbeat with; after this it is taken to be gone (Kafka: the same, not a setting)."""

PENDING_MEMBERS_MAX = 10_000
"""Limit on the handed-out member ids that a group keeps; no real group comes near it."""


class ClassicGroup(ClassicState):
    """Classic group with its rebalances. Records and replies are collected in the shard's `Effects`."""

    __slots__ = ("_initial_delay_ms", "_initial_remaining_ms", "_lost_count", "_new_member_added", "_reason")

    def __init__(self, group_id: str, effects: Effects) -> None:
        super().__init__(group_id, effects)
        self._initial_delay_ms = 0
        self._initial_remaining_ms: int | None = None  # time left of a first rebalance; None in any other
        self._new_member_added = False
        self._reason, self._lost_count = "", 0  # why members join again, and how many of them did not

    # ------------------------------------------------------------------ join

    def join(self, request: JoinGroupRequest, caller: Caller) -> None:
        """Answer a JoinGroup request, or park the caller until the join phase completes."""
        # Version 0 has no rebalance timeout. Kafka takes the session timeout for it.
        if caller.api_version == 0:
            request.rebalance_timeout_ms = request.session_timeout_ms
        protocols: Protocols = {}
        for protocol in request.protocols:
            protocols.setdefault(protocol.name, protocol.metadata)
        if not self.has_room_for(request.member_id):
            # A known member without room leaves the group. Otherwise the others would wait for a member that cannot
            # come back.
            self._drop(request.member_id)
            self._maybe_complete_join()
            self._note_refused(request.member_id, caller, ErrorCode.GROUP_MAX_SIZE_REACHED, causes.FULL)
            self._refuse_join(caller, UNKNOWN_MEMBER_ID, ErrorCode.GROUP_MAX_SIZE_REACHED)
        elif not is_storable(request):
            self._refuse_join(caller, request.member_id, ErrorCode.INVALID_REQUEST)
        elif not self.supports(request.protocol_type, protocols):
            is_first = self.state is EMPTY
            why = causes.disagreement(self.members, request.protocol_type, protocols, is_first=is_first)
            self._note_refused(request.member_id, caller, ErrorCode.INCONSISTENT_GROUP_PROTOCOL, why)
            self._refuse_join(caller, request.member_id, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        elif not self.members.can_keep(protocols):
            self._refuse_join(caller, request.member_id, ErrorCode.GROUP_MAX_SIZE_REACHED)
        elif request.member_id != UNKNOWN_MEMBER_ID:
            self._join_known(request, caller, protocols)
        elif request.group_instance_id is not None:
            self._join_static(request, caller, protocols, request.group_instance_id)
        else:
            self._join_dynamic(request, caller, protocols)

    def _join_dynamic(self, request: JoinGroupRequest, caller: Caller, protocols: Protocols) -> None:
        """Add a dynamic member. Since version 4 it first gets an id to join with, so a lost response adds no member."""
        # The client id is cut, so that the member id fits into the group's record.
        member_id = f"{caller.client_id[:TEXT_LENGTH_MAX]}-{self._effects.make_uuid()}"
        if caller.api_version < 4:
            self._add_member(request, caller, protocols, member_id)
        elif len(self.members.pending_join) >= PENDING_MEMBERS_MAX:
            # A client that asks for ids and never uses them must not fill the memory.
            self._refuse_join(caller, UNKNOWN_MEMBER_ID, ErrorCode.GROUP_MAX_SIZE_REACHED)
        else:
            self.members.pending_join.add(member_id)
            # The id is forgotten after this time if the client does not come back with it.
            self._schedule(SESSION, request.session_timeout_ms, member_id)
            self._refuse_join(caller, member_id, ErrorCode.MEMBER_ID_REQUIRED)

    def _join_static(
        self, request: JoinGroupRequest, caller: Caller, protocols: Protocols, group_instance_id: str
    ) -> None:
        # A new id every time, so that a client that still uses the old one is fenced.
        new_member_id = f"{group_instance_id}-{self._effects.make_uuid()}"
        known_id = self.members.static.get(group_instance_id)
        if known_id is None:
            self._add_member(request, caller, protocols, new_member_id)
        else:
            self._replace_static(self.members.by_id[known_id], request, caller, protocols, new_member_id)

    def _join_known(self, request: JoinGroupRequest, caller: Caller, protocols: Protocols) -> None:
        member_id = request.member_id
        if member_id in self.members.pending_join:
            if request.group_instance_id is not None:
                # A pending member is never static.
                self._refuse_join(caller, UNKNOWN_MEMBER_ID, ErrorCode.UNKNOWN_SERVER_ERROR)
            else:
                self._add_member(request, caller, protocols, member_id)
            return
        error = self.check_member(member_id, request.group_instance_id)
        if error:
            why = causes.why_no_member(self.members, request.group_instance_id, error)
            self._note_refused(member_id, caller, error, why)
            self._refuse_join(caller, member_id, error)
            return
        member = self.members.by_id[member_id]
        # The leader of a stable group joins again when it wants a new assignment, for example because a topic has got
        # more partitions. Its own metadata need not have changed.
        leads_stable_group = self.state is STABLE and self.members.leader_id == member_id
        if self.state is not PREPARING_REBALANCE and member.matches(protocols) and not leads_stable_group:
            self._answer(member, caller, joined(self, member, caller))  # the first answer was lost; nothing has changed
        else:
            # The new metadata comes first, because the join may be completed at once and then makes use of it.
            self.members.update(member, protocols, request.rebalance_timeout_ms, request.session_timeout_ms)
            self._park_join(member, caller)
            reason = f"member {member_id!r} joins again in {self.state.value}{said(request.reason)}"
            self._rebalance_or_complete_join(reason)

    def _add_member(self, request: JoinGroupRequest, caller: Caller, protocols: Protocols, member_id: str) -> None:
        member = Member(
            member_id,
            group_instance_id=request.group_instance_id,
            client_id=caller.client_id[:TEXT_LENGTH_MAX],
            client_host=caller.client_host,
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            session_timeout_ms=request.session_timeout_ms,
            protocols=protocols,
        )
        member.is_new = True
        # Newcomers prolong a first rebalance. So a group that starts up does not rebalance once for each of its members.
        if self.state is PREPARING_REBALANCE and self._initial_remaining_ms is not None:
            self._new_member_added = True
        self.members.add(member, request.protocol_type)
        # Parking and the long session come before the rebalance. It may answer this very join, and then starts the
        # ordinary session.
        self._park_join(member, caller)
        self._schedule(SESSION, NEW_MEMBER_JOIN_TIMEOUT_MS, member_id)
        self._rebalance_or_complete_join(f"member {member_id!r} is new")

    def _park_join(self, member: Member, caller: Caller) -> None:
        # `Shard.abandon` finds the member by these when the connection is gone.
        caller.parked_group_id, caller.parked_member_id = self.group_id, member.member_id
        displaced = self.members.park_join(member, caller)
        if displaced is not None:
            # The client has sent its join again. The first request still gets an answer, as each request must.
            self._refuse_join(displaced, member.member_id, ErrorCode.REBALANCE_IN_PROGRESS)

    def _answer(self, member: Member, caller: Caller, response: JoinGroupResponse | SyncGroupResponse) -> None:
        """Answer a member and remember the caller. The member's session restarts when the answer is sent."""
        member.answered_as = caller
        self._effects.reply(caller, response)

    def _refuse_join(self, caller: Caller, member_id: str, error: ErrorCode) -> None:
        self._effects.reply(caller, refused_join(member_id, error, caller.api_version))

    def _note_refused(self, member_id: str, caller: Caller, error: ErrorCode, because: str) -> None:
        note_refused(self._effects, self.group_id, member_id, caller, error, because)

    # ------------------------------------------------------------------ a static member comes back

    def _replace_static(
        self, member: Member, request: JoinGroupRequest, caller: Caller, protocols: Protocols, new_member_id: str
    ) -> None:
        """Replace a static member: fence the client that had its instance id, and rebalance if needed."""
        assert member.group_instance_id is not None
        before = Replaced(
            member.member_id,
            self.members.leader_id,
            member.protocols,
            member.rebalance_timeout_ms,
            member.session_timeout_ms,
        )
        # The instance id belongs to the newcomer now. A client that still waits under the old member id hears so.
        why = causes.taken_over(member, caller, new_member_id)
        note_refused(self._effects, self.group_id, before.member_id, member, ErrorCode.FENCED_INSTANCE_ID, why)
        self._dismiss(member, before.member_id, ErrorCode.FENCED_INSTANCE_ID)
        self._cancel(SESSION, before.member_id)
        # What the member had, its assignment and the lead of the group included, goes to the new id.
        self.members.replace_static(member.group_instance_id, new_member_id)
        self._schedule(SESSION, member.session_timeout_ms, new_member_id)
        self.members.update(member, protocols, request.rebalance_timeout_ms, request.session_timeout_ms)
        self._effects.carry_on(self._go_on_as(member, caller, before))

    def _go_on_as(self, member: Member, caller: Caller, before: Replaced) -> Steps:
        """Answer a returning static member's join with its assignment, or park the join until a rebalance completes."""
        # A static member that restarts gets its assignment again without a rebalance: this is what static members are
        # for. The record has to name its new member id, or nobody would know that id after the next load.
        if self.state is STABLE and (yield from self.members.select_protocol()) == self.protocol_name:
            yield from self._write(partial(self._settle_replacement, member, caller, before))
            return
        self._park_join(member, caller)
        if self.state is PREPARING_REBALANCE:
            self._maybe_complete_join()
        else:
            self.prepare_rebalance(f"static member {member.member_id!r} replaces {before.member_id!r}")

    def _settle_replacement(self, member: Member, caller: Caller, before: Replaced, error: ErrorCode) -> None:
        """Answer a static member that replaced another in a Stable group. On `error`, restore the former member."""
        if error:
            assert member.group_instance_id is not None
            self._cancel(SESSION, member.member_id)
            self.members.update(member, before.protocols, before.rebalance_timeout_ms, before.session_timeout_ms)
            self.members.replace_static(member.group_instance_id, before.member_id)
            self._schedule(SESSION, member.session_timeout_ms, before.member_id)
            self._refuse_join(caller, UNKNOWN_MEMBER_ID, error)
        elif caller.api_version >= 9:
            is_leader = self.members.leader_id == member.member_id
            # From version 9 on the answer itself tells the leader not to make a new assignment.
            self._answer(member, caller, joined(self, member, caller, skip_assignment=is_leader))
        else:
            # Below v9 no answer can say "skip the assignment". The old id keeps this member from acting as leader.
            response = joined(self, member, caller)
            response.leader, response.members = before.leader_id or NO_LEADER, []
            self._answer(member, caller, response)

    # ------------------------------------------------------------------ the course of a rebalance

    def shrink_to_size(self) -> None:
        """Rebalance a loaded group with more members than group.max.size; the members that rejoin first stay."""
        if len(self.members) > self._effects.config.group_max_size:
            self.prepare_rebalance("more members than group.max.size allows")

    def _rebalance_or_complete_join(self, reason: str) -> None:
        if self.state in ENTERED_FROM[PREPARING_REBALANCE]:
            self.prepare_rebalance(reason)
        else:
            self._maybe_complete_join()

    def prepare_rebalance(self, reason: str) -> None:
        """Begin a rebalance: wait for all members to join again."""
        if self.state is COMPLETING_REBALANCE:
            # Whoever waits for an assignment of this generation gets none any more, and has to join again.
            self._effects.carry_on(self._drop_assignments(ErrorCode.REBALANCE_IN_PROGRESS))
        # The next generation counts again which members have to ask for their assignment.
        self.members.pending_sync.clear()
        self._cancel(SYNC)
        # Asked before the state changes: a rebalance is the first one if it begins in Empty.
        is_initial = self.state is EMPTY
        self._transition_to(PREPARING_REBALANCE)
        self._reason, self._lost_count = reason, 0
        shown = reason[:REASON_LENGTH_MAX]
        self.last_rebalance = LastRebalance(self._effects.timestamp_ms, self.generation_id, shown)
        timeout_ms = self.members.rebalance_timeout_ms
        if is_initial:
            # Even if all have joined, time has to pass: when an application starts, its members come one after the other.
            self._initial_delay_ms = self._effects.config.group_initial_rebalance_delay_ms
            self._initial_remaining_ms = max(timeout_ms - self._initial_delay_ms, 0)
            self._new_member_added = False
            self._schedule(JOIN, self._initial_delay_ms)
        elif self.members.all_joined:
            # Nobody else is awaited, for example when the only member joins again.
            self._complete_join()
        else:
            self._schedule(JOIN, timeout_ms)

    def _maybe_complete_join(self) -> None:
        # The first rebalance ends by time alone; see `expire_join`.
        if self.state is PREPARING_REBALANCE and self._initial_remaining_ms is None and self.members.all_joined:
            self._complete_join()

    def expire_join(self) -> None:
        """Complete the join phase at its deadline. Extend a first rebalance if new members have joined meanwhile."""
        if self.state is not PREPARING_REBALANCE:
            return
        remaining_ms = self._initial_remaining_ms
        if remaining_ms and self._new_member_added:
            # Members still come in: wait once more. No delay is added beyond the rebalance timeout.
            delay_ms = min(self._effects.config.group_initial_rebalance_delay_ms, remaining_ms)
            self._initial_remaining_ms = max(remaining_ms - self._initial_delay_ms, 0)
            self._initial_delay_ms = delay_ms
            self._new_member_added = False
            self._schedule(JOIN, delay_ms)
        else:
            self._complete_join()

    def _complete_join(self) -> None:
        """Complete the join phase: the members that have joined form the next generation."""
        self._initial_remaining_ms = None
        self._cancel(JOIN)
        self._effects.carry_on(self._begin_generation())

    def _begin_generation(self) -> Steps:
        # Who stays. The partitions of a dynamic member that is not back would remain unread. A static one may just be
        # restarting.
        lost = [member.member_id for member in self.members.not_rejoined() if not member.is_static]
        yield from in_pieces(lost, partial(self._drop_because, causes.not_back(self.waited_ms())))
        self._lost_count += len(lost)
        # Who leads. Without a leader that has joined, nobody would make the assignment.
        if not self.members.elect_joined_leader() and self.members:
            self._schedule(JOIN, self.members.rebalance_timeout_ms)  # only silent static members: wait for one of them
            return
        # The next generation. Only now is it known which members vote for its protocol.
        self.generation_id += 1
        if not self.members:
            self._become_empty()
            return
        self.protocol_name = yield from self.members.select_protocol()
        self._remember_subscriptions()
        self._transition_to(COMPLETING_REBALANCE)
        self._log_rebalance()
        # A member may get its answer and vanish. `expire_sync` drops those that never ask for their assignment.
        self.members.pending_sync = dict.fromkeys(self.members.by_id)
        self._schedule(SYNC, self.members.rebalance_timeout_ms)
        # The answers. They wait for no record, because nothing is written before the leader has sent the assignment.
        # A crash until then costs one more rebalance.
        listed: list[JoinGroupResponseMember] = []
        yield from in_pieces(self.members, lambda member: listed.append(member.listed(self.protocol_name)))
        yield from in_pieces(self.members, lambda member: self._answer_join(member, listed))

    def _answer_join(self, member: Member, listed: list[JoinGroupResponseMember]) -> None:
        caller = self.members.take_join(member)
        if caller is not None:
            self._answer(member, caller, joined(self, member, caller, listed=listed))
        # A member that is parked need not send heartbeats, so a whole session begins with the answer.
        self._refresh_session(member)
        member.is_new = False

    def _log_rebalance(self) -> None:
        reason = self._reason + (f"; {self._lost_count} did not join again" if self._lost_count else "")
        host = next((address_of(each.client_host) for each in self.members), "")
        waited_ms = self.waited_ms()
        after = f" after {in_seconds(waited_ms)}" if waited_ms else ""
        tell_rebalance(self._effects, self, self.generation_id, reason, host=host, after=after)

    def _become_empty(self) -> None:
        self.protocol_name = None
        self._remember_subscriptions()
        self._transition_to(EMPTY)
        self._log_rebalance()
        # Should the record fail, the last written generation would come back after a restart, and its members expire.
        self._effects.append(self.creation_record(self.members.protocol_type))

    def expire_sync(self) -> None:
        """Drop the members that sent no SyncGroup before the deadline, and rebalance."""
        if self.state in (COMPLETING_REBALANCE, STABLE) and self.members.pending_sync:
            # A copy, because `_drop` takes the members out of it.
            self._effects.carry_on(self._drop_silent(list(self.members.pending_sync)))

    def _drop_silent(self, silent: list[str]) -> Steps:
        why = causes.no_sync(self.members.rebalance_timeout_ms)
        yield from in_pieces(silent, partial(self._drop_because, why))
        self.prepare_rebalance(f"{len(silent)} members did not ask for their assignment")

    # ------------------------------------------------------------------ sync

    def sync(self, request: SyncGroupRequest, caller: Caller) -> None:
        """Answer a SyncGroup request, or park the caller until the leader's assignment is written."""
        error = self.check_sync(request)
        if error:
            self._effects.reply(caller, refused_sync(error))
            return
        member = self.members.by_id[request.member_id]
        # It has asked, so `expire_sync` must not drop it, whatever becomes of this request.
        self.members.pending_sync.pop(member.member_id, None)
        if not self.members.pending_sync:
            self._cancel(SYNC)
        if self.state is STABLE:
            self._answer(member, caller, synced(self, member))
            return
        displaced, member.awaiting_sync = member.awaiting_sync, caller
        caller.parked_group_id, caller.parked_member_id = self.group_id, member.member_id
        if displaced is not None:
            self._effects.reply(displaced, refused_sync(ErrorCode.REBALANCE_IN_PROGRESS))
        if self.members.leader_id == member.member_id:
            given = {each.member_id: each.assignment for each in request.assignments}
            # As in Kafka a member that the leader has left out gets an empty assignment.
            assignments = {member_id: given.get(member_id, b"") for member_id in self.members.by_id}
            # No member gets its assignment before it is in the log. Otherwise a group that is loaded again could
            # contradict it.
            settle = partial(self._settle_assignments, assignments)
            self._effects.carry_on(self._write(settle, assignments))

    def _write(self, settle: Settlement, assignments: Mapping[str, bytes] | None = None) -> Steps:
        """Append the group's record and let `settle` follow. `assignments`, if given, replace the members' own ones."""
        record = yield from self.written(assignments)
        self._effects.append(record, settle)

    def _settle_assignments(self, assignments: dict[str, bytes], error: ErrorCode) -> None:
        """Send the leader's written assignment to the members; begin another rebalance if the log refused it."""
        # The shell lets nothing change the shard between an outcome and its settlement.
        assert self.state is COMPLETING_REBALANCE
        self._effects.carry_on(self._take_back(error) if error else self._give(assignments))

    def _take_back(self, error: ErrorCode) -> Steps:
        yield from self._drop_assignments(error)
        self.prepare_rebalance(f"{error.name} on writing the assignment")

    def _give(self, assignments: dict[str, bytes]) -> Steps:
        def give(member: Member) -> None:
            member.assignment = assignments[member.member_id]
            caller, member.awaiting_sync = member.awaiting_sync, None
            if caller is not None:
                self._answer(member, caller, synced(self, member))
                self._refresh_session(member)

        yield from in_pieces(self.members, give)
        self._transition_to(STABLE)

    def _drop_assignments(self, error: ErrorCode) -> Steps:
        def drop(member: Member) -> None:
            member.assignment = b""
            if self._refuse_sync(member, error):
                self._refresh_session(member)

        return in_pieces(self.members, drop)

    # ------------------------------------------------------------------ heartbeat, sessions, leave

    def heartbeat(self, request: HeartbeatRequest) -> ErrorCode:
        """Extend the member's session. Return NONE, REBALANCE_IN_PROGRESS if the member must rejoin, or another error.

        Heartbeats do not wait for the log. The group may still have a member whose session has ended.
        """
        error = self.check_member(request.member_id, request.group_instance_id)
        if error:
            return error
        member = self.members.by_id[request.member_id]
        deadline_ms = self._effects.timers.deadline_ms(TimerKey(SESSION, self.group_id, member.member_id))
        if deadline_ms is not None and deadline_ms <= self._effects.now_ms and not member.cannot_be_silent():
            return ErrorCode.UNKNOWN_MEMBER_ID
        if request.generation_id != self.generation_id:
            return ErrorCode.ILLEGAL_GENERATION
        # Also during a rebalance: the member is alive. How late it may come back is limited by the timeout of the join.
        self._refresh_session(member)
        return ErrorCode.REBALANCE_IN_PROGRESS if self.state is PREPARING_REBALANCE else ErrorCode.NONE

    def expire_session(self, member_id: str) -> None:
        """Remove a member after its session timeout, or a member id that was not used.

        A member that waits for a reply stays, unless it is new and its join is parked.
        """
        member = self.members.by_id.get(member_id)
        if member is not None and member.cannot_be_silent():
            # The client waits for an answer of this broker. A whole session begins when it gets one.
            if member.waits_for_a_commit():
                self._refresh_session(member)
            return
        # This also forgets a handed-out member id that nobody has come back with.
        self._drop_because(causes.session_ended(member, NEW_MEMBER_JOIN_TIMEOUT_MS), member_id)
        self._after_departure(f"member {member_id!r} was silent for too long", was_member=member is not None)

    def abandon(self, caller: Caller) -> None:
        """Forget a parked caller that has disconnected; remove its member if that was never part of a generation.

        Kafka does not notice disconnects: its group waits for such a member until the timeout for new members.
        """
        member = self.members.by_id.get(caller.parked_member_id)
        # A later join of the same member may be parked by now, in place of this caller's.
        if member is not None and member.awaiting_join is caller and member.is_new:
            self._drop_because(causes.LEFT_WHILE_WAITING, member.member_id)
            self._after_departure(f"new member {member.member_id!r} disconnected", was_member=True)

    def leave(self, request: LeaveGroupRequest, caller: Caller) -> Steps:
        """Remove the members named in a LeaveGroup request; the response has an error code for each member."""
        responses: list[MemberResponse] = []
        yield from in_pieces(request.members, lambda identity: responses.append(self._leave(identity)))
        left = sum(response.error_code == ErrorCode.NONE for response in responses)
        # Once for all of them: members that leave together cost one rebalance.
        if left:
            self._after_departure(f"{left} {'member' if left == 1 else 'members'} left", was_member=True)
        response = LeaveGroupResponse(error_code=ErrorCode.NONE, members=responses)
        # If the last member has left, the record of the empty group is on its way, and the answer waits for it.
        self._effects.answer(caller, response, lambda error: LeaveGroupResponse(error_code=error))

    def _leave(self, identity: MemberIdentity) -> MemberResponse:
        """Remove one member. An administrator names a static member only by its instance id."""
        member_id, group_instance_id = identity.member_id, identity.group_instance_id
        error = ErrorCode.NONE
        if member_id == UNKNOWN_MEMBER_ID and group_instance_id is not None:
            member_id = self.members.static.get(group_instance_id, UNKNOWN_MEMBER_ID)
        # A handed-out id may be given back as well. It is no member yet that could be validated.
        if member_id not in self.members.pending_join:
            error = self.check_member(member_id, group_instance_id)
        if not error:
            client = self.members.by_id.get(member_id)
            note_left(self._effects, self.group_id, member_id, client, identity.reason)
            self._drop(member_id)
        return MemberResponse(
            member_id=identity.member_id, group_instance_id=identity.group_instance_id, error_code=error
        )

    def _after_departure(self, reason: str, *, was_member: bool) -> None:
        """Begin a rebalance after a departure, or complete a join phase that waited only for this member."""
        if self.state in (STABLE, COMPLETING_REBALANCE) and was_member:
            self.prepare_rebalance(reason)
        else:
            self._maybe_complete_join()

    def _drop_because(self, because: str, member_id: str) -> None:
        note_removed(self._effects, self.group_id, member_id, self.members.by_id.get(member_id), because)
        self._drop(member_id)

    def _drop(self, member_id: str) -> None:
        """Remove a member or a pending member, and answer its parked callers."""
        member = self.members.by_id.get(member_id)
        if member is not None:
            self._dismiss(member, UNKNOWN_MEMBER_ID, ErrorCode.UNKNOWN_MEMBER_ID)
        self.members.remove(member_id)
        self._cancel(SESSION, member_id)

    def _dismiss(self, member: Member, shown_member_id: str, error: ErrorCode) -> None:
        join_caller = self.members.take_join(member)
        if join_caller is not None:
            self._refuse_join(join_caller, shown_member_id, error)
        self._refuse_sync(member, error)

    def _refuse_sync(self, member: Member, error: ErrorCode) -> bool:
        """Answer the member's parked SyncGroup with `error`. Return False if none was parked."""
        caller, member.awaiting_sync = member.awaiting_sync, None
        if caller is not None:
            self._effects.reply(caller, refused_sync(error))
        return caller is not None

    def send_away(self, error: ErrorCode) -> Steps:
        """Answer `error` to all members with parked requests."""
        return in_pieces(self.members, lambda member: self._dismiss(member, member.member_id, error))

    def unload(self, error: ErrorCode) -> Steps:
        """Answer `error` to all members with parked requests, because this broker no longer coordinates the group."""
        yield from self.send_away(error)
        self._transition_to(DEAD)
