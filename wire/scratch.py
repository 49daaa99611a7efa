"""Memory that is used again, for what is made of foreign bytes, looked at once and forgotten.

A mebibyte of new memory costs up to a millisecond, because the system finds and clears each of its pages. Memory that was used
a moment ago costs nothing, and often still lies in the processor's caches.

    with lent() as scratch:
        scratch.view[:5] = b"12345"

There are as many as are lent at the same time, by the event loop and by threads, and `IDLE_MAX` wait for the next. Whoever
keeps a slice of a view longer than the `with` block does no harm: the memory is then left to that slice for good, and the next
one gets other memory. The view itself is released with the block, so a use after it raises ValueError.
"""

import sys
from contextlib import suppress
from typing import Self

from ottla.wire.pages import pages

SCRATCH_BYTES = 8 * 1024 * 1024
"""What one holds at most. Only what was written takes memory."""

KEPT_BYTES = 2 * 1024 * 1024
"""One in which more was written goes back to the system at once."""

IDLE_MAX = 4

# Where nobody can tell how many hold an object, nothing is used again.
_holders_of = getattr(sys, "getrefcount", None)
_idle: "list[Scratch]" = []


class Scratch:
    """Memory that one piece of work has for itself within a `with` block. `written`: up to where it was ever written."""

    __slots__ = ("_holders_alone", "_mapped", "view", "written")

    def __init__(self) -> None:
        self._mapped = pages(SCRATCH_BYTES)
        self._holders_alone = self._holders()
        self.view = memoryview(b"")
        self.written = 0

    def __enter__(self) -> Self:
        self.view = memoryview(self._mapped)
        return self

    def __exit__(self, *_: object) -> None:
        # Whatever still looks at it keeps the memory for itself, and every slice of the view holds the mapping.
        with suppress(BufferError):
            self.view.release()
        is_alone = 0 <= self._holders() == self._holders_alone
        if is_alone and self.written <= KEPT_BYTES and len(_idle) < IDLE_MAX:
            _idle.append(self)

    def _holders(self) -> int:
        """-1: nobody can tell."""
        return -1 if _holders_of is None else _holders_of(self._mapped)


def lent() -> Scratch:
    """One that nobody uses, to be used in a `with` block."""
    _use.was_lent = True
    try:
        # `pop` and `append` are single steps, so threads need no lock here.
        return _idle.pop()
    except IndexError:
        return Scratch()


class _Use:
    """Whether any was lent of late."""

    was_lent = False


_use = _Use()


def free_unused() -> bool:
    """Give the idle ones back to the system if none was lent since the last call; says whether it has done so."""
    was_lent, _use.was_lent = _use.was_lent, False
    if not was_lent:
        _idle.clear()
    return not was_lent
