"""Functions that want to be called after every change, kept and called in the order in which they came.

The order makes one run like another (a simulation has to repeat itself), and treats those who wait alike.
"""

from collections.abc import Callable, Iterator

Watcher = Callable[[], None]


class Watchers:
    """A set of functions that remembers their order; they may leave and join while they are called."""

    __slots__ = ("_functions",)

    def __init__(self) -> None:
        self._functions: dict[Watcher, None] = {}

    def __len__(self) -> int:
        return len(self._functions)

    def __iter__(self) -> Iterator[Watcher]:
        return iter(tuple(self._functions))

    def add(self, watcher: Watcher) -> None:
        self._functions[watcher] = None

    def discard(self, watcher: Watcher) -> None:
        self._functions.pop(watcher, None)
