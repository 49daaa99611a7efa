"""Past of a data directory: the fate of an offset, rebalances of groups, aborted transactions, as its files tell them.

A broker may run meanwhile. Files know less than a broker: members that came and went are in them, and not why.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from ottla.groupcoord.classic.members import GROUP_METADATA_KEY, GroupMetadataKey, GroupMetadataValue
from ottla.groupcoord.group import counted_members
from ottla.groupcoord.transactions.metadata import PREPARE_ABORT
from ottla.groupcoord.transactions.records import TransactionRecord, decode_record
from ottla.replication.cluster.metadata_cache import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC
from ottla.replication.log.batch_scan import CorruptSegment, scan_batches
from ottla.replication.log.checkpoints import decode_offsets
from ottla.replication.log.names import (
    LOG_START_OFFSET_CHECKPOINT,
    PartitionDirectory,
    parse_partition_directory,
    parse_segment_file,
)
from ottla.replication.reminders import counted
from ottla.server.cli.inspection.dump import (
    FoundBatch,
    ReadOnlyFile,
    UnreadableRecords,
    aborted_entries,
    read_small,
    records_of,
)
from ottla.server.cli.inspection.fate import Aborted, Offsets, OpenTransaction
from ottla.wire.errors import KafkaError, ProtocolViolation
from ottla.wire.happenings import REBALANCE, TRANSACTION_ABORTED, Happening, Happenings, cut
from ottla.wire.records import BatchHeader, Record

READ_BYTES = 4 << 20
SCAN_BYTES = 1 << 20
NAMED_MAX = 5
_CORRUPT = (CorruptSegment, KafkaError, OSError)


class DirectoryView:
    """One partition in a data directory: the view that `fate.py` asks."""

    def __init__(self, directory: Path, topic: str, partition: int) -> None:
        self._directory = directory
        self.topic, self.partition = topic, partition

    def partition_count(self) -> int | None:
        numbers = [each.partition for each, _ in _partitions(self._directory) if each.topic == self.topic]
        return max(numbers) + 1 if numbers else None

    def _segments(self) -> list[Path]:
        for found, folder in _partitions(self._directory):
            if (found.topic, found.partition) == (self.topic, self.partition):
                return _segments(folder)
        return []

    def offsets(self) -> Offsets:
        segments = self._segments()
        start = _base_offset(segments[0]) if segments else 0
        with suppress(KafkaError, OSError, ValueError):
            checkpoint = decode_offsets(read_small(self._directory / LOG_START_OFFSET_CHECKPOINT))
            start = max(start, checkpoint.get((self.topic, self.partition), 0))
        end = start
        for header, _, _ in _headers(segments[-1:]):
            end = max(end, header.next_offset)
        first_open = min((each.first_offset for each in self.open_transactions()), default=end)
        # Files do not tell what replicas have confirmed.
        return Offsets(start, end, min(first_open, end))

    def log_end_offset(self) -> int | None:
        return None

    def read(self, offset: int) -> bytes:
        segments = self._segments()
        # The last one that begins at or before the offset, and those behind it.
        at = max((n for n, each in enumerate(segments) if _base_offset(each) <= offset), default=0)
        found = bytearray()
        for header, file, position in _headers(segments[at:]):
            if header.next_offset > offset:
                found += file.read_at(position, header.size_in_bytes)
            if len(found) >= READ_BYTES:
                break
        return bytes(found)

    def aborted(self, offset: int) -> Sequence[Aborted]:
        found: list[Aborted] = []
        for each in self._segments():
            index = each.with_suffix(".txnindex")
            with suppress(OSError):
                for entry in aborted_entries(index, lambda path, reason: None):
                    if entry[3] >= offset:
                        found.append(Aborted(entry[1], entry[2]))
        return found

    def open_transactions(self) -> Sequence[OpenTransaction]:
        found: dict[int, OpenTransaction] = {}
        for header, _, _ in _headers(self._segments()):
            if header.is_control:
                found.pop(header.producer_id, None)
            elif header.is_transactional:
                first = found[header.producer_id].first_offset if header.producer_id in found else header.base_offset
                found[header.producer_id] = OpenTransaction(header.producer_id, first, header.max_timestamp)
        return list(found.values())

    def transactional_id(self, producer_id: int) -> str | None:
        found = None
        for record in _transaction_records(self._directory):
            if record.metadata is not None and record.metadata.producer_id == producer_id:
                found = record.transactional_id
        return found

    def settings(self) -> Mapping[str, str | None]:
        """Return nothing: settings of topics are not in these files."""
        return {}

    def happenings(self) -> Sequence[Happening]:
        """Return nothing: a broker keeps them in memory."""
        return ()


# ---------------------------------------------------------------------- groups and transactions


def causes_in(directory: Path) -> list[Happening]:
    """Return rebalances of classic groups and aborted transactions, the latest of each, as far as records are left."""
    reader = _Reader()
    for _, folder in sorted(_of_topic(directory, GROUP_METADATA_TOPIC)):
        reader.groups.clear()
        for record in _records(folder):
            reader.take_group(record)
    for written in _transaction_records(directory):
        reader.take_transaction(written)
    return sorted(reader.happenings, key=lambda each: each.first_ms)


class _Reader:
    def __init__(self) -> None:
        self.groups: dict[str, frozenset[str]] = {}
        self._now_ms = 0
        self.happenings = Happenings(lambda: self._now_ms)

    def take_group(self, record: Record) -> None:
        key, value = record.key, record.value
        if key is None or len(key) < 2 or int.from_bytes(key[:2], "big") != GROUP_METADATA_KEY:
            return
        with suppress(ProtocolViolation, KafkaError, ValueError):
            group = GroupMetadataKey.decode(bytes(key), 0, start=2).group
            if value is None:
                self.groups.pop(group, None)
                return
            data = bytes(value)
            found = GroupMetadataValue.decode(data, int.from_bytes(data[:2], "big"), start=2)
            self._now_ms = max(record.timestamp, 0)
            self._note_generation(group, found)

    def _note_generation(self, group: str, found: GroupMetadataValue) -> None:
        members = {each.member_id: each.client_host for each in found.members}
        before, self.groups[group] = self.groups.get(group, frozenset()), frozenset(members)
        come, gone = sorted(members.keys() - before), sorted(before - members.keys())
        what = [f"{_named(each)} {verb}" for each, verb in ((come, "came"), (gone, "went")) if each]
        cause = f"classic group {cut(group)!r} had {counted_members(len(members))} in generation {found.generation}"
        cause += f": {' and '.join(what)}" if what else ", the same as before"
        self.happenings.note(REBALANCE, cause, source=group, group=group, generation=found.generation)

    def take_transaction(self, record: TransactionRecord) -> None:
        known, name = record.metadata, record.transactional_id
        if known is None or known.state is not PREPARE_ABORT:
            return
        self._now_ms = max(known.last_update_timestamp_ms, 0)
        cause = (
            f"transaction of {cut(name)!r} was aborted: producer id {known.producer_id}, epoch {known.producer_epoch}"
        )
        cause += f", {counted(len(known.partitions), 'partition')}, timeout {known.timeout_ms} ms"
        self.happenings.note(TRANSACTION_ABORTED, cause, source=name, transactional_id=name)


def _named(members: Sequence[str]) -> str:
    more = f" and {len(members) - NAMED_MAX} more" if len(members) > NAMED_MAX else ""
    return ", ".join(repr(cut(each)) for each in members[:NAMED_MAX]) + more


# ---------------------------------------------------------------------- files


def _partitions(directory: Path) -> Iterator[tuple[PartitionDirectory, Path]]:
    for path in directory.iterdir():
        found = parse_partition_directory(path.name)
        if found is not None and not found.mark and path.is_dir():
            yield found, path


def _of_topic(directory: Path, topic: str) -> Iterator[tuple[int, Path]]:
    return ((found.partition, path) for found, path in _partitions(directory) if found.topic == topic)


def _segments(folder: Path) -> list[Path]:
    named = ((parse_segment_file(each.name), each) for each in folder.iterdir())
    found = [(file.offset, path) for file, path in named if file and file.kind == ".log" and not file.suffix]
    return [path for _, path in sorted(found)]


def _base_offset(segment: Path) -> int:
    found = parse_segment_file(segment.name)
    return 0 if found is None else found.offset


def _headers(segments: Sequence[Path]) -> Iterator[tuple[BatchHeader, ReadOnlyFile, int]]:
    """Yield the headers of all batches with their files and positions; a torn or damaged rest is left out."""
    for each in segments:
        with suppress(*_CORRUPT), ReadOnlyFile(each) as file:
            for header, position in scan_batches(file, 0, file.size, SCAN_BYTES):
                yield header, file, position


def _records(folder: Path) -> Iterator[Record]:
    for header, file, position in _headers(_segments(folder)):
        if not header.is_control:
            with suppress(UnreadableRecords, KafkaError):
                yield from records_of(file, FoundBatch(header, position, None))


def _transaction_records(directory: Path) -> Iterator[TransactionRecord]:
    for _, folder in sorted(_of_topic(directory, TRANSACTION_STATE_TOPIC)):
        for record in _records(folder):
            with suppress(ProtocolViolation, KafkaError, ValueError):
                key, value = record.key, record.value
                found = decode_record(None if key is None else bytes(key), None if value is None else bytes(value))
                if found is not None:
                    yield found
