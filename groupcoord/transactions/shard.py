"""The state machine of one partition of `__transaction_state`, with the transactional ids that fall to it. Sans-IO.

States of an id, and how it leaves them:

    (none)           InitProducerId -> Empty
    Empty            AddPartitions -> Ongoing; forgotten after transactional.id.expiration.ms
    Ongoing          EndTxn -> PrepareCommit or PrepareAbort; a new producer, or its age -> PrepareAbort
    PrepareCommit    all markers written -> CompleteCommit
    PrepareAbort     all markers written -> CompleteAbort
    CompleteCommit, CompleteAbort   as Empty
    Dead, PrepareEpochFence         never stay: an id that expires is gone with its tombstone, and a fenced one goes from
                                    Ongoing to PrepareAbort in one record. Kafka keeps the names, and so does its log.

`transitions.py` makes of an id and a request the id's next metadata, which is one record. From then until that record is
committed the id is *pending*: its old state stays in force, and requests that would change it are answered with
CONCURRENT_TRANSACTIONS, which clients repeat. `replay` puts the new state in force, in living memory and after a restart
alike. If the log refuses the record, the id is unchanged.

Once PrepareCommit or PrepareAbort is in force the transaction is decided. The partition owes its *markers* from then on:
`take_owed` hands them out, and their sender reports `CompleteTransaction`. After a load all markers of prepared transactions
are owed again, since it is unknown which of them the last coordinator has written. Writing one twice does no harm.

Time: the ages of transactions and idle ids are measured by the wall clock, as other brokers may have written their records.
The times of scans are measured by the monotonic clock.

Invariants
    an id is in `_ongoing` if and only if its state is Ongoing, and in `_owed` only while it is prepared
    a pending id has exactly one record on its way
    state rebuilt from the log is the state in force, but for `last_producer_epoch`
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from ottla.groupcoord.config import TransactionConfig
from ottla.groupcoord.runtime.answers import Caller, Reply
from ottla.groupcoord.runtime.coordinator_shard import Outcome, Settlement, together
from ottla.groupcoord.transactions.metadata import (
    AT_REST,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    ONGOING,
    PREPARED,
    TopicPartition,
    TransactionMetadata,
    TransactionState,
)
from ottla.groupcoord.transactions.records import TransactionRecord
from ottla.groupcoord.transactions.transitions import (
    AddPartitions,
    Decision,
    EndTransaction,
    InitProducerId,
    TakeProducerId,
    add,
    complete,
    end,
    fence,
    initialize,
    may_go_on,
)
from ottla.wire.errors import ErrorCode
from ottla.wire.happenings import PRODUCER_FENCED, TRANSACTION_ABORTED, Note, cut, note_nothing

logger = logging.getLogger("ottla.groupcoord")

ABORTED_LATE = (
    "Transaction of %r is aborted, because it is older than its timeout of %d ms: producer id %d, epoch %d, %d partitions."
    " That producer is fenced"
)
ABORTED_FOR_ANOTHER = (
    "Transaction of %r is aborted, because another producer has come for that id: producer id %d, epoch %d, %d partitions."
    " That producer is fenced"
)
REPLACED = "Producer of %r with producer id %d, epoch %d is fenced, because another one has come for that id"
REFUSED = "Refused a producer of %r, which is fenced: it does not have producer id %d, epoch %d"

FLEXIBLE_RECORDS = 1
"""Level of transaction.version from which records have version 1."""

RECORDS_PER_CALL = 500
PARTITIONS_PER_CALL = 5_000
IDS_PER_SCAN = 1_000
"""Limits of one call, so that other requests do not wait long behind it and a batch does not grow too large."""


class CompleteTransaction(NamedTuple):
    """Internal request to complete a transaction, because all its markers are written."""

    transactional_id: str
    producer_id: int
    producer_epoch: int


class ProducerAnswer(NamedTuple):
    """Result of a request of a producer: an error, or the producer's current id and epoch."""

    error: ErrorCode
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH


class MarkersOwed(NamedTuple):
    """Markers still to be written for a transaction whose end is decided."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    is_commit: bool
    partitions: AbstractSet[TopicPartition]
    transaction_version: int


Request = InitProducerId | AddPartitions | EndTransaction | CompleteTransaction


Tell = Callable[..., None]
"""Logs a line about a name, or counts it once there were enough of them: tell(name, log, text, *arguments)."""


class _Scan:
    """Periodic scan of transactional ids, a limited number of ids in each call."""

    __slots__ = ("_left", "due_ms", "interval_ms")

    def __init__(self, due_ms: int, interval_ms: int) -> None:
        self.due_ms = due_ms
        self.interval_ms = interval_ms
        self._left: list[str] = []

    def some(self, ids: Iterable[str]) -> Iterator[str]:
        """Yield the next ids of the scan. If the last scan is complete, begin another one, of `ids`."""
        # A copy, because ids come and go between two calls.
        self._left = self._left or list(ids)
        for _ in range(min(IDS_PER_SCAN, len(self._left))):
            yield self._left.pop()

    def rest(self, now_ms: int) -> None:
        """Schedule the next call: after 1 ms if ids are left, else after the interval. Requests run in between."""
        self.due_ms = now_ms + (1 if self._left else self.interval_ms)


class TransactionShard:
    """Shard with the transactional ids of one partition of `__transaction_state`."""

    def __init__(
        self,
        config: TransactionConfig,
        *,
        take_producer_id: TakeProducerId,
        transaction_version: Callable[[], int],
        tell: Tell,
        note: Note = note_nothing,
    ) -> None:
        """`transaction_version` returns the cluster's level of this feature. `tell` logs events of producers."""
        self._note = note
        self._config = config
        self._tell = tell
        self._take_producer_id = take_producer_id
        self._transaction_version = transaction_version
        self._known: dict[str, TransactionMetadata] = {}
        self._pending: set[str] = set()
        self._ongoing: dict[str, None] = {}
        self._owed: dict[str, None] = {}
        self._outcome: Outcome[TransactionRecord] = Outcome([], [], [])
        self._timestamp_ms = 0
        self._overdue_scan: _Scan | None = None
        self._expiry_scan: _Scan | None = None
        self._handlers: dict[type, Callable[..., None]] = {
            InitProducerId: self._initialize,
            AddPartitions: self._add,
            EndTransaction: self._end,
            CompleteTransaction: self._complete,
        }

    # ------------------------------------------------------------------ the shell's calls

    def handle(self, request: Request, caller: Caller, *, now_ms: int, timestamp_ms: int) -> Outcome[TransactionRecord]:
        """Handle a request. The caller is answered when the changes are committed."""
        self._timestamp_ms = timestamp_ms
        self._handlers[type(request)](request, caller)
        return self.discard()

    def abandon(self, caller: Caller, *, now_ms: int, timestamp_ms: int) -> Outcome[TransactionRecord]:
        """Do nothing: no request is ever parked, and a disconnected client's request is completed."""
        return self.discard()

    def settle(
        self, settlements: Iterable[Settlement], error: ErrorCode, *, now_ms: int, timestamp_ms: int
    ) -> list[Reply]:
        """Call settlements, after their records were appended or were refused by the log with `error`."""
        for settlement in settlements:
            settlement(error)
        settled = self.discard()
        assert not settled.records and not settled.settlements, "a settlement only replies"
        return settled.replies

    def unfinished(self) -> None:
        """Return None: every call takes all its steps."""

    def next_deadline_ms(self) -> int | None:
        overdue, expiry = self._overdue_scan, self._expiry_scan
        # Called three times for each request, so as short as possible.
        if overdue is None or expiry is None:
            return None
        return min(expiry.due_ms, overdue.due_ms)

    def expire(self, *, now_ms: int, timestamp_ms: int) -> Outcome[TransactionRecord]:
        """Abort transactions that exceed their timeout, and forget ids that were idle for too long."""
        self._timestamp_ms = timestamp_ms
        assert self._overdue_scan is not None and self._expiry_scan is not None
        if self._overdue_scan.due_ms <= now_ms:
            parts = list(self._abort_overdue(self._overdue_scan.some(self._ongoing)))
            self._overdue_scan.rest(now_ms)
        elif self._expiry_scan.due_ms <= now_ms:
            parts = list(self._forget_expired(self._expiry_scan.some(self._known)))
            self._expiry_scan.rest(now_ms)
        else:
            parts = []
        # Ids are independent: one with a long name, or with many partitions, must not keep the records of others from
        # being appended.
        return together(parts)

    def stands_alone(self, now_ms: int) -> bool:
        """Return False: due work skips ids with uncommitted records and reads the committed state of other ids."""
        return False

    def start_sessions(self, now_ms: int) -> Iterator[None]:
        """Do nothing: there are no sessions, and timeouts of transactions use the wall clock."""
        return iter(())

    def replay(self, record: TransactionRecord, record_offset: int = -1, producer_id: int = -1) -> None:
        """Apply a record."""
        transactional_id, metadata, _ = record
        self._pending.discard(transactional_id)
        self._ongoing.pop(transactional_id, None)
        self._owed.pop(transactional_id, None)
        if metadata is None:
            self._known.pop(transactional_id, None)
            return
        self._known[transactional_id] = metadata
        if metadata.state is ONGOING:
            self._ongoing[transactional_id] = None
        elif metadata.state in PREPARED:
            self._owed[transactional_id] = None

    def replay_marker(self, producer_id: int, *, committed: bool) -> None:
        """Do nothing: no record of the transaction topic belongs to a transaction."""

    def loaded(self, *, now_ms: int, timestamp_ms: int) -> Outcome[TransactionRecord]:
        """Finish the load and start the periodic scans."""
        config = self._config
        overdue_ms = config.transaction_abort_timed_out_transaction_cleanup_interval_ms
        expiry_ms = config.transaction_remove_expired_transaction_cleanup_interval_ms
        self._overdue_scan = _Scan(now_ms + overdue_ms, overdue_ms)
        self._expiry_scan = _Scan(now_ms + expiry_ms, expiry_ms)
        return self.discard()

    def unload(self, error: ErrorCode) -> list[Reply]:
        """Answer nobody, as this shard parks no requests, and let go of the handlers: they would hold the shard for good."""
        self._handlers = {}
        return []

    def discard(self) -> Outcome[TransactionRecord]:
        """Remove and return the outcome collected so far."""
        outcome, self._outcome = self._outcome, Outcome([], [], [])
        return outcome

    # ------------------------------------------------------------------ requests

    def _initialize(self, request: InitProducerId, caller: Caller) -> None:
        transactional_id = request.transactional_id
        known, is_pending = self._known.get(transactional_id), self._is_pending(transactional_id)
        if known is not None and known.state is ONGOING and not is_pending:
            decision: Decision = ErrorCode.PRODUCER_FENCED
            if may_go_on(known, request.expected):
                decision = self._fenced(known)
            # The client retries until the transaction is aborted.
            retry = ProducerAnswer(ErrorCode.CONCURRENT_TRANSACTIONS)
            self._carry_out(transactional_id, decision, caller, lambda known: retry)
            if not isinstance(decision, ErrorCode):
                producer = known.producer_id, known.producer_epoch, len(known.partitions)
                self._tell_then(ABORTED_FOR_ANOTHER, transactional_id, *producer)
            return
        decision = initialize(
            known,
            request,
            is_pending=is_pending,
            take_producer_id=self._take_producer_id,
            timestamp_ms=self._timestamp_ms,
        )
        self._carry_out(transactional_id, decision, caller, _current_producer)
        # A producer that names its id and epoch goes on with them.
        is_another = known is not None and known.producer_epoch != NO_PRODUCER_EPOCH and request.expected is None
        if is_another and known is not None and not isinstance(decision, ErrorCode):
            self._tell_then(REPLACED, transactional_id, known.producer_id, known.producer_epoch)

    def _add(self, request: AddPartitions, caller: Caller) -> None:
        known, is_pending = self._known.get(request.transactional_id), self._is_pending(request.transactional_id)
        decision = add(known, request, is_pending=is_pending, timestamp_ms=self._timestamp_ms)
        self._carry_out(request.transactional_id, decision, caller, lambda _: ProducerAnswer(ErrorCode.NONE))

    def _end(self, request: EndTransaction, caller: Caller) -> None:
        transactional_id = request.transactional_id
        known = self._known.get(transactional_id)
        decision = end(
            known,
            request,
            is_pending=self._is_pending(transactional_id),
            take_producer_id=self._take_producer_id,
            timestamp_ms=self._timestamp_ms,
        )
        if decision is ErrorCode.NONE:
            # A repeated request gets the answer of the first one.
            assert known is not None
            self._reply(caller, _current_producer(known))
            return
        # The client goes on as soon as the transaction is decided, with the producer as it will be after the markers.
        self._carry_out(
            transactional_id, decision, caller, lambda after: _current_producer(complete(after, self._timestamp_ms))
        )

    def _complete(self, request: CompleteTransaction, caller: Caller) -> None:
        transactional_id = request.transactional_id
        known = self._known.get(transactional_id)
        # By now the partition may have been loaded again, and its markers sent by another broker.
        if (
            known is None
            or known.state not in PREPARED
            or transactional_id in self._pending
            or (known.producer_id, known.producer_epoch) != (request.producer_id, request.producer_epoch)
        ):
            self._reply(caller, ProducerAnswer(ErrorCode.INVALID_TXN_STATE))
            return
        self._carry_out(transactional_id, complete(known, self._timestamp_ms), caller, _current_producer)

    def _fenced(self, known: TransactionMetadata) -> Decision:
        return fence(
            known,
            transaction_version=self._transaction_version(),
            take_producer_id=self._take_producer_id,
            timestamp_ms=self._timestamp_ms,
        )

    # ------------------------------------------------------------------ deadlines

    def _abort_overdue(self, ids: Iterator[str]) -> Iterator[Outcome[TransactionRecord]]:
        records = partitions = 0
        for transactional_id in ids:
            known = self._known.get(transactional_id)
            if (
                known is None
                or known.state is not ONGOING
                or transactional_id in self._pending
                or not known.is_overdue(self._timestamp_ms)
            ):
                continue
            decision = self._fenced(known)
            # There may be no producer id for the moment. The next scan comes to it again.
            if isinstance(decision, TransactionMetadata):
                self._append(transactional_id, decision)
                producer = known.producer_id, known.producer_epoch, len(known.partitions)
                self._tell_then(ABORTED_LATE, transactional_id, known.timeout_ms, *producer)
                yield self.discard()
                records += 1
                partitions += len(known.partitions)
            if records >= RECORDS_PER_CALL or partitions >= PARTITIONS_PER_CALL:
                break

    def _forget_expired(self, ids: Iterator[str]) -> Iterator[Outcome[TransactionRecord]]:
        records = 0
        latest_ms = self._timestamp_ms - self._config.transactional_id_expiration_ms
        for transactional_id in ids:
            known = self._known.get(transactional_id)
            if (
                known is not None
                and known.state in AT_REST
                and transactional_id not in self._pending
                and known.last_update_timestamp_ms <= latest_ms
            ):
                self._append(transactional_id, None)
                yield self.discard()
                records += 1
            if records >= RECORDS_PER_CALL:
                break

    # ------------------------------------------------------------------ records and replies

    def _is_pending(self, transactional_id: str) -> bool:
        """Tell whether a record of the id is uncommitted, or a marker of its transaction is not written yet."""
        return transactional_id in self._pending or self._state_of(transactional_id) in PREPARED

    def _state_of(self, transactional_id: str) -> TransactionState | None:
        known = self._known.get(transactional_id)
        return None if known is None else known.state

    def _carry_out(
        self,
        transactional_id: str,
        decision: Decision,
        caller: Caller,
        answer: Callable[[TransactionMetadata], ProducerAnswer],
    ) -> None:
        """Answer an error immediately, or append a transition and answer when it is committed."""
        if isinstance(decision, ErrorCode):
            known = self._known.get(transactional_id)
            if decision is ErrorCode.PRODUCER_FENCED and known is not None:
                arguments = transactional_id, known.producer_id, known.producer_epoch
                self._note_event(REFUSED, *arguments)
                self._tell((REFUSED, transactional_id), logger.info, REFUSED, *arguments)
            self._reply(caller, ProducerAnswer(decision))
            return
        response = answer(decision)
        self._append(transactional_id, decision)
        self._outcome.settlements.append(
            lambda error: self._reply(caller, ProducerAnswer(error) if error else response)
        )

    def _tell_then(self, text: str, transactional_id: str, *arguments: object) -> None:
        """Log an event of a producer, and note it as a happening, when the call's record is committed."""

        def tell(error: ErrorCode) -> None:
            if not error:
                self._note_event(text, transactional_id, *arguments)
                self._tell((text, transactional_id), logger.info, text, transactional_id, *arguments)

        self._outcome.settlements.append(tell)

    def _note_event(self, text: str, transactional_id: str, *arguments: object) -> None:
        kind = TRANSACTION_ABORTED if text in (ABORTED_LATE, ABORTED_FOR_ANOTHER) else PRODUCER_FENCED
        cause = text % (cut(transactional_id), *arguments)
        self._note(kind, cause, source=transactional_id, transactional_id=transactional_id)

    def _append(self, transactional_id: str, metadata: TransactionMetadata | None) -> None:
        assert transactional_id not in self._pending, f"two records of {transactional_id} on their way"
        version = FLEXIBLE_RECORDS if self._transaction_version() >= FLEXIBLE_RECORDS else 0
        self._pending.add(transactional_id)
        self._outcome.records.append(TransactionRecord(transactional_id, metadata, version))
        self._outcome.settlements.append(lambda error: self._take_back(transactional_id, error))

    def _take_back(self, transactional_id: str, error: ErrorCode) -> None:
        if error:
            self._pending.discard(transactional_id)

    def _reply(self, caller: Caller, answer: ProducerAnswer) -> None:
        self._outcome.replies.append(Reply(caller, answer))

    # ------------------------------------------------------------------ reads

    def known(self, transactional_id: str) -> TransactionMetadata | None:
        """Return the current metadata of a transactional id; None if the id is unknown."""
        return self._known.get(transactional_id)

    def __len__(self) -> int:
        return len(self._known)

    def ids(self) -> list[str]:
        """Return all current transactional ids."""
        return list(self._known)

    def take_owed(self) -> list[MarkersOwed]:
        """Return the markers to be written for transactions that were decided since the last call."""
        if not self._owed:
            return []
        owed, self._owed = self._owed, {}
        return [self._markers_of(transactional_id) for transactional_id in owed]

    def _markers_of(self, transactional_id: str) -> MarkersOwed:
        known = self._known[transactional_id]
        return MarkersOwed(
            transactional_id,
            known.producer_id,
            known.producer_epoch,
            known.is_committing,
            known.partitions,
            known.client_transaction_version,
        )


def _current_producer(known: TransactionMetadata) -> ProducerAnswer:
    return ProducerAnswer(ErrorCode.NONE, known.producer_id, known.producer_epoch)
