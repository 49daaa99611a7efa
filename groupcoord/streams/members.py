"""Members of a streams group and their tasks.

A task is one partition number of one subtopology, processed by one member. A process, which is one instance of the
application, has a member for each of its threads.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import NamedTuple, Protocol

NO_PROCESSES: frozenset[str] = frozenset()


class Task(NamedTuple):
    """Task of a subtopology. It reads from each source topic the partition with the task's number."""

    subtopology_id: str
    partition: int


class TaskIds(Protocol):
    """Tasks of one subtopology, in the form of a request or a record."""

    @property
    def subtopology_id(self) -> str: ...

    @property
    def partitions(self) -> list[int]: ...


NO_TASKS: frozenset[Task] = frozenset()


class Tasks(NamedTuple):
    """Tasks by the role in which a member runs them.

    Active tasks process records. Standby and warm-up tasks copy the state of active tasks. A warm-up task may become
    active on its member later.
    """

    active: frozenset[Task] = NO_TASKS
    standby: frozenset[Task] = NO_TASKS
    warmup: frozenset[Task] = NO_TASKS

    def meets(self, other: AssignedTasks) -> bool:
        """Return True if any task is in both with the same role."""
        return not (
            self.active.isdisjoint(other.active)
            and self.standby.isdisjoint(other.standby)
            and self.warmup.isdisjoint(other.warmup)
        )


class AssignedTasks(NamedTuple):
    """Tasks assigned to a member. Commits with an epoch before an active task's assignment epoch are refused."""

    active: Mapping[Task, int]
    standby: frozenset[Task] = NO_TASKS
    warmup: frozenset[Task] = NO_TASKS

    def __bool__(self) -> bool:
        return bool(self.active or self.standby or self.warmup)

    def with_epoch(self, epoch: int) -> AssignedTasks:
        """Return a copy in which all active tasks have this assignment epoch."""
        return self._replace(active=dict.fromkeys(self.active, epoch))


NOTHING_ASSIGNED = AssignedTasks({})


def tasks_of(parts: Iterable[TaskIds]) -> frozenset[Task]:
    """Return the tasks that a request or a record names."""
    return frozenset(Task(part.subtopology_id, number) for part in parts for number in part.partitions)


def by_subtopology(tasks: Iterable[Task]) -> list[tuple[str, list[int]]]:
    """Return pairs of a subtopology id and its task numbers, both in order."""
    parts: dict[str, list[int]] = {}
    for task in sorted(tasks):
        parts.setdefault(task.subtopology_id, []).append(task.partition)
    return list(parts.items())


class MemberState(IntEnum):
    """State of a member's reconciliation; the numbers are those in records."""

    STABLE = 1
    """The member has all tasks of the target assignment of its epoch."""
    UNREVOKED_TASKS = 2
    """The member has to give up tasks before it gets the next epoch."""
    UNRELEASED_TASKS = 3
    """The member has the epoch, and waits for tasks that others have not given up."""
    UNKNOWN = 127
    """A newer coordinator wrote a state that this one does not know."""

    @classmethod
    def _missing_(cls, value: object) -> MemberState:
        return cls.UNKNOWN


class Endpoint(NamedTuple):
    """Address at which an instance of the application answers queries of its state."""

    host: str
    port: int


@dataclass(frozen=True, slots=True)
class Member:
    """Member of a streams group; immutable."""

    member_id: str
    member_epoch: int = 0
    previous_member_epoch: int = 0
    state: MemberState = MemberState.STABLE
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    topology_epoch: int = -1
    process_id: str = ""
    user_endpoint: Endpoint | None = None
    client_tags: Mapping[str, str] = field(default_factory=dict)
    assigned: AssignedTasks = NOTHING_ASSIGNED
    pending_revocation: AssignedTasks = NOTHING_ASSIGNED

    def is_reconciled_to(self, assignment_epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.member_epoch == assignment_epoch

    def at_epoch(
        self, epoch: int, state: MemberState, assigned: AssignedTasks, pending_revocation: AssignedTasks
    ) -> Member:
        """Return a copy with this epoch, state and tasks. Its previous epoch is the epoch of this object."""
        return replace(
            self,
            member_epoch=epoch,
            previous_member_epoch=self.member_epoch,
            state=state,
            assigned=assigned,
            pending_revocation=pending_revocation,
        )


# ---------------------------------------------------------------------- holders of tasks


class TaskHolders:
    """Processes that have each task or must still release it, by the task's role."""

    def __init__(
        self,
        active: dict[Task, str] | None = None,
        standby: dict[Task, set[str]] | None = None,
        warmup: dict[Task, set[str]] | None = None,
    ) -> None:
        self._active = active or {}
        self._standby = standby or {}
        self._warmup = warmup or {}

    def active_process(self, task: Task) -> str | None:
        return self._active.get(task)

    def standby_processes(self, task: Task) -> Collection[str]:
        return self._standby.get(task, NO_PROCESSES)

    def warmup_processes(self, task: Task) -> Collection[str]:
        return self._warmup.get(task, NO_PROCESSES)

    def add(self, member: Member) -> None:
        process = member.process_id
        for tasks in (member.assigned, member.pending_revocation):
            self._active.update(dict.fromkeys(tasks.active, process))
            _add(self._standby, tasks.standby, process)
            _add(self._warmup, tasks.warmup, process)

    def remove(self, member: Member) -> None:
        process = member.process_id
        for tasks in (member.assigned, member.pending_revocation):
            for task in tasks.active:
                # Another member may have taken the place meanwhile, when a static member came back by another name.
                if self._active.get(task) == process:
                    del self._active[task]
            _remove(self._standby, tasks.standby, process)
            _remove(self._warmup, tasks.warmup, process)


def _add(holders: dict[Task, set[str]], tasks: Iterable[Task], process: str) -> None:
    for task in tasks:
        holders.setdefault(task, set()).add(process)


def _remove(holders: dict[Task, set[str]], tasks: Iterable[Task], process: str) -> None:
    for task in tasks:
        processes = holders.get(task)
        if processes is not None:
            processes.discard(process)
            if not processes:
                del holders[task]
