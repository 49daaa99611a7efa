"""Lets the shards of a coordinator forget deleted topics, part by part, and where the log refuses later."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection
from typing import Any

import trio

from ottla.groupcoord.runtime.answers import finished
from ottla.groupcoord.runtime.callers import WaitingCaller
from ottla.groupcoord.runtime.coordinator_runtime import Runtime
from ottla.groupcoord.runtime.outcome import FORGETTING_REFUSED
from ottla.groupcoord.runtime.partition_runtime import PartitionRuntime

RETRY_S = 1.0


class Forgetting:
    """See the module's docstring. `ask` makes a shard's request of the ids of topics: it forgets some of what it knows of
    them, and says how much that was.
    """

    def __init__(self, runtime: Runtime[Any], ask: Callable[[Collection[bytes]], Any]) -> None:
        self._runtime = runtime
        self._ask = ask
        self._waiting: dict[PartitionRuntime[Any], deque[Collection[bytes]]] = {}

    async def forget(self, topic_ids: Collection[bytes]) -> None:
        """Forget topics in all partitions. Where that is refused it goes on in the background."""
        for partition in self._runtime.partitions():
            if not await self._forget(topic_ids, partition):
                waiting = self._waiting.setdefault(partition, deque())
                waiting.append(topic_ids)
                # One task for each partition, however many topics are deleted while the log refuses.
                if len(waiting) == 1:
                    self._runtime.spawn(self._forget_persistently, partition)

    async def _forget(self, topic_ids: Collection[bytes], partition: PartitionRuntime[Any]) -> bool:
        """Whether nothing is left of these topics in a partition."""
        while True:
            caller = WaitingCaller(lambda error: FORGETTING_REFUSED)
            count: int = await finished(partition.submit(self._ask(topic_ids), caller))
            if count <= 0:
                return count != FORGETTING_REFUSED
            await trio.lowlevel.checkpoint()

    async def _forget_persistently(self, partition: PartitionRuntime[Any]) -> None:
        """The log may refuse for a while, or the partition may not be loaded yet."""
        waiting = self._waiting[partition]
        try:
            while waiting and self._runtime.leads(partition):
                if await self._forget(waiting[0], partition):
                    waiting.popleft()
                else:
                    await trio.sleep(RETRY_S)
        finally:
            del self._waiting[partition]
