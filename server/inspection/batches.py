"""Batches in a file that nobody may change: found by their headers, checked piece by piece, in bounded memory."""

from __future__ import annotations

import errno
import os
import stat
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, Self

from ottla.replication.log.scan import LARGE_SCAN_BYTES, CorruptSegment, scan_batches
from ottla.wire.checksum import crc32c
from ottla.wire.errors import KafkaError
from ottla.wire.records import (
    ATTRIBUTES_OFFSET,
    DECOMPRESSED_BYTES_MAX,
    MAGIC_OFFSET,
    MAGIC_V2,
    BatchHeader,
    Record,
    decode_records,
)

PIECE_BYTES = 1024 * 1024
BATCH_BYTES_MAX = DECOMPRESSED_BYTES_MAX
"""Larger batches are checked, but their records are not read: no request could have carried them."""


class ReadOnlyFile:
    """A file that is opened for reading only, so that a folder may be one that cannot be written."""

    def __init__(self, path: Path) -> None:
        """OSError, also if something else than a file has this name: to open a pipe would wait for somebody who writes."""
        self.path = path
        self._fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        if not stat.S_ISREG(os.fstat(self._fd).st_mode):
            self.__exit__()
            raise OSError(errno.EINVAL, "is no file", str(path))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        fd, self._fd = self._fd, -1  # so that whoever reads on gets an error, and not another file
        os.close(fd)

    @property
    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def read_at(self, position: int, length: int) -> bytes:
        """Never more than a batch may have: a damaged length must not take that much memory."""
        return os.pread(self._fd, min(length, BATCH_BYTES_MAX), position)


class FoundBatch(NamedTuple):
    """A batch and where it is. `problem`: why its bytes cannot be those that were written."""

    header: BatchHeader
    position: int
    problem: str | None


class UnreadableRecords(Exception):
    """Why the records of a batch cannot be told."""


def batches_of(file: ReadOnlyFile) -> Iterator[FoundBatch]:
    """The batches of a `.log` file, each checked. CorruptSegment: where, and why, the file goes on with something else."""
    for header, position in scan_batches(file, 0, file.size, LARGE_SCAN_BYTES):
        yield FoundBatch(header, position, _problem(file, header, position))


def _problem(file: ReadOnlyFile, header: BatchHeader, position: int) -> str | None:
    found = _checksum(file, header, position)
    return None if found == header.crc else f"checksum {found} is not {header.crc} as the batch says"


def _checksum(file: ReadOnlyFile, header: BatchHeader, position: int) -> int:
    start, add = (ATTRIBUTES_OFFSET, crc32c) if header.magic == MAGIC_V2 else (MAGIC_OFFSET, zlib.crc32)
    value, at, end = 0, position + start, position + header.size_in_bytes
    while at < end:
        piece = file.read_at(at, min(PIECE_BYTES, end - at))
        if not piece:
            raise CorruptSegment(position, "the file has become shorter while it was read, at the batch")
        value = add(piece, value)
        at += len(piece)
    return value


def records_of(file: ReadOnlyFile, found: FoundBatch) -> Iterator[Record]:
    """The records of a batch. UnreadableRecords before the first one."""
    size = found.header.size_in_bytes
    if size > BATCH_BYTES_MAX:
        raise UnreadableRecords(f"{size} bytes are more than a batch can have")
    try:
        return decode_records(file.read_at(found.position, size))
    except KafkaError as error:
        raise UnreadableRecords(str(error)) from None


def offset_problem(found: FoundBatch, expected_offset: int | None) -> str | None:
    """Whether the offsets of a batch go back, or come to nothing."""
    header = found.header
    if header.last_offset < header.base_offset:
        return f"last offset {header.last_offset} is below the first, {header.base_offset}"
    if expected_offset is not None and header.base_offset < expected_offset:
        return f"offset {header.base_offset} comes again: the batch before ended at {expected_offset - 1}"
    return None
