"""What a connection keeps of the common memory beside what has arrived of its frames."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.server.net.inbox import Inbox
    from ottla.server.net.memory_budget import MemoryBudget
    from ottla.server.net.waiting import Waiting

DECODED_BYTES_PER_BYTE = 64  # what a large request takes in work, together with its answer, at most


class Holdings:
    """Counted in the budget: a large request that is worked on, and answers that the peer does not read."""

    __slots__ = ("_held_bytes", "_memory", "unread_bytes")

    def __init__(self, memory: MemoryBudget) -> None:
        self._memory = memory
        self._held_bytes = self.unread_bytes = 0

    def hold(self, waiting: Waiting, size: int, inbox: Inbox) -> None:
        """Count what a large request keeps in memory while it waits, before its frame gives room to others."""
        # Any other frame has LARGE_FRAME_BYTES at most, and small frames need no leave of the budget.
        if waiting.is_large or (waiting.call is not None and waiting.call.takes_records):
            self._held_bytes = size * DECODED_BYTES_PER_BYTE if waiting.is_large else size
            self._memory.take(self._held_bytes)
            # The leave to go beyond the limit covers the answer, too. The inbox loses it when its buffer is given back.
            self._memory.pass_on(inbox, self)

    def let_go(self) -> None:
        """What was held is no longer needed."""
        held, self._held_bytes = self._held_bytes, 0
        self._memory.give_back(held)
        self._memory.release(self)

    def count_unread(self, count: int) -> None:
        """So much memory is taken by answers that the peer does not read."""
        self._memory.take(count - self.unread_bytes)
        self.unread_bytes = count
