"""Compaction: keep the last record of every key, drop the ones before it.

One pass over a log
    1. `build_map` reads the dirty part, [first_dirty_offset, uncleanable_offset), and notes the last offset of each key. The
       map has a limit; where it is full the pass ends (`end_offset`) and the next one begins.
    2. `clean` copies the batches of a group of old segments into one new segment, leaving out what the map or a
       transaction's abort makes obsolete. Offsets never change, so gaps appear. The caller swaps the new segment in.

What stays
    * Records above the map, and the last record of each key.
    * Deletion markers (no value) for delete.retention.ms more: the first pass that meets them writes the time they may go
      into their batch (the delete horizon, KIP-534), a later one drops them. Batches of old have no room for that time:
      there the file tells how old they are.
    * Markers of transactions as long as records of the transaction are left; after that like deletion markers.
    * The last batch of every producer that is still known, if need be without its records, because its sequence numbers
      are needed; and the last batch below the high watermark, because it says where the log ends.
    Records without a key have no place in a compacted log and go.

A pass runs in threads, a piece at a time: `build_map` and `clean` are iterators, and each step reads no more than some
hundred kilobytes, or one batch, and gives the bytes it has read and written. A pass is given everything it needs when it is
made, opens files of its own, and touches no log. Its borders are borders of segments, so every transaction in it is decided.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import compress
from typing import TYPE_CHECKING, NamedTuple

from ottla.replication.log.batch_scan import CorruptSegment
from ottla.replication.log.index import RELATIVE_OFFSET_MAX
from ottla.replication.log.names import CLEANED_SUFFIX, INDEX_SUFFIX, LOG_SUFFIX, TIME_INDEX_SUFFIX, path_in
from ottla.replication.log.segment import Segment
from ottla.replication.log.storage import FileCache, Storage, StorageFile
from ottla.replication.log.transaction_index import IndexOfSegment, TransactionFilter
from ottla.wire.buffers import COPIED_BYTES_MAX
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.record_decoding import decode_records
from ottla.wire.record_encoding import encode_batch
from ottla.wire.records import LOG_OVERHEAD, MAGIC_V2, BatchHeader, Record, TimestampType, iter_batches, read_header

if TYPE_CHECKING:
    from ottla.replication.config import LogConfig

BYTES_PER_KEY = 160  # of bookkeeping, beside the key itself


class OffsetMap:
    """Map from each key to its last offset, in a log's dirty part up to `latest_offset`; memory is limited."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_left = bytes_max
        self._offsets: dict[bytes, int] = {}
        self.latest_offset = -1

    def __len__(self) -> int:
        return len(self._offsets)

    def add(self, records: Iterable[Record], start_offset: int) -> bool:
        """Add the offsets of records from `start_offset` on, in order; return False if the map is full."""
        offsets, bytes_left = self._offsets, self._bytes_left
        for record in records:
            if record.key is None or record.offset < start_offset:
                continue
            key = _mapped(record.key)
            if key not in offsets:
                size = len(key) + BYTES_PER_KEY
                # The first key is taken whatever its size, or the pass would never get beyond it.
                if size > bytes_left and offsets:
                    self._bytes_left = bytes_left
                    return False
                bytes_left -= size
            offsets[key] = self.latest_offset = record.offset
        self._bytes_left = bytes_left
        return True

    def is_last(self, key: bytes, offset: int) -> bool:
        """Tell whether no later record in the map has this key."""
        return offset >= self._offsets.get(_mapped(key), -1)


def _mapped(key: bytes) -> bytes:
    """Return the map's key for a record key; a digest if the record key is very long."""
    # A key of a large batch is a view, which would keep the whole batch in memory for as long as the map.
    if len(key) <= COPIED_BYTES_MAX:
        return bytes(key)
    import hashlib  # here, because it loads OpenSSL, and hardly anybody has such keys

    return hashlib.blake2b(key).digest()


OPEN_FILES_MAX = 8
GROUP_MAX = 64
SEGMENT_BYTES_MAX = 2**31 - 1  # positions in an index have 31 bits
RECORDS_PER_TURN = 100
IO_BYTES_MIN = 4096  # a buffer that is set to nothing would make every batch a piece of its own


class Source(NamedTuple):
    """A segment to compact, as it was at the beginning of the pass; its batches lie in [base_offset, end_offset)."""

    base_offset: int
    end_offset: int
    size: int
    path: str


class LastBatch(NamedTuple):
    """Last offset and epoch of a producer's last data batch; `offset` is -1 if there is only a transaction marker."""

    offset: int
    epoch: int


class Limits(NamedTuple):
    """Memory limits of one pass, in bytes: for its offset map and its read buffer."""

    map_bytes: int
    io_bytes: int


class Task(NamedTuple):
    """The log of one compaction pass, as it was at the beginning of the pass."""

    directory: str
    config: LogConfig
    sources: Sequence[Source]
    indexes: Sequence[IndexOfSegment]
    last_batches: Mapping[int, LastBatch]
    first_dirty_offset: int
    uncleanable_offset: int
    high_watermark: int


class Compaction:
    """One compaction pass over one log."""

    def __init__(
        self, storage: Storage, task: Task, limits: Limits, *, now_ms: int, give_way: Callable[[], None] = lambda: None
    ) -> None:
        self.end_offset = task.first_dirty_offset
        self._storage = storage
        self._task = task
        self._io_bytes = max(limits.io_bytes, IO_BYTES_MIN)
        self._now_ms = now_ms
        self._map = OffsetMap(limits.map_bytes)
        self._give_way = give_way
        self._transactions = TransactionFilter(task.indexes)
        self._legacy_horizon_ms = 0

    # --- the map ------------------------------------------------------------------------------------------------------

    def build_map(self) -> Iterator[int]:
        """Map each key in the dirty part to its last offset; yield the number of bytes read in each step.

        Raises OSError, CorruptSegment or KafkaError.
        """
        self._remove_leftovers()
        start = self._task.first_dirty_offset
        clean = [source for source in self._task.sources if source.base_offset < start]
        # Asked now: cleaned segments take the places of these later.
        if clean:
            self._legacy_horizon_ms = self._storage.modified_ms(clean[-1].path) - self._task.config.delete_retention_ms
        dirty = [source for source in self._task.sources if source.end_offset > start]
        first = dirty[0].base_offset if dirty else start
        transactions = TransactionFilter([index for index in self._task.indexes if index.base_offset >= first])
        for source in dirty:
            transactions.reach(source.end_offset)
            for batches, size in self._pieces(source):
                for header, data in batches:
                    if header.last_offset < start:
                        # A pass before may have ended behind it, and what follows it is of another transaction.
                        if header.is_control:
                            transactions.end(header, list(decode_records(data)))
                    elif not self._note(header, data, transactions):
                        self.end_offset = self._map.latest_offset + 1
                        return
                yield size
            # The end of the segment, and not of its last batch: there may be a gap between them.
            self._map.latest_offset = source.end_offset - 1
            self.end_offset = source.end_offset

    def _remove_leftovers(self) -> None:
        """Remove files that earlier passes left behind after a disk error or a rename of the directory.

        When a start finds an unfinished segment, it removes `.swap` files of higher offsets as incomplete. If this pass
        had written such a file and removed the old segments, their records would be lost.
        """
        for name in self._storage.names(self._task.directory):
            if name.endswith(CLEANED_SUFFIX):
                self._storage.remove(path_in(self._task.directory, name))

    def _note(self, header: BatchHeader, data: memoryview, transactions: TransactionFilter) -> bool:
        if header.is_control:
            transactions.end(header, list(decode_records(data)))
        # A record of an aborted transaction never counted. It must not make the value before it obsolete.
        # A batch may begin in the part that is clean already.
        elif not transactions.is_aborted(header) and not self._map.add(
            self._records(header, data), self._task.first_dirty_offset
        ):
            return False
        self._map.latest_offset = header.last_offset
        return True

    def _pieces(self, source: Source) -> Iterator[tuple[list[tuple[BatchHeader, memoryview]], int]]:
        """Yield a segment's batches in groups, each with the number of bytes read."""
        file = self._storage.open(source.path)
        position, wanted = 0, self._io_bytes
        while position < source.size:
            data = memoryview(file.read_at(position, min(wanted, source.size - position)))
            try:
                batches = [(header, data[start:end]) for header, start, end in iter_batches(data)]
            except KafkaError as error:
                raise CorruptSegment(position, str(error)) from error
            if batches:
                read = sum(len(batch) for _, batch in batches)
                position, wanted = position + read, self._io_bytes
                yield batches, read
            else:
                wanted = _size_of_first(file, position, data, source.size)

    def _records(self, header: BatchHeader, data: memoryview) -> Iterator[Record]:
        # A record of a few compressed bytes may have millions of headers, which are only written once more.
        records = decode_records(data, in_place=True, header=header, raw_headers=True)
        for number, record in enumerate(records):
            # Before the first one, too: most batches are small.
            if not number % RECORDS_PER_TURN:
                self._give_way()
            yield record

    # --- the groups ---------------------------------------------------------------------------------------------------

    def groups(self) -> list[list[Source]]:
        """Return segments below `end_offset` in groups, each small enough for one segment and one event loop step."""
        groups: list[list[Source]] = []
        sums = (0, 0, 0)
        config = self._task.config
        limits = (config.segment_bytes, config.segment_index_bytes, config.segment_index_bytes)
        for source in self._task.sources:
            if source.base_offset >= self.end_offset:
                break
            group = groups[-1] if groups else []
            own = (
                source.size,
                self._size_of_index(source, INDEX_SUFFIX),
                self._size_of_index(source, TIME_INDEX_SUFFIX),
            )
            together = (sums[0] + own[0], sums[1] + own[1], sums[2] + own[2])
            if (
                not group
                or len(group) == GROUP_MAX
                or any(size > limit for size, limit in zip(together, limits, strict=True))
                # Indexes hold offsets relative to the segment, in 31 bits. An empty segment has none.
                or (source.size > 0 and source.end_offset - 1 - group[0].base_offset > RELATIVE_OFFSET_MAX)
            ):
                groups.append([source])
                sums = own
            else:
                group.append(source)
                sums = together
        return groups

    def _size_of_index(self, source: Source, suffix: str) -> int:
        # An index that is missing is made when the segment is read.
        with contextlib.suppress(FileNotFoundError):
            return self._storage.size(source.path.removesuffix(LOG_SUFFIX) + suffix)
        return 0

    # --- the copies ---------------------------------------------------------------------------------------------------

    def begin(self, group: Sequence[Source]) -> Segment:
        """Create the new segment of a group, with the suffix `.cleaned`."""
        # A small cache of its own, so that the pass pushes no files out that logs have in use.
        files = FileCache(self._storage, OPEN_FILES_MAX)
        base_offset = group[0].base_offset
        return Segment.create(files, self._task.directory, base_offset, created_ms=self._now_ms, suffix=CLEANED_SUFFIX)

    def clean(self, group: Sequence[Source], cleaned: Segment) -> Iterator[int]:
        """Copy a group's retained records to a new, synced segment; call this for each group, in order.

        Yields the number of bytes read and written in each step.
        """
        for source in group:
            self._transactions.reach(source.end_offset)
            modified_ms = self._storage.modified_ms(source.path)
            for batches, size in self._pieces(source):
                kept = []
                for header, data in batches:
                    if batch := self._kept(header, data, modified_ms, cleaned):
                        kept.append(batch)
                yield size + self._write(kept, cleaned)
        # Everything is on the disk before the caller gives the old segments up.
        cleaned.seal()
        for lazy in cleaned.files_to_sync():
            lazy.open().sync()
        # Retention goes by this time where records have none. A fresh one would keep old records alive.
        self._storage.set_modified_ms(cleaned.path(LOG_SUFFIX), self._storage.modified_ms(group[-1].path))

    def _write(self, batches: Sequence[bytes | memoryview], cleaned: Segment) -> int:
        if not batches:
            return 0
        data = b"".join(batches)
        # Batches of old, and those of another level of compression, may grow.
        if cleaned.size + len(data) > SEGMENT_BYTES_MAX:
            message = f"{cleaned!r} would be larger than its index can tell"
            raise KafkaError(ErrorCode.RECORD_LIST_TOO_LARGE, message)
        cleaned.append(data, [read_header(batch) for batch in batches], self._task.config)
        return len(data)

    def discard(self, cleaned: Segment) -> None:
        """Remove a new segment that is not needed any more."""
        cleaned.release_files()
        for path in cleaned.paths():
            self._storage.remove(path)

    # --- what stays of a batch ----------------------------------------------------------------------------------------

    def _kept(self, header: BatchHeader, data: memoryview, modified_ms: int, cleaned: Segment) -> bytes | memoryview:
        needs_horizon = False
        if header.is_control:
            kept, needs_horizon = self._kept_of_marker(header, data, cleaned)
        elif self._transactions.is_aborted(header):
            kept = bytearray(header.records_count)
        else:
            kept, needs_horizon = self._kept_of_data(header, data, modified_ms)
        count = sum(kept)
        if not count:
            return _emptied(header) if self._is_needed(header) else b""
        needs_horizon = needs_horizon and header.delete_horizon_ms is None
        # Nothing changes, so the bytes stay as they are: no new encoding, no compression.
        if count == len(kept) and not needs_horizon and header.magic == MAGIC_V2:
            return data
        horizon_ms = self._now_ms + self._task.config.delete_retention_ms if needs_horizon else header.delete_horizon_ms
        # Decoded again, one by one: all records of a large batch at once would take several times its memory.
        return _rebuilt(header, compress(self._records(header, data), kept), horizon_ms)

    def _kept_of_marker(self, header: BatchHeader, data: memoryview, cleaned: Segment) -> tuple[bytearray, bool]:
        """Return which records of a control batch to keep (one byte each), and if they are kept only for a while."""
        records = list(decode_records(data))
        is_obsolete, aborted = self._transactions.end(header, records)
        if aborted is not None:
            cleaned.append_aborted(aborted)
        horizon_ms = header.delete_horizon_ms
        # An obsolete marker stays for a while, like a deletion marker, for readers that have seen the records before it.
        is_over = is_obsolete and horizon_ms is not None and horizon_ms <= self._now_ms
        return bytearray([not is_over] * len(records)), is_obsolete

    def _kept_of_data(self, header: BatchHeader, data: memoryview, modified_ms: int) -> tuple[bytearray, bool]:
        """Return which records of a data batch to keep (one byte each), and whether a kept one is a tombstone."""
        retains_deletes, has_deletes = self._retains_deletes(header, modified_ms), False
        kept = bytearray()
        for record in self._records(header, data):
            is_kept = self._is_kept(record, retains_deletes)
            kept.append(is_kept)
            has_deletes = has_deletes or (is_kept and record.value is None)
        return kept, has_deletes

    def _is_kept(self, record: Record, retains_deletes: bool) -> bool:
        # The map does not reach so far, so a later record may have this key.
        if record.offset > self._map.latest_offset:
            return True
        if record.key is None:
            return False
        return self._map.is_last(record.key, record.offset) and (record.value is not None or retains_deletes)

    def _retains_deletes(self, header: BatchHeader, modified_ms: int) -> bool:
        # Such a header has no room for a horizon. So go by how much older the file is than what was clean before.
        if header.magic < MAGIC_V2:
            return modified_ms > self._legacy_horizon_ms
        horizon_ms = header.delete_horizon_ms
        return horizon_ms is None or self._now_ms < horizon_ms

    def _is_needed(self, header: BatchHeader) -> bool:
        """Tell whether a batch without kept records must stay, for its producer or the high watermark."""
        last = self._task.last_batches.get(header.producer_id) if header.producer_id >= 0 else None
        if last is not None:
            is_last = header.last_offset == last.offset
            if is_last if last.offset >= 0 else header.is_control and header.producer_epoch == last.epoch:
                return True
        return header.next_offset == self._task.high_watermark


def _size_of_first(file: StorageFile, position: int, data: memoryview, end: int) -> int:
    """Return the size of the batch at `position`, which is longer than `data`."""
    front = data if len(data) >= LOG_OVERHEAD else memoryview(file.read_at(position, min(LOG_OVERHEAD, end - position)))
    size = int.from_bytes(front[8:LOG_OVERHEAD], "big") + LOG_OVERHEAD
    if len(front) < LOG_OVERHEAD or not len(data) < size <= end - position:
        raise CorruptSegment(position, f"batch of impossible size {size}")
    return size


def _timestamp_type(header: BatchHeader) -> TimestampType:
    return TimestampType.LOG_APPEND_TIME if header.is_log_append_time else TimestampType.CREATE_TIME


def _emptied(header: BatchHeader) -> bytes:
    return encode_batch(
        [],
        base_offset=header.base_offset,
        timestamp_type=_timestamp_type(header),
        max_timestamp=header.max_timestamp,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        is_transactional=header.is_transactional,
        is_control=header.is_control,
        leader_epoch=header.partition_leader_epoch,
        last_offset_delta=header.last_offset_delta,
    )


def _rebuilt(header: BatchHeader, records: Iterable[Record], delete_horizon_ms: int | None) -> bytes:
    base_offset = header.base_offset
    if header.magic < MAGIC_V2:
        records = list(records)
        base_offset = records[0].offset
    return encode_batch(
        records,
        base_offset=base_offset,
        compression=header.compression,
        timestamp_type=_timestamp_type(header),
        # With the producers' times the largest may have gone with its record, and is found again.
        max_timestamp=header.max_timestamp if header.is_log_append_time else None,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        is_transactional=header.is_transactional,
        is_control=header.is_control,
        leader_epoch=header.partition_leader_epoch,
        keep_offsets=True,
        # The batch goes on covering the same offsets, and with them sequence numbers, although its last record may be gone.
        last_offset_delta=header.last_offset - base_offset if header.magic == MAGIC_V2 else None,
        delete_horizon_ms=delete_horizon_ms,
    )
