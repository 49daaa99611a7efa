"""How many connections may be unauthenticated at a time: of one address, and of all. Sans-IO.

Each takes a descriptor, a task and up to 64 KiB for a frame. Beyond the limits the one that has been unauthenticated longest
is ended, so that clients that do get on find room among others that do not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

OF_ONE_ADDRESS_MAX = 500
ALL_MAX = 5_000


class Strangers:
    """Those that are unauthenticated, oldest first."""

    def __init__(self) -> None:
        self._all: dict[object, str] = {}
        self._of_address: dict[str, dict[object, Callable[[], None]]] = {}

    @contextmanager
    def counted(self, address: str, end: Callable[[], None]) -> Iterator[None]:
        """Count one more until it is left. `end` is called if this one has to go."""
        key = object()
        self._all[key] = address
        mine = self._of_address.setdefault(address, {})
        mine[key] = end
        if len(mine) > OF_ONE_ADDRESS_MAX:
            self._end(next(iter(mine)))
        elif len(self._all) > ALL_MAX:
            self._end(next(iter(self._all)))
        try:
            yield
        finally:
            self._remove(key)

    def _end(self, key: object) -> None:
        end = self._of_address[self._all[key]][key]
        self._remove(key)
        end()

    def _remove(self, key: object) -> None:
        address = self._all.pop(key, None)
        if address is not None:
            del self._of_address[address][key]
            if not self._of_address[address]:
                del self._of_address[address]
