"""Whether a broker serves: between its logs are loaded and they are closed.

Connections of clients end with the broker's nursery. What works for others outside of it, such as the HTTP endpoint, which is there
before and after, does so on duty: not before clients are served, and it has ended before a log is closed.

    not begun --begin--> on duty --the end of `until_left`--> over     work under way is cancelled, and waited for
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import trio


class OffDuty(Exception):
    """The broker does not serve yet, or not any more."""


class Duty:
    """See the module's docstring."""

    def __init__(self) -> None:
        self.is_on = self._is_over = False
        self._under_way: set[trio.CancelScope] = set()
        self._all_ended = trio.Event()

    def begin(self) -> None:
        """Clients are served from now on, unless it is over already."""
        self.is_on = not self._is_over

    @asynccontextmanager
    async def until_left(self) -> AsyncIterator[None]:
        """The duty ends with this block, which waits for all work. It may begin in it."""
        try:
            yield
        finally:
            self.is_on, self._is_over = False, True
            for scope in self._under_way:
                scope.cancel()
            # Also if all is cancelled: the logs are closed next. A thread takes its time, and its work goes on a little.
            with trio.CancelScope(shield=True):
                if self._under_way:
                    await self._all_ended.wait()

    @contextmanager
    def work(self) -> Iterator[None]:
        """Work that needs the broker to serve. Raises OffDuty instead of it, or after it was cancelled."""
        if not self.is_on:
            raise OffDuty
        scope = trio.CancelScope()
        self._under_way.add(scope)
        try:
            with scope:
                yield
        finally:
            self._under_way.discard(scope)
            if not self._under_way and not self.is_on:
                self._all_ended.set()
        if scope.cancelled_caught:
            raise OffDuty
