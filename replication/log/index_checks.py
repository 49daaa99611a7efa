"""Whether the indexes of a segment that were found on the disk can belong to its `.log`."""

from __future__ import annotations

from ottla.replication.log.index import CorruptIndex, OffsetIndex, TimeIndex
from ottla.replication.log.scan import scan_batches
from ottla.replication.log.storage import LazyFile


def check_indexes(offset_index: OffsetIndex, time_index: TimeIndex, log: LazyFile, size: int) -> None:
    """Raise CorruptIndex or CorruptSegment if they cannot.

    Zeros at the end, an index of another log, one that is ahead of its log: all show at the last entry.
    """
    offset, position = offset_index.last_entry()
    base_offset = offset_index.base_offset
    if offset_index.entries:
        header = next(scan_batches(log.open(), position, size), None)
        if not position:  # the first batch never has an entry, so these are zeros
            raise CorruptIndex(f"{offset_index.path} ends with zeros")
        if offset < base_offset or header is None or not base_offset <= header[0].base_offset <= offset:
            raise CorruptIndex(f"{offset_index.path} ends with offset {offset} at {position}")
    time_index.check()
    if time_index.entries and time_index.last_offset > offset:
        headers = scan_batches(log.open(), position, size)
        if not any(header.last_offset >= time_index.last_offset for header, _ in headers):
            raise CorruptIndex(f"{time_index.path} ends with offset {time_index.last_offset}")
