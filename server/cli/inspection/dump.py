"""Dump of a log's files, row by row, as Kafka's DumpLogSegments prints it.

Files are opened for reading only. No more than a batch is kept in memory. Damage is reported with position and reason, and the dump
goes on as far as it can.
"""

from __future__ import annotations

import errno
import os
import stat
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from struct import Struct
from typing import NamedTuple, Self

from ottla.replication.log.batch_scan import LARGE_SCAN_BYTES, CorruptSegment, scan_batches
from ottla.replication.log.checkpoints import CorruptCheckpoint, decode_epochs, decode_partition_metadata
from ottla.replication.log.names import (
    INDEX_SUFFIX,
    LEADER_EPOCH_CHECKPOINT,
    LOG_SUFFIX,
    PARTITION_METADATA,
    SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    parse_partition_directory,
    parse_segment_file,
)
from ottla.replication.log.producers import CorruptSnapshot, ProducerEntry, decode_snapshot
from ottla.server.cli.inspection.rows import Decoder, OptionalLong, Row, text_of
from ottla.wire.checksum import crc32c
from ottla.wire.control_batches import ControlType, decode_end_txn_marker
from ottla.wire.errors import KafkaError
from ottla.wire.record_decoding import decode_records
from ottla.wire.records import (
    ATTRIBUTES_OFFSET,
    DECOMPRESSED_BYTES_MAX,
    MAGIC_OFFSET,
    MAGIC_V2,
    NO_SEQUENCE,
    BatchHeader,
    Record,
    increment_sequence,
)
from ottla.wire.text import uuid_text

PIECE_BYTES = 1024 * 1024
BATCH_BYTES_MAX = DECOMPRESSED_BYTES_MAX
"""Larger batches are checked, but their records are not read: no request could have carried them."""


class ReadOnlyFile:
    """File opened only for reading. Its folder may be read-only."""

    def __init__(self, path: Path) -> None:
        """Open `path`. Raises OSError, also for anything but a regular file: a pipe would block."""
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
        """Read at most BATCH_BYTES_MAX bytes, so that a damaged length field cannot exhaust the memory."""
        return os.pread(self._fd, min(length, BATCH_BYTES_MAX), position)


class FoundBatch(NamedTuple):
    """Batch with its position in the file. `problem`: text about damaged bytes, None if there are none."""

    header: BatchHeader
    position: int
    problem: str | None


class UnreadableRecords(Exception):
    """Error: the records of a batch cannot be decoded. The text gives the reason."""


def batches_of(file: ReadOnlyFile) -> Iterator[FoundBatch]:
    """Yield the batches of a `.log` file and verify checksums. Raises CorruptSegment at bytes that are no batch."""
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
    """Read the records of a batch. If they cannot be decoded, raise UnreadableRecords before the first one."""
    size = found.header.size_in_bytes
    if size > BATCH_BYTES_MAX:
        raise UnreadableRecords(f"{size} bytes are more than a batch can have")
    try:
        return decode_records(file.read_at(found.position, size))
    except KafkaError as error:
        raise UnreadableRecords(str(error)) from None


def offset_problem(found: FoundBatch, expected_offset: int | None) -> str | None:
    """Return a text if a batch's offsets repeat or run backwards; None if the offsets are valid."""
    header = found.header
    if header.last_offset < header.base_offset:
        return f"last offset {header.last_offset} is below the first, {header.base_offset}"
    if expected_offset is not None and header.base_offset < expected_offset:
        return f"offset {header.base_offset} comes again: the batch before ended at {expected_offset - 1}"
    return None


ENTRIES_AT_ONCE = 4096
SMALL_FILE_BYTES_MAX = 64 * 1024 * 1024
_OFFSET_ENTRY = Struct(">ii")
_TIME_ENTRY = Struct(">qi")
_ABORTED_ENTRY = Struct(">hqqqq")
NEVER_MS = -(2**63)

Complain = Callable[[Path, str], None]
Rows = Iterator[tuple[bool, Row]]
"""Pairs: True if the row is part of the one before it, and the row."""


class NoLogFile(Exception):
    """Error: the file does not belong to a log."""


def readable_files(path: Path) -> list[Path]:
    """Return the files to dump: `path`, or if it is a folder, the log files in it and in its partition folders."""
    if not path.is_dir():
        return [path]
    names = sorted(each.name for each in path.iterdir())
    of_segments = [name for name in names if (file := parse_segment_file(name)) is not None and not file.suffix]
    small = [name for name in (LEADER_EPOCH_CHECKPOINT, PARTITION_METADATA) if name in names]
    partitions = [path / name for name in names if parse_partition_directory(name) is not None]
    inner = [file for each in partitions if each.is_dir() for file in readable_files(each)]
    return [path / name for name in (*of_segments, *small)] + inner


def rows_of(path: Path, complain: Complain, *, shows_records: bool, decoder: Decoder | None) -> Rows:
    """Yield a file's rows. Report damage to `complain`. Raises NoLogFile, or OSError if the file is unreadable."""
    named = parse_segment_file(path.name)
    if path.name == LEADER_EPOCH_CHECKPOINT:
        return _epochs(path, complain)
    if path.name == PARTITION_METADATA:
        return _metadata(path, complain)
    if named is None:
        raise NoLogFile("this is no file of a log")
    if named.kind == LOG_SUFFIX:
        return _batches(path, complain, shows_records=shows_records, decoder=decoder)
    readers = {
        INDEX_SUFFIX: _offset_index,
        TIME_INDEX_SUFFIX: _time_index,
        TXN_INDEX_SUFFIX: _transaction_index,
        SNAPSHOT_SUFFIX: _snapshot,
    }
    return readers[named.kind](path, complain)


# ---------------------------------------------------------------------- batches and records


def _batches(path: Path, complain: Complain, *, shows_records: bool, decoder: Decoder | None) -> Rows:
    with ReadOnlyFile(path) as file:
        try:
            for found in batches_of(file):
                yield False, batch_row(found)
                if found.problem is not None:
                    complain(path, f"{found.problem} at position {found.position}")
                if shows_records or decoder is not None:
                    yield from _records(file, found, path, complain, decoder)
        except CorruptSegment as error:
            complain(path, str(error))


def batch_row(found: FoundBatch) -> Row:
    """Make the row of a batch from its header. A message of an older format is itself a batch, with fewer fields."""
    header = found.header
    row: Row = {"offset": header.base_offset} if header.magic != MAGIC_V2 else _offsets_and_producer(header)
    return row | {
        "position": found.position,
        _timestamp_type(header): header.max_timestamp,
        "size": header.size_in_bytes,
        "magic": header.magic,
        "compresscodec": _codec_name(header),
        "crc": header.crc,
        "isvalid": found.problem is None,
    }


def _offsets_and_producer(header: BatchHeader) -> Row:
    return {
        "baseOffset": header.base_offset,
        "lastOffset": header.last_offset,
        "count": header.records_count,
        "baseSequence": header.base_sequence,
        "lastSequence": header.last_sequence,
        "producerId": header.producer_id,
        "producerEpoch": header.producer_epoch,
        "partitionLeaderEpoch": header.partition_leader_epoch,
        "isTransactional": header.is_transactional,
        "isControl": header.is_control,
        "deleteHorizonMs": OptionalLong(header.delete_horizon_ms),
    }


def _timestamp_type(header: BatchHeader) -> str:
    if header.magic == 0:
        return "NoTimestampType"
    return "LogAppendTime" if header.is_log_append_time else "CreateTime"


def _codec_name(header: BatchHeader) -> str:
    try:
        return header.compression.name.lower()
    except ValueError:
        return f"unknown ({header.attributes & 7})"


def _records(file: ReadOnlyFile, found: FoundBatch, path: Path, complain: Complain, decoder: Decoder | None) -> Rows:
    header = found.header
    try:
        for record in records_of(file, found):
            row = _record_row(header, record)
            if header.magic == MAGIC_V2 and header.is_control:
                row |= _marker_of(record)
            elif decoder is not None:
                key, payload = decoder(record.key, record.value)
                row |= {name: text for name, text in (("key", key), ("payload", payload)) if text is not None}
            else:
                row |= _texts_of(record)
            yield True, row
    except UnreadableRecords as error:
        complain(path, f"records cannot be read of the batch at position {found.position}: {error}")


def _record_row(header: BatchHeader, record: Record) -> Row:
    row: Row = {
        "offset": record.offset,
        _timestamp_type(header): record.timestamp,
        "keySize": -1 if record.key is None else len(record.key),
        "valueSize": -1 if record.value is None else len(record.value),
    }
    if header.magic != MAGIC_V2:
        return row
    sequence = NO_SEQUENCE
    if header.base_sequence != NO_SEQUENCE:
        sequence = increment_sequence(header.base_sequence, record.offset - header.base_offset)
    return row | {"sequence": sequence, "headerKeys": [text_of(key) for key, _ in record.headers]}


def _texts_of(record: Record) -> Row:
    texts = (("key", record.key), ("payload", record.value))
    return {name: text_of(data) for name, data in texts if data is not None}


def _marker_of(record: Record) -> Row:
    try:
        marker = decode_end_txn_marker(record)
    except KafkaError:
        return _texts_of(record)
    return {"endTxnMarker": ControlType(marker.control_type).name, "coordinatorEpoch": marker.coordinator_epoch}


# ---------------------------------------------------------------------- indexes


def entries_of(path: Path, entry: Struct, complain: Complain) -> Iterator[tuple[int, ...]]:
    """Yield the entries of an index file. It reads some thousand entries at a time."""
    with ReadOnlyFile(path) as file:
        size, rest = file.size, file.size % entry.size
        if rest:
            complain(path, f"{rest} bytes are left over behind the last whole entry, at position {size - rest}")
        for position in range(0, size - rest, ENTRIES_AT_ONCE * entry.size):
            data = file.read_at(position, min(ENTRIES_AT_ONCE * entry.size, size - rest - position))
            yield from entry.iter_unpack(data[: len(data) - len(data) % entry.size])


def base_offset_of(path: Path) -> int:
    """Parse the offset in the name of a segment's file."""
    named = parse_segment_file(path.name)
    assert named is not None
    return named.offset


def offset_entries(path: Path, complain: Complain) -> Iterator[tuple[int, int]]:
    """Yield (offset, position) of the entries of an `.index`."""
    base, last = base_offset_of(path), (-1, -1)
    for number, (relative, position) in enumerate(entries_of(path, _OFFSET_ENTRY, complain)):
        if relative < 0 or (relative, position) <= last or position < last[1]:
            complain(path, f"entries do not rise at position {number * _OFFSET_ENTRY.size}")
            return
        last = (relative, position)
        yield base + relative, position


def time_entries(path: Path, complain: Complain) -> Iterator[tuple[int, int]]:
    """Yield (timestamp, offset) of the entries of a `.timeindex`."""
    base, last = base_offset_of(path), (NEVER_MS, -1)
    for number, (timestamp, relative) in enumerate(entries_of(path, _TIME_ENTRY, complain)):
        if relative < 0 or timestamp <= last[0] or relative < last[1]:
            complain(path, f"entries do not rise at position {number * _TIME_ENTRY.size}")
            return
        last = (timestamp, relative)
        yield timestamp, base + relative


def aborted_entries(path: Path, complain: Complain) -> Iterator[tuple[int, ...]]:
    """Yield (version, producer id, first offset, last offset, last stable offset) of the entries of a `.txnindex`."""
    base = base_offset_of(path)
    for number, entry in enumerate(entries_of(path, _ABORTED_ENTRY, complain)):
        if entry[0] != 0 or not base <= entry[3] or entry[2] > entry[3]:
            complain(path, f"no aborted transaction can be so at position {number * _ABORTED_ENTRY.size}")
            return
        yield entry


def _offset_index(path: Path, complain: Complain) -> Rows:
    for offset, position in offset_entries(path, complain):
        yield False, {"offset": offset, "position": position}


def _time_index(path: Path, complain: Complain) -> Rows:
    for timestamp, offset in time_entries(path, complain):
        yield False, {"timestamp": timestamp, "offset": offset}


def _transaction_index(path: Path, complain: Complain) -> Rows:
    names = ("version", "producerId", "firstOffset", "lastOffset", "lastStableOffset")
    for entry in aborted_entries(path, complain):
        yield False, dict(zip(names, entry, strict=True))


# ---------------------------------------------------------------------- small files


def read_small(path: Path) -> bytes:
    """Read a file that is never large, up to SMALL_FILE_BYTES_MAX."""
    with ReadOnlyFile(path) as file:
        return file.read_at(0, SMALL_FILE_BYTES_MAX)


def _snapshot(path: Path, complain: Complain) -> Rows:
    try:
        entries = decode_snapshot(read_small(path), now_ms=0, expiration_ms=2**63)
    except CorruptSnapshot as error:
        complain(path, f"{error} at position 0")
        return
    for entry in entries:
        yield False, _producer_row(entry)


def _producer_row(entry: ProducerEntry) -> Row:
    open_since = entry.current_txn_first_offset
    row: Row = {
        "producerId": entry.producer_id,
        "producerEpoch": entry.epoch,
        "coordinatorEpoch": entry.coordinator_epoch,
        "currentTxnFirstOffset": OptionalLong(open_since if open_since >= 0 else None),
        "lastTimestamp": entry.last_timestamp,
    }
    if entry.batches:
        last = entry.batches[-1]
        row |= {
            "firstSequence": last.first_sequence,
            "lastSequence": last.last_sequence,
            "lastOffset": last.last_offset,
            "offsetDelta": last.offset_delta,
            "timestamp": last.timestamp,
        }
    return row


def _epochs(path: Path, complain: Complain) -> Rows:
    try:
        for epoch, start_offset in decode_epochs(read_small(path)):
            yield False, {"leaderEpoch": epoch, "startOffset": start_offset}
    except CorruptCheckpoint as error:
        complain(path, f"{error} at position 0")


def _metadata(path: Path, complain: Complain) -> Rows:
    try:
        yield False, {"topicId": uuid_text(decode_partition_metadata(read_small(path)))}
    except CorruptCheckpoint as error:
        complain(path, f"{error} at position 0")
