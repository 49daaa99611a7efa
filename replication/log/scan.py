"""Walking the batches of a `.log` file by their headers, without reading their records."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from ottla.wire.errors import KafkaError
from ottla.wire.records import (
    LOG_OVERHEAD,
    MAGIC_OFFSET,
    MAGIC_V2,
    RECORDS_OFFSET,
    BatchHeader,
    batch_size,
    read_header,
)

SCAN_BYTES = 8192
LARGE_SCAN_BYTES = 256 * 1024  # for long scans


class Readable(Protocol):
    """A file, as far as it is needed to read it."""

    def read_at(self, position: int, length: int) -> bytes:
        """Up to `length` bytes from `position`; fewer only at the end of the file."""


class CorruptSegment(Exception):
    """Bytes in a `.log` file that are no batch, at `position`."""

    def __init__(self, position: int, reason: str) -> None:
        super().__init__(f"{reason} at position {position}")
        self.position = position


def scan_batches(
    file: Readable, position: int, end: int, read_bytes: int = SCAN_BYTES
) -> Iterator[tuple[BatchHeader, int]]:
    """Headers and positions of the batches in [position, end) of a file. CorruptSegment where there is none.

    Headers are read `read_bytes` at a time, so that small batches cost no system call each and large ones are skipped.
    """
    data = b""
    start = position
    while position < end:
        at = position - start
        # The header is not whole in what was read, or lies far behind it because a large batch was skipped.
        if at + RECORDS_OFFSET > len(data):
            data = file.read_at(position, min(read_bytes, end - position))
            start, at = position, 0
        # Nearly all batches are of this format, and all that is to be known of them is in the header.
        if len(data) - at >= RECORDS_OFFSET and data[at + MAGIC_OFFSET] == MAGIC_V2:
            header = read_header(data, at)
            smallest = RECORDS_OFFSET
        else:
            header = _legacy_header(file, position, end)
            smallest = MAGIC_OFFSET
        size = header.size_in_bytes
        # A size below the header would make the scan stand still
        # or go back. Beyond the end is what a torn write leaves.
        if size < smallest or size > end - position:
            raise CorruptSegment(position, f"batch of impossible size {size}")
        yield header, position
        position += size


def _legacy_header(file: Readable, position: int, end: int) -> BatchHeader:
    # A message of magic 0 or 1 may be shorter than a header, and where compressed tells its offsets only inside.
    try:
        front = file.read_at(position, MAGIC_OFFSET + 1)
        batch_size(front, 0, len(front))  # complains of a length or magic that cannot be
        size = int.from_bytes(front[8:12], "big") + LOG_OVERHEAD
        if (
            len(front) == MAGIC_OFFSET + 1
            and size <= end - position
            and (front[MAGIC_OFFSET] < MAGIC_V2 or size >= RECORDS_OFFSET)
        ):
            return read_header(file.read_at(position, min(size, RECORDS_OFFSET)))
    except KafkaError as error:
        raise CorruptSegment(position, str(error)) from error
    raise CorruptSegment(position, "batch is cut off")
