"""Examination of data directories without a broker: every batch, every index entry, every checkpoint.

Damage is only something that a broker could stumble over. Anything unknown, such as a foreign file, is a note.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from ottla.replication.log.atomic_files import TEMPORARY_SUFFIX
from ottla.replication.log.batch_scan import CorruptSegment
from ottla.replication.log.checkpoints import (
    CorruptCheckpoint,
    decode_epochs,
    decode_meta_properties,
    decode_offsets,
    decode_partition_metadata,
)
from ottla.replication.log.names import (
    CLEAN_SHUTDOWN,
    DELETE_MARK,
    INDEX_SUFFIX,
    LEADER_EPOCH_CHECKPOINT,
    LOCK,
    LOG_SUFFIX,
    META_PROPERTIES,
    PARTITION_METADATA,
    SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    SegmentFile,
    parse_partition_directory,
    parse_segment_file,
)
from ottla.replication.log.producers import CorruptSnapshot, decode_snapshot
from ottla.replication.replica_manager.directories import CHECKPOINTS, NOT_OURS
from ottla.server.cli.inspection.dump import (
    BATCH_BYTES_MAX,
    FoundBatch,
    ReadOnlyFile,
    aborted_entries,
    base_offset_of,
    batches_of,
    offset_entries,
    offset_problem,
    read_small,
    time_entries,
)
from ottla.server.cluster.coordination.journal import JOURNAL_NAME
from ottla.server.config.server_config import FOLDER
from ottla.wire.errors import KafkaError
from ottla.wire.record_decoding import records_area, walkable
from ottla.wire.records import MAGIC_V2, BatchHeader, check_records

FINDINGS_MAX = 10_000  # a disk that has gone bad may have very many
_KNOWN = frozenset(
    [*CHECKPOINTS, META_PROPERTIES, CLEAN_SHUTDOWN, LOCK, JOURNAL_NAME, "bootstrap.checkpoint", "lost+found"]
)


class Finding(NamedTuple):
    """Problem found in a file. `position`: in bytes; None if the problem concerns the whole file."""

    path: str
    position: int | None
    reason: str
    is_damage: bool = True


@dataclass(slots=True)
class Examined:
    """Counts and findings of an examination. After FINDINGS_MAX findings, further ones are only counted."""

    on_progress: Callable[[int], None] = lambda _: None
    """Callback with the bytes of logs read since its last call."""
    partitions: int = 0
    segments: int = 0
    batches: int = 0
    bytes: int = 0
    findings: list[Finding] = field(default_factory=list)
    findings_count: int = 0
    damage_count: int = 0

    def note(self, path: Path, reason: str, position: int | None = None, *, is_damage: bool = True) -> None:
        self.findings_count += 1
        self.damage_count += is_damage
        if self.findings_count <= FINDINGS_MAX:
            self.findings.append(Finding(str(path), position, reason, is_damage))

    def complain(self, path: Path, reason: str) -> None:
        """Add a finding for a complaint of `dump.py`; the text of a complaint ends with the position."""
        text, _, position = reason.rpartition(" at position ")
        self.note(path, text or reason, int(position) if text and position.isdecimal() else None)


def log_bytes(directory: Path) -> int:
    """Return the size in bytes of all `.log` files, for the progress of an examination."""
    return sum(map(_size, directory.glob(f"*/*{LOG_SUFFIX}")))


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:  # a link that leads nowhere; the examination tells of it
        return 0


def examine(directory: Path, examined: Examined) -> None:
    """Examine one data directory. Raises OSError if the directory cannot be read."""
    for path in sorted(directory.iterdir()):
        _guarded(_examine_one, path, examined)


def _examine_one(path: Path, examined: Examined) -> None:
    parsed = parse_partition_directory(path.name)
    if parsed is not None and path.is_dir():
        # What is to be removed may be as it likes.
        if parsed.mark != DELETE_MARK and parsed.topic not in NOT_OURS:
            _examine_partition(path, examined)
    elif path.name in CHECKPOINTS:
        _examine_small(path, examined, _read_checkpoint)
    elif path.name == META_PROPERTIES:
        _examine_small(path, examined, decode_meta_properties)
    elif path.name == FOLDER and path.is_dir():
        for each in sorted(path.iterdir()):  # of several workers; worker 0 has the directory above
            if each.is_dir():
                examine(each, examined)
    elif path.name not in _KNOWN and not path.name.endswith(TEMPORARY_SUFFIX):
        examined.note(path, "nobody knows what this is; a broker leaves it alone", is_damage=False)


def _guarded(look: Callable[[Path, Examined], None], path: Path, examined: Examined) -> None:
    try:
        look(path, examined)
    except OSError as error:
        examined.note(Path(error.filename or path), error.strerror or str(error))


def _examine_small(path: Path, examined: Examined, read: Callable[[bytes], object]) -> None:
    try:
        read(read_small(path))
    except (CorruptCheckpoint, CorruptSnapshot) as error:
        examined.note(path, str(error))


def _read_checkpoint(data: bytes) -> object:
    return decode_offsets(data) if data else None


def _read_epochs(data: bytes) -> None:
    entries = decode_epochs(data)
    for before, after in pairwise(entries):
        if before[0] >= after[0] or before[1] > after[1]:
            raise CorruptCheckpoint(
                f"epoch {after[0]} from offset {after[1]} on does not follow {before[0]} from {before[1]} on"
            )


def _read_snapshot(data: bytes) -> object:
    return decode_snapshot(data, now_ms=0, expiration_ms=2**63)


_SMALL: dict[str, Callable[[bytes], object]] = {
    LEADER_EPOCH_CHECKPOINT: _read_epochs,
    PARTITION_METADATA: decode_partition_metadata,
}


# ---------------------------------------------------------------------- one partition


def _examine_partition(directory: Path, examined: Examined) -> None:
    examined.partitions += 1
    names = frozenset(each.name for each in directory.iterdir())
    segments: list[SegmentFile] = []
    for name in sorted(names):
        path, file = directory / name, parse_segment_file(name)
        if name in _SMALL:
            _guarded(partial(_examine_small, read=_SMALL[name]), path, examined)
        elif file is None:
            if not name.endswith(TEMPORARY_SUFFIX):
                examined.note(path, "nobody knows what this is; a broker leaves it alone", is_damage=False)
        elif file.suffix:
            pass  # on its way in or out: the next start finishes that
        elif file.kind == LOG_SUFFIX:
            segments.append(file)
        elif file.kind == SNAPSHOT_SUFFIX:
            _guarded(partial(_examine_small, read=_read_snapshot), path, examined)
        elif f"{file.offset:020d}{LOG_SUFFIX}" not in names:
            examined.note(path, "there is no log that it belongs to")
        elif file.kind == TXN_INDEX_SUFFIX:
            _guarded(_examine_aborted, path, examined)
    next_offset = None
    for file in segments:
        next_offset = _examine_segment(directory / f"{file.offset:020d}{LOG_SUFFIX}", names, next_offset, examined)


def _examine_aborted(path: Path, examined: Examined) -> None:
    for _ in aborted_entries(path, examined.complain):
        pass


def _examine_segment(path: Path, names: Container[str], expected_offset: int | None, examined: Examined) -> int | None:
    """Examine a segment and its indexes; return the offset after the segment's last batch."""
    examined.segments += 1
    base_offset = base_offset_of(path)
    if expected_offset is not None and expected_offset > base_offset:
        examined.note(path, f"begins at offset {base_offset}, but the segment before it ends at {expected_offset - 1}")
    next_offset: int | None = base_offset
    indexes = _Indexes(path, names, examined)
    try:
        with ReadOnlyFile(path) as file:
            size = file.size
            for found in batches_of(file):
                examined.batches += 1
                examined.bytes += found.header.size_in_bytes
                examined.on_progress(found.header.size_in_bytes)
                problem = found.problem or offset_problem(found, next_offset) or _records_problem(file, found)
                if problem is not None:
                    examined.note(path, problem, found.position)
                indexes.compare(found)
                next_offset = found.header.next_offset
            indexes.end(size)
    except CorruptSegment as error:
        examined.complain(path, str(error))
    except OSError as error:
        examined.note(path, error.strerror or str(error))
    return next_offset


def _records_problem(file: ReadOnlyFile, found: FoundBatch) -> str | None:
    """Compare a batch's records with its header; return the problem, or None. Batches of older formats are skipped."""
    header = found.header
    if header.magic != MAGIC_V2:
        return None
    if header.size_in_bytes > BATCH_BYTES_MAX:
        return f"{header.size_in_bytes} bytes are more than a batch can have"
    try:
        area = walkable(records_area(file.read_at(found.position, header.size_in_bytes), header))
        if header.records_count or len(area):
            check_records(area, header.records_count)
    except KafkaError as error:
        return str(error)
    return None


class _Indexes:
    """Comparison of a segment's two indexes with its batches, in the order of the batches."""

    def __init__(self, log: Path, names: Container[str], examined: Examined) -> None:
        self._examined = examined
        self._latest = -1
        self._offsets = self._opened(log.with_suffix(INDEX_SUFFIX), names, offset_entries)
        self._times = self._opened(log.with_suffix(TIME_INDEX_SUFFIX), names, time_entries)

    def _opened(
        self,
        path: Path,
        names: Container[str],
        entries: Callable[[Path, Callable[[Path, str], None]], Iterator[tuple[int, int]]],
    ) -> _Compared:
        if path.name in names:
            return _Compared(path, entries(path, self._examined.complain), self._examined)
        self._examined.note(path, "is missing")
        return _Compared(path, iter(()), self._examined)

    def compare(self, found: FoundBatch) -> None:
        header = found.header
        self._latest = max(self._latest, header.max_timestamp)
        while (entry := self._offsets.entry) is not None and entry[1] <= found.position:
            self._offsets.take(_offset_entry_problem(entry, header, found.position))
        while (entry := self._times.entry) is not None and entry[1] <= header.last_offset:
            problem = f"timestamp {entry[0]} is not the latest up to offset {entry[1]}, {self._latest}"
            self._times.take(None if entry[0] == self._latest else problem)

    def end(self, size: int) -> None:
        """Report entries that remain after the last batch."""
        for each in (self._offsets, self._times):
            if each.entry is not None:
                each.take(f"an entry is about something behind the end of the log, at {size}")


def _offset_entry_problem(entry: tuple[int, int], header: BatchHeader, position: int) -> str | None:
    # Kafka notes the last offset of all that came with one request, at the position where that begins.
    if entry[1] == position and entry[0] >= header.base_offset:
        return None
    return f"offset {entry[0]} is not at position {entry[1]} of the log"


class _Compared:
    """Iterator over the entries of one compared index. It ends at the first problem."""

    def __init__(self, path: Path, entries: Iterator[tuple[int, int]], examined: Examined) -> None:
        self._path, self._entries, self._examined = path, entries, examined
        self.entry: tuple[int, int] | None = None
        self._go_on()

    def take(self, problem: str | None) -> None:
        """Record the outcome of comparing the current entry with its batch. `problem` None: they agree."""
        if problem is None:
            self._go_on()
        else:
            self._examined.note(self._path, problem)
            self.entry = None

    def _go_on(self) -> None:
        try:
            self.entry = next(self._entries, None)
        except OSError as error:
            self._examined.note(self._path, error.strerror or str(error))
            self.entry = None
