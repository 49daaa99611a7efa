"""Takes all processors of this machine, so that what is tested beside it gets its turns late and for a short time only."""

import contextlib
import multiprocessing
import os
import time
from collections.abc import Iterator
from multiprocessing.process import BaseProcess

SHARE = 3
"""Three endless loops for every two processors, so that every other process waits for its turn."""

HOURS_MAX = 3.0


def _spin(parent: int) -> None:
    end = time.monotonic() + HOURS_MAX * 3600
    while os.getppid() == parent and time.monotonic() < end:
        for _ in range(100_000):
            pass


@contextlib.contextmanager
def busy() -> Iterator[list[BaseProcess]]:
    """Endless loops in processes of their own, which end with this one at the latest."""
    count = -(-(os.cpu_count() or 1) * SHARE // 2)
    context = multiprocessing.get_context("spawn")
    loops: list[BaseProcess] = [context.Process(target=_spin, args=(os.getpid(),), daemon=True) for _ in range(count)]
    for loop in loops:
        loop.start()
    try:
        yield loops
    finally:
        for loop in loops:
            loop.kill()
            loop.join()
