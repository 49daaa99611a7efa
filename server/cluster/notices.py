"""Notices of changes: sequential nodes below one parent, by which brokers hear of what another one has written.

Each names what has changed, which is then read itself (Kafka's ZkNodeChangeNotificationListener). Notices stay for 15 minutes,
and are removed by whoever sees them after that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from ottla.replication.cluster.coordination import AccessDenied, CoordinationUnavailable, Create, Delete, NoNode

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from ottla.replication.cluster.coordination import Coordination

EXPIRATION_MS = 15 * 60 * 1000
_DIGITS_MAX = 19

T = TypeVar("T")


async def persistently(coordination: Coordination, action: Callable[[], Awaitable[T]]) -> T:
    """Do what may be done again, as often as it takes. Raises SessionExpired."""
    while True:
        try:
            return await action()
        except CoordinationUnavailable:
            await coordination.until_available()


class ChangeNotices:
    """The notices below `parent` that this broker has not heeded yet. Times are in ms."""

    def __init__(self, coordination: Coordination, parent: str, prefix: str, clock_ms: Callable[[], int]) -> None:
        self._coordination = coordination
        self._parent = parent
        self._prefix = prefix
        self._clock_ms = clock_ms
        self._heeded = -1
        self._created_ms: dict[str, int] = {}  # of those that were read

    def of(self, data: bytes) -> Create:
        """What leaves a notice."""
        return Create(f"{self._parent}/{self._prefix}", data, sequential=True)

    async def pass_over(self) -> None:
        """Count all that there are as heeded. Raises CoordinationError."""
        self._heeded = max((await self._numbers()).values(), default=-1)

    async def read(self) -> tuple[list[bytes], int]:
        """What the unheeded ones hold, and what `heeded` is to be called with when that is done. Raises CoordinationError."""
        numbers = await self._numbers()
        self._created_ms = {name: self._created_ms[name] for name in numbers if name in self._created_ms}
        # Those from before are read once, too, to know their age.
        unread = [name for name in numbers if name not in self._created_ms or numbers[name] > self._heeded]
        nodes = await self._coordination.get_all([self._path(name) for name in unread])
        held = []
        for name, node in zip(unread, nodes, strict=True):
            if node is not None:
                self._created_ms[name] = node.created_ms
                if numbers[name] > self._heeded:
                    held.append(node.data)
        return held, max(numbers.values(), default=self._heeded)

    async def heeded(self, number: int) -> None:
        """What was read has been done; remove old notices. Raises CoordinationError."""
        self._heeded = max(number, self._heeded)
        oldest = self._clock_ms() - EXPIRATION_MS
        # Those whose age is not known stay.
        for name in [each for each, created_ms in self._created_ms.items() if 0 < created_ms < oldest]:
            try:
                await self._coordination.multi([Delete(self._path(name))])
            except (NoNode, AccessDenied):
                continue  # another broker was faster, or made the notice for itself only

    async def _numbers(self) -> Mapping[str, int]:
        names = await self._coordination.children(self._parent)
        found = {}
        for name in names:
            digits = name.removeprefix(self._prefix)
            if digits != name and digits.isascii() and digits.isdecimal() and len(digits) <= _DIGITS_MAX:
                found[name] = int(digits)
        return found

    def _path(self, name: str) -> str:
        return f"{self._parent}/{name}"
