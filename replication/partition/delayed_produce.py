"""Produce requests that wait until their records are committed (Kafka's DelayedProduce). Sans-IO.

Theory
    A producer's answer waits for the high watermark (or, for acks=1 on topics that are flushed, for this replica's disk).
    Records of one partition are committed in the order of their offsets, so those who wait stand in a queue by offset, and
    whenever the partition changes only the head is asked whether it goes on. So an append costs the same with no waiting request
    and with a thousand. When the role changes or the disk fails, `Partition.acknowledgement` answers everybody.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import count
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.replication.partition.partition import Partition
    from ottla.wire.errors import ErrorCode

Settle = Callable[["ErrorCode"], None]


class DelayedProduce:
    """A produce request that waits for one partition; `settle` is None after it was called or the wait cancelled."""

    __slots__ = ("_queue", "next_offset", "settle")

    def __init__(self, queue: _Queue, next_offset: int, settle: Settle) -> None:
        self._queue = queue
        self.next_offset = next_offset
        self.settle: Settle | None = settle

    def give_up(self) -> None:
        """Cancel the wait; `settle` will not be called."""
        if self.settle is not None:
            self.settle = None
            self._queue.remove_who_gave_up()


class ProducePurgatory:
    """All waiting produce requests, grouped by partition and by whether they need all in-sync replicas."""

    def __init__(self) -> None:
        self._queues: dict[tuple[Partition, bool], _Queue] = {}

    def __len__(self) -> int:
        return sum(map(len, self._queues.values()))

    def add(self, partition: Partition, next_offset: int, required_acks: int, settle: Settle) -> DelayedProduce:
        """Add a request that is not acknowledged yet; `settle` is called with its error code."""
        # acks=1 looks at this replica alone and may go on while acks=-1 waits, so one queue could not be asked at its
        # head alone.
        key = (partition, required_acks == -1)
        queue = self._queues.get(key)
        if queue is None:
            queue = self._queues[key] = _Queue(partition, required_acks, lambda: self._queues.pop(key))
        wait = DelayedProduce(queue, next_offset, settle)
        queue.add(wait)
        return wait


class _Queue:
    """Queue of produce requests that wait for one partition with equal acks; it watches the partition meanwhile."""

    __slots__ = ("_acks", "_is_over", "_numbers", "_on_empty", "_partition", "_waits")

    def __init__(self, partition: Partition, acks: int, on_empty: Callable[[], object]) -> None:
        self._partition = partition
        self._acks = acks
        self._on_empty = on_empty
        self._is_over = False
        self._waits: list[tuple[int, int, DelayedProduce]] = []
        # They decide between equal offsets, as two requests with the same batch have: waits cannot be compared.
        self._numbers = count()
        # One watcher for all who wait: an append calls it once, however many they are.
        partition.watchers.add(self.look)

    def __len__(self) -> int:
        return len(self._waits)

    def add(self, wait: DelayedProduce) -> None:
        # A heap, because offsets do not come in order: a request whose batches a thread checked registers late for an
        # early append.
        heapq.heappush(self._waits, (wait.next_offset, next(self._numbers), wait))

    def look(self) -> None:
        """Call `settle` of each request whose records are committed, or can no longer be committed."""
        waits = self._waits
        while waits:
            wait = waits[0][2]
            settle = wait.settle
            # One that has given up only has to go.
            if settle is None:
                heapq.heappop(waits)
                continue
            code = self._partition.acknowledgement(wait.next_offset, self._acks)
            # All behind it end at the same offset or later, so none of them can go on either.
            if code is None:
                return
            # Before the call, in which a connection may go on to its next request, or end: others may come and give up,
            # and the partition may change, so that this function is called within itself.
            wait.settle = None
            heapq.heappop(waits)
            settle(code)
        self._end()

    def remove_who_gave_up(self) -> None:
        """Remove cancelled requests at the front of the queue; `look` skips cancelled requests further behind."""
        waits = self._waits
        # From the middle of a heap nothing can be taken cheaply.
        while waits and waits[0][2].settle is None:
            heapq.heappop(waits)
        if not waits:
            self._end()

    def _end(self) -> None:
        # The queue may have ended in a call that this one has made, and another may be in its place.
        if self._is_over:
            return
        self._is_over = True
        # A partition without waiting requests costs its appends nothing, and the queue is made again when it is needed.
        self._partition.watchers.discard(self.look)
        self._on_empty()
