"""Bring one member towards its target assignment, one heartbeat at a time. Pure functions.

    STABLE            has the tasks of its epoch            -> with a newer target: see below
    UNREVOKED_TASKS   gives up tasks, in its old epoch      -> when it reports that it no longer has them: see below
    UNRELEASED_TASKS  has the target's epoch, misses tasks  -> at every heartbeat: see below
    UNKNOWN           of a newer coordinator's record       -> once the member has no tasks: see below; else fenced

Every step compares the tasks that the member has with its target:

1. If it has tasks that are not in the target, it keeps its epoch and the other tasks: UNREVOKED_TASKS.
2. Else it gets the target's epoch, and those missing tasks that are free. If some are not: UNRELEASED_TASKS.
3. Else it is STABLE.

An active task is free when no process runs it as active. Besides, no process may hold a task twice, in whatever roles. But a
member changes the role of its own task in place, so that the client keeps the state of the task: from standby or
warm-up to active as soon as the task is free, between standby and warm-up at once, and from active to standby at once,
while the group waits for the active task to be given up.

Invariant: no task is active on two members, counting those that a member has still to give up.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from ottla.groupcoord.streams.members import (
    NOTHING_ASSIGNED,
    AssignedTasks,
    Member,
    MemberState,
    Task,
    TaskHolders,
    Tasks,
)
from ottla.wire.errors import ErrorCode, KafkaError


def reconcile(member: Member, target_epoch: int, target: Tasks, holders: TaskHolders, owned: Tasks | None) -> Member:
    """Return the member after its next reconciliation step; the same object if nothing changes.

    `owned`: the tasks that the member reports to own; None if it reports none. Raises KafkaError if it is fenced.
    """
    if member.state is MemberState.STABLE:
        if member.member_epoch == target_epoch:
            return member
        return _Step(member, target_epoch, target, holders, owned).taken(member.member_epoch)
    if member.state is MemberState.UNREVOKED_TASKS:
        if _may_still_have(owned, member.pending_revocation):
            return member
        return _Step(member, target_epoch, target, holders, owned).taken(member.member_epoch + 1)
    if member.state is MemberState.UNKNOWN:
        if owned is None or any(owned):
            raise KafkaError(
                ErrorCode.FENCED_MEMBER_EPOCH,
                "The streams group member is in a unknown state. The member must abandon all its tasks and rejoin.",
            )
        return _Step(member, target_epoch, target, holders, owned).taken(target_epoch)
    return _Step(member, target_epoch, target, holders, owned).taken(member.member_epoch)


def _may_still_have(owned: Tasks | None, tasks: AssignedTasks) -> bool:
    """Return False only if `owned` shows that the member has none of these tasks any more."""
    return owned is None or owned.meets(tasks)


class _Step:
    """One step of a member's reconciliation, with the tasks to keep, to revoke and to grant."""

    def __init__(
        self, member: Member, target_epoch: int, target: Tasks, holders: TaskHolders, owned: Tasks | None
    ) -> None:
        self._member = member
        self._process = member.process_id
        self._target_epoch = target_epoch
        self._target = target
        self._holders = holders
        self._owned = owned
        has = member.assigned
        self._kept_active = {task: epoch for task, epoch in has.active.items() if task in target.active}
        self._kept_standby = set(has.standby & target.standby)
        self._kept_warmup = set(has.warmup & target.warmup)
        self._revoked_active = {task: epoch for task, epoch in has.active.items() if task not in target.active}
        self._revoked_standby = set(has.standby - target.standby)
        self._revoked_warmup = set(has.warmup - target.warmup)
        self._waits_for_others = False
        self._granted_active = self._free(target.active - has.active.keys(), self._is_active_free)
        self._granted_standby = self._free(target.standby - has.standby, self._is_standby_free)
        self._granted_warmup = self._free(target.warmup - has.warmup, self._is_warmup_free)

    def taken(self, epoch: int) -> Member:
        """Return the member after this step. It has the target epoch, or `epoch` if it must revoke tasks first."""
        self._change_roles()
        self._promote()
        kept = AssignedTasks(self._kept_active, frozenset(self._kept_standby), frozenset(self._kept_warmup))
        revoked = self._revoked()
        if self._must_revoke(revoked):
            return self._member.at_epoch(epoch, MemberState.UNREVOKED_TASKS, kept, revoked)
        assigned = AssignedTasks(
            self._kept_active | dict.fromkeys(self._granted_active, self._target_epoch),
            kept.standby | self._granted_standby,
            kept.warmup | self._granted_warmup,
        )
        state = MemberState.UNRELEASED_TASKS if self._waits_for_others else MemberState.STABLE
        return self._member.at_epoch(self._target_epoch, state, assigned, NOTHING_ASSIGNED)

    # ------------------------------------------------------------------ free tasks

    def _free(self, missing: frozenset[Task], is_free: Callable[[Task], bool]) -> set[Task]:
        free = {task for task in missing if is_free(task)}
        if len(free) < len(missing):
            self._waits_for_others = True
        return free

    def _is_active_free(self, task: Task) -> bool:
        return self._holders.active_process(task) is None and not (
            self._other_has_standby(task) or self._other_has_warmup(task)
        )

    def _is_standby_free(self, task: Task) -> bool:
        runs_here = self._holders.active_process(task) == self._process
        return not (
            (runs_here and task not in self._member.assigned.active)
            or self._process in self._holders.standby_processes(task)
            or self._other_has_warmup(task)
        )

    def _is_warmup_free(self, task: Task) -> bool:
        return not (
            self._holders.active_process(task) == self._process
            or self._other_has_standby(task)
            or self._process in self._holders.warmup_processes(task)
        )

    def _other_has_standby(self, task: Task) -> bool:
        """Return True if another member of this member's process has the standby task."""
        return self._process in self._holders.standby_processes(task) and task not in self._member.assigned.standby

    def _other_has_warmup(self, task: Task) -> bool:
        return self._process in self._holders.warmup_processes(task) and task not in self._member.assigned.warmup

    # ------------------------------------------------------------------ roles that change in place

    def _change_roles(self) -> None:
        """Give tasks that the member already has their new roles."""
        has = self._member.assigned
        # The active task stays among those to be given up: the next owner must not run it before.
        _move(has.active.keys() & self._granted_standby, self._granted_standby, self._kept_standby)
        # Both roles run the same code in the client, so there is nothing to give up.
        warmed = has.standby & self._granted_warmup
        _move(warmed, self._granted_warmup, self._kept_warmup)
        self._revoked_standby -= warmed
        cooled = has.warmup & self._granted_standby
        _move(cooled, self._granted_standby, self._kept_standby)
        self._revoked_warmup -= cooled

    def _promote(self) -> None:
        """Keep standby and warm-up tasks that will become active on this member, until they are active."""
        has, wanted = self._member.assigned, self._target.active
        # The client turns such a task into an active one, and never reports that it gave up the copy.
        self._revoked_standby -= wanted
        self._revoked_warmup -= wanted
        granted = set() if self._must_revoke(self._revoked()) else self._granted_active
        self._kept_standby |= (has.standby & wanted) - granted
        self._kept_warmup |= (has.warmup & wanted) - granted

    def _revoked(self) -> AssignedTasks:
        return AssignedTasks(self._revoked_active, frozenset(self._revoked_standby), frozenset(self._revoked_warmup))

    def _must_revoke(self, revoked: AssignedTasks) -> bool:
        return bool(revoked) and _may_still_have(self._owned, revoked)


def _move(tasks: Collection[Task], source: set[Task], destination: set[Task]) -> None:
    source.difference_update(tasks)
    destination.update(tasks)
