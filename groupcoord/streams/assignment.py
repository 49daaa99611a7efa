"""What an assignor is told of a group, and what it gives back."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple, Protocol

from ottla.groupcoord.streams.tasks import NO_TASKS, Task, Tasks


class AssignableMember(NamedTuple):
    """A member, its tasks of now, and how far it has copied the states of tasks that it has on disk."""

    process_id: str
    active: Collection[Task] = ()
    standby: frozenset[Task] = NO_TASKS
    offsets: Mapping[Task, int] = {}


class AssignableSubtopology(NamedTuple):
    """Task numbers 0 to `task_count` - 1; only a stateful one has standby tasks."""

    subtopology_id: str
    task_count: int
    is_stateful: bool

    @property
    def tasks(self) -> list[Task]:
        return [Task(self.subtopology_id, number) for number in range(self.task_count)]


class Assignor(Protocol):
    """Gives every task to one member, and standby tasks to others."""

    @property
    def name(self) -> str: ...

    def assign(
        self,
        members: Mapping[str, AssignableMember],
        subtopologies: Sequence[AssignableSubtopology],
        standby_replicas: int,
    ) -> dict[str, Tasks]: ...
