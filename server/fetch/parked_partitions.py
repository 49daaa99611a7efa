"""The partitions of a request that waits for one of them to change."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from ottla.replication.partition.partition import Partition


class WaitsForPartitions(Protocol):
    """A request that waits."""

    def end_of(self, partition: Partition) -> int:
        """Up to where it may read a partition."""

    def on_change(self, index: int, end: int | None) -> None:
        """A partition has changed: its role, or its end to `end`; None: something else that does not end a wait."""


class ParkedPartition:
    """One of them. Most changes are none to the request: the log grows, but not yet for a consumer."""

    __slots__ = ("_end", "_index", "_partition", "_role", "_waiting")

    def __init__(
        self, waiting: WaitsForPartitions, index: int, partition: Partition, end: int, role: tuple[object, ...]
    ) -> None:
        self._waiting = waiting
        self._index = index
        self._partition = partition
        self._end = end
        self._role = role
        # A bound method equals every other one of the same object, so `leave` finds it again.
        partition.watchers.add(self.look)

    def look(self) -> None:
        """The partition has changed somehow."""
        end, role = self._waiting.end_of(self._partition), role_of(self._partition)
        # None of these ends the wait, but log start or high watermark may have moved, and the answer has to say so.
        if end == self._end and role == self._role:
            self._waiting.on_change(self._index, None)
        else:
            self._end, self._role = end, role
            self._waiting.on_change(self._index, end)

    def leave(self) -> None:
        """The request waits no more."""
        self._partition.watchers.discard(self.look)


def role_of(partition: Partition) -> tuple[object, ...]:
    """What ends a wait when it changes."""
    # With a failed disk or a deleted topic the reader has to hear an error, so it waits no longer.
    return partition.leader_id, partition.leader_epoch, partition.is_deleted, partition.log.log_directory.failure
