"""A queue that gives equal priorities out in the order of java.util.PriorityQueue.

Kafka's assignor takes the least loaded process from such a queue. Loads are equal most of the time, and then the queue
alone decides who gets a task. heapq decides otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

T = TypeVar("T")


class JavaQueue(Generic[T]):
    """The smallest item first. An item in the queue must keep its priority."""

    def __init__(self, items: Iterable[T], priority: Callable[[T], float]) -> None:
        self._priority = priority
        self._heap: list[T] = []
        for item in items:
            self.add(item)

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, item: T) -> None:
        heap, priority = self._heap, self._priority(item)
        heap.append(item)
        place = len(heap) - 1
        while place > 0:
            parent = (place - 1) >> 1
            if priority >= self._priority(heap[parent]):
                break
            heap[place] = heap[parent]
            place = parent
        heap[place] = item

    def take(self) -> T:
        """Remove the first item; there must be one."""
        heap = self._heap
        first, last = heap[0], heap.pop()
        if heap:
            self._sink(last)
        return first

    def _sink(self, item: T) -> None:
        """Put an item in the place of the first one, and let it down to where it belongs."""
        heap, priority, size = self._heap, self._priority(item), len(self._heap)
        place = 0
        while place < size >> 1:
            child = 2 * place + 1
            if child + 1 < size and self._priority(heap[child]) > self._priority(heap[child + 1]):
                child += 1
            if priority <= self._priority(heap[child]):
                break
            heap[place] = heap[child]
            place = child
        heap[place] = item
