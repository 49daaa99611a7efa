"""Verification of transactions by their coordinator, before anything is written in them (KIP-890).

Theory
    A transaction may only be written in a partition that its coordinator knows to take part. Otherwise no marker would ever
    end it there, and it would hold back all readers. So the first batch of a transaction needs the coordinator's word, and
    that takes time. Meanwhile a marker may come: the word is about a transaction that is over then. So each question has a
    *guard*, an object that is unlike any other. It is made with the question, shown with the batch, and gone as soon as a
    batch or a marker of the producer is written.

    | the producer's transaction here | a transactional batch with its guard | without one, or with another         |
    |---------------------------------|--------------------------------------|--------------------------------------|
    | is open, in the batch's epoch   | appended                             | appended                             |
    | is not, and it was asked        | appended; the guard is gone          | INVALID_TXN_STATE                    |
    | is not, and it was not asked    | INVALID_TXN_STATE                    | INVALID_TXN_STATE                    |

    An epoch below the one that is known is INVALID_PRODUCER_EPOCH in each case. Where verification is switched off,
    `NOT_REQUIRED` takes the place of a guard.

    One producer may have several batches on their way before the first is written, and they share the guard. If the first is
    refused for the moment, a later one must not be written in its place. So the lowest sequence number is remembered with
    the guard, and a batch above it is OUT_OF_ORDER_SEQUENCE_NUMBER.

    From transaction version 2 on every transaction has an epoch of its own, which begins at sequence 0, also for a producer
    that the partition does not know. And a marker of the epoch that was asked about ends the transaction *before* that
    one, so the guard stays. Which protocol that is the last question says: one that was refused before may have been in another.

What is never written leaves its guard behind. It goes when an idle producer would, or when there are too many.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ottla.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla.wire.records import BatchHeader

VERIFICATIONS_MAX = 10_000
"""Limit of open verifications. Without it a client could fill the memory by naming new producers in each request. The oldest are
removed first."""


class VerificationGuard:
    """Token for a pending verification by the transaction coordinator; equal only to itself."""

    __slots__ = ()


NOT_REQUIRED = VerificationGuard()
"""Shown where nothing has to be verified."""


class Verification:
    """Pending verification of a producer's transaction; the transaction's first batches wait for it."""

    __slots__ = ("epoch", "guard", "lowest_sequence", "supports_epoch_bump", "timestamp")

    def __init__(self, sequence: int, epoch: int, *, supports_epoch_bump: bool, timestamp: int) -> None:
        self.guard = VerificationGuard()
        self.lowest_sequence = sequence
        self.epoch = epoch
        self.supports_epoch_bump = supports_epoch_bump
        self.timestamp = timestamp

    def note(self, sequence: int, epoch: int, *, supports_epoch_bump: bool) -> None:
        """Record that another batch waits for this verification."""
        # The present producer may speak an older protocol than one that was asked about in vain, or than before a level was lowered.
        # In Kafka the first one counts, so that a marker of the present transaction leaves the guard, and a batch could follow it.
        if epoch > self.epoch:
            self.supports_epoch_bump = supports_epoch_bump
        elif epoch == self.epoch:
            self.supports_epoch_bump &= supports_epoch_bump
        # A higher epoch numbers its batches again.
        if epoch > self.epoch or (epoch == self.epoch and sequence < self.lowest_sequence):
            self.epoch = epoch
            self.lowest_sequence = sequence

    def check_sequence(self, batch: BatchHeader, *, is_known: bool) -> None:
        """Raise KafkaError if `batch` cannot be the producer's first batch here.

        `is_known` is True if the log has other batches of the producer.
        """
        sequence = batch.base_sequence
        if self.supports_epoch_bump and sequence and not is_known:
            raise KafkaError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"Producer {batch.producer_id} is not known, so its sequence begins at 0 and not at {sequence}",
            )
        if sequence > self.lowest_sequence:
            raise KafkaError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"Sequence {sequence} of producer {batch.producer_id} is above {self.lowest_sequence}, which has been seen",
            )

    def outlives(self, batch: BatchHeader) -> bool:
        """Tell whether the verification stays valid after `batch` was written."""
        return self.supports_epoch_bump and batch.is_control and batch.producer_epoch == self.epoch


class Verifications:
    """Pending verifications of one partition, by producer id."""

    __slots__ = ("by_producer",)

    def __init__(self) -> None:
        self.by_producer: dict[int, Verification] = {}

    def start(
        self, producer_id: int, sequence: int, epoch: int, *, supports_epoch_bump: bool, now_ms: int
    ) -> VerificationGuard:
        """Begin or join the verification of a producer's transaction; return its guard.

        Append the batch with the guard after the coordinator has confirmed the transaction.
        """
        known = self.by_producer.get(producer_id)
        if known is None:
            known = Verification(sequence, epoch, supports_epoch_bump=supports_epoch_bump, timestamp=now_ms)
            self.by_producer[producer_id] = known
            if len(self.by_producer) > VERIFICATIONS_MAX:
                del self.by_producer[next(iter(self.by_producer))]
        else:
            known.note(sequence, epoch, supports_epoch_bump=supports_epoch_bump)
        return known.guard

    def accept(self, producer_id: int, guard: VerificationGuard | None) -> bool:
        """Tell whether `guard` is the guard of the producer's pending verification."""
        known = self.by_producer.get(producer_id)
        return known is not None and known.guard is guard

    def end(self, written: Sequence[BatchHeader]) -> None:
        """End the verifications of producers whose batches or markers were written."""
        for batch in written:
            known = self.by_producer.get(batch.producer_id)
            if known is not None and not known.outlives(batch):
                del self.by_producer[batch.producer_id]

    def remove_expired(self, now_ms: int, expiration_ms: int) -> None:
        """Drop verifications older than `expiration_ms`."""
        old = [key for key, each in self.by_producer.items() if now_ms - each.timestamp >= expiration_ms]
        for producer_id in old:
            del self.by_producer[producer_id]
