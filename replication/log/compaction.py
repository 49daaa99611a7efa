"""Compaction: keep the last record of every key, drop the ones before it.

One pass over a log
    1. `build_map` reads the dirty part, [first_dirty_offset, uncleanable_offset), and notes the last offset of each key. The
       map has a limit; where it is full the pass ends (`end_offset`) and the next one begins.
    2. `clean` copies the batches of a group of old segments into one new segment, leaving out what the map or a
       transaction's abort makes obsolete. Offsets never change, so gaps appear. The caller swaps the new segment in.

What stays
    * Records above the map, and the last record of each key.
    * Deletion markers (no value) for delete.retention.ms more: the first pass that meets them writes the time they may go
      into their batch (the delete horizon, KIP-534), a later one drops them.
    * Markers of transactions as long as records of the transaction are left; after that like deletion markers.
    * The last batch of every producer that is still known, if need be without its records, because its sequence numbers
      are needed; and the last batch of the range, because it says where the range ends.
    Records without a key have no place in a compacted log and go.

A pass runs in a thread. It is given everything it needs when it is made, opens files of its own, and touches no log.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ottla.replication.log.aborted_transactions import AbortedTransaction
from ottla.replication.log.index import RELATIVE_OFFSET_MAX
from ottla.replication.log.names import CLEANED_SUFFIX, LOG_SUFFIX
from ottla.replication.log.scan import LARGE_SCAN_BYTES, scan_batches
from ottla.replication.log.segment import Segment
from ottla.replication.log.storage import FileCache, Storage
from ottla.wire.pages import COPIED_BYTES_MAX
from ottla.wire.records import (
    MAGIC_V2,
    BatchHeader,
    ControlType,
    Record,
    TimestampType,
    control_type_id,
    decode_records,
    encode_batch,
    read_header,
)

if TYPE_CHECKING:
    from ottla.replication.config import LogConfig

BYTES_PER_KEY = 160  # of bookkeeping, beside the key itself
OPEN_FILES_MAX = 8
GROUP_MAX = 64


class Source(NamedTuple):
    """A segment to be cleaned, as it was when the pass began. Its batches lie in [base_offset, end_offset)."""

    base_offset: int
    end_offset: int
    size: int
    path: str


class LastBatch(NamedTuple):
    """The last thing a producer wrote: a batch, or (offset -1) a transaction marker with this epoch."""

    offset: int
    epoch: int


class OffsetMap:
    """The last offset of each key, and up to which offset (`latest_offset`) that is known."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_left = bytes_max
        self._offsets: dict[bytes, int] = {}
        self.latest_offset = -1

    def __len__(self) -> int:
        return len(self._offsets)

    def add(self, records: Sequence[Record]) -> bool:
        """Note the records of a batch; False, with nothing noted, if they do not fit any more."""
        keys = {_mapped(record.key): record.offset for record in records if record.key is not None}
        new = [key for key in keys if key not in self._offsets]
        size = sum(len(key) + BYTES_PER_KEY for key in new)
        # The first batch is taken whatever its size, or the pass would never get beyond it.
        if size > max(self._bytes_left, 0) and self._offsets:
            return False
        self._bytes_left -= size
        self._offsets |= keys
        return True

    def is_last(self, key: bytes, offset: int) -> bool:
        """Whether no later record has this key."""
        return offset >= self._offsets.get(_mapped(key), -1)


def _mapped(key: bytes) -> bytes:
    """The map's entry for a key. The map has a digest of a very long key, and any other key as it is."""
    # A key of a large batch is a view, which would keep the whole batch in memory for as long as the map.
    return bytes(key) if len(key) <= COPIED_BYTES_MAX else hashlib.blake2b(key).digest()


class TransactionFilter:
    """Follows transactions through a log: which batches were aborted, and which markers still mean anything."""

    def __init__(self, aborted: Sequence[AbortedTransaction]) -> None:
        self._coming = deque(sorted(aborted, key=lambda transaction: transaction.first_offset))
        self._aborting: dict[int, AbortedTransaction] = {}
        self._has_records: set[int] = set()
        self._committing: set[int] = set()

    def _advance(self, offset: int) -> None:
        while self._coming and self._coming[0].first_offset <= offset:
            transaction = self._coming.popleft()
            self._aborting.setdefault(transaction.producer_id, transaction)

    def is_aborted(self, batch: BatchHeader) -> bool:
        """Whether a data batch belongs to a transaction that was aborted."""
        self._advance(batch.last_offset)
        if not batch.is_transactional:
            return False
        if batch.producer_id in self._aborting:
            # Its records go now. The marker goes only when a later pass finds none of them.
            self._has_records.add(batch.producer_id)
            return True
        self._committing.add(batch.producer_id)
        return False

    def end(self, batch: BatchHeader, records: Sequence[Record]) -> tuple[bool, AbortedTransaction | None]:
        """For a control batch: whether it is obsolete, and the aborted transaction it ends if that is to be indexed."""
        self._advance(batch.last_offset)
        # An earlier pass has emptied the batch, so what it said is not there any more.
        if not records:
            return True, None
        kind = control_type_id(records[0].key)
        if kind == ControlType.ABORT:
            transaction = self._aborting.pop(batch.producer_id, None)
            if transaction is not None and batch.producer_id in self._has_records:
                self._has_records.discard(batch.producer_id)
                return False, transaction
            return True, None
        if kind == ControlType.COMMIT:
            # Without records before it the marker ends nothing that a consumer can see.
            is_known = batch.producer_id in self._committing
            self._committing.discard(batch.producer_id)
            return not is_known, None
        return False, None


class Compaction:
    """One pass over one log; see the module's docstring."""

    def __init__(
        self,
        storage: Storage,
        directory: str,
        sources: Sequence[Source],
        config: LogConfig,
        *,
        first_dirty_offset: int,
        uncleanable_offset: int,
        aborted: Sequence[AbortedTransaction],
        last_batches: Mapping[int, LastBatch],
        now_ms: int,
        map_bytes_max: int,
        give_way: Callable[[], None] = lambda: None,
    ) -> None:
        self.first_dirty_offset = first_dirty_offset
        self.uncleanable_offset = uncleanable_offset
        self.end_offset = first_dirty_offset
        self._storage = storage
        self._directory = directory
        self._sources = sources
        self._config = config
        self._aborted = aborted
        self._last_batches = last_batches
        self._now_ms = now_ms
        self._map = OffsetMap(map_bytes_max)
        self._give_way = give_way
        self._transactions = TransactionFilter(aborted)

    def build_map(self) -> None:
        """Note the last offset of each key in the dirty part. OSError, CorruptSegment or KafkaError end the pass."""
        transactions = TransactionFilter(
            [each for each in self._aborted if each.last_offset >= self.first_dirty_offset]
        )
        for source in self._sources:
            if source.end_offset <= self.first_dirty_offset or source.base_offset >= self.uncleanable_offset:
                continue
            for header, data in self._batches(source):
                if header.base_offset >= self.uncleanable_offset:
                    break
                if header.last_offset >= self.first_dirty_offset and not self._note(header, data, transactions):
                    return
            # The end of the segment, and not of its last batch: there may be a gap between them.
            self._map.latest_offset = min(source.end_offset, self.uncleanable_offset) - 1
            self.end_offset = self._map.latest_offset + 1

    def _note(self, header: BatchHeader, data: bytes, transactions: TransactionFilter) -> bool:
        if header.is_control:
            transactions.end(header, list(decode_records(data)))
        # A record of an aborted transaction never counted. It must not make the value before it obsolete.
        elif not transactions.is_aborted(header):
            # A batch may begin in the part that is clean already.
            records = [record for record in decode_records(data, in_place=True) if record.offset >= self.first_dirty_offset]
            if not self._map.add(records):
                return False
        self._map.latest_offset = header.last_offset
        self.end_offset = header.next_offset
        return True

    def _batches(self, source: Source) -> Iterator[tuple[BatchHeader, bytes]]:
        file = self._storage.open(source.path)
        for header, position in scan_batches(file, 0, source.size, LARGE_SCAN_BYTES):
            yield header, file.read_at(position, header.size_in_bytes)
            self._give_way()

    def groups(self) -> list[list[Source]]:
        """The segments below `end_offset`, in groups that fit into one segment each.

        The event loop gives the files of a whole group up at once, so a group has few of them.
        """
        groups: list[list[Source]] = []
        size = 0
        for source in self._sources:
            if source.base_offset >= self.end_offset:
                break
            group = groups[-1] if groups else []
            size += source.size
            if (
                not group
                or len(group) == GROUP_MAX
                or size > self._config.segment_bytes
                # Indexes hold offsets relative to the segment, in 32 bits.
                or source.end_offset - 1 - group[0].base_offset > RELATIVE_OFFSET_MAX
            ):
                groups.append([source])
                size = source.size
            else:
                group.append(source)
        return groups

    def clean(self, group: Sequence[Source]) -> Segment:
        """Copy what stays of a group into a new segment with the suffix `.cleaned`, durably. Groups in order, once."""
        # A small cache of its own, so that the pass pushes no files out that logs have in use.
        files = FileCache(self._storage, OPEN_FILES_MAX)
        cleaned = Segment.create(
            files, self._directory, group[0].base_offset, created_ms=self._now_ms, suffix=CLEANED_SUFFIX
        )
        try:
            for source in group:
                modified_ms = self._storage.modified_ms(source.path)
                for header, data in self._batches(source):
                    kept = self._kept(header, data, modified_ms, cleaned)
                    if kept:
                        cleaned.append(kept, [read_header(kept)], self._config)
            # Everything is on the disk before the caller gives the old segments up.
            cleaned.seal()
            for lazy in cleaned.files_to_sync():
                lazy.open().sync()
            # Retention goes by this time where records have none. A fresh one would keep old records alive.
            self._storage.set_modified_ms(cleaned.path(LOG_SUFFIX), self._storage.modified_ms(group[-1].path))
        except BaseException:
            self.discard(cleaned)
            raise
        return cleaned

    def discard(self, cleaned: Segment) -> None:
        """Remove a new segment nobody wants."""
        cleaned.release_files()
        for path in cleaned.paths():
            self._storage.remove(path)

    # --- what stays of a batch ----------------------------------------------------------------------------------------

    def _kept(self, header: BatchHeader, data: bytes, modified_ms: int, cleaned: Segment) -> bytes:
        records = list(decode_records(data, in_place=True))
        if header.is_control:
            is_obsolete, aborted = self._transactions.end(header, records)
            if aborted is not None:
                cleaned.append_aborted(aborted)
            horizon_ms = header.delete_horizon_ms
            # An obsolete marker stays for a while, like a deletion marker, for readers that have seen the records
            # before it.
            kept = [] if is_obsolete and horizon_ms is not None and horizon_ms <= self._now_ms else records
            needs_horizon = is_obsolete
        elif self._transactions.is_aborted(header):
            kept, needs_horizon = [], False
        else:
            retains_deletes = self._retains_deletes(header, modified_ms)
            kept = [record for record in records if self._is_kept(record, retains_deletes)]
            needs_horizon = any(record.value is None for record in kept)
        if not kept:
            return self._emptied(header) if self._is_needed(header) else b""
        needs_horizon = needs_horizon and header.delete_horizon_ms is None
        # Nothing changes, so the bytes stay as they are: no new encoding, no compression.
        if len(kept) == len(records) and not needs_horizon and header.magic == MAGIC_V2:
            return data
        horizon_ms = self._now_ms + self._config.delete_retention_ms if needs_horizon else header.delete_horizon_ms
        return _rebuilt(header, kept, horizon_ms)

    def _is_kept(self, record: Record, retains_deletes: bool) -> bool:
        # The map does not reach so far, so nobody knows whether a later record has this key.
        if record.offset > self._map.latest_offset:
            return True
        if record.key is None:
            return False
        return self._map.is_last(record.key, record.offset) and (record.value is not None or retains_deletes)

    def _retains_deletes(self, header: BatchHeader, modified_ms: int) -> bool:
        if header.magic < MAGIC_V2:  # no room for a horizon: go by the age of the file
            return modified_ms > self._now_ms - self._config.delete_retention_ms
        horizon_ms = header.delete_horizon_ms
        return horizon_ms is None or self._now_ms < horizon_ms

    def _is_needed(self, header: BatchHeader) -> bool:
        """Whether a batch stays although none of its records does."""
        if header.next_offset == self.uncleanable_offset:
            return True
        last = self._last_batches.get(header.producer_id) if header.producer_id >= 0 else None
        if last is None:
            return False
        if last.offset >= 0:
            return header.last_offset == last.offset
        return header.is_control and header.producer_epoch == last.epoch

    def _emptied(self, header: BatchHeader) -> bytes:
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


def _timestamp_type(header: BatchHeader) -> TimestampType:
    return TimestampType.LOG_APPEND_TIME if header.is_log_append_time else TimestampType.CREATE_TIME


def _rebuilt(header: BatchHeader, records: Sequence[Record], delete_horizon_ms: int | None) -> bytes:
    base_offset = header.base_offset if header.magic == MAGIC_V2 else records[0].offset
    return encode_batch(
        records,
        base_offset=base_offset,
        compression=header.compression,
        timestamp_type=_timestamp_type(header),
        # With the producers' times the largest may have gone with its record, and is found anew.
        max_timestamp=header.max_timestamp if header.is_log_append_time else None,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        is_transactional=header.is_transactional,
        is_control=header.is_control,
        leader_epoch=header.partition_leader_epoch,
        keep_offsets=True,
        # The batch goes on covering the same offsets, although its last record may be gone.
        last_offset_delta=header.last_offset - base_offset,
        delete_horizon_ms=delete_horizon_ms,
    )
