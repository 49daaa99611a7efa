"""Reads of the event loop that only the disk can answer: a thread brings the pages into memory, then they are done again."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import TypeVar

import trio

from ottla.replication.log.storage import NotCached, only_cached
from ottla.wire.time_slice import TimeSlice

TRIES_MAX = 100
"""An element that is cold as often is waited for: memory is so short that the system takes pages away at once. To find a batch
in a full segment takes up to twenty, as its index is bisected by pages."""

Element = TypeVar("Element")

_warmed_in_threads = trio.CapacityLimiter(4)
"""So that a crowd that reads old records leaves threads to others."""


async def each_warmed(elements: Sequence[Element], do: Callable[[Element], None]) -> None:
    """Do something with each element, giving way, and again where it raised NotCached: it has changed nothing then."""
    time_slice = TimeSlice()
    for element in elements:
        tries = 0
        while True:
            # The block holds for the whole thread. It must not be open across an await, or other tasks would read
            # under it.
            try:
                with only_cached if tries < TRIES_MAX else contextlib.nullcontext():
                    do(element)
                break
            except NotCached as cold:
                tries += 1
                # `warm` passes over errors of the disk. The next try meets them, where the log can judge them.
                await trio.to_thread.run_sync(cold.warm, limiter=_warmed_in_threads)
        await time_slice.yield_if_over()
