"""Waiting until nothing goes on any more, threads included, however long one of them takes on a busy machine."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import trio
import trio.testing

PATIENCE_S = 120


async def settled(cushion_s: float = 0.001) -> None:
    """Return when every task has been waiting for so long, and none of them for a thread.

    Of no use where a thread waits for the test.
    """
    end_s = time.monotonic() + PATIENCE_S  # by the clock of threads: trio's may be one of the test
    while True:
        await trio.testing.wait_all_tasks_blocked(cushion_s)
        if not any(map(_waits_for_a_thread, _all_tasks())):
            return
        assert time.monotonic() < end_s, "a thread has no end"


def _all_tasks() -> Iterator[trio.lowlevel.Task]:
    root = trio.lowlevel.current_root_task()
    left = [] if root is None else [root]
    while left:
        task = left.pop()
        yield task
        left += [child for nursery in task.child_nurseries for child in nursery.child_tasks]


def _waits_for_a_thread(task: trio.lowlevel.Task) -> bool:
    """Whether the innermost of what it awaits is the end of a thread's work."""
    awaited: Any = task.coro
    while awaited is not None:
        if getattr(getattr(awaited, "cr_code", None), "co_name", "") == "to_thread_run_sync":
            return True
        awaited = getattr(awaited, "cr_await", None)
    return False
