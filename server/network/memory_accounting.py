"""Accounting of the memory that all connections together hold for requests until their answers are read, with one limit.

Connections count here what they hold: the bytes of frames that have not arrived in full, large requests that are being
worked on, and answers that the peer has not read. When the limit is reached no request is refused. A connection that wants
more memory stands in line, and is not read meanwhile. Addresses take turns in the queue, so that stalled connections of one
address do not delay the connections of others. Small frames need no leave, so peers with small requests do not notice.

Somebody always gets on. While there is no room, the first in line may go beyond the limit until its frame is complete and
answered; then it is the turn of the next one. The listener closes a peer that keeps others waiting, because it does not
send the rest of its frame (`STALLED_S`, `BEYOND_S`) or does not read its answers. The time that the peer waited in line
itself does not count.

Kafka's `queued.max.request.bytes` is this limit.
"""

from __future__ import annotations

import itertools
from collections import OrderedDict, deque
from typing import TYPE_CHECKING, NamedTuple, Self

import trio

if TYPE_CHECKING:
    from ottla.server.network.pending import Waiting

DEFAULT_BYTES = 96 * 1024 * 1024
STALLED_S = 30.0
"""While others wait for room, the rest of a large frame has to come within this time."""
BEYOND_S = 3.0
"""The rest of the one frame that goes on beyond the limit has to come within this time: no request behind it proceeds before it
is complete."""
PROMISED_BYTES = 1024 * 1024
"""Counted for each that was admitted and has not taken yet: so many are admitted at a time as there is room for."""


class _Place(NamedTuple):
    number: int
    """Place in the queue, in the order of arrival. A request that has to wait again keeps its place."""
    holder: object
    address: str
    admitted: trio.Event


# The states of a holder (the inbox of a connection, or the connection while its request is answered):
#
#     outside    counts what it holds with `take` and `give_back`, and asks `may_take` before it wants more
#     in line    in `wait`, its connection not read. `_admit` lets the first go: admitted if there is room, else beyond
#     admitted   may take although others stand in line, once. If there is no room by then it is the first in line again.
#                Until it takes, or the next `look_again`, others behind it find less room (`PROMISED_BYTES`)
#     beyond     only one at a time. Ends with `release`, or goes over with `pass_on`
class MemoryBudget:
    """Memory budget of all connections, with a queue of the connections that wait for memory."""

    __slots__ = ("_admitted", "_numbers", "_over", "_promised", "line", "most_used", "total", "used")

    def __init__(self, total: int = DEFAULT_BYTES) -> None:
        self.total = total
        self.line: OrderedDict[str, deque[_Place]] = OrderedDict()  # by address; the one whose turn is next comes first
        self._over: object = None  # who may go beyond the limit
        self._admitted: dict[object, int] = {}  # with their numbers in line
        self._promised: set[object] = set()  # those of them who were admitted since the last look
        self._numbers = itertools.count()
        self.used = 0
        self.most_used = 0  # since the system was given back what is free

    @classmethod
    def of(cls, configured: int) -> Self:
        """Return the budget for queued.max.request.bytes; the default -1 means 96 MiB here, no limit in Kafka."""
        return cls(configured) if configured > 0 else cls()

    @property
    def is_short(self) -> bool:
        """True if a connection waits for memory."""
        return bool(self.line)

    def has_room(self) -> bool:
        """True if memory is free and no connection waits for memory."""
        # Those in line come first, or else a stream of newcomers would take whatever becomes free.
        return self.used < self.total and not self.line

    def may_take(self, holder: object) -> bool:
        """True if `holder` may use more memory; False: it must call `wait`, because queued connections go first."""
        if self._over is holder:
            return True
        if self.used >= self.total or (self.line and holder not in self._admitted):
            return False
        self._end_admission(holder)
        return True

    def _end_admission(self, holder: object) -> int | None:
        """End the admission of `holder`; return its number in the queue, None if it was not admitted."""
        self._promised.discard(holder)
        return self._admitted.pop(holder, None)

    def take(self, count: int) -> None:
        self.used += count
        self.most_used = max(self.most_used, self.used)
        # A connection that has taken its part may have left room for the next one.
        if self.line:
            self._admit()

    def give_back(self, count: int) -> None:
        self.used -= count
        if self.line:
            self._admit()

    def is_beyond(self, holder: object) -> bool:
        """True if `holder` has the permission to exceed the limit."""
        return self._over is holder

    def pass_on(self, holder: object, successor: object) -> None:
        """If `holder` has the permission to exceed the limit, transfer the permission to `successor`."""
        if self._over is holder:
            self._over = successor

    def release(self, holder: object) -> None:
        """End the admission of `holder` and its permission to exceed the limit; admit others."""
        was_admitted = self._end_admission(holder) is not None
        if self._over is holder:
            self._over = None
        elif not was_admitted:
            return
        self._admit()

    def look_again(self) -> None:
        """Admit further connections, because admitted ones with slow peers have not used their memory yet."""
        self._promised.clear()
        self._admit()

    async def wait(self, holder: object, address: str = "") -> None:
        """Queue until `holder` is admitted. Then the caller must call `may_take` again.

        That call may fail, because small frames use memory without queueing. Addresses take turns. A holder that was
        admitted before gets back its former place in the queue.
        """
        number = self._end_admission(holder)
        place = _Place(next(self._numbers) if number is None else number, holder, address, trio.Event())
        of_address = self.line.setdefault(address, deque())
        if number is None:
            of_address.append(place)
        else:
            # Near the front, for all before it were admitted as well; and its address has had no turn yet.
            of_address.insert(
                next((at for at, each in enumerate(of_address) if each.number > number), len(of_address)), place
            )
            self.line.move_to_end(address, last=False)
        # Perhaps nothing happens later that would admit it: those in line may hold everything themselves.
        self._admit()
        try:
            await place.admitted.wait()
        except BaseException:
            # The connection ends while it waits. Its place, or its leave, must not stay with it.
            if place.admitted.is_set():
                self.release(holder)
            else:
                of_address.remove(place)
                if not of_address:
                    del self.line[address]
            raise

    def _next(self) -> _Place:
        """Remove the next connection from the queue, wake it and return its place; addresses take turns."""
        address, places = next(iter(self.line.items()))
        place = places.popleft()
        if places:
            self.line.move_to_end(address)
        else:
            del self.line[address]
        place.admitted.set()
        return place

    def _admit(self) -> None:
        """Admit queued connections while memory is free; if none is free, let one connection exceed the limit."""
        line = self.line
        if self.used >= self.total:
            # Those in line may hold all the memory themselves, with the beginnings of their frames. They would wait for
            # each other if nobody went beyond the limit.
            if line and self._over is None:
                self._over = self._next().holder
            return
        left = self.total - self.used - len(self._promised) * PROMISED_BYTES
        is_first = True
        while line and (is_first or left > 0):
            place = self._next()
            self._admitted[place.holder] = place.number
            self._promised.add(place.holder)
            left -= PROMISED_BYTES
            is_first = False


DECODED_BYTES_PER_BYTE = 64  # what a large request takes in work, together with its answer, at most


class ConnectionMemory:
    """Memory of one connection other than its received frames: its large request in progress, and unread answers."""

    __slots__ = ("_held_bytes", "_memory", "unread_bytes")

    def __init__(self, memory: MemoryBudget) -> None:
        self._memory = memory
        self._held_bytes = self.unread_bytes = 0

    def hold(self, waiting: Waiting, size: int, inbox: object) -> None:
        """Count the memory of a large request in progress, before its frame's memory is released."""
        # Any other frame has LARGE_FRAME_BYTES at most, and small frames need no leave of the budget.
        if waiting.is_large or (waiting.call is not None and waiting.call.takes_records):
            self._held_bytes = size * DECODED_BYTES_PER_BYTE if waiting.is_large else size
            self._memory.take(self._held_bytes)
            # The leave to go beyond the limit covers the answer, too. The inbox loses it when its buffer is given back.
            self._memory.pass_on(inbox, self)

    def let_go(self) -> None:
        """Release the memory of the large request in progress."""
        held, self._held_bytes = self._held_bytes, 0
        self._memory.give_back(held)
        self._memory.release(self)

    def count_unread(self, count: int) -> None:
        """Set the number of bytes of answers that the peer has not read yet."""
        self._memory.take(count - self.unread_bytes)
        self.unread_bytes = count
