"""Memory of long files, in chunks that are used again.

The kernel clears each page that it gives to a process. For a log of 400 MB in fresh memory that takes five times as long as
the copies of its records, and each world of a test suite would pay it anew. So a chunk that nobody holds any more goes to a
pool, from which the next file takes it. The kernel may take its pages back meanwhile if memory is short (MADV_FREE).
"""

from __future__ import annotations

import contextlib
import mmap
from collections import deque

from ottla.replication.system import MADV_FREE
from ottla.wire.buffers import pages

CHUNK_BYTES = 512 * 1024
POOLED_BYTES_MAX = 512 << 20
_POOLED_MAX = POOLED_BYTES_MAX // CHUNK_BYTES if MADV_FREE is not None else 0

# Its methods are atomic: a chunk is taken and given back by any thread, also by the garbage collector's.
_pool: deque[mmap.mmap] = deque()


class Chunk:
    """CHUNK_BYTES of memory, of which the first `length` hold bytes of a file. They never change."""

    __slots__ = ("_memory", "length")

    def __init__(self) -> None:
        try:
            self._memory = _pool.pop()
        except IndexError:
            self._memory = pages(CHUNK_BYTES, at_once=True)
        self.length = 0

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, part: slice) -> bytes:
        return self._memory[part]

    def __del__(self) -> None:
        # One that could not be made has none. The interpreter may be at its end.
        memory: mmap.mmap | None = getattr(self, "_memory", None)
        if memory is not None and MADV_FREE is not None and len(_pool) < _POOLED_MAX:
            with contextlib.suppress(OSError):  # pages that are locked in memory, which the kernel could not take back
                memory.madvise(MADV_FREE)
                _pool.append(memory)

    def view(self) -> memoryview:
        """Return a view of the memory; hold the chunk as long as the view."""
        return memoryview(self._memory)

    def append(self, data: memoryview) -> int:
        """Add as many of these bytes as there is room for; return their number."""
        count = min(len(data), CHUNK_BYTES - self.length)
        end = self.length + count
        self._memory[self.length : end] = data[:count]
        self.length = end
        return count

    def truncate(self, length: int) -> None:
        """Forget the bytes from `length` on."""
        self.length = min(self.length, length)
