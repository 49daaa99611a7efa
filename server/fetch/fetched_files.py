"""Answers to fetches keep few files open.

An answer holds regions of log files. Each region keeps its file open until the peer has received it, which may take long. All
answers together may hold a number of regions, and one answer may take half of those that are left. When it has taken them,
the answer is full, as if fetch.max.bytes were reached: the other partitions come with the next fetch. If no region is left
at all, one partition is read into memory, so that no answer is empty for want of files.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla.replication.log.storage import FileRegion

if TYPE_CHECKING:
    from ottla.replication.log.descriptors import Descriptors
    from ottla.replication.partition.partition import Partition
    from ottla.replication.partition.read_info import ReadInfo

# Little, because these bytes take memory until the peer has received them.
BYTES_WITHOUT_FILES = 64 * 1024


class KeepsFewFilesOpen:
    """A base class of `PartitionReader` that counts its regions. An object of its own would cost every fetch some time."""

    __slots__ = ("_descriptors", "_regions_max", "_regions_taken")

    def __init__(self, descriptors: Descriptors) -> None:
        self._descriptors = descriptors
        self._regions_max = self._regions_taken = 0

    def take_share_of_regions(self) -> None:
        # Half, so that answers which come meanwhile get some, too. Rounded up, so that the last region can be taken.
        self._regions_max = (self._descriptors.regions_left + 1) // 2
        # The regions of earlier reads of this request have been dropped by now.
        self._regions_taken = 0

    @property
    def is_short_of_files(self) -> bool:
        """Whether this answer has as many regions as it may have."""
        return self._regions_taken >= self._regions_max

    def with_files(self, room: int, *, is_first: bool) -> int:
        """How much of `room` may be filled: when no region is left little for the first partition, nothing for others."""
        if self._regions_taken < self._regions_max:
            return room
        return min(room, BYTES_WITHOUT_FILES) if is_first else 0

    def _kept(self, partition: Partition, read: ReadInfo, *, as_region: bool) -> ReadInfo:
        """The read with its region counted, or with its bytes if no region is left. KafkaError: the bytes cannot be read."""
        region: Any = read.records
        if self._regions_taken < self._regions_max:
            self._regions_taken += 1
            # The region counts from here until nobody refers to it any more, wherever it is by then.
            region.count_in(self._descriptors.regions)
            return read
        try:
            data = region.read()
        except OSError as error:
            raise partition.log.storage_error(error) from error
        # The conversion for old clients reads from a region. For all others bytes go out as any buffer does.
        return read._replace(records=FileRegion(_Copy(data), 0, len(data)) if as_region else data)


class _Copy:
    """Bytes that can be read like an open file."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def fileno(self) -> int:
        # It is only converted, and never handed to sendfile.
        raise OSError("a copy in memory has no descriptor")

    def size(self) -> int:
        return len(self._data)

    def read_at(self, position: int, length: int) -> bytes:
        return self._data[position : position + length]

    def append_all(self, buffers: object) -> None:
        self.append(buffers)

    def append(self, buffer: object) -> None:
        raise OSError("a copy in memory is not written to")

    def truncate(self, size: int) -> None:
        raise OSError("a copy in memory is not written to")

    def sync(self) -> None:
        raise OSError("a copy in memory is not written to")
