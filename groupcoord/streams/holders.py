"""Which processes have a task now: those that run it, and those that still have to give it up."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from ottla.groupcoord.streams.members import Member
from ottla.groupcoord.streams.tasks import Task

NOBODY: frozenset[str] = frozenset()


class TaskHolders:
    """The processes of all members, kept up as members change."""

    def __init__(self) -> None:
        self._active: dict[Task, str] = {}
        self._standby: dict[Task, set[str]] = {}
        self._warmup: dict[Task, set[str]] = {}

    def active_process(self, task: Task) -> str | None:
        return self._active.get(task)

    def standby_processes(self, task: Task) -> Collection[str]:
        return self._standby.get(task, NOBODY)

    def warmup_processes(self, task: Task) -> Collection[str]:
        return self._warmup.get(task, NOBODY)

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
