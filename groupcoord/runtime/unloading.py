"""Answers everybody who waits for a shard when it is unloaded, in time slices: ten thousand members may be parked in a group."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Any

from ottla.groupcoord.runtime.answers import refused, send
from ottla.groupcoord.runtime.coordinator_shard import CoordinatorShard, Outcome, Reply
from ottla.wire.errors import ErrorCode
from ottla.wire.time_slice import TimeSlice

logger = logging.getLogger("ottla.groupcoord")

ANSWERED_AT_ONCE = 500

Place = tuple[int, str]
"""A partition, and the name of its topic in the log."""


def last_replies(
    shard: CoordinatorShard, unsettled: Sequence[Outcome[Any]], error: ErrorCode, times: dict[str, int], place: Place
) -> Iterator[Reply]:
    """The replies that a shard owes at its end, each made when its turn comes. `place`: for the log."""
    # A call that a bug ended halfway has collected things, which the settlements below must not send. It may have taken
    # callers out of the groups already, and then nobody else knows them.
    half = shard.discard()
    yield from refused([caller for caller, _ in half.replies], error)
    # A settlement is called exactly once, also now.
    settlements = [each for outcome in (*unsettled, half) for each in outcome.settlements]
    works: list[Callable[[], Iterable[Reply]]] = [partial(shard.settle, [each], error, **times) for each in settlements]
    works.append(partial(shard.unload, error))
    for work in works:
        try:
            yield from work()
        except Exception:  # whoever has lost the partition must not be kept from following the new leader
            logger.exception("bug: partition %d of %s, while unloading", *place)


class Farewell:
    """Replies that are sent when a shard is gone, some at once and the others in time slices."""

    def __init__(self, replies: Iterator[Reply], place: Place) -> None:
        self._replies = replies
        self._place = place

    def send_some(self, count: int = sys.maxsize) -> bool:
        """Send so many. Whether there may be more."""
        sent = 0
        for reply in islice(self._replies, count):
            sent += 1
            try:
                send((reply,))
            except Exception:  # the others have to be answered all the same
                logger.exception("bug: partition %d of %s, while unloading", *self._place)
        return sent == count

    async def send_rest(self) -> None:
        time_slice = TimeSlice()
        try:
            while self.send_some(1):
                await time_slice.yield_if_over()
        finally:
            # Nobody else knows who is left when this is cancelled.
            self.send_some()
