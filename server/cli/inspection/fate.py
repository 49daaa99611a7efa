"""Fate of an offset: is it there, and for whom, or what became of it.

`fate_of` asks a `PartitionView` and decides. A view over the network serves any Kafka; that of the lab looks into the broker.
Only Ottla's brokers know when records were removed or a topic was deleted (`happenings`), and where a log ends beyond its high
watermark (`log_end_offset`).

    state          the offset
    there          belongs to a record that all readers see
    aborted        belongs to a record of an aborted transaction: read_committed leaves it out
    open           belongs to a record of a transaction that is open: read_committed waits
    marker         is the end of a transaction, which no reader sees
    compacted      has no record any more: compaction removed it, or it never had one
    removed        lies before the log start offset: retention or DeleteRecords
    uncommitted    lies behind the high watermark: replicas have not confirmed it
    unwritten      will be given to a later record
    no topic, no partition
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from ottla.replication.reminders import counted
from ottla.wire.control_batches import ControlType, end_txn_marker_in
from ottla.wire.happenings import REMOVAL, TOPIC_DELETED, Happening, utc_ms
from ottla.wire.record_decoding import decode_records
from ottla.wire.records import BatchHeader, Record, iter_batches

CLEANUP_POLICY = "cleanup.policy"
RETENTION = ("retention.ms", "retention.bytes", "local.retention.ms")
SETTINGS = (CLEANUP_POLICY, *RETENTION, "delete.retention.ms")
LOOKED_BYTES_MAX = 32 * 1024 * 1024
"""Bytes that are read behind the offset, for the marker of its transaction or a newer record of its key."""

NO_PRODUCER = -1


class Offsets(NamedTuple):
    """Offsets of a partition that clients see."""

    log_start_offset: int
    high_watermark: int
    last_stable_offset: int


class OpenTransaction(NamedTuple):
    """Transaction that is open in the partition. `last_ms`: time of its last record."""

    producer_id: int
    first_offset: int
    last_ms: int


class Aborted(NamedTuple):
    """Aborted transaction of a producer, from its first offset on."""

    producer_id: int
    first_offset: int


class PartitionView(Protocol):
    """Interface for questions about one partition."""

    topic: str
    partition: int

    def partition_count(self) -> int | None:
        """Return the number of the topic's partitions; None if there is no such topic."""

    def offsets(self) -> Offsets: ...

    def log_end_offset(self) -> int | None:
        """Return the end of the leader's log; None if that cannot be asked."""

    def read(self, offset: int) -> bytes:
        """Return committed batches from the one with `offset` on; empty at the end."""

    def aborted(self, offset: int) -> Sequence[Aborted]:
        """Return the aborted transactions that a reader at `offset` has to leave out."""

    def open_transactions(self) -> Sequence[OpenTransaction]: ...

    def transactional_id(self, producer_id: int) -> str | None:
        """Return the transactional id of a producer; None if no coordinator knows it."""

    def settings(self) -> Mapping[str, str | None]:
        """Return the settings in SETTINGS that are in force for the topic; empty if they cannot be known."""

    def happenings(self) -> Iterable[Happening]:
        """Return what is known of the topic's happenings; none for other makes of Kafka."""


@dataclass
class Fate:
    """Fate of an offset: its state, and sentences about it."""

    topic: str
    partition: int
    offset: int
    state: str
    sentences: list[str] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """Return the fate as a JSON object."""
        return {
            "topic": self.topic,
            "partition": self.partition,
            "offset": self.offset,
            "state": self.state,
            "sentences": self.sentences,
        }

    def __str__(self) -> str:
        return " ".join(self.sentences)


def fate_of(view: PartitionView, offset: int) -> Fate:
    """Return what became of an offset. Raises what the view raises."""
    return _Inquiry(view, offset).answer()


class _Inquiry:
    def __init__(self, view: PartitionView, offset: int) -> None:
        self._view, self._offset = view, offset
        self._name = f"{view.topic}-{view.partition}"
        self._place = f"Offset {offset} of {self._name}"

    def answer(self) -> Fate:
        count = self._view.partition_count()
        if count is None:
            return self._fate("no topic", f"There is no topic {self._view.topic}.", *self._deletions())
        if not self._view.partition < count:
            has = f"Topic {self._view.topic} has {counted(count, 'partition')}, from 0 to {count - 1}."
            return self._fate("no partition", has)
        offsets = self._view.offsets()
        if self._offset < offsets.log_start_offset:
            return self._removed(offsets)
        if self._offset >= offsets.high_watermark:
            return self._beyond(offsets)
        return self._within(offsets)

    def _fate(self, state: str, *sentences: str) -> Fate:
        return Fate(self._view.topic, self._view.partition, self._offset, state, list(sentences))

    def _deletions(self) -> list[str]:
        found = [each for each in self._view.happenings() if each.kind == TOPIC_DELETED]
        return [f"It was deleted at {utc_ms(found[-1].last_ms)}."] if found else []

    # ------------------------------------------------------------------ outside the log

    def _removed(self, offsets: Offsets) -> Fate:
        first = f"{self._place} is not there any more: the log begins at offset {offsets.log_start_offset}."
        removals = [each for each in self._view.happenings() if self._is_removal(each)]
        if removals:
            told = removals[-1]
            return self._fate("removed", first, f"At {utc_ms(told.last_ms)} {told.cause}.")
        settings = self._view.settings()
        if not settings:
            return self._fate("removed", first, "Retention removed it, or somebody deleted records before it.")
        limits = [f"{name}={settings[name]}" for name in RETENTION if settings.get(name) not in (None, "-1", "-2")]
        policy = settings.get(CLEANUP_POLICY) or "delete"
        if "delete" in policy and limits:
            return self._fate(
                "removed", first, f"Retention ({', '.join(limits)}) removed it, or somebody deleted records before it."
            )
        why = f"Somebody deleted records before it: no retention limits this topic ({CLEANUP_POLICY}={policy})."
        return self._fate("removed", first, why)

    def _is_removal(self, happening: Happening) -> bool:
        facts = happening.facts
        first, end = facts.get("first_offset"), facts.get("end_offset")
        return (
            happening.kind == REMOVAL
            and facts.get("partition") == self._view.partition
            and isinstance(first, int)
            and isinstance(end, int)
            and first <= self._offset < end
        )

    def _beyond(self, offsets: Offsets) -> Fate:
        end = self._view.log_end_offset()
        if end is not None and self._offset < end:
            return self._fate(
                "uncommitted",
                f"{self._place} is in the leader's log, and consumers do not see it yet: the high watermark is"
                f" {offsets.high_watermark}, so that not all replicas in sync have confirmed it.",
            )
        last = offsets.high_watermark if end is None else end
        return self._fate("unwritten", f"{self._place} is not written yet: the next record gets offset {last}.")

    # ------------------------------------------------------------------ within the log

    def _within(self, offsets: Offsets) -> Fate:
        data = self._view.read(self._offset)
        for header, start, end in iter_batches(data):
            if header.last_offset < self._offset:
                continue
            if header.base_offset > self._offset:
                return self._gap(f"the next batch begins at offset {header.base_offset}")
            if header.is_control:
                return self._marker(header, data[start:end])
            record = _record_at(self._offset, header, data[start:end])
            if record is None:
                bounds = f"offsets {header.base_offset} to {header.last_offset}"
                return self._gap(f"its batch, of {bounds}, has lost it")
            return self._record(offsets, header, record)
        return self._gap("no batch has it")

    def _gap(self, what: str) -> Fate:
        settings = self._view.settings()
        policy = settings.get(CLEANUP_POLICY) or "delete"
        first = f"{self._place} has no record: {what}."
        if "compact" in policy or not settings:
            why = (
                "Compaction removed it: a newer record of its key is in the log, or it was a delete marker older than"
                " delete.retention.ms, a record of an aborted transaction or the end of a transaction."
            )
        else:
            why = (
                f"The topic was compacted before, or a marker of a transaction was removed ({CLEANUP_POLICY}={policy})."
            )
        return self._fate("compacted", first, why)

    def _marker(self, header: BatchHeader, batch: bytes) -> Fate:
        ends = _end_in(batch)
        return self._fate(
            "marker",
            f"{self._place} is no record of a client: it is the marker that {ends} a transaction of producer"
            f" {header.producer_id}, written at {utc_ms(header.max_timestamp)}. Consumers pass over it.",
            *self._whose(header.producer_id),
        )

    def _record(self, offsets: Offsets, header: BatchHeader, record: Record) -> Fate:
        value = "a null value" if record.value is None else f"a value of {counted(len(record.value), 'byte')}"
        key = "no key" if record.key is None else f"a key of {counted(len(record.key), 'byte')}"
        sentences = [
            (
                f"{self._place} is there: a record with {key} and {value}, of {utc_ms(record.timestamp)}, in the batch of"
                f" offsets {header.base_offset} to {header.last_offset}."
            )
        ]
        if header.producer_id != NO_PRODUCER:
            kind = "a transaction of producer" if header.is_transactional else "the idempotent producer"
            sentences.append(f"It was written by {kind} {header.producer_id}, epoch {header.producer_epoch}.")
        state = "there"
        if header.is_transactional:
            state, told = self._transaction(header.producer_id)
            sentences += told
        if self._offset >= offsets.last_stable_offset and state != "open":
            sentences.append(self._held_back(offsets))
        settings = self._view.settings()
        if "compact" in (settings.get(CLEANUP_POLICY) or ""):
            sentences += self._newer(record)
        return self._fate(state, *sentences)

    def _whose(self, producer_id: int) -> list[str]:
        name = self._view.transactional_id(producer_id)
        return [] if name is None else [f"Its transactional id is {name!r}."]

    def _transaction(self, producer_id: int) -> tuple[str, list[str]]:
        for each in self._view.open_transactions():
            if each.producer_id == producer_id and each.first_offset <= self._offset:
                held = (
                    f"The transaction is open since offset {each.first_offset}, with its last record at"
                    f" {utc_ms(each.last_ms)}: consumers with read_committed do not see the record yet."
                )
                return "open", [held, *self._whose(producer_id)]
        where, marker = "", self._marker_behind(producer_id)
        if marker is not None:
            header, batch = marker
            is_aborted = _end_in(batch) == "aborts"
            where = f" at {utc_ms(header.max_timestamp)}, by the marker at offset {header.base_offset}"
        else:
            is_aborted = any(
                each.producer_id == producer_id and each.first_offset <= self._offset
                for each in self._view.aborted(self._offset)
            )
        if is_aborted:
            told = f"The transaction was aborted{where}: consumers with read_committed leave the record out."
        else:
            told = f"The transaction was committed{where}."
        return "aborted" if is_aborted else "there", [told, *self._whose(producer_id)]

    def _held_back(self, offsets: Offsets) -> str:
        first = min(self._view.open_transactions(), key=lambda each: each.first_offset, default=None)
        because = "" if first is None else f", where a transaction of producer {first.producer_id} is open"
        return f"Consumers with read_committed wait at offset {offsets.last_stable_offset}, the last stable offset{because}."

    # ------------------------------------------------------------------ what lies behind it

    def _behind(self) -> Iterator[tuple[BatchHeader, bytes]]:
        """Yield the batches that end behind the offset, until LOOKED_BYTES_MAX of them were read."""
        looked, next_offset = 0, self._offset + 1
        while looked < LOOKED_BYTES_MAX:
            before = next_offset
            data = self._view.read(next_offset)
            for header, start, end in iter_batches(data):
                # A broker answers with the whole batch of an offset.
                if header.next_offset > next_offset:
                    yield header, data[start:end]
                    looked, next_offset = looked + end - start, header.next_offset
            if next_offset == before:
                return

    def _marker_behind(self, producer_id: int) -> tuple[BatchHeader, bytes] | None:
        for header, batch in self._behind():
            if header.is_control and header.producer_id == producer_id:
                return header, batch
        return None

    def _newer(self, record: Record) -> list[str]:
        if record.key is None:
            return []
        key = bytes(record.key)
        for header, batch in self._behind():
            if header.is_control:
                continue
            for each in decode_records(batch, header=header):
                if each.offset > self._offset and each.key is not None and bytes(each.key) == key:
                    newer = f"Its key has a newer record at offset {each.offset}"
                    return [f"{newer}, so that compaction will remove this one."]
        return []


def _record_at(offset: int, header: BatchHeader, batch: bytes) -> Record | None:
    return next((each for each in decode_records(batch, header=header) if each.offset == offset), None)


def _end_in(batch: bytes) -> str:
    """Return what the marker in a control batch does to its transaction."""
    marker = end_txn_marker_in(batch)
    if marker is None:
        return "belongs to"
    return "commits" if marker.control_type is ControlType.COMMIT else "aborts"
