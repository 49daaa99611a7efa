"""Kafka's sticky assignor for streams groups: tasks stay where they are, or go where their state is, as far as load allows.

Active tasks, in three rounds:
1. A task stays with the member that runs it.
2. A task goes to a member that has a copy of its state: a standby task, or a state on disk that the member reported.
3. The remaining tasks go to the process with the least load, and there to the member with the fewest tasks.

A member takes part in the first two rounds until it has its share, which is the tasks to be given divided by the members
that may still take some, rounded up. A member that is full leaves with its tasks, and the shares are recomputed.

Standby tasks are given in the same manner, with shares of all tasks. No process has a task twice. With fewer processes than
requested copies, some copies are omitted.

Where loads are equal the order of Java's collections decides, so that the answer is Kafka's own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Generic, NamedTuple, TypeVar

from ottla.groupcoord.java_hashing import hash_map_slot, table_slot
from ottla.groupcoord.streams.members import NO_TASKS, Task, Tasks

T = TypeVar("T")


class AssignableMember(NamedTuple):
    """Member in the assignor's input, with its current tasks and the offsets of the task states on its disk."""

    process_id: str
    active: Collection[Task] = ()
    standby: frozenset[Task] = NO_TASKS
    offsets: Mapping[Task, int] = {}


class AssignableSubtopology(NamedTuple):
    """Subtopology in the assignor's input, with tasks 0 to `task_count` - 1. Only stateful ones get standby tasks."""

    subtopology_id: str
    task_count: int
    is_stateful: bool

    @property
    def tasks(self) -> list[Task]:
        return [Task(self.subtopology_id, number) for number in range(self.task_count)]


# ---------------------------------------------------------------------- Java's priority queue


class JavaQueue(Generic[T]):
    """Priority queue, smallest item first, that orders equal items like java.util.PriorityQueue (heapq does not).

    The order decides which equally loaded process gets a task. Priorities of queued items must not change.
    """

    def __init__(self, items: Iterable[T], priority: Callable[[T], float]) -> None:
        self._priority = priority
        self._heap: list[T] = []
        for item in items:
            self.add(item)

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, item: T) -> None:
        heap, priority = self._heap, self._priority(item)
        heap.append(item)
        place = len(heap) - 1
        while place > 0:
            parent = (place - 1) >> 1
            if priority >= self._priority(heap[parent]):
                break
            heap[place] = heap[parent]
            place = parent
        heap[place] = item

    def take(self) -> T:
        """Remove and return the first item. Raises IndexError if the queue is empty."""
        heap = self._heap
        first, last = heap[0], heap.pop()
        if heap:
            self._sink(last)
        return first

    def _sink(self, item: T) -> None:
        """Put `item` at the front of the heap, and move it down to its place."""
        heap, priority, size = self._heap, self._priority(item), len(self._heap)
        place = 0
        while place < size >> 1:
            child = 2 * place + 1
            if child + 1 < size and self._priority(heap[child]) > self._priority(heap[child + 1]):
                child += 1
            if priority <= self._priority(heap[child]):
                break
            heap[place] = heap[child]
            place = child
        heap[place] = item


# ---------------------------------------------------------------------- sticky assignor


class StickyAssignor:
    """Port of Kafka's StickyTaskAssignor."""

    name = "sticky"

    def assign(
        self,
        members: Mapping[str, AssignableMember],
        subtopologies: Sequence[AssignableSubtopology],
        standby_replicas: int,
    ) -> dict[str, Tasks]:
        """Assign all tasks to the members; return each member's tasks."""
        run = _Run(members, subtopologies, standby_replicas)
        if members:
            run.assign_active([task for each in subtopologies for task in each.tasks])
            if standby_replicas > 0:
                run.assign_standby([task for each in subtopologies if each.is_stateful for task in each.tasks])
        return run.result()


class _Candidate(NamedTuple):
    """Member that has a task's state, either as a standby task or on its disk."""

    member_id: str
    is_standby: bool
    offset: int

    @property
    def rank(self) -> tuple[bool, int]:
        return not self.is_standby, -self.offset


class _Share:
    """Number of tasks that a member may have: the average over the members that have not reached it yet."""

    def __init__(self, tasks: int, members: int) -> None:
        self._tasks = tasks
        self._members = members
        self.size = self._divide()

    def count(self, tasks_of_member: int) -> None:
        """Count a task that a member was given. With it the member has `tasks_of_member` tasks."""
        if tasks_of_member == self.size:
            self._tasks -= tasks_of_member
            self._members -= 1
            self.size = self._divide()

    def _divide(self) -> int:
        return -(-self._tasks // self._members) if self._members else 0


class _Process:
    """Process of the application. Each of its threads is a member."""

    __slots__ = ("_by_load", "_total", "active", "counts", "load", "standby", "tasks")

    def __init__(self, member_ids: Iterable[str]) -> None:
        self.counts = dict.fromkeys(member_ids, 0)
        self.active: dict[str, set[Task]] = {}
        self.standby: dict[str, set[Task]] = {}
        self.tasks: set[Task] = set()
        self._total = 0
        self.load = 0.0
        self._by_load: JavaQueue[str] | None = None

    def add(self, member_id: str, task: Task, *, is_active: bool) -> int:
        """Give a task to a member. Return the number of tasks that the member then has."""
        # The queue cannot follow a member that changes its place.
        self._by_load = None
        return self._give(member_id, task, is_active)

    def add_to_least_loaded(self, task: Task, *, is_active: bool) -> int:
        if self._by_load is None:
            ordered = sorted(self.counts, key=lambda each: hash_map_slot(each, len(self.counts)))
            self._by_load = JavaQueue(ordered, self.counts.__getitem__)
        member_id = self._by_load.take()
        count = self._give(member_id, task, is_active)
        self._by_load.add(member_id)
        return count

    def _give(self, member_id: str, task: Task, is_active: bool) -> int:
        role = self.active if is_active else self.standby
        role.setdefault(member_id, set()).add(task)
        self.tasks.add(task)
        self.counts[member_id] += 1
        self._total += 1
        self.load = self._total / len(self.counts)
        return self.counts[member_id]


class _Run:
    """One computation of an assignment."""

    def __init__(
        self,
        members: Mapping[str, AssignableMember],
        subtopologies: Sequence[AssignableSubtopology],
        standby_replicas: int,
    ) -> None:
        ordered = sorted(members, key=lambda each: hash_map_slot(each, len(members)))
        self._members = members
        self._replicas = standby_replicas
        active = sum(each.task_count for each in subtopologies)
        standby = sum(each.task_count for each in subtopologies if each.is_stateful) * standby_replicas
        self._active_share = _Share(active, len(members))
        self._share = _Share(active + standby, len(members))
        self._processes = self._processes_of(ordered)
        self._owner = {task: member_id for member_id in ordered for task in members[member_id].active}
        self._copies = self._copies_of(ordered)

    def _processes_of(self, ordered: list[str]) -> dict[str, _Process]:
        ids: dict[str, list[str]] = {}
        for member_id in ordered:
            ids.setdefault(self._members[member_id].process_id, []).append(member_id)
        # Java's computeIfAbsent puts a newcomer before the others of its slot. It grows the table before it looks for the
        # key, so the addition of the last call does not count.
        size = len(ids) - (len(ids[self._members[ordered[-1]].process_id]) == 1) if ordered else 0
        newest_first = list(ids)[::-1]
        newest_first.sort(key=lambda each: table_slot(each, size, len(ordered)))
        return {process_id: _Process(ids[process_id]) for process_id in newest_first}

    def _copies_of(self, ordered: list[str]) -> dict[Task, list[str]]:
        """Return, by task, the members with the task's state: standby tasks first, then by falling offsets."""
        candidates: dict[Task, list[_Candidate]] = {}
        for member_id in ordered:
            member = self._members[member_id]
            for task in member.standby:
                candidates.setdefault(task, []).append(_Candidate(member_id, True, member.offsets.get(task, 0)))
            for task, offset in member.offsets.items():
                if task not in member.standby:
                    candidates.setdefault(task, []).append(_Candidate(member_id, False, offset))
        for ranked in candidates.values():
            ranked.sort(key=lambda each: each.rank)
        return {task: [each.member_id for each in ranked] for task, ranked in candidates.items()}

    def _process_of(self, member_id: str) -> _Process:
        return self._processes[self._members[member_id].process_id]

    def _queue(self) -> JavaQueue[_Process]:
        return JavaQueue(self._processes.values(), lambda each: each.load)

    # ------------------------------------------------------------------ active tasks

    def assign_active(self, tasks: list[Task]) -> None:
        tasks.sort(key=lambda task: (task.partition, task.subtopology_id))
        tasks = [task for task in tasks if not self._stays_active(task, self._owner.get(task))]
        tasks = [task for task in tasks if not self._stays_active(task, self._least_loaded_copy(task))]
        tasks.sort()
        queue = self._queue()
        for task in tasks:
            process = queue.take()
            self._count_active(process.add_to_least_loaded(task, is_active=True))
            queue.add(process)

    def _stays_active(self, task: Task, member_id: str | None) -> bool:
        if member_id is None:
            return False
        process = self._process_of(member_id)
        if process.counts[member_id] >= self._active_share.size:
            return False
        self._count_active(process.add(member_id, task, is_active=True))
        return True

    def _count_active(self, tasks_of_member: int) -> None:
        self._active_share.count(tasks_of_member)
        self._share.count(tasks_of_member)

    def _least_loaded_copy(self, task: Task, *, elsewhere: bool = False) -> str | None:
        """Return the least loaded member that has the task's state, or None.

        `elsewhere`: leave out processes that have been given the task.
        """
        found: str | None = None
        least_process = least_member = 0.0
        for member_id in self._copies.get(task, ()):
            process = self._process_of(member_id)
            if elsewhere and task in process.tasks:
                continue
            load, count = process.load, process.counts[member_id]
            # As in Kafka a later one must have less of both.
            if found is None or (load < least_process and count < least_member):
                found, least_process, least_member = member_id, load, count
        return found

    # ------------------------------------------------------------------ standby tasks

    def assign_standby(self, tasks: list[Task]) -> None:
        tasks.sort(key=lambda task: (task.partition, task.subtopology_id), reverse=True)
        open_copies: list[tuple[Task, int]] = []
        for task in tasks:
            for number in range(self._replicas):
                if not (
                    self._stays_standby(task, self._former_owner(task))
                    or self._stays_standby(task, self._least_loaded_copy(task, elsewhere=True))
                ):
                    open_copies.append((task, self._replicas - number))
                    break
        open_copies.sort(key=lambda each: each[0], reverse=True)
        queue = self._queue()
        for task, copies in open_copies:
            for _ in range(copies):
                if not self._add_standby(queue, task):
                    break

    def _former_owner(self, task: Task) -> str | None:
        """Return the member that had the active task before; None if its process has been given the task."""
        member_id = self._owner.get(task)
        return None if member_id is None or task in self._process_of(member_id).tasks else member_id

    def _stays_standby(self, task: Task, member_id: str | None) -> bool:
        if member_id is None:
            return False
        process = self._process_of(member_id)
        if process.counts[member_id] >= self._share.size:
            return False
        self._share.count(process.add(member_id, task, is_active=False))
        return True

    def _add_standby(self, queue: JavaQueue[_Process], task: Task) -> bool:
        """Give a standby task to the least loaded process that does not have it. Return False if all have it."""
        passed: list[_Process] = []
        is_given = False
        while queue and not is_given:
            process = queue.take()
            passed.append(process)
            if task not in process.tasks:
                self._share.count(process.add_to_least_loaded(task, is_active=False))
                is_given = True
        # The last one taken goes back first, which decides between equal loads.
        for process in reversed(passed):
            queue.add(process)
        return is_given

    # ------------------------------------------------------------------ result

    def result(self) -> dict[str, Tasks]:
        assigned = {}
        for member_id in self._members:
            process = self._process_of(member_id)
            active, standby = process.active.get(member_id, ()), process.standby.get(member_id, ())
            assigned[member_id] = Tasks(frozenset(active), frozenset(standby))
        return assigned
