"""Producer ids: unique in the cluster, for ever. A broker takes them from blocks of 1000 that it reserves.

A block is durably reserved before its first id is given out and never reserved again, so that ids are not reused after a
restart; the rest of the last block is lost.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any


class ProducerIdManager:
    """Allocator of producer ids. `allocate_block` reserves blocks of ids; `lock` prevents double reservations."""

    def __init__(
        self, allocate_block: Callable[[], Awaitable[range]], lock: AbstractAsyncContextManager[Any, Any]
    ) -> None:
        self._allocate_block = allocate_block
        self._lock = lock
        self._block = range(0)

    @property
    def is_out(self) -> bool:
        """True if all ids of the current block are used."""
        return not self._block

    def take(self) -> int | None:
        """Return the next id of the current block; None if all are used."""
        if not self._block:
            return None
        producer_id, self._block = self._block[0], self._block[1:]
        return producer_id

    async def stock(self) -> None:
        """Reserve another block if all ids of the current block are used. Raises KafkaError if that fails."""
        async with self._lock:
            # Checked again under the lock, because the caller before may have reserved a block.
            if not self._block:
                self._block = await self._allocate_block()

    async def next(self) -> int:
        """Return the next id, after reserving another block if needed. Raises KafkaError if that fails."""
        while (producer_id := self.take()) is None:
            await self.stock()
        return producer_id
