"""Functions that want to be called after every change, kept and called in the order in which they came.

The order makes one run like another (a simulation has to repeat itself), and treats those who wait alike.
"""

from collections.abc import Callable, Iterator

Watcher = Callable[[], None]


class Watchers:
    """A set of functions that remembers their order; they may leave and join while they are called.

    A call may lead to another round of calls before this one is over: a watcher makes an answer ready, and the connection
    goes on to a request that changes the same partition. Who leaves in the inner round is not called in the outer one.
    """

    __slots__ = ("_functions",)

    def __init__(self) -> None:
        self._functions: dict[Watcher, None] = {}

    def __len__(self) -> int:
        return len(self._functions)

    def __iter__(self) -> Iterator[Watcher]:
        return iter(tuple(self._functions))

    def call(self) -> None:
        """Call those who are there, and still are when it is their turn."""
        functions = self._functions
        for function in tuple(functions):
            if function in functions:
                function()

    def add(self, watcher: Watcher) -> None:
        self._functions[watcher] = None

    def discard(self, watcher: Watcher) -> None:
        self._functions.pop(watcher, None)
