"""Observations of the clients of a test.

The checker knows a record by its value, which is to be sent once. Tests send what they like, so what happened is noted
here, and `narration.py` gives each record a name of its own before the checker reads it.

Any number of threads may write at a time, without a lock. A client calls back from where the interpreter collects garbage, in the
middle of another observation, and confluent-kafka calls back with an exception under way, which left a lock locked for good.
"""

import contextlib
import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ottla.server.testing.history.group_events import Disowned, Owned
from ottla.server.testing.history.history import (
    UNKNOWN_OFFSET,
    Acknowledged,
    EndAsked,
    Ended,
    Event,
    Failed,
    Fenced,
    OffsetAdded,
    OffsetCommitted,
    OffsetFailed,
    OffsetFetched,
    OffsetSent,
    ProducerBegan,
    Read,
    ReadBegan,
    Sent,
    told,
)
from ottla.server.testing.history.narration import Note, Sending

Place = tuple[str, int]


class Observations:
    """Observations of the clients of one test. `clock` tells seconds that only move forward."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._notes: list[Note] = []
        self._compacted: set[str] = set()
        self.deleted: dict[str, float] = {}
        """Topics that were deleted, and when at last; inf: any time."""
        self._names: dict[str, int] = {}
        self._texts: dict[str, str] = {}

    def __len__(self) -> int:
        """Number of observations."""
        return len(self._notes)

    def __repr__(self) -> str:
        return f"History of {len(self)} observations"

    # ------------------------------------------------------------------ who takes part

    def producer_began(self, name: str, *, idempotent: bool, acks: int) -> "ProducerLog":
        """Begin to note what a producer does. `acks`: -1 for all."""
        log = ProducerLog(self, self.unused(name))
        self.note(ProducerBegan, log.name, idempotent, acks)
        return log

    def consumer_began(self, name: str, group: str | None = None, *, committed_only: bool = False) -> "ConsumerLog":
        """Begin to note what a consumer does. `group`: None for a consumer that commits nothing."""
        return ConsumerLog(self, self.unused(name), group, committed_only)

    def topics(self) -> set[str]:
        """Return the topics that records were sent to, without those that were deleted later."""
        return {note.fields[0].topic for note in self._in_order() if note.kind is Sent}

    def topic_deleted(self, topic: str, *, is_sure: bool = True) -> None:
        """Leave out what was seen of a topic until now, or (not `is_sure`) at any time."""
        self.deleted[topic] = max(self.deleted.get(topic, 0.0), self._clock() if is_sure else math.inf)

    def same_value(self, text: bytes | None, data: bytes | None) -> None:
        """Say that a consumer may be given `text` where `data` was sent, such as an object after its deserializer."""
        self._texts[told(text)] = told(data)

    def text_of(self, value: bytes | None) -> str:
        """Return the text that stands for a value that was read."""
        text = told(value)
        return self._texts.get(text, text)

    @contextlib.contextmanager
    def at(self, time_s: float) -> Iterator[None]:
        """Note what happens meanwhile as of a time, which is not before that of earlier observations."""
        before, self._clock = self._clock, lambda: time_s
        try:
            yield
        finally:
            self._clock = before

    def note(self, kind: type[Event], *fields: Any) -> None:
        """Write down that something has happened now."""
        self._notes.append(Note(self._clock(), kind, fields))

    def _in_order(self, count: int | None = None) -> list[Note]:
        """Return all observations by their times, without those of topics that were deleted later.

        Two threads may have written theirs down in the other order. `count`: of later observations return only what was sent.
        """
        notes = list(self._notes)
        if count is not None:
            notes[count:] = [each for each in notes[count:] if each.kind in (ProducerBegan, Sent)]
        kept: list[Note] = []
        gone: set[int | tuple[Any, ...]] = set()  # records, and readers that have not begun anew
        for note in sorted(notes, key=lambda note: note.at):
            key = note.fields[:3] if note.kind in (ReadBegan, Read) else id(note.fields[0])
            if note.topic is not None and note.at <= self.deleted.get(note.topic, -math.inf):
                if note.kind in (ReadBegan, Sent):
                    gone.add(key)
            elif note.kind is ReadBegan or key not in gone:
                gone.discard(key)
                kept.append(note)
        return kept

    def unused(self, name: str) -> str:
        """Return a name that nobody has had: the same, or with a number."""
        with self._lock:
            self._names[name] = count = self._names.get(name, 0) + 1
        return name if count == 1 else f"{name} ({count})"


class ProducerLog:
    """Notes of what one producer does."""

    def __init__(self, history: Observations, name: str) -> None:
        self.name = name
        self._history = history
        self._transaction: int | None = None
        self._transactions = 0
        self._is_fenced = False

    def sent(self, topic: str, partition: int | None, value: bytes | None, key: bytes | None = None) -> "SendingLog":
        """Note that a record is handed to the client. `partition`: None if the client is to choose it."""
        key_text = None if key is None else told(key)
        sending = Sending(self.name, topic, partition, told(value), key_text, self._transaction)
        self._history.note(Sent, sending)
        return SendingLog(self._history, sending)

    def transaction_began(self) -> None:
        """Note that records belong to a new transaction from now on."""
        self._transactions += 1
        self._transaction = self._transactions

    @property
    def transaction(self) -> int | None:
        """Number of the transaction that records belong to; None: to none."""
        return self._transaction

    def end_asked(self, commit: bool) -> None:
        """Note that the end of the transaction is asked for."""
        if self._transaction is not None:
            self._history.note(EndAsked, self.name, self._transaction, commit)

    def ended(self, committed: bool, transaction: int | None = None) -> None:
        """Note that a transaction is known to have ended. `transaction`: its number; None for the present one."""
        number = self._transaction if transaction is None else transaction
        if number is not None:
            self._history.note(Ended, self.name, number, committed)
        if number == self._transaction:
            self._transaction = None

    def fenced(self) -> None:
        """Note that another producer has been given the transactional id. The first time counts."""
        if not self._is_fenced:
            self._is_fenced = True
            self._history.note(Fenced, self.name)

    def offset_added(self, group: str, topic: str, partition: int, offset: int) -> None:
        """Note that a group's offset is to be committed with the transaction."""
        if self._transaction is not None:
            self._history.note(OffsetAdded, self.name, self._transaction, group, topic, partition, offset)


class SendingLog:
    """Outcome of one record, as it is noted; the first one counts."""

    def __init__(self, history: Observations, sending: Sending) -> None:
        self._history = history
        self._sending = sending
        self._is_open = True

    def acknowledged(self, offset: int | None, partition: int | None = None) -> None:
        """Note that the record is written. `offset`: None if the client was not told. `partition`: None if known."""
        if self._is_open:
            self._is_open = False
            if partition is not None:
                self._sending.partition = partition
            self._sending.offset = UNKNOWN_OFFSET if offset is None or offset < 0 else offset
            self._history.note(Acknowledged, self._sending)

    def failed(self, error: str, *, may_be_written: bool = True) -> None:
        """Note that the client gave up. `may_be_written`: False only if no broker can have appended it."""
        if self._is_open:
            self._is_open = False
            self._history.note(Failed, self._sending, error, may_be_written)


class ConsumerLog:
    """Notes of what one consumer does."""

    def __init__(self, history: Observations, name: str, group: str | None, committed_only: bool) -> None:
        self.name, self.group = name, group
        self._history = history
        self._committed_only = committed_only

    def began(self, topic: str, partition: int, offset: int) -> None:
        """Note that the consumer goes on at an offset, at first or after a seek or an assignment."""
        self._history.note(ReadBegan, self.name, topic, partition, offset, self._committed_only)

    def read(self, topic: str, partition: int, records: Sequence[tuple[int, bytes | None]], position: int) -> None:
        """Note records that the consumer was given, as (offset, value), and where it stands then."""
        texts = tuple((offset, self._history.text_of(value)) for offset, value in records)
        self._history.note(Read, self.name, topic, partition, texts, position)

    def owned(self, places: Sequence[Place], epoch: int = -1) -> None:
        """Note that the consumer's group has given it partitions. `epoch`: -1 if it is not known."""
        for topic, partition in places:
            self._history.note(Owned, self.group, self.name, epoch, topic, partition)

    def disowned(self, places: Sequence[Place], was_member_at: float = 0.0) -> None:
        """Note that the consumer has given partitions up. `was_member_at`: until then it was a member for sure."""
        for topic, partition in places:
            self._history.note(Disowned, self.group, self.name, topic, partition, was_member_at)

    def offsets_sent(self, offsets: Mapping[Place, int]) -> None:
        """Note that offsets are to be committed."""
        for place, offset in offsets.items():
            self._history.note(OffsetSent, self.group, *place, offset)

    def offsets_committed(self, offsets: Mapping[Place, int]) -> None:
        """Note that offsets are committed."""
        for place, offset in offsets.items():
            self._history.note(OffsetCommitted, self.group, *place, offset)

    def offsets_failed(self, offsets: Mapping[Place, int], error: str, *, may_be_written: bool = True) -> None:
        """Note that offsets were not committed, as far as the client knows."""
        for place, offset in offsets.items():
            self._history.note(OffsetFailed, self.group, *place, offset, error, may_be_written)

    def offset_fetched(self, topic: str, partition: int, offset: int | None) -> None:
        """Note the committed offset that the group was told; None: it has none."""
        self._history.note(OffsetFetched, self.group, topic, partition, UNKNOWN_OFFSET if offset is None else offset)
