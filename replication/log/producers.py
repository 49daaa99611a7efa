"""Producer state of one partition: duplicate detection, sequence checks and open transactions.

Theory
    A producer id writes with an epoch and numbers its records per partition. For each id the partition keeps the epoch and
    the last five batches written with it (`WINDOW`, the most an idempotent producer keeps in flight).

    A client's batch, against what is known of its id:

    | epoch of the batch | sequence                              | result                                       |
    |--------------------|---------------------------------------|----------------------------------------------|
    | same               | exactly one of the batches in window  | duplicate: answered as then, nothing written |
    | same               | last sequence + 1 (2^31-1 wraps to 0) | appended                                     |
    | same               | anything else                         | OUT_OF_ORDER_SEQUENCE_NUMBER                 |
    | higher             | 0                                     | appended; window begins anew                 |
    | higher             | not 0                                 | OUT_OF_ORDER_SEQUENCE_NUMBER                 |
    | lower              | any                                   | INVALID_PRODUCER_EPOCH                       |
    | id unknown         | any                                   | appended                                     |

    The first batch of a transaction has to be verified before (`verification.py` has the rules). A transactional batch
    opens a transaction unless one is open; a batch that is not transactional while one is open is INVALID_TXN_STATE. A marker closes it: it may raise the epoch (then sequences begin at 0 again) and remembers the
    coordinator's epoch, below which later markers are fenced. An aborted transaction goes to the segment's .txnindex.

    Transactions stay *unreplicated* between their marker's append and the high watermark passing it, because the last
    stable offset must not move before the marker is safe. `first_unstable_offset` is the start of the oldest transaction
    that is open or unreplicated.

    `check` never changes anything: the append may still fail. It returns what `apply` puts in force after the write.
    Batches that were replicated or are read again after a restart have been checked before and are only noted.

Invariants
    ongoing transactions = entries with `current_txn_first_offset`; `map_end_offset` = state includes all below it.
    offsets only rise, so transactions are noted in the order in which they begin, and in that in which they end.

State is rebuilt from the latest `.snapshot` file plus the log after it (`recovery.py`). Only the newest batch of each
window survives a snapshot, as in Kafka; the others are looked for in the log before it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator, Sequence
from enum import IntEnum
from heapq import heappop, heappush
from struct import Struct
from struct import error as struct_error
from typing import TYPE_CHECKING, NamedTuple

from ottla.replication.log.transaction_index import AbortedTransaction
from ottla.replication.log.verification import NOT_REQUIRED, VerificationGuard, Verifications
from ottla.wire.checksum import crc32c
from ottla.wire.control_batches import ControlType, EndTxnMarker
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.records import CONTROL_FLAG, TRANSACTIONAL_FLAG

if TYPE_CHECKING:
    from ottla.wire.records import BatchHeader

WINDOW = 5
EXPIRED_PER_PIECE = 1000
NO_EPOCH = -1
NO_SEQUENCE = -1
NO_OFFSET = -1
SEQUENCE_MAX = 2**31 - 1
UNKNOWN_TRANSACTION_VERSION = -1

_TRANSACTION_FLAGS = TRANSACTIONAL_FLAG | CONTROL_FLAG
_SNAPSHOT_VERSION = 1
_SNAPSHOT_HEAD = Struct(">hIi")
_SNAPSHOT_CRC_END = 6
_SNAPSHOT_ENTRY = Struct(">qhiqiqiq")


class CorruptSnapshot(Exception):
    """Error raised if a producer snapshot is invalid; an older snapshot and the log replace it."""


class BatchMetadata(NamedTuple):
    """One of a producer's last batches, kept to recognize duplicates."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @property
    def first_sequence(self) -> int:
        """Sequence number of the batch's first record."""
        return (self.last_sequence - self.offset_delta) & SEQUENCE_MAX

    @property
    def first_offset(self) -> int:
        """Offset of the batch's first record."""
        return self.last_offset - self.offset_delta


class MarkerVersion(IntEnum):
    """Rule for a marker's producer epoch: from transaction version 2 on a marker must raise the epoch."""

    TV_0 = 0
    TV_2 = 2

    @classmethod
    def of(cls, transaction_version: int) -> MarkerVersion:
        """Return the marker rule of a transaction version; versions above 2 use the rule of version 2."""
        # Kafka keeps this number for appends that end no transaction, and fails if it comes with a marker.
        if transaction_version == UNKNOWN_TRANSACTION_VERSION:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "A marker does not say of which transaction version it is")
        return cls.TV_2 if transaction_version >= cls.TV_2 else cls.TV_0


class ProducerEntry:
    """State of one producer id in a partition."""

    __slots__ = (
        "batches",
        "coordinator_epoch",
        "current_txn_first_offset",
        "epoch",
        "last_timestamp",
        "producer_id",
    )

    def __init__(self, producer_id: int) -> None:
        self.producer_id = producer_id
        self.epoch = NO_EPOCH
        self.coordinator_epoch = -1
        self.last_timestamp = -1
        self.current_txn_first_offset = NO_OFFSET
        self.batches: list[BatchMetadata] = []

    @property
    def last_sequence(self) -> int:
        """Sequence number of the producer's last record, or -1."""
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    def duplicate_of(self, batch: BatchHeader) -> BatchMetadata | None:
        """Return the kept batch with the epoch and sequence numbers of `batch`; None if there is none."""
        if batch.producer_epoch == self.epoch:
            first_sequence = batch.base_sequence
            last_sequence = (first_sequence + batch.last_offset_delta) & SEQUENCE_MAX
            for known in self.batches:
                if known.last_sequence == last_sequence and known.first_sequence == first_sequence:
                    return known
        return None

    def copy(self) -> ProducerEntry:
        """Return a copy for changes that may be discarded."""
        entry = ProducerEntry(self.producer_id)
        entry.epoch = self.epoch
        entry.coordinator_epoch = self.coordinator_epoch
        entry.last_timestamp = self.last_timestamp
        entry.current_txn_first_offset = self.current_txn_first_offset
        # The list alone is copied; what is in it never changes.
        entry.batches = self.batches[:]
        return entry

    def add(self, batch: BatchHeader) -> None:
        """Record a batch that was written."""
        if batch.producer_epoch != self.epoch:
            self.epoch = batch.producer_epoch
            self.batches.clear()
        # The window slides: an idempotent producer does not send again what is older.
        elif len(self.batches) == WINDOW:
            del self.batches[0]
        delta = batch.last_offset_delta
        self.batches.append(BatchMetadata(batch.last_sequence, batch.base_offset + delta, delta, batch.max_timestamp))
        self.last_timestamp = batch.max_timestamp


class CompletedTransaction(NamedTuple):
    """A transaction that is completed by a marker in the append."""

    producer_id: int
    first_offset: int
    last_offset: int
    is_aborted: bool


class ProducerUpdate:
    """Changes that an append makes to producer states, applied after the append is written."""

    __slots__ = ("completed", "entries", "started", "transactional")

    def __init__(self) -> None:
        self.entries: dict[int, ProducerEntry] = {}
        self.transactional: list[BatchHeader] = []
        self.started: list[tuple[int, int]] = []
        self.completed: list[CompletedTransaction] = []


class ProducerStateManager:
    """Producer states of one partition; batches must have their final offsets."""

    __slots__ = (
        "_holds",
        "_unreplicated",
        "_unreplicated_firsts",
        "map_end_offset",
        "ongoing",
        "producers",
        "verifications",
    )

    def __init__(self) -> None:
        self.producers: dict[int, ProducerEntry] = {}
        self.verifications = Verifications()
        self.map_end_offset = 0
        self._holds = 0  # threads that read entries, which are replaced instead of changed meanwhile
        # First offset -> producer id, the oldest transaction first, and first offset -> marker offset, the oldest marker
        # first. Every fetch asks where the oldest begins, and there may be tens of thousands.
        self.ongoing: OrderedDict[int, int] = OrderedDict()
        self._unreplicated: OrderedDict[int, int] = OrderedDict()
        self._unreplicated_firsts: list[int] = []  # a heap

    @property
    def is_empty(self) -> bool:
        """True if there are no producers and no unstable transactions."""
        return not self.producers and not self._unreplicated

    @property
    def first_unstable_offset(self) -> int | None:
        """First offset of the oldest transaction that is open or whose marker is not replicated; None without one."""
        ongoing = next(iter(self.ongoing)) if self.ongoing else None
        if not self._unreplicated_firsts:
            return ongoing
        # A transaction may end while an older one is open, and the other way round.
        first = self._unreplicated_firsts[0]
        return first if ongoing is None else min(ongoing, first)

    def in_order(self, batch: BatchHeader) -> ProducerEntry | None:
        """Return the producer's entry if a client's batch continues its sequence and its open transaction, if any.

        Otherwise returns None. This fast path saves a `ProducerUpdate` in nearly every idempotent producer's append.
        """
        entry = self.producers.get(batch.producer_id)
        if (
            # What these conditions leave out takes the long way: a new id or epoch, a gap, a duplicate, the first batch of
            # a transaction, and markers.
            entry is not None
            and entry.epoch == batch.producer_epoch
            and entry.batches
            and batch.base_sequence == (entry.batches[-1].last_sequence + 1) & SEQUENCE_MAX
            and (
                not batch.attributes & _TRANSACTION_FLAGS
                if entry.current_txn_first_offset < 0
                else self._goes_on(batch)
            )
        ):
            # A thread writes the entry into a snapshot. It keeps the old one, and changes go to a copy.
            if self._holds:
                entry = self.producers[entry.producer_id] = entry.copy()
            return entry
        return None

    def _goes_on(self, batch: BatchHeader) -> bool:
        """Tell whether a batch continues the producer's open transaction, for which no verification is pending."""
        is_data = batch.attributes & _TRANSACTION_FLAGS == TRANSACTIONAL_FLAG
        return is_data and batch.producer_id not in self.verifications.by_producer

    def duplicate(self, batch: BatchHeader) -> BatchMetadata | None:
        """Return the original of a resent batch; None if the batch is not a duplicate."""
        entry = self.producers.get(batch.producer_id)
        return None if entry is None else entry.duplicate_of(batch)

    def is_in_transaction(self, producer_id: int, epoch: int) -> bool:
        """Tell whether a producer's transaction of this epoch is open.

        A transaction of another epoch may have ended without a marker in this log.
        """
        entry = self.producers.get(producer_id)
        return entry is not None and entry.current_txn_first_offset >= 0 and entry.epoch == epoch

    def start_verification(
        self, producer_id: int, sequence: int, epoch: int, *, supports_epoch_bump: bool, now_ms: int
    ) -> VerificationGuard | None:
        """Return a guard for a transaction's first batch; None if the transaction is open already.

        Raises KafkaError if the epoch is too old.
        """
        _check_epoch(self.producers.get(producer_id) or ProducerEntry(producer_id), epoch)
        if self.is_in_transaction(producer_id, epoch):
            return None
        return self.verifications.start(
            producer_id, sequence, epoch, supports_epoch_bump=supports_epoch_bump, now_ms=now_ms
        )

    def check(self, batch: BatchHeader, *, is_client: bool, guard: VerificationGuard | None = None) -> ProducerUpdate:
        """Check a data batch that has a producer id; return the changes to the producer. Raises KafkaError."""
        update = ProducerUpdate()
        entry = self._staged(update, batch.producer_id)
        _check_epoch(entry, batch.producer_epoch)
        if batch.is_transactional:
            self._check_verified(batch, guard)
        if is_client:
            verification = self.verifications.by_producer.get(batch.producer_id)
            if verification is not None:
                verification.check_sequence(batch, is_known=bool(entry.batches))
            _check_sequence(entry, batch)
        self._note_data(update, entry, batch)
        return update

    def _check_verified(self, batch: BatchHeader, guard: VerificationGuard | None) -> None:
        producer_id = batch.producer_id
        if guard is NOT_REQUIRED or self.is_in_transaction(producer_id, batch.producer_epoch):
            return
        if not self.verifications.accept(producer_id, guard):
            raise KafkaError(
                ErrorCode.INVALID_TXN_STATE,
                f"Producer {producer_id} has no transaction here, or it has ended meanwhile",
            )

    def check_marker(
        self,
        batch: BatchHeader,
        marker: EndTxnMarker,
        version: MarkerVersion = MarkerVersion.TV_0,
    ) -> ProducerUpdate:
        """Check a marker sent by a transaction coordinator; return the changes to the producer. Raises KafkaError."""
        update = ProducerUpdate()
        entry = self._staged(update, batch.producer_id)
        _check_marker_epoch(entry, batch, version)
        # An older coordinator has been replaced, and its decision may contradict that of the new one.
        if marker.coordinator_epoch < entry.coordinator_epoch:
            raise KafkaError(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"Coordinator epoch {marker.coordinator_epoch} of producer {batch.producer_id} is below"
                f" {entry.coordinator_epoch}",
            )
        _note_marker(update, entry, batch, marker)
        return update

    def note(self, batch: BatchHeader, marker: EndTxnMarker | None = None) -> ProducerUpdate:
        """Return the changes that a batch makes to its producer; the leader, or this log earlier, has checked it."""
        update = ProducerUpdate()
        if batch.producer_id >= 0:
            entry = self._staged(update, batch.producer_id)
            if marker is not None:
                _note_marker(update, entry, batch, marker)
            # A control record of another kind has no sequence.
            elif not batch.is_control:
                self._note_data(update, entry, batch, strict=False)
        return update

    def apply(self, update: ProducerUpdate) -> list[AbortedTransaction]:
        """Apply the changes of a completed append; return aborted transactions for the transaction index."""
        # Whole entries are put in place of the old ones, so a thread that holds those sees no change.
        self.producers.update(update.entries)
        if self.verifications.by_producer:
            self.verifications.end(update.transactional)
        for first_offset, producer_id in update.started:
            self.ongoing[first_offset] = producer_id
        aborted = []
        for done in update.completed:
            self.ongoing.pop(done.first_offset, None)
            # The transaction stays unstable until the high watermark has passed its marker: a new leader might not have
            # it.
            self._unreplicated[done.first_offset] = done.last_offset
            heappush(self._unreplicated_firsts, done.first_offset)
            if done.is_aborted:
                # What a reader of the index may rely on: all transactions that begin before this offset have ended.
                last_stable_offset = next(iter(self.ongoing), done.last_offset + 1)
                aborted.append(
                    AbortedTransaction(done.producer_id, done.first_offset, done.last_offset, last_stable_offset)
                )
        return aborted

    def _staged(self, update: ProducerUpdate, producer_id: int) -> ProducerEntry:
        # Batches of one append build on each other, so a staged entry comes before the one in force.
        entry = update.entries.get(producer_id)
        if entry is None:
            known = self.producers.get(producer_id)
            entry = update.entries[producer_id] = ProducerEntry(producer_id) if known is None else known.copy()
        return entry

    def _note_data(
        self, update: ProducerUpdate, entry: ProducerEntry, batch: BatchHeader, *, strict: bool = True
    ) -> None:
        entry.add(batch)
        if batch.is_transactional:
            update.transactional.append(batch)
        if entry.current_txn_first_offset >= 0:
            # As in Kafka: while its transaction is open, a producer writes nothing beside it.
            if strict and not batch.is_transactional:
                raise KafkaError(
                    ErrorCode.INVALID_TXN_STATE,
                    f"Producer {entry.producer_id} wrote outside its transaction, which is open",
                )
        elif batch.is_transactional:
            entry.current_txn_first_offset = batch.base_offset
            update.started.append((batch.base_offset, entry.producer_id))

    def on_high_watermark(self, high_watermark: int) -> None:
        """Mark transactions as stable if their marker is below the high watermark."""
        unreplicated, firsts = self._unreplicated, self._unreplicated_firsts
        while unreplicated and next(iter(unreplicated.values())) < high_watermark:
            unreplicated.popitem(last=False)
        # What has gone from among the others leaves the heap when it comes to the top.
        while firsts and firsts[0] not in unreplicated:
            heappop(firsts)

    def on_log_start_offset(self, log_start_offset: int) -> None:
        """Adopt the new log start offset: transactions with a marker below it become stable."""
        # What is below the start holds no reader back any more.
        self.on_high_watermark(log_start_offset)
        self.map_end_offset = max(self.map_end_offset, log_start_offset)

    def remove_expired(self, now_ms: int, expiration_ms: int) -> Iterator[int]:
        """Forget producers that were silent for `expiration_ms` and have no open transaction.

        Works in steps; yields after each step the number of producers forgotten in it.
        """
        # The ids as they are now: the dict may change between two pieces.
        producer_ids = list(self.producers)
        for start in range(0, len(producer_ids), EXPIRED_PER_PIECE):
            count = 0
            for producer_id in producer_ids[start : start + EXPIRED_PER_PIECE]:
                # It may have gone since the list was made.
                entry = self.producers.get(producer_id)
                if entry is not None and _is_expired(entry, now_ms, expiration_ms):
                    del self.producers[producer_id]
                    count += 1
            yield count
        self.verifications.remove_expired(now_ms, expiration_ms)

    def clear(self, map_end_offset: int) -> None:
        """Clear the state of an empty log, which continues at `map_end_offset`."""
        self.producers.clear()
        self.ongoing.clear()
        self._unreplicated.clear()
        self._unreplicated_firsts.clear()
        self.map_end_offset = map_end_offset

    def load(self, entries: Sequence[ProducerEntry], map_end_offset: int) -> None:
        """Replace the state by the contents of a snapshot."""
        self.clear(map_end_offset)
        for entry in entries:
            self.producers[entry.producer_id] = entry
        # A snapshot may name them in any order.
        for entry in sorted(entries, key=lambda entry: entry.current_txn_first_offset):
            if entry.current_txn_first_offset >= 0:
                self.ongoing[entry.current_txn_first_offset] = entry.producer_id

    def remember_earlier(self, headers: Iterable[BatchHeader]) -> None:
        """Restore batches from before a snapshot; `headers` are those of the log below the snapshot, in order.

        Skips a producer if its last batch in `headers` is not its last batch in the snapshot.
        """
        earlier: dict[int, ProducerEntry] = {}
        for header in headers:
            # A producer that the snapshot does not have is forgotten, and stays so.
            if header.producer_id in self.producers and not header.is_control:
                earlier.setdefault(header.producer_id, ProducerEntry(header.producer_id)).add(header)
        for producer_id, found in earlier.items():
            entry = self.producers[producer_id]
            is_same = found.epoch == entry.epoch and entry.batches
            # Only if both end with the same batch: otherwise the log before the snapshot tells of another history.
            if is_same and found.batches[-1].last_offset == entry.batches[-1].last_offset:
                entry.batches = found.batches

    def encode_snapshot(self) -> bytes:
        """Encode the state as a `.snapshot` file."""
        return encode_producers(self.producers.values())

    def hold(self) -> dict[int, ProducerEntry]:
        """Return the entries for a thread to read; until `release` changes go to copies of the entries."""
        self._holds += 1
        # The dict is copied, because producers come and go; the entries are not, see `in_order`.
        return self.producers.copy()

    def release(self) -> None:
        """Allow changes to the entries after a thread has read them."""
        self._holds -= 1


def encode_producers(producers: Collection[ProducerEntry]) -> bytes:
    """Encode producers as a `.snapshot` file."""
    body = bytearray(len(producers).to_bytes(4, "big"))
    for entry in producers:
        # Kafka's format has room for one batch of each producer.
        last = entry.batches[-1] if entry.batches else BatchMetadata(NO_SEQUENCE, NO_OFFSET, 0, -1)
        body += _SNAPSHOT_ENTRY.pack(
            entry.producer_id,
            entry.epoch,
            last.last_sequence,
            last.last_offset,
            last.offset_delta,
            entry.last_timestamp,
            entry.coordinator_epoch,
            entry.current_txn_first_offset,
        )
    return _SNAPSHOT_VERSION.to_bytes(2, "big") + crc32c(body).to_bytes(4, "big") + body


def decode_snapshot(data: bytes, *, now_ms: int, expiration_ms: int) -> list[ProducerEntry]:
    """Decode a `.snapshot` file; leave out expired producers. Raises CorruptSnapshot."""
    try:
        version, crc, count = _SNAPSHOT_HEAD.unpack_from(data)
        # A torn write shows here, before anything of it is believed.
        if version != _SNAPSHOT_VERSION or crc != crc32c(memoryview(data)[_SNAPSHOT_CRC_END:]):
            raise CorruptSnapshot("wrong version or checksum")
        rows = list(_SNAPSHOT_ENTRY.iter_unpack(memoryview(data)[_SNAPSHOT_HEAD.size :]))
    except struct_error as error:
        raise CorruptSnapshot(str(error)) from error
    if len(rows) != count:
        raise CorruptSnapshot(f"{count} producers expected, {len(rows)} found")
    entries = [_entry(*row) for row in rows]
    return [entry for entry in entries if not _is_expired(entry, now_ms, expiration_ms)]


def _entry(
    producer_id: int,
    epoch: int,
    last_sequence: int,
    last_offset: int,
    offset_delta: int,
    timestamp: int,
    coordinator_epoch: int,
    current_txn_first_offset: int,
) -> ProducerEntry:
    entry = ProducerEntry(producer_id)
    entry.epoch = epoch
    entry.last_timestamp = timestamp
    entry.coordinator_epoch = coordinator_epoch
    # Any negative number means none.
    entry.current_txn_first_offset = max(current_txn_first_offset, NO_OFFSET)
    if last_offset >= 0:
        entry.batches.append(BatchMetadata(last_sequence, last_offset, offset_delta, timestamp))
    return entry


def _is_expired(entry: ProducerEntry, now_ms: int, expiration_ms: int) -> bool:
    # An open transaction holds readers back, so its producer must stay known until the marker comes.
    return entry.current_txn_first_offset < 0 and now_ms - entry.last_timestamp >= expiration_ms


def _check_epoch(entry: ProducerEntry, epoch: int) -> None:
    # A producer with a higher epoch has taken over; the old one must not write any more.
    if epoch < entry.epoch:
        raise KafkaError(
            ErrorCode.INVALID_PRODUCER_EPOCH,
            f"Epoch of producer {entry.producer_id} is {epoch},"
            f" which is smaller than the last seen epoch {entry.epoch}",
        )


def _check_sequence(entry: ProducerEntry, batch: BatchHeader) -> None:
    if entry.epoch == NO_EPOCH:
        return  # nothing known: its records may all have been deleted
    sequence = batch.base_sequence
    # A higher one, since `_check_epoch` came first.
    if batch.producer_epoch != entry.epoch:
        if sequence == 0:
            return
    # After a marker raised the epoch no batch is known. The last sequence is -1 then, so this asks for 0.
    elif sequence == (entry.last_sequence + 1) & SEQUENCE_MAX:
        return
    raise KafkaError(
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        f"Out of order sequence number for producer {entry.producer_id} at offset {batch.base_offset}: {sequence}"
        f" (incoming), {entry.last_sequence} (last), epoch {batch.producer_epoch} (incoming), {entry.epoch} (last)",
    )


def _check_marker_epoch(entry: ProducerEntry, batch: BatchHeader, version: MarkerVersion) -> None:
    epoch = batch.producer_epoch
    # Before transaction version 2 a marker carries the epoch of its producer.
    if version < MarkerVersion.TV_2 or epoch > entry.epoch:
        _check_epoch(entry, epoch)
        return
    # From version 2 on each transaction ends with a raised epoch. A marker of the same epoch is a late one, which must
    # not end the next transaction. It passes if none is open, or if no higher epoch exists.
    is_retry = epoch == entry.epoch and (entry.current_txn_first_offset < 0 or epoch == 2**15 - 1)
    if not is_retry:
        raise KafkaError(
            ErrorCode.INVALID_PRODUCER_EPOCH,
            f"Marker of producer {entry.producer_id} has epoch {epoch}, which is not above {entry.epoch}",
        )


def _note_marker(update: ProducerUpdate, entry: ProducerEntry, batch: BatchHeader, marker: EndTxnMarker) -> None:
    update.transactional.append(batch)
    if entry.current_txn_first_offset >= 0:
        # A transaction without data here leaves no trace in the index.
        update.completed.append(
            CompletedTransaction(
                entry.producer_id,
                entry.current_txn_first_offset,
                batch.base_offset,
                marker.control_type == ControlType.ABORT,
            )
        )
        entry.current_txn_first_offset = NO_OFFSET
    # The raised epoch begins its sequences at 0, so batches of the old one are no duplicates of it.
    if entry.epoch != batch.producer_epoch:
        entry.epoch = batch.producer_epoch
        entry.batches.clear()
    entry.coordinator_epoch = marker.coordinator_epoch
    entry.last_timestamp = batch.max_timestamp
