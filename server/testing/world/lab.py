"""A world as other threads reach it; what `Kafka` and its parts are built on."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar, TypeVarTuple

from ottla.server.testing.errors import LabError
from ottla.server.testing.world.loop import shared_loop
from ottla.server.testing.world.world import World

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class Lab:
    """Thread of all brokers of this process, and the world of one `Kafka` in it, which may be replaced by another."""

    def __init__(self) -> None:
        self.loop = shared_loop()
        self._world: World | None = None

    @property
    def world(self) -> World:
        """World at present. Raises LabError after `close`."""
        if self._world is None:
            raise LabError("This Kafka is closed; make a new Kafka().")
        return self._world

    def call(self, function: Callable[[*Ts], Awaitable[T]], *arguments: *Ts) -> T:
        """Run an async function of trio in the thread of the brokers, and return its result."""
        return self.loop.call(function, *arguments)

    def open(self, make: Callable[[], World]) -> None:
        """Make a world in the thread of the brokers, and start its brokers."""
        world = self.loop.call_sync(make)
        self.loop.call(world.open)
        self._world = world

    def close(self) -> None:
        """End the brokers; nothing is left of them. A second call does nothing."""
        world, self._world = self._world, None
        if world is not None and self.loop.is_usable:
            self.loop.call(world.close)
