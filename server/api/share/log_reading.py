"""Reads of the log for share groups: whole batches, of which only the headers are decoded.

Records go out as regions of the log files, as with an ordinary fetch. To acquire them, the offsets and
transactional fields of their batches are needed. So the headers of a region are read, but no more than a fetch can acquire.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from ottla.groupcoord.share.partition.acquiring import AbortedTransaction, AcquiredRecords, FetchedBatch
from ottla.replication.log.storage import FileRegion
from ottla.server.api.fetch.partition_reader import LimitsRegions
from ottla.wire.control_batches import ControlType, control_type_id
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.record_decoding import decode_records
from ottla.wire.records import RECORDS_OFFSET, BatchHeader, batch_size, read_header

if TYPE_CHECKING:
    from ottla.replication.log.descriptors import Descriptors
    from ottla.replication.partition.partition import Partition

WINDOW_BYTES = 4096
"""Bytes that are read with a header: small batches follow it."""
MARKER_BYTES_MAX = 4096
LONG_MAX = (1 << 63) - 1
_MAGIC_V2 = 2


class SharedRead(NamedTuple):
    """Records read from one partition. `places`: bounds of each batch in `records`."""

    fetch_offset: int
    records: FileRegion | bytes
    batches: list[FetchedBatch]
    places: list[tuple[int, int]]
    aborted: list[AbortedTransaction]
    bytes_available: int
    is_behind: bool

    def slice(self, acquired: Sequence[AcquiredRecords]) -> FileRegion | bytes:
        """Return the batches from the first to the last acquired record. Call this once: the file region shrinks."""
        first, last = acquired[0].first_offset, acquired[-1].last_offset
        overlapping = [
            place
            for batch, place in zip(self.batches, self.places, strict=True)
            if batch.last_offset >= first and batch.base_offset <= last
        ]
        if not overlapping:
            return b""
        start, end = overlapping[0][0], overlapping[-1][1]
        records = self.records
        if isinstance(records, FileRegion):
            # The region itself, because it is counted as an open file as long as it lives.
            records.position += start
            records.length = end - start
            return records
        return records[start:end]


class ShareReader(LimitsRegions):
    """Reader of the log for one share fetch."""

    __slots__ = ("is_committed_only",)

    def __init__(self, descriptors: Descriptors, *, is_committed_only: bool) -> None:
        super().__init__(descriptors)
        self.is_committed_only = is_committed_only

    def end_of(self, partition: Partition) -> int:
        """Return the end offset for this group: last stable offset or high watermark, by its isolation level."""
        return partition.last_stable_offset if self.is_committed_only else partition.high_watermark

    def available(self, partition: Partition, fetch_offset: int) -> int:
        """Return the estimated number of bytes from `fetch_offset` on. Raises KafkaError or NotCached.

        If `fetch_offset` is in an older segment the estimate is LONG_MAX, because more follows in later segments.
        """
        read = partition.read(fetch_offset, 1, read_committed=self.is_committed_only, only_from_leader=True)
        return LONG_MAX if read.is_behind else read.bytes_available

    def read(self, partition: Partition, fetch_offset: int, room: int, *, is_first: bool, until: int) -> SharedRead:
        """Return the batch at `fetch_offset`, and later batches that begin at offset `until` or before.

        `room`: bytes to read; if `is_first`, the first batch may be longer. Raises KafkaError or NotCached.
        """
        room = self.with_files(room, is_first=is_first)
        read = partition.read(
            fetch_offset,
            room,
            read_committed=self.is_committed_only,
            at_least_one_batch=is_first and room > 0,
            only_from_leader=True,
        )
        if isinstance(read.records, FileRegion):
            read = self._kept(partition, read, as_region=False)
        try:
            batches, places = _batches(read.records, fetch_offset, until)
        except OSError as error:
            raise partition.log.storage_error(error) from error
        return SharedRead(
            fetch_offset,
            read.records,
            batches,
            places,
            [AbortedTransaction(each.producer_id, each.first_offset) for each in read.aborted_transactions or ()],
            read.bytes_available,
            read.is_behind,
        )


def _batches(
    records: FileRegion | bytes, fetch_offset: int, until: int
) -> tuple[list[FetchedBatch], list[tuple[int, int]]]:
    """Return the complete batches from `fetch_offset` on, and the bounds of each in `records`.

    Batches after the first are left out if they begin beyond offset `until`. As in Kafka an incomplete last batch is
    left out, too.
    """
    batches: list[FetchedBatch] = []
    places: list[tuple[int, int]] = []
    window = _Window(records)
    at, end, next_offset = 0, len(records), fetch_offset
    while at < end:
        data, start = window.at(at, RECORDS_OFFSET)
        size = batch_size(data, start, start + end - at)
        if not size:
            break
        header = read_header(data, start) if data[start + 16] == _MAGIC_V2 else None
        if header is None:
            # A message of magic 0 or 1 has the offset of its last record only.
            (last,) = (int.from_bytes(data[start : start + 8], "big", signed=True),)
            batch = FetchedBatch(min(next_offset, last), last)
        else:
            is_abort = header.is_control and _is_abort(window, at, size, header)
            batch = FetchedBatch(
                header.base_offset, header.last_offset, header.producer_id, header.is_transactional, is_abort
            )
        # The first batch is taken in any case: it ends a hole that compaction has left, however long that is.
        if batch.base_offset > until and batches:
            break
        # The read begins with the batch that has the offset, or follows it after compaction.
        if batch.last_offset >= fetch_offset:
            batches.append(batch)
            places.append((at, at + size))
        next_offset = batch.last_offset + 1
        at += size
    return batches, places


def _is_abort(window: _Window, at: int, size: int, header: BatchHeader) -> bool:
    # Compaction may leave the header of a control batch without its record.
    if size > MARKER_BYTES_MAX or not header.records_count:
        return False
    data, start = window.at(at, size)
    for record in decode_records(data[start : start + size]):
        return control_type_id(record.key) == ControlType.ABORT
    return False


class _Window:
    """Buffered reads from a region of a log file, in steps of WINDOW_BYTES."""

    __slots__ = ("_data", "_records", "_start")

    def __init__(self, records: FileRegion | bytes) -> None:
        self._records = records
        self._start = 0
        self._data = records if isinstance(records, bytes) else b""

    def at(self, position: int, length: int) -> tuple[bytes, int]:
        """Return a buffer and the index of `position` in it; at least `length` bytes follow, fewer at the end."""
        records = self._records
        end = min(position + length, len(records))
        if isinstance(records, FileRegion) and not self._start <= position < end <= self._start + len(self._data):
            wanted = min(max(length, WINDOW_BYTES), len(records) - position)
            self._data = records.file.read_at(records.position + position, wanted)
            self._start = position
            if len(self._data) < wanted:
                raise KafkaError(ErrorCode.CORRUPT_MESSAGE, "The log ends in the middle of a batch")
        return self._data, position - self._start
