"""The metadata of a transactional id: its producer, its epoch, its transaction's state and partitions.

A value is never changed. A transition makes the next one, which takes effect when its record is committed
(`ottla.groupcoord.transactions.shard` has the theory). `TransactionMetadata.moved` is the only way from one to the next,
and refuses transitions that Kafka's table of states does not have.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from enum import IntEnum
from typing import Any, Final, NamedTuple

# ---------------------------------------------------------------------- partitions


TopicPartition = tuple[str, int]

_NONE: frozenset[int] = frozenset()

NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_TIMESTAMP = -1
NO_TIMEOUT_MS = (1 << 31) - 1  # of transactions that another system decides: they never time out
EPOCH_MAX = (1 << 15) - 1
EPOCH_EXHAUSTED = EPOCH_MAX - 1
"""The last epoch that a producer gets. The one above it is kept for fencing that producer."""
EPOCH_PER_TRANSACTION = 2
"""Level of transaction.version from which every transaction has an epoch of its own (KIP-890)."""


class Partitions(AbstractSet[TopicPartition]):
    """Partitions of a transaction: an immutable set of (topic, index), stored by topic.

    Each record of a transaction names up to 100,000 partitions. With storage by topic, not every pair must be handled.
    """

    __slots__ = ("_count", "topics")

    def __init__(self, topics: Mapping[str, frozenset[int]]) -> None:
        """`topics` maps each topic to at least one partition index."""
        self.topics = topics
        self._count = sum(map(len, topics.values()))

    @classmethod
    def of(cls, pairs: Iterable[TopicPartition]) -> Partitions:
        """Return the set of these pairs; a `Partitions` object is returned unchanged."""
        if isinstance(pairs, Partitions):
            return pairs
        topics: dict[str, set[int]] = {}
        for topic, index in pairs:
            topics.setdefault(topic, set()).add(index)
        return cls({topic: frozenset(indexes) for topic, indexes in topics.items()})

    @classmethod
    def _from_iterable(cls, iterable: Iterable[TopicPartition]) -> Partitions:  # type: ignore[override]
        return cls.of(iterable)

    def __repr__(self) -> str:
        return f"Partitions({set(self)})"

    def __len__(self) -> int:
        return self._count

    def __contains__(self, pair: object) -> bool:
        return isinstance(pair, tuple) and pair[1] in self.topics.get(pair[0], _NONE)

    def __iter__(self) -> Iterator[TopicPartition]:
        return ((topic, index) for topic, indexes in self.topics.items() for index in indexes)

    __hash__ = AbstractSet._hash

    def __le__(self, other: AbstractSet[object]) -> bool:
        if not isinstance(other, Partitions):
            return super().__le__(other)
        theirs = other.topics
        return all(indexes <= theirs.get(topic, _NONE) for topic, indexes in self.topics.items())

    def __or__(self, other: AbstractSet[TopicPartition]) -> Partitions:  # type: ignore[override]
        topics = dict(self.topics)
        for topic, indexes in Partitions.of(other).topics.items():
            known = topics.get(topic)
            topics[topic] = indexes if known is None else known | indexes
        return Partitions(topics)

    def in_order(self) -> dict[str, list[int]]:
        """Return indexes by topic, both sorted, so that equal sets are encoded equally."""
        return {topic: sorted(self.topics[topic]) for topic in sorted(self.topics)}


NO_PARTITIONS = Partitions({})


# ---------------------------------------------------------------------- producers


class Producer(NamedTuple):
    """Producer with a transactional id, as named in a request."""

    transactional_id: str
    producer_id: int
    producer_epoch: int


# ---------------------------------------------------------------------- metadata


class TransactionState(IntEnum):
    """State of a transaction. Its number is the one that Kafka writes into records."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def state_name(self) -> str:
        """Kafka's name of the state, as clients see it."""
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
"""States without a transaction. Only from these an id expires."""

_PREVIOUS: Mapping[TransactionState, frozenset[TransactionState]] = {
    EMPTY: AT_REST,
    ONGOING: AT_REST | {ONGOING},
    PREPARE_COMMIT: frozenset({ONGOING}),
    PREPARE_ABORT: AT_REST | {ONGOING},
    COMPLETE_COMMIT: frozenset({PREPARE_COMMIT}),
    COMPLETE_ABORT: frozenset({PREPARE_ABORT}),
}


class TransactionMetadata(NamedTuple):
    """State of one transactional id; immutable.

    `previous_producer_id`: before the last transition. `next_producer_id`: replaces an exhausted id at completion.
    `last_producer_epoch` is in no record: after a load, a repeated request that raised the epoch is not recognised.
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
        """True if the prepared transaction will be committed; False if it will be aborted."""
        assert self.state in PREPARED
        return self.state is PREPARE_COMMIT

    def moved(self, state: TransactionState, **changes: Any) -> TransactionMetadata:
        """Return the metadata after a transition to `state`."""
        assert self.state in _PREVIOUS[state], f"{self.state.state_name} -> {state.state_name}"
        after = self._replace(state=state, previous_producer_id=self.producer_id, **changes)
        assert after.producer_id >= 0, "a transition without a producer id"
        assert 0 <= after.producer_epoch <= EPOCH_MAX, f"epoch {after.producer_epoch}"
        assert not (state is EMPTY and after.partitions), "an empty transaction has no partitions"
        return after

    def is_overdue(self, timestamp_ms: int) -> bool:
        """Return True if the ongoing transaction has lasted longer than its producer's timeout."""
        if self.timeout_ms == NO_TIMEOUT_MS:
            return False
        return self.start_timestamp_ms + self.timeout_ms < timestamp_ms


def is_exhausted(producer_epoch: int) -> bool:
    """Return True if a producer with this epoch needs a new producer id, because the next epoch would be too high."""
    return producer_epoch >= EPOCH_EXHAUSTED
