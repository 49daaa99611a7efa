"""One limit on the memory that all connections together hold for requests, until their answers are read.

Connections count here what they hold: the bytes of frames that have not arrived in full, large requests that are being
worked on, and answers that the peer has not read. When the limit is reached no request is refused. A connection that wants
more memory stands in line, and is not read meanwhile. Small frames need no leave, so peers with small requests do not notice.

Somebody always gets on. While there is no room, the first in line may go beyond the limit until its frame is complete and
answered; then it is the turn of the next one. The listener closes a peer that keeps others waiting, because it does not
send the rest of its frame (`STALLED_S`, `BEYOND_S`) or does not read its answers. The time that the peer waited in line
itself does not count.

Kafka's `queued.max.request.bytes` is this limit.
"""

from __future__ import annotations

import itertools
from collections import deque
from typing import NamedTuple, Self

import trio

DEFAULT_BYTES = 96 * 1024 * 1024
STALLED_S = 30.0
"""While others wait for room, the rest of a large frame has to come within this time."""
BEYOND_S = 3.0
"""The same for the one frame that goes on beyond the limit: nobody behind it gets on before it is complete."""


class _Place(NamedTuple):
    number: int
    """In the order of coming. Who has to come back keeps it."""
    holder: object
    admitted: trio.Event


# The states of a holder (the inbox of a connection, or the connection while its request is answered):
#
#     outside    counts what it holds with `take` and `give_back`, and asks `may_take` before it wants more
#     in line    in `wait`, its connection not read. `_admit` lets the first go: admitted if there is room, else beyond
#     admitted   may take although others stand in line, once. If there is no room by then it is the first in line again
#     beyond     only one at a time. Ends with `release`, or goes over with `pass_on`
class MemoryBudget:
    """How many bytes are held, and who waits for room."""

    __slots__ = ("_admitted", "_line", "_numbers", "_over", "_total", "most_used", "used")

    def __init__(self, total: int = DEFAULT_BYTES) -> None:
        self._total = total
        self._line: deque[_Place] = deque()
        self._over: object = None  # who may go beyond the limit
        self._admitted: dict[object, int] = {}  # with their numbers in line
        self._numbers = itertools.count()
        self.used = 0
        self.most_used = 0  # since the system was given back what is free

    @classmethod
    def of(cls, configured: int) -> Self:
        """The budget for a value of queued.max.request.bytes. Kafka's default, -1, means no limit there and 96 MiB here."""
        return cls(configured) if configured > 0 else cls()

    @property
    def is_short(self) -> bool:
        """Whether somebody waits."""
        return bool(self._line)

    def has_room(self) -> bool:
        """Whether there is room for somebody who does not stand in line."""
        # No property: every read asks, and a method is called for a third of what a property costs.
        # Those in line come first, or else a stream of newcomers would take whatever becomes free.
        return self.used < self._total and not self._line

    def may_take(self, holder: object) -> bool:
        """Whether `holder` may take more, and then does. Nobody takes what those in line wait for."""
        if self._over is holder:
            return True
        if self.used >= self._total or (self._line and holder not in self._admitted):
            return False
        self._admitted.pop(holder, None)
        return True

    def take(self, count: int) -> None:
        self.used += count
        self.most_used = max(self.most_used, self.used)
        # `_admit` admits one at a time, and the next one after that has taken its part, if there is still room.
        if self._line:
            self._admit()

    def give_back(self, count: int) -> None:
        self.used -= count
        if self._line:
            self._admit()

    def is_beyond(self, holder: object) -> bool:
        """Whether `holder` is the one that may go beyond the limit."""
        return self._over is holder

    def pass_on(self, holder: object, successor: object) -> None:
        """If `holder` may go beyond the limit, `successor` may instead, until it releases that."""
        if self._over is holder:
            self._over = successor

    def release(self, holder: object) -> None:
        """`holder` goes beyond the limit no more, or wants no more."""
        self._admitted.pop(holder, None)
        if self._over is holder:
            self._over = None
            self._admit()

    def look_again(self) -> None:
        """Whoever was admitted last may not have taken its part, because its peer is slow: then there is room for the next one."""
        self._admit()

    async def wait(self, holder: object) -> None:
        """Return when there seems to be room for `holder`. It has to ask `may_take` again: what needs no leave may be quicker."""
        number = self._admitted.pop(holder, None)
        place = _Place(next(self._numbers) if number is None else number, holder, trio.Event())
        self._line.insert(sum(each.number < place.number for each in self._line), place)
        # Perhaps nothing happens later that would admit it: those in line may hold everything themselves.
        self._admit()
        try:
            await place.admitted.wait()
        except BaseException:
            # The connection ends while it waits. Its place, or its leave, must not stay with it.
            if place in self._line:
                self._line.remove(place)
            else:
                self.release(holder)
            raise

    def _admit(self) -> None:
        """Let the first in line go on if there is room, or if nobody is beyond the limit."""
        if not self._line:
            return
        has_room = self.used < self._total
        if has_room or self._over is None:
            place = self._line.popleft()
            # Those in line may hold all the memory themselves, with the beginnings of their frames. They would wait for
            # each other if nobody went beyond the limit.
            if has_room:
                self._admitted[place.holder] = place.number
            else:
                self._over = place.holder
            place.admitted.set()
