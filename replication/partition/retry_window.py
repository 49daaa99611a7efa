"""Refused batches of idempotent producers that will be sent again, so that no later batch takes their place. Sans-IO.

Theory
    A producer has several batches of a partition on their way at once. If one is refused with an error after which the
    producer tries again, and the reason is gone a moment later, then the next one would be judged by its sequence number
    alone: it leaves a gap, which is OUT_OF_ORDER_SEQUENCE_NUMBER. Some clients (librdkafka) raise their epoch then, and
    send everything that has no answer yet once more under new sequence numbers: records that were written already, in any
    partition, are doubled. Worse, of a producer that the log does not know yet any sequence number is taken, and the
    refused batch can never be written.

    So what was refused is remembered, by producer and partition, as a *run* of rising sequence numbers in one producer epoch:

    | a batch of the producer comes                          | what it gets                                                |
    |--------------------------------------------------------|-------------------------------------------------------------|
    | it is in the run: it was refused, and has come again   | it is judged as ever; it and what is before it leave the run |
    | a batch of the run is missing between the log and it   | the error of that batch; it joins the end of the run        |
    | anything else                                          | it is judged as ever                                        |

    A producer sends again in order. If a batch of the run comes again and an earlier one did not, then the producer has given
    the earlier one up, and the gap is a real one. What the log has in the meantime, because the producer wrote it by way of
    another leader, leaves the run, too. A higher producer epoch ends it.

    A batch that was appended and then not acknowledged is in the log as a rule. It is noted all the same: the log may
    lose it when another broker leads for a while, and then the producer sends it again.

A leader that is new
    A producer whose leader moves may have several batches on their way to the old leader, which refuses them, and send a later
    one to the new leader first: librdkafka serves each broker in a thread of its own. The new leader refused nothing, and
    sees a gap all the same. So a gap is *unproven* as long as the producer has written nothing in this leader epoch (a restart
    of the broker begins another one), for `PATIENCE_S` after the first batch behind it. Then the answer is
    NOT_LEADER_OR_FOLLOWER, which is what the missing batch got: clients try again after it as often as they need to, and do
    not count it. A gap that is still there after that time is OUT_OF_ORDER_SEQUENCE_NUMBER. On a leader to which the producer
    has written there is no such time, nor on a broker that is alone.

    A producer that the log does not know may begin anywhere, because its state may have expired. On a leader that is new
    its first batches may as well hang at the leader before, which was stopped. If a later batch were taken, they could never
    be written. So for `UNKNOWN_PATIENCE_MS` after its election (`Partition.doubts_unknown_until_ms`) such a leader takes an
    unknown producer from sequence 0 on only; anything else gets NOT_LEADER_OR_FOLLOWER.

Limits
    A run holds `RUN_MAX` batches, more than an idempotent producer may have on their way. There are at most `RUNS_MAX`
    runs; the producers that were noted first are forgotten first, and get what Kafka answers. As many unproven gaps are known.
    Topics that are not known count, too, because this broker may hear of them in a moment; names that are too long for a
    topic do not.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, NamedTuple

from ottla.replication.cluster.metadata_cache import TOPIC_NAME_LENGTH_MAX
from ottla.replication.log.producers import SEQUENCE_MAX
from ottla.wire.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.replication.log.producers import ProducerEntry
    from ottla.wire.records import BatchHeader

# Idempotent producers have at most five batches on their way.
RUN_MAX = 8
RUNS_MAX = 10_000
PATIENCE_S = 1.0
"""Longer than a client that is short of processors takes to send again, and short for who waits for OUT_OF_ORDER."""

# Numbers less than half of the circle ahead count as later, all others as earlier.
_HALF = (SEQUENCE_MAX + 1) // 2

Place = tuple[str, bytes, int]
"""A partition as requests name it: topic name, topic id, index."""


class _Gap(NamedTuple):
    """Missing batches of a producer that has not written in this leader epoch yet.

    They may still arrive until `unproven_until`, in seconds.
    """

    producer_epoch: int
    leader_epoch: int
    unproven_until: float


class _Run:
    """Refused batches of one producer in one partition, ordered by sequence number."""

    __slots__ = ("codes", "epoch", "sequences")

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.sequences: list[int] = []
        self.codes: list[ErrorCode] = []

    def position(self, sequence: int) -> int:
        """Return the number of batches in this run before `sequence`; sequence numbers wrap around."""
        # By distance and not by value, because the numbers of a run may wrap to 0 in its middle.
        return bisect_left(self.sequences, 0, key=lambda each: _distance(sequence, each))

    def insert(self, sequence: int, code: ErrorCode) -> None:
        """Record a refused batch with its error; replaces the error of a recorded batch."""
        position = self.position(sequence)
        if position < len(self.sequences) and self.sequences[position] == sequence:
            self.codes[position] = code
        # A producer that keeps to the protocol never has so many batches on their way.
        elif len(self.sequences) < RUN_MAX:
            self.sequences.insert(position, sequence)
            self.codes.insert(position, code)

    def drop_before(self, sequence: int) -> None:
        """Forget batches before `sequence`."""
        position = self.position(sequence)
        del self.sequences[:position], self.codes[:position]

    def drop_from(self, sequence: int) -> None:
        """Forget the batch at `sequence` and all later batches."""
        position = self.position(sequence)
        del self.sequences[position:], self.codes[position:]


class RetryWindow:
    """Refused batches of all producers and partitions, which the producers must send again."""

    __slots__ = ("_gaps", "by_producer", "count")

    def __init__(self) -> None:
        self.by_producer: dict[int, dict[Place, _Run]] = {}
        """Empty nearly always, which is all that ordinary requests look at."""

        self.count = 0
        self._gaps: dict[tuple[int, Place], _Gap] = {}

    def note(self, place: Place, batch: BatchHeader, code: ErrorCode) -> None:
        """Record a batch that was refused before any part of it was written."""
        run = self._run(place, batch)
        # The producer sends in order. If it sends this batch, it has those behind it to send as well, and each will be
        # noted when it comes.
        if run is not None:
            run.drop_from(batch.base_sequence)
            run.insert(batch.base_sequence, code)

    def note_late(self, place: Place, batch: BatchHeader, code: ErrorCode) -> None:
        """Record an appended batch whose acknowledgement has failed; batches after it may have been refused already."""
        run = self._run(place, batch)
        # Nothing is dropped here: the batches behind this one may have been refused while it waited for its commit.
        if run is not None:
            run.insert(batch.base_sequence, code)

    def missing(self, place: Place, batch: BatchHeader, entry: ProducerEntry | None) -> ErrorCode | None:
        """Return the error of an earlier refused batch that must be sent again before `batch`; None if there is none.

        `entry` is the producer's state in the log.
        """
        # Three cases in which the run says nothing: none, a batch of an older epoch, which the log refuses, and a newer
        # one.
        run = self.by_producer.get(batch.producer_id, {}).get(place)
        if run is None or batch.producer_epoch < run.epoch:
            return None
        if batch.producer_epoch > run.epoch or (entry is not None and entry.epoch > run.epoch):
            self._forget(place, batch.producer_id)
            return None
        # What the log has meanwhile was written by way of another leader, and need not come again.
        if entry is not None and entry.epoch == run.epoch and entry.batches:
            run.drop_before((entry.last_sequence + 1) & SEQUENCE_MAX)
        sequence = batch.base_sequence
        # It has come again. Those before it will not come, or the producer would have sent them first.
        if sequence in run.sequences:
            run.drop_before((sequence + 1) & SEQUENCE_MAX)
        # Something before it is still missing. The earliest error is the one that the producer has to hear again.
        elif run.position(sequence):
            return run.codes[0]
        # An empty run would keep every request of other producers from the short way.
        if not run.sequences:
            self._forget(place, batch.producer_id)
        return None

    def may_come_yet(
        self, place: Place, batch: BatchHeader, entry: ProducerEntry | None, leader_epoch: int, start: int, now_s: float
    ) -> bool:
        """Tell whether missing batches before `batch` may still come, because the previous leader refused them.

        `start` is the offset at which this leader's epoch begins in the log.
        """
        # An unknown producer may begin anywhere, so it has no gap. One that has written in this epoch knows this
        # leader, and the leader would remember what it refused.
        if entry is None or not entry.batches or entry.batches[-1].last_offset >= start:
            return False
        if batch.producer_epoch == entry.epoch and _distance(entry.last_sequence, batch.base_sequence) <= 1:
            return False  # it was written before, or too long ago to be known
        key = batch.producer_id, place
        gap = self._gaps.get(key)
        # The time runs from the first batch behind the gap. Later ones do not prolong it, or a real gap would never be
        # told.
        if gap is None or (gap.producer_epoch, gap.leader_epoch) != (batch.producer_epoch, leader_epoch):
            # Taken out first, so that the new one stands at the end: the oldest are forgotten first.
            self._gaps.pop(key, None)
            gap = self._gaps[key] = _Gap(batch.producer_epoch, leader_epoch, now_s + PATIENCE_S)
            # Producers choose their ids, so anybody could fill the memory.
            while len(self._gaps) > RUNS_MAX:
                del self._gaps[next(iter(self._gaps))]
        return now_s < gap.unproven_until

    def _run(self, place: Place, batch: BatchHeader) -> _Run | None:
        """Return the `_Run` of the batch's producer epoch, created if missing.

        Returns None if a newer epoch has one, or if the topic name is too long.
        """
        # A name is kept here although no topic may have it, so its length is bounded.
        if len(place[0]) > TOPIC_NAME_LENGTH_MAX:
            return None
        places = self.by_producer.setdefault(batch.producer_id, {})
        run = places.get(place)
        if run is None:
            self.count += 1
            run = places[place] = _Run(batch.producer_epoch)
            self._make_room()
        # A higher epoch begins its numbers at 0 again; what was refused of the old one never comes.
        elif run.epoch < batch.producer_epoch:
            run = places[place] = _Run(batch.producer_epoch)
        return run if run.epoch == batch.producer_epoch else None

    def _make_room(self) -> None:
        while self.count > RUNS_MAX:
            # A dict keeps the order in which producers came, so this needs no clock.
            oldest = next(iter(self.by_producer))
            self.count -= len(self.by_producer.pop(oldest))

    def _forget(self, place: Place, producer_id: int) -> None:
        places = self.by_producer[producer_id]
        del places[place]
        self.count -= 1
        if not places:
            del self.by_producer[producer_id]


def _distance(start: int, end: int) -> int:
    """Return the distance from `start` to `end` in circular sequence numbers; negative if `end` is earlier."""
    return ((end - start + _HALF) & SEQUENCE_MAX) - _HALF
