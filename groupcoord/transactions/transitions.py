"""Transitions of a transactional id: each request makes the id's next metadata, or an error. Pure functions.

The caller knows whether a transition is under way already (`is_pending`). The order of the checks is Kafka's, since a
request may be wrong in several ways.

InitProducerId, by the state of the id:

    new                 producer id from the supply, epoch 0
    at rest             epoch + 1; from the exhausted epoch on a new producer id and epoch 0
    Ongoing             the producer is fenced and its transaction aborted; the client retries later
    Prepare*, pending   CONCURRENT_TRANSACTIONS
    a producer that names itself (KIP-360) has to be the present one, or the one before whose epoch was exhausted; if it
    names the epoch before the present one it repeats itself, and gets the present one again

EndTxn while transactions share epochs (before version 5); the epoch has to be the present one:

                        commit                    abort
    Ongoing             PrepareCommit             PrepareAbort
    CompleteCommit      NONE                      INVALID_TXN_STATE
    CompleteAbort       INVALID_TXN_STATE         NONE
    Empty               INVALID_TXN_STATE         INVALID_TXN_STATE

EndTxn with an epoch per transaction (since version 5). The transition raises the epoch, so a producer that names the epoch
before the present one, or the exhausted epoch of the producer id before, repeats its request:

                        commit                    abort                     commit again        abort again
    Ongoing             PrepareCommit             PrepareAbort              PRODUCER_FENCED     PRODUCER_FENCED
    CompleteCommit      INVALID_TXN_STATE         PrepareAbort              NONE                INVALID_TXN_STATE
    CompleteAbort       INVALID_TXN_STATE         PrepareAbort              INVALID_TXN_STATE   NONE
    Empty               INVALID_TXN_STATE         PrepareAbort              PRODUCER_FENCED     PRODUCER_FENCED

No producer gets the epoch that is kept for fencing: it gets PRODUCER_FENCED instead.

In both a transition that is under way is CONCURRENT_TRANSACTIONS, and so is every Prepare* state: it is left as soon as
the markers are written.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from ottla.groupcoord.transactions.metadata import (
    AT_REST,
    COMPLETE,
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    EMPTY,
    EPOCH_EXHAUSTED,
    EPOCH_MAX,
    EPOCH_PER_TRANSACTION,
    NO_PARTITIONS,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    PREPARED,
    Partitions,
    TopicPartition,
    TransactionMetadata,
    TransactionState,
    is_exhausted,
)
from ottla.wire.errors import ErrorCode

TakeProducerId = Callable[[], int | None]
"""Returns a new producer id, or None while a block of them is being reserved."""

Decision = TransactionMetadata | ErrorCode
"""The metadata after a transition, or the error to answer without one; NONE is possible."""


class InitProducerId(NamedTuple):
    """Request for a producer's id and epoch. `expected`: the pair to continue with; None if the producer names none."""

    transactional_id: str
    timeout_ms: int
    expected: tuple[int, int] | None


class AddPartitions(NamedTuple):
    """Request to add partitions to a transaction."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: AbstractSet[TopicPartition]
    transaction_version: int


class EndTransaction(NamedTuple):
    """Request to commit or abort a transaction."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    is_commit: bool
    transaction_version: int


def initialize(
    known: TransactionMetadata | None,
    request: InitProducerId,
    *,
    is_pending: bool,
    take_producer_id: TakeProducerId,
    timestamp_ms: int,
) -> Decision:
    """Decide InitProducerId for a transactional id. The caller has aborted an open transaction by `fence` before."""
    if is_pending:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    if known is None:
        created = _created(request, take_producer_id, timestamp_ms)
        if created is None:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        known = created
    if not may_go_on(known, request.expected):
        return ErrorCode.PRODUCER_FENCED
    assert known.state in AT_REST
    expected_epoch = None if request.expected is None else request.expected[1]
    changes = {
        "timeout_ms": request.timeout_ms,
        "partitions": NO_PARTITIONS,
        "start_timestamp_ms": NO_TIMESTAMP,
        "last_update_timestamp_ms": timestamp_ms,
    }
    if known.is_epoch_exhausted and expected_epoch in (None, known.producer_epoch):
        producer_id = take_producer_id()
        if producer_id is None:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        last_epoch = NO_PRODUCER_EPOCH if expected_epoch is None else known.producer_epoch
        return known.moved(EMPTY, producer_id=producer_id, producer_epoch=0, last_producer_epoch=last_epoch, **changes)
    epochs = _raised(known, expected_epoch)
    if isinstance(epochs, ErrorCode):
        return epochs
    return known.moved(EMPTY, producer_epoch=epochs[0], last_producer_epoch=epochs[1], **changes)


def _created(
    request: InitProducerId, take_producer_id: TakeProducerId, timestamp_ms: int
) -> TransactionMetadata | None:
    """Return the metadata of a new transactional id; None if no producer id is available now."""
    producer_id = take_producer_id()
    if producer_id is None:
        return None
    return TransactionMetadata(
        producer_id=producer_id,
        producer_epoch=NO_PRODUCER_EPOCH,
        timeout_ms=request.timeout_ms,
        state=EMPTY,
        partitions=NO_PARTITIONS,
        start_timestamp_ms=NO_TIMESTAMP,
        last_update_timestamp_ms=timestamp_ms,
    )


def may_go_on(known: TransactionMetadata, expected: tuple[int, int] | None) -> bool:
    """Return True if the transactional id may belong to the producer `expected`. The epoch is checked later."""
    if expected is None or known.producer_epoch == NO_PRODUCER_EPOCH:
        return True
    producer_id, producer_epoch = expected
    if producer_id == known.producer_id:
        return True
    # It may have missed the answer with its new producer id.
    return producer_id == known.previous_producer_id and is_exhausted(producer_epoch)


def _raised(known: TransactionMetadata, expected_epoch: int | None) -> tuple[int, int] | ErrorCode:
    """Return an error, or the next epoch and the former epoch, with which the producer may repeat this request."""
    # Kafka fails here, too: the producer names an epoch that is not the present one, and there is none left to give.
    if known.is_epoch_exhausted:
        return ErrorCode.UNKNOWN_SERVER_ERROR
    raised = known.producer_epoch + 1
    # Another producer. The one before must not be taken for one that repeats its request.
    if expected_epoch is None:
        return raised, NO_PRODUCER_EPOCH
    if known.producer_epoch in (NO_PRODUCER_EPOCH, expected_epoch):
        return raised, known.producer_epoch
    if expected_epoch == known.last_producer_epoch:
        return known.producer_epoch, known.last_producer_epoch
    return ErrorCode.PRODUCER_FENCED


def fence(
    known: TransactionMetadata,
    *,
    transaction_version: int,
    take_producer_id: TakeProducerId,
    timestamp_ms: int,
) -> Decision:
    """Decide the abort of a transaction whose producer timed out or was replaced.

    The record also raises the epoch, so that the producer can add nothing. The next producer's epoch is higher still.
    """
    assert known.state is ONGOING
    if transaction_version >= EPOCH_PER_TRANSACTION:
        return _prepared(
            known,
            PREPARE_ABORT,
            transaction_version=transaction_version,
            take_producer_id=take_producer_id,
            timestamp_ms=timestamp_ms,
        )
    return known.moved(
        PREPARE_ABORT,
        producer_epoch=min(known.producer_epoch + 1, EPOCH_MAX),
        last_producer_epoch=NO_PRODUCER_EPOCH,
        next_producer_id=NO_PRODUCER_ID,
        last_update_timestamp_ms=timestamp_ms,
        client_transaction_version=0,
    )


def add(known: TransactionMetadata | None, request: AddPartitions, *, is_pending: bool, timestamp_ms: int) -> Decision:
    """Decide AddPartitionsToTxn, or AddOffsetsToTxn, which adds the offsets topic partition of a group."""
    # First, so that a transition that gives the producer a new id can end before its requests are judged.
    if is_pending:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    error = check_producer(known, request.producer_id, request.producer_epoch)
    if error or known is None:
        return error
    is_ongoing = known.state is ONGOING
    if is_ongoing and request.partitions <= known.partitions:
        return ErrorCode.NONE
    return known.moved(
        ONGOING,
        partitions=Partitions.of(known.partitions) | request.partitions,
        start_timestamp_ms=known.start_timestamp_ms if is_ongoing else timestamp_ms,
        last_update_timestamp_ms=timestamp_ms,
        client_transaction_version=request.transaction_version,
    )


def verify(known: TransactionMetadata | None, producer_id: int, producer_epoch: int) -> ErrorCode:
    """Return an error if the producer may not verify partitions of its transaction, else NONE."""
    error = check_producer(known, producer_id, producer_epoch)
    if error or known is None:
        return error
    # A transition that is under way does not matter: the log has the last word.
    return ErrorCode.CONCURRENT_TRANSACTIONS if known.state in PREPARED else ErrorCode.NONE


def check_producer(known: TransactionMetadata | None, producer_id: int, producer_epoch: int) -> ErrorCode:
    if known is None or known.producer_id != producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    return ErrorCode.NONE if known.producer_epoch == producer_epoch else ErrorCode.PRODUCER_FENCED


def end(
    known: TransactionMetadata | None,
    request: EndTransaction,
    *,
    is_pending: bool,
    take_producer_id: TakeProducerId,
    timestamp_ms: int,
) -> Decision:
    """Decide EndTxn according to the tables at the top of this module."""
    if known is None:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if request.transaction_version >= EPOCH_PER_TRANSACTION:
        error = _check_end(known, request, is_pending=is_pending)
    else:
        error = _check_end_in_shared_epoch(known, request, is_pending=is_pending)
    if error is not None:
        return error
    return _prepared(
        known,
        PREPARE_COMMIT if request.is_commit else PREPARE_ABORT,
        transaction_version=request.transaction_version,
        take_producer_id=take_producer_id,
        timestamp_ms=timestamp_ms,
    )


def _check_end_in_shared_epoch(
    known: TransactionMetadata, request: EndTransaction, *, is_pending: bool
) -> ErrorCode | None:
    """Return the response to an EndTxn that changes nothing; None if the transaction must be ended.

    For transactions that share an epoch (before EndTxn version 5).
    """
    error = check_producer(known, request.producer_id, request.producer_epoch)
    if error:
        return error
    if is_pending:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    if known.state is ONGOING:
        return None
    return ErrorCode.NONE if known.state is _complete(is_commit=request.is_commit) else ErrorCode.INVALID_TXN_STATE


def _check_end(known: TransactionMetadata, request: EndTransaction, *, is_pending: bool) -> ErrorCode | None:
    """Return the response to an EndTxn that changes nothing; None if the transaction must be ended.

    For transactions with an epoch each (since EndTxn version 5).
    """
    # First, because the producer may use a new producer id already, which is still in no record.
    if is_pending:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    has_overflown = (
        request.producer_id == known.previous_producer_id
        and request.producer_epoch == EPOCH_EXHAUSTED
        and known.producer_epoch == 0
    )
    if known.producer_id != request.producer_id and not has_overflown:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    is_next = request.producer_epoch == known.producer_epoch - 1
    # The answer would give out the epoch that is there to fence the producer. Nothing comes after it.
    is_repeated = known.state in COMPLETE and (has_overflown or (is_next and known.producer_epoch < EPOCH_MAX))
    if not is_repeated and request.producer_epoch != known.producer_epoch:
        return ErrorCode.PRODUCER_FENCED
    if is_repeated:
        is_same = known.state is _complete(is_commit=request.is_commit)
        return ErrorCode.NONE if is_same else ErrorCode.INVALID_TXN_STATE
    # A client that does not know whether anything has reached the transaction may abort it in any case.
    if known.state is ONGOING or not request.is_commit:
        return None
    return ErrorCode.INVALID_TXN_STATE


def _complete(*, is_commit: bool) -> TransactionState:
    return COMPLETE_COMMIT if is_commit else COMPLETE_ABORT


def _prepared(
    known: TransactionMetadata,
    state: TransactionState,
    *,
    transaction_version: int,
    take_producer_id: TakeProducerId,
    timestamp_ms: int,
) -> Decision:
    """Return the metadata of a transaction that is to be ended, or an error. An epoch per transaction is raised."""
    changes = {"last_update_timestamp_ms": timestamp_ms, "client_transaction_version": transaction_version}
    if transaction_version < EPOCH_PER_TRANSACTION:
        return known.moved(state, next_producer_id=NO_PRODUCER_ID, **changes)
    next_producer_id: int | None = NO_PRODUCER_ID
    if known.is_epoch_exhausted:
        next_producer_id = take_producer_id()
        if next_producer_id is None:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    return known.moved(
        state,
        producer_epoch=min(known.producer_epoch + 1, EPOCH_MAX),
        last_producer_epoch=known.producer_epoch,
        next_producer_id=next_producer_id,
        # One without partitions never began, but a record of one that is decided has a beginning.
        start_timestamp_ms=known.start_timestamp_ms if known.state is ONGOING else timestamp_ms,
        **changes,
    )


def complete(known: TransactionMetadata, timestamp_ms: int) -> TransactionMetadata:
    """Return the metadata of a completed transaction. A next producer id replaces an exhausted producer id."""
    is_replaced = known.client_transaction_version >= EPOCH_PER_TRANSACTION and known.next_producer_id != NO_PRODUCER_ID
    return known.moved(
        _complete(is_commit=known.is_committing),
        producer_id=known.next_producer_id if is_replaced else known.producer_id,
        producer_epoch=0 if is_replaced else known.producer_epoch,
        next_producer_id=NO_PRODUCER_ID,
        partitions=NO_PARTITIONS,
        last_update_timestamp_ms=timestamp_ms,
    )
