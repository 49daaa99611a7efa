"""Producer ids: unique in the cluster, for ever. A broker takes them from blocks of 1000 that it reserves.

A block is durably reserved before its first id is given out and never reserved again, so that ids are not reused after a
restart; what was left of the last block is lost.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any


class ProducerIdManager:
    """Gives out producer ids. `allocate_block` reserves the next block; `lock` lets one caller at a time reserve."""

    def __init__(
        self, allocate_block: Callable[[], Awaitable[range]], lock: AbstractAsyncContextManager[Any, Any]
    ) -> None:
        self._allocate_block = allocate_block
        self._lock = lock
        self._block = range(0)

    @property
    def is_out(self) -> bool:
        """Whether the present block has no id left."""
        return not self._block

    def take(self) -> int | None:
        """An id, if the present block has one left."""
        if not self._block:
            return None
        producer_id, self._block = self._block[0], self._block[1:]
        return producer_id

    async def stock(self) -> None:
        """Reserve a block if the present one has no id left. Raises KafkaError when none can be reserved."""
        async with self._lock:
            # Looked at again under the lock, because the caller before may have brought a new block.
            if not self._block:
                self._block = await self._allocate_block()

    async def next(self) -> int:
        """An id, from a new block if need be. Raises KafkaError when none can be reserved."""
        while (producer_id := self.take()) is None:
            await self.stock()
        return producer_id
