"""What is known of a transactional id: its producer, its epoch, and how far its transaction is.

A value is never changed. A transition makes the next one, which takes effect when its record is committed
(`ottla.groupcoord.transactions.shard` has the theory). `TransactionMetadata.moved` is the only way from one to the next,
and refuses what Kafka's table of states does not have.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from enum import IntEnum
from typing import Any, Final, NamedTuple

from ottla.groupcoord.transactions.partitions import TopicPartition

NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_TIMESTAMP = -1
NO_TIMEOUT_MS = (1 << 31) - 1  # of transactions whose fate somebody else decides: they are never ended for their age

EPOCH_MAX = (1 << 15) - 1
EPOCH_EXHAUSTED = EPOCH_MAX - 1
"""The last epoch that a producer is given. The one above it is kept for fencing that producer."""

EPOCH_PER_TRANSACTION = 2
"""Since this transaction.version every transaction has an epoch of its own (KIP-890)."""


class TransactionState(IntEnum):
    """Kafka's states, with the numbers that stand in records."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def told_as(self) -> str:
        """The name that clients read."""
        return _NAMES[self]


EMPTY: Final = TransactionState.EMPTY
ONGOING: Final = TransactionState.ONGOING
PREPARE_COMMIT: Final = TransactionState.PREPARE_COMMIT
PREPARE_ABORT: Final = TransactionState.PREPARE_ABORT
COMPLETE_COMMIT: Final = TransactionState.COMPLETE_COMMIT
COMPLETE_ABORT: Final = TransactionState.COMPLETE_ABORT

_NAMES = {state: state.name.title().replace("_", "") for state in TransactionState}
STATES_BY_NAME: Mapping[str, TransactionState] = {name: state for state, name in _NAMES.items()}

COMPLETE = frozenset({COMPLETE_COMMIT, COMPLETE_ABORT})
PREPARED = frozenset({PREPARE_COMMIT, PREPARE_ABORT})
AT_REST = COMPLETE | {EMPTY}
"""Without a transaction. Only from here an id expires."""

_PREVIOUS: Mapping[TransactionState, frozenset[TransactionState]] = {
    EMPTY: AT_REST,
    ONGOING: AT_REST | {ONGOING},
    PREPARE_COMMIT: frozenset({ONGOING}),
    PREPARE_ABORT: AT_REST | {ONGOING},
    COMPLETE_COMMIT: frozenset({PREPARE_COMMIT}),
    COMPLETE_ABORT: frozenset({PREPARE_ABORT}),
}


class TransactionMetadata(NamedTuple):
    """One transactional id at one moment.

    `previous_producer_id` is the producer id before the last transition, `next_producer_id` the one that replaces an
    exhausted one when the transaction is complete. `last_producer_epoch` is in no record: after a load the coordinator
    no longer recognises the repetition of a request that has raised the epoch.
    """

    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: TransactionState
    partitions: AbstractSet[TopicPartition]
    start_timestamp_ms: int
    last_update_timestamp_ms: int
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    last_producer_epoch: int = NO_PRODUCER_EPOCH
    client_transaction_version: int = 0

    @property
    def is_epoch_exhausted(self) -> bool:
        return is_exhausted(self.producer_epoch)

    @property
    def is_committing(self) -> bool:
        """Whether the transaction that is prepared is to be committed; else it is to be aborted."""
        assert self.state in PREPARED
        return self.state is PREPARE_COMMIT

    def moved(self, state: TransactionState, **changes: Any) -> TransactionMetadata:
        """This id after a transition."""
        assert self.state in _PREVIOUS[state], f"{self.state.told_as} -> {state.told_as}"
        after = self._replace(state=state, previous_producer_id=self.producer_id, **changes)
        assert after.producer_id >= 0, "a transition without a producer id"
        assert 0 <= after.producer_epoch <= EPOCH_MAX, f"epoch {after.producer_epoch}"
        assert not (state is EMPTY and after.partitions), "an empty transaction has no partitions"
        return after

    def is_overdue(self, timestamp_ms: int) -> bool:
        """Whether an ongoing transaction has lasted longer than its producer wanted."""
        if self.timeout_ms == NO_TIMEOUT_MS:
            return False
        return self.start_timestamp_ms + self.timeout_ms < timestamp_ms


def is_exhausted(producer_epoch: int) -> bool:
    """Whether a producer with this epoch needs a new producer id before it can have another epoch."""
    return producer_epoch >= EPOCH_EXHAUSTED
