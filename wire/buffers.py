"""Buffers for large requests: memory in pages of its own, and scratch memory that is used again.

Pages take room as they are written, and go back to the system as soon as no view refers to them. Memory of the C library leaves
holes between smaller blocks that stay: hundreds of connections that received large requests would keep twice the memory that they
needed.

Scratch memory is for data that is made of foreign bytes, looked at once and forgotten. A mebibyte of new memory costs up to a
millisecond, because the system finds and clears each of its pages. Memory that was used a moment ago costs nothing, and often still
lies in the processor's caches.

    with lent() as scratch:
        scratch.view[:5] = b"12345"

There are as many as are lent at the same time, by the event loop and by threads, and `IDLE_MAX` wait for the next. A slice of a view
may be kept beyond the `with` block: the slice then keeps the memory, and the next borrower gets new memory. The view
itself is released with the block, so a use after it raises ValueError.
"""

from __future__ import annotations

import mmap
import sys
from contextlib import suppress
from typing import Self

PAGES_FROM_BYTES = 256 * 1024
"""Smaller buffers come from the C library, which is quicker."""

SHORT_LIVED_BYTES_MAX = 2 * 1024 * 1024
"""Copies for one request up to this size come from the C library. It has such memory at hand, where new pages cost 0.4 ms a MiB,
because the system clears each of them."""

COPIED_BYTES_MAX = 1024 * 1024
"""Limit of bytes copied in one step. No other thread runs during a step, and one of 90 MiB takes 50 ms."""

_PRIVATE = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0)
_AT_ONCE = getattr(mmap, "MAP_POPULATE", 0)


def pages(size: int, *, at_once: bool = False) -> mmap.mmap:
    """Allocate `size` zero bytes in separate pages. `at_once` is quicker if all bytes will be written."""
    return mmap.mmap(-1, size, flags=_PRIVATE | _AT_ONCE if at_once else _PRIVATE)


def writable(size: int) -> bytearray | mmap.mmap:
    """Allocate a buffer of `size` bytes that will all be written. A large buffer gets separate pages."""
    return bytearray(size) if size <= PAGES_FROM_BYTES else pages(size, at_once=True)


def copied(data: bytes | bytearray | memoryview) -> memoryview:
    """Return a writable copy of `data` that is needed only briefly."""
    if len(data) <= SHORT_LIVED_BYTES_MAX:
        return memoryview(bytearray(data))
    copy = memoryview(pages(len(data), at_once=True))
    copy[:] = data
    return copy


SCRATCH_BYTES = 8 * 1024 * 1024
"""Size of one scratch. Only its written part takes memory."""

KEPT_BYTES = 2 * 1024 * 1024
"""A scratch with more written bytes goes back to the system at once."""

IDLE_MAX = 4

# Where nobody can tell how many hold an object, nothing is used again.
_holders_of = getattr(sys, "getrefcount", None)
_idle: list[Scratch] = []


class Scratch:
    """Reusable memory for one `with` block. `written` is the end of the bytes written so far."""

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
        """Return the number of references to the memory; -1 if the interpreter cannot tell."""
        return -1 if _holders_of is None else _holders_of(self._mapped)


def lent() -> Scratch:
    """Lend scratch memory for a `with` block: idle memory, or new memory if there is none."""
    _use.was_lent = True
    try:
        # `pop` and `append` are single steps, so threads need no lock here.
        return _idle.pop()
    except IndexError:
        return Scratch()


class _Use:
    """Flag: scratch memory was lent since the last call of `free_unused`."""

    was_lent = False


_use = _Use()


def free_unused() -> bool:
    """Free idle scratch memory if no memory was lent since the last call. Return True if it was freed."""
    was_lent, _use.was_lent = _use.was_lent, False
    if not was_lent:
        _idle.clear()
    return not was_lent
