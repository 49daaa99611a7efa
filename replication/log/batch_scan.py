"""Scans of a `.log` file: the headers of its batches, and the batches up to the first damaged one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from ottla.replication.log.index import RELATIVE_OFFSET_MAX
from ottla.wire.errors import KafkaError
from ottla.wire.records import (
    LOG_OVERHEAD,
    MAGIC_OFFSET,
    MAGIC_V2,
    RECORDS_OFFSET,
    BatchHeader,
    batch_size,
    crc_is_valid,
    iter_batches,
    read_header,
)

SCAN_BYTES = 8192
LARGE_SCAN_BYTES = 256 * 1024  # for long scans
READ_BYTES = 4 * 1024 * 1024  # of whole batches


class Readable(Protocol):
    """File operations for reading batches."""

    def read_at(self, position: int, length: int) -> bytes:
        """Read `length` bytes from `position`; fewer only at the end of the file."""


class CorruptSegment(Exception):
    """Error raised if the bytes at `position` of a `.log` file are not a batch."""

    def __init__(self, position: int, reason: str) -> None:
        super().__init__(f"{reason} at position {position}")
        self.position = position


def scan_batches(
    file: Readable, position: int, end: int, read_bytes: int = SCAN_BYTES
) -> Iterator[tuple[BatchHeader, int]]:
    """Yield headers and positions of the batches in [position, end) of a file. Raises CorruptSegment at invalid bytes.

    Reads `read_bytes` at a time, so that small batches do not cost a system call each. The records of large batches are
    not read.
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


def valid_batches(
    file: Readable, base_offset: int, size: int, limit: int = 2**63
) -> Iterator[tuple[BatchHeader, memoryview, int]]:
    """Yield header, bytes and position of the valid batches at the beginning of a file.

    The checksum does not cover offsets. So a batch after a gap counts as valid only if all later batches have higher
    offsets, in this file and in the next one, which begins at offset `limit`.
    """
    next_offset = base_offset
    held = None
    for batch in _whole_batches(file, size):
        header = batch[0]
        # No index could hold such an offset, or it belongs to the next segment: this batch has a wrong offset.
        if (
            header.last_offset - base_offset > RELATIVE_OFFSET_MAX
            or not header.base_offset <= header.last_offset < limit
        ):
            break
        # Offsets go back: this batch is wrong, or the one that is held, which seemed to follow a gap. Neither is
        # believed.
        if header.base_offset < next_offset:
            return
        if held is not None:
            yield held
        # Behind a gap: believed when the next batch shows that the offsets go on from it.
        held = batch if header.base_offset > next_offset else None
        if held is None:
            yield batch
        next_offset = header.next_offset
    if held is not None:
        yield held


def _whole_batches(file: Readable, size: int) -> Iterator[tuple[BatchHeader, memoryview, int]]:
    """Yield the complete batches at the beginning of a file, up to the first truncated or corrupt one."""
    position = 0
    wanted = READ_BYTES
    while position < size:
        data = memoryview(file.read_at(position, min(wanted, size - position)))
        consumed = 0
        try:
            for header, start, end in iter_batches(data):
                if not crc_is_valid(data, start, end):
                    return
                yield header, data[start:end], position + start
                consumed = end
        except KafkaError:
            return
        if consumed:
            position += consumed
            wanted = READ_BYTES
        # Not one whole batch in this piece. Its first 12 bytes give its size, and it is read again in full. A size
        # beyond the file, or one that was read already, means that there is no batch.
        elif (
            len(data) < 12
            or (wanted := int.from_bytes(data[8:12], "big") + 12) > size - position
            or len(data) >= wanted
        ):
            return
