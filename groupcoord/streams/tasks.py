"""Tasks of a streams application: one partition number of one subtopology, processed by one member."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple, Protocol


class Task(NamedTuple):
    """The partitions of that number of all source topics of a subtopology."""

    subtopology_id: str
    partition: int


class TaskIds(Protocol):
    """Tasks of one subtopology, as requests and records have them."""

    @property
    def subtopology_id(self) -> str: ...

    @property
    def partitions(self) -> list[int]: ...


NO_TASKS: frozenset[Task] = frozenset()


class Tasks(NamedTuple):
    """Tasks by the role in which a member runs them.

    An active task processes records. A standby task only copies the state of an active task. A warm-up task copies it
    too, until it can become active on its member.
    """

    active: frozenset[Task] = NO_TASKS
    standby: frozenset[Task] = NO_TASKS
    warmup: frozenset[Task] = NO_TASKS

    def meets(self, other: AssignedTasks) -> bool:
        """Whether some task has the same role in both."""
        return not (
            self.active.isdisjoint(other.active)
            and self.standby.isdisjoint(other.standby)
            and self.warmup.isdisjoint(other.warmup)
        )


class AssignedTasks(NamedTuple):
    """Tasks that a member has, each active one with the epoch since which it is the member's.

    A commit of an older epoch comes from a member that did not own the task yet.
    """

    active: Mapping[Task, int]
    standby: frozenset[Task] = NO_TASKS
    warmup: frozenset[Task] = NO_TASKS

    def __bool__(self) -> bool:
        return bool(self.active or self.standby or self.warmup)

    def with_epoch(self, epoch: int) -> AssignedTasks:
        """The same tasks, all active ones of one epoch."""
        return self._replace(active=dict.fromkeys(self.active, epoch))


NOTHING_ASSIGNED = AssignedTasks({})


def tasks_of(parts: Iterable[TaskIds]) -> frozenset[Task]:
    """The tasks that a request or a record names."""
    return frozenset(Task(part.subtopology_id, number) for part in parts for number in part.partitions)


def by_subtopology(tasks: Iterable[Task]) -> list[tuple[str, list[int]]]:
    """Subtopologies and their partitions, both in order."""
    parts: dict[str, list[int]] = {}
    for task in sorted(tasks):
        parts.setdefault(task.subtopology_id, []).append(task.partition)
    return list(parts.items())
