"""The rules that a history is held against, and where Apache Kafka makes each promise.

"Guarantees" is the section of that name in the introduction of Kafka's documentation up to 2.x; "Design" is the design
chapter of today's (4.6 is Message Delivery Semantics, 4.7 Replication, 4.8 Log Compaction).

A broken promise is reported once, under the rule that names the cause best: a record that an acknowledgement names and
nobody can read is LOST, and that a reader had seen it is not reported as well.

Not promised, and so not looked for: that an acknowledgement of acks=0 or 1 outlives its leader; an order or singleness of
records whose producer is not idempotent. A history does not tell of elections, so a loss by an unclean one
(unclean.leader.election.enable=true) is reported as any other, though Kafka does not promise anything after it.
"""

from enum import StrEnum
from typing import NamedTuple

from ottla.server.testing.history.history import Event

EVENT_TEXT_MAX = 300


class Rule(StrEnum):
    """A promise of Kafka; the value says what has gone wrong when it is broken."""

    LOST = "a record acknowledged with acks=all is not there"
    """Guarantees: committed records survive N-1 failures. Design 4.6 and 4.7: as long as one in-sync replica lives."""

    CHANGED = "at the offset of an acknowledged record stands a value that nobody sent"
    """The same; and the checksum of a batch covers its records from producer to consumer (KIP-98, message format)."""

    MOVED = "a record is at another offset than the one that was acknowledged"
    """ProduceResponse's base_offset, which clients hand on as RecordMetadata.offset()."""

    TWO_VALUES = "an offset holds two records"
    """Design 4.1 and 4.8: an offset is a record's permanent identifier in its partition and never changes."""

    DUPLICATE = "a record of an idempotent producer is there twice"
    """KIP-98; enable.idempotence: exactly one copy of each message is written."""

    REORDERED = "records of one idempotent producer are not in the order in which they were sent"
    """Guarantees: appended in the order they are sent; max.in.flight.requests.per.connection: up to 5 with idempotence."""

    INVENTED = "a record is there that nobody had sent"
    """What every log owes. Also reported if it was read before it was sent."""

    REFUSED = "a record is there that its producer was told is refused"
    """The Produce errors that are given before anything is appended (InvalidRecord, RecordTooLarge, ...)."""

    ABORTED_SHOWN = "a read_committed reader was shown a record of a transaction that was to be aborted"
    """isolation.level=read_committed; KIP-98."""

    OPEN_SHOWN = "a read_committed reader was shown a record of a transaction that nobody had asked to commit"
    """isolation.level=read_committed: it reads up to the last stable offset."""

    TORN = "a transaction whose end nobody learned was committed in one place and not in another"
    """KIP-98: atomic writes to several partitions, offsets of groups among them."""

    HANGING = "after all transactions had ended a read_committed reader does not get past a record of one"
    """KIP-890: no transaction is left open for ever."""

    FENCED_WROTE = "a record is there that a producer sent after it was fenced"
    """KIP-98: InitProducerId fences the id's producers before and ends what they had begun."""

    SHOWN_THEN_GONE = "a reader was shown a record that is not there in the end"
    """Design 4.7: only committed records are ever given out to consumers; KIP-101."""

    SKIPPED = "a reader was led past a record that is there"
    """Guarantees: a consumer sees records in the order they are stored. Design 4.8: also in a compacted topic whoever
    reads from the start sees everything that is there. Offsets of control records and of aborted ones may be missing."""

    HOLE = "an offset in the middle of a log holds nothing, though nothing was compacted, deleted or a control record"
    """Design 4.1: a partition's offsets are sequential."""

    BACKWARDS = "a reader was given an offset again or an earlier one, though nobody had set it back"
    """Guarantees: a consumer sees records in the order they are stored; what a fetch returns begins at its fetch offset."""

    END_BACK = "the end of a partition went back as seen by one connection under one leader epoch"
    """KIP-207 and KIP-101: a leader's high watermark never falls."""

    OFFSET_LOST = "a group was given another offset than it had committed"
    """Design 4.6 (consumer offset tracking): a commit is acknowledged when the offsets topic's replicas have it."""

    OFFSET_OF_ABORTED = "a group was given an offset of a transaction that was to be aborted"
    """KIP-98: consumed messages are marked as consumed only if the transaction is committed."""

    OFFSET_OF_OPEN = "a group was given an offset of a transaction that nobody had asked to commit"
    """KIP-98 and KIP-447: pending offsets are told to nobody."""

    UNSETTLED = "a share group has neither accepted nor rejected a record, nor was it delivered as often as it may be"
    """KIP-932: delivery at least once; a record is archived when its delivery count has reached the limit."""

    DONE_AGAIN = "a share group was given a record again that it had accepted or rejected"
    """KIP-932: an acknowledgement is answered when it is stored, and the next leader reads what is stored."""

    TWO_HOLDERS = "two members of a share group held a record at a time"
    """KIP-932: an acquired record is not available to others until it is acknowledged or its lock has ended."""

    DELIVERY_COUNT = "the delivery count of a record is not one more than before"
    """KIP-932: it is counted up with each acquisition, and stored with what becomes of the record."""

    TWO_OWNERS = "a partition had two owners in a group"
    """The classic protocol: in a generation each partition is assigned once. KIP-848: a partition is given to nobody before its
    owner has revoked it or was put out."""

    REPLICAS_DIFFER = "replicas are not byte-equal up to the high watermark"
    """Design 4.7: logs of in-sync replicas hold the same records at the same offsets in the same order; KIP-101."""

    DAMAGED = "a replica's log holds a batch that is not whole or whose checksum is wrong"
    """KIP-98's CRC-32C; LogSegment's recovery cuts off such batches."""

    AWAY = "something was not served for too long although a majority was well"
    """Design 4.7: a partition is available as long as an in-sync replica lives; how soon is ours to say, see `probes.py`."""

    UNREAD = "after the faults were over a fresh reader could not read to the end"
    """Design 4.7: a partition whose leader can be elected is available; and who reads sees all that is committed."""


class Violation(NamedTuple):
    rule: Rule
    topic: str
    partition: int
    words: str
    events: tuple[int, ...]
    """Which events of the history prove it, by their number; see `ottla.server.testing.history.checker.explain`."""


class Report:
    """Violations as they are found; of each rule and partition the first few, and how many there were."""

    EACH_MAX = 10

    def __init__(self) -> None:
        self.violations: list[Violation] = []
        self.counts: dict[tuple[Rule, str, int], int] = {}

    def add(self, rule: Rule, where: tuple[str, int], words: str, *events: int) -> None:
        self.counts[rule, *where] = count = self.counts.get((rule, *where), 0) + 1
        if count <= self.EACH_MAX:
            self.violations.append(Violation(rule, *where, words, events))

    @property
    def rules(self) -> set[Rule]:
        return {violation.rule for violation in self.violations}


class Proof(NamedTuple):
    """A broken promise with the events that prove it; as a text it is a paragraph."""

    violation: Violation
    events: list[Event]

    def __str__(self) -> str:
        found = self.violation
        lines = [
            f"{found.rule.name} in {found.topic}-{found.partition}: {found.rule}: {found.words}".rstrip(": ") + "."
        ]
        return "\n    ".join([*lines, *map(_line, self.events)])


def _line(event: Event) -> str:
    """Return what an event says, with the names of its fields."""
    fields = ", ".join(f"{name}={value!r}" for name, value in zip(event._fields[1:], event[1:], strict=True))
    text = f"{event.at:.3f} {type(event).__name__}: {fields}"
    return text if len(text) <= EVENT_TEXT_MAX else f"{text[: EVENT_TEXT_MAX - 3]}..."
