"""Reads of the event loop that only the disk can answer: a thread brings the pages into memory, then they are done again."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import TypeVar

import trio

from ottla.replication.log.storage import NotCached, only_cached

TRIES_MAX = 20
"""An element that is cold as often is waited for: memory is so short that the system takes pages away at once."""

Element = TypeVar("Element")

_warmed_in_threads = trio.CapacityLimiter(4)
"""So that a crowd that reads old records leaves threads to others."""


async def each_warmed(elements: Sequence[Element], do: Callable[[Element], None]) -> None:
    """Do something with each element, and again where it raised NotCached; up to then it must have changed nothing."""
    done = tries = 0
    while done < len(elements):
        try:
            with only_cached if tries < TRIES_MAX else contextlib.nullcontext():
                while done < len(elements):
                    do(elements[done])
                    done += 1
                    tries = 0
        except NotCached as cold:
            tries += 1
            await trio.to_thread.run_sync(cold.warm, limiter=_warmed_in_threads)
