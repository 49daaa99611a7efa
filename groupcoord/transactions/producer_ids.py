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
        self._block = iter(range(0))

    def take(self) -> int | None:
        """An id, if the present block has one left."""
        return next(self._block, None)

    async def next(self) -> int:
        """An id, from a new block if need be. Raises KafkaError when none can be reserved."""
        async with self._lock:
            # Looked at again under the lock, because the caller before may have brought a new block.
            while (producer_id := self.take()) is None:
                self._block = iter(await self._allocate_block())
            return producer_id
