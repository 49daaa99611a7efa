"""The `.snapshot` files of a log: producer state as it was when the log ended at the offset in the file's name.

One is taken when a segment is rolled and one when the log is closed. They are not synced: a torn one fails its checksum
and the one before it, plus the log since, takes its place.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable

from ottla.replication.log.names import DELETED_SUFFIX, SNAPSHOT_SUFFIX, segment_path
from ottla.replication.log.producers import CorruptSnapshot, ProducerEntry, ProducerStateManager, decode_snapshot
from ottla.replication.log.storage import Storage

_EMPTY = ProducerStateManager().encode_snapshot()


class ProducerSnapshots:
    """Which snapshots there are, and access to them."""

    __slots__ = ("_storage", "directory", "offsets")

    def __init__(self, storage: Storage, directory: str, offsets: Iterable[int] = ()) -> None:
        self._storage = storage
        self.directory = directory
        self.offsets = sorted(offsets)

    @property
    def latest_offset(self) -> int:
        """Offset of the newest snapshot, or -1."""
        return self.offsets[-1] if self.offsets else -1

    def path(self, offset: int) -> str:
        """Where the snapshot of `offset` is."""
        return segment_path(self.directory, offset, SNAPSHOT_SUFFIX)

    def take(self, offset: int, producers: ProducerStateManager | None) -> None:
        """Write the state of a log that ends at `offset`."""
        if offset > self.latest_offset:
            data = _EMPTY if producers is None else producers.encode_snapshot()
            # Known before it is there: if the write fails and its rest cannot be removed, a truncation must find it.
            insort(self.offsets, offset)
            try:
                self._storage.write(self.path(offset), data)
            except OSError:
                self.remove(offset)
                raise

    def load_latest(self, *, now_ms: int, expiration_ms: int) -> tuple[int, list[ProducerEntry]] | None:
        """(offset, producers) of the newest snapshot that can be believed; the others are removed on the way."""
        while self.offsets:
            offset = self.offsets[-1]
            try:
                data = self._storage.read(self.path(offset))
                return offset, decode_snapshot(data, now_ms=now_ms, expiration_ms=expiration_ms)
            except (CorruptSnapshot, FileNotFoundError):
                self.remove(offset)
        return None

    def remove(self, offset: int) -> None:
        """Delete a snapshot, if there is one."""
        if offset in self.offsets:
            self._storage.remove(self.path(offset))
            self.offsets.remove(offset)

    def remove_outside(self, start: int, end: int) -> None:
        """Delete the snapshots that say nothing about [start, end]."""
        for offset in [offset for offset in self.offsets if not start <= offset <= end]:
            self.remove(offset)

    def remove_strays(self, base_offsets: Iterable[int]) -> None:
        """Delete snapshots that belong to no segment; the newest is that of the last shutdown and stays."""
        known = {*base_offsets, self.latest_offset}
        for offset in [offset for offset in self.offsets if offset not in known]:
            self.remove(offset)

    def mark_deleted(self, offset: int) -> str | None:
        """Give a snapshot up; returns the path to remove later. One that cannot be renamed stays, which does no harm."""
        if offset not in self.offsets:
            return None
        try:
            self._storage.rename(self.path(offset), self.path(offset) + DELETED_SUFFIX)
        except OSError:
            return None
        self.offsets.remove(offset)
        return self.path(offset) + DELETED_SUFFIX
