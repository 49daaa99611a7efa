"""The serving state of a broker, and the request to stop it.

Connections of clients end with the broker's nursery. Parts that live longer, such as the HTTP endpoint, check the serving
state: they use no log before clients are served or after the logs are closed.

    not begun --begin--> serving --the end of `until_left`--> over     work under way is cancelled, and waited for
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

import trio


class NotServing(Exception):
    """Error: work is refused because the broker does not serve yet, or does not serve any more."""


class ServingState:
    """Gate that admits work only while the broker serves."""

    def __init__(self) -> None:
        self.is_on = self._is_over = False
        self._under_way: set[trio.CancelScope] = set()
        self._all_ended = trio.Event()

    def begin(self) -> None:
        """Begin to serve, unless serving has already ended."""
        self.is_on = not self._is_over

    @asynccontextmanager
    async def until_left(self) -> AsyncIterator[None]:
        """Serve at most until this block ends. Then cancel all admitted work and wait for its end.

        Serving begins by `begin` in the block.
        """
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
        """Run this block as admitted work. Raises NotServing if the broker does not serve, or cancels the work."""
        if not self.is_on:
            raise NotServing
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
            raise NotServing


class Stop:
    """Request to stop the broker. `requested`: first hand leaderships over. `immediate`: stop without that.

    In both cases all logs are flushed.
    """

    def __init__(self) -> None:
        self.requested = trio.Event()
        self.immediate = trio.Event()
        self.hands_over = True
        """True if somebody is left to hand over to: not if all brokers stop together."""

    async def unless(self, event: trio.Event, work: Callable[[], Awaitable[object]]) -> bool:
        """Run `work`, but cancel it when `event` is set. Return True if the work was completed."""
        is_done = False
        async with trio.open_nursery() as nursery:

            async def watch() -> None:
                await event.wait()
                nursery.cancel_scope.cancel()

            nursery.start_soon(watch)
            await work()
            # Not reached when `event` has cancelled the work.
            is_done = True
            nursery.cancel_scope.cancel()
        return is_done
