"""Memory in pages of its own. It takes room as it is written, and goes back to the system as soon as nobody looks at it.

What the C library hands out instead leaves holes between smaller blocks that stay: hundreds of connections that received
large requests would keep twice the memory that they needed.
"""

import mmap

PAGES_FROM_BYTES = 256 * 1024
"""Less is taken from the C library, which is quicker."""

SHORT_LIVED_BYTES_MAX = 2 * 1024 * 1024
"""What is kept for one request, and not used again as receive buffers are, comes from the C library up to here. It has such
memory at hand, where new pages cost 0.4 ms a MiB, because the system clears each of them."""

COPIED_BYTES_MAX = 1024 * 1024
"""At most so many bytes are copied in one step. No other thread runs during a step, and one of 90 MiB takes 50 ms."""

_PRIVATE = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0)
_AT_ONCE = getattr(mmap, "MAP_POPULATE", 0)


def pages(size: int, *, at_once: bool = False) -> mmap.mmap:
    """`size` bytes, which are zero. If all will be written, it is quicker to have the system find room `at_once`."""
    return mmap.mmap(-1, size, flags=_PRIVATE | _AT_ONCE if at_once else _PRIVATE)


def writable(size: int) -> bytearray | mmap.mmap:
    """A buffer of `size` bytes that will all be written; in pages of its own if it is large."""
    return bytearray(size) if size <= PAGES_FROM_BYTES else pages(size, at_once=True)


def copied(data: bytes | bytearray | memoryview) -> memoryview:
    """A writable copy, which is not kept for long."""
    if len(data) <= SHORT_LIVED_BYTES_MAX:
        return memoryview(bytearray(data))
    copy = memoryview(pages(len(data), at_once=True))
    copy[:] = data
    return copy
