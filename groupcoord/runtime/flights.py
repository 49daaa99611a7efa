"""Appends whose commit is waited for, and the replies that rest on them.

A *flight* is one append. It lands when it is committed: then its records are put in force and its replies go out.
Flights land in the order in which they took off, as a log commits in order. Whatever is answered while one is under way
waits for the last of them, because it may rest on what that one changes (Kafka's CoordinatorRuntime: the deferred events
behind the last written offset).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Coroutine
from typing import Any

import trio

from ottla.groupcoord.runtime.callers import send
from ottla.groupcoord.runtime.outcome import Reply
from ottla.groupcoord.runtime.ports import Appended


class Flight:
    """One append: what to await until it is committed, its records, and the replies that wait for it."""

    __slots__ = ("commit", "first_offset", "is_awaited", "records", "replies")

    def __init__(self, appended: Appended, records: list[Any]) -> None:
        self.first_offset, commit = appended
        self.commit: Coroutine[Any, Any, None] = _no_wait() if commit is None else commit
        self.is_awaited = False
        self.records = records
        self.replies: list[Reply] = []


class Flights:
    """The flights of one partition that have not landed; see the module's docstring."""

    def __init__(self) -> None:
        self._under_way: deque[Flight] = deque()
        self._all_landed = trio.Event()

    def __bool__(self) -> bool:
        return bool(self._under_way)

    def take_off(self, flight: Flight) -> None:
        self._under_way.append(flight)

    def give(self, replies: list[Reply]) -> None:
        """Send replies once everything is committed that has been appended by now."""
        if self._under_way:
            self._under_way[-1].replies += replies
        else:
            send(replies)

    async def first_committed(self) -> Flight:
        """The flight that lands next, when it is committed. Raises what its commit raises."""
        flight = self._under_way[0]
        flight.is_awaited = True
        await flight.commit
        return flight

    def land(self) -> None:
        """The first flight has landed."""
        self._under_way.popleft()
        if not self._under_way:
            self._all_landed.set()
            self._all_landed = trio.Event()

    async def until_landed(self) -> None:
        """Return when none is under way, or all were given up."""
        if self._under_way:
            await self._all_landed.wait()

    def give_up(self) -> list[Flight]:
        """None of these will land. They are returned, so that their callers can be answered."""
        flights, self._under_way = list(self._under_way), deque()
        for flight in flights:
            # A coroutine that nobody has begun to await has to be closed. The other one ends with its task.
            if not flight.is_awaited:
                flight.commit.close()
        self._all_landed.set()
        self._all_landed = trio.Event()
        return flights


async def _no_wait() -> None:
    """The commit of what is committed already."""
