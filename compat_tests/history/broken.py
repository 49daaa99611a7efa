"""A small broker in memory, with one switch for each kind of wrong that the checker has to notice.

It keeps Kafka's promises as simply as they can be kept: a partition is a list of entries, of which those below the high
watermark are replicated; `replicate` moves it and so makes appended records acknowledgeable; `restart` elects a new leader
and drops what was not replicated. An entry is a batch of one record or a control record. With a `Flaw` it breaks exactly one
promise, at every occasion that offers itself or, where once is enough to be noticed, at the first.

Topics are "plain" (two partitions; the head of the second may be deleted), "transactions" (two partitions) and "compacted".
Offsets of a group that processes in transactions are kept beside those that a group commits by itself.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from enum import Enum

from ottla.server.testing.history.replica_logs import Replicas
from ottla.server.testing.history.rules import Rule
from ottla.wire.control_batches import ControlType, EndTxnMarker, encode_end_txn_marker
from ottla.wire.record_encoding import encode_batch
from ottla.wire.records import Record


class Flaw(Enum):
    """What goes wrong; the rule under which it has to be reported, and which others may be: none but in few cases."""

    LOSES_A_RECORD_AT_A_RESTART = "an acknowledged record is gone", Rule.LOST
    LOSES_A_RECORD_IN_THE_MIDDLE = "an acknowledged record is gone, later ones are not", Rule.LOST, Rule.HOLE
    CHANGES_A_RECORD_AT_A_RESTART = "an acknowledged record has other bytes", Rule.CHANGED
    ACKNOWLEDGES_THE_NEXT_OFFSET = "the acknowledgement names a later offset", Rule.MOVED
    GIVES_AN_OFFSET_TWICE = "a record gets the offset of the one before it", Rule.TWO_VALUES
    APPENDS_A_RETRY = "the same sequence number is appended again", Rule.DUPLICATE
    REORDERS = "a producer's record is put before its last one", Rule.REORDERED
    INVENTS = "a record appears that nobody sent", Rule.INVENTED
    APPENDS_WHAT_IT_REFUSES = "a record is refused and appended", Rule.REFUSED
    SHOWS_ABORTED = "aborted records are not left out", Rule.ABORTED_SHOWN, Rule.OPEN_SHOWN, Rule.TORN
    SHOWS_OPEN = "the last stable offset is not heeded", Rule.OPEN_SHOWN
    ENDS_OTHERWISE_IN_ONE_PARTITION = (
        "a transaction is committed in one partition and aborted in another",
        Rule.TORN,
        *(Rule.ABORTED_SHOWN, Rule.OPEN_SHOWN, Rule.SKIPPED, Rule.UNREAD),
    )
    LEAVES_A_TRANSACTION_OPEN = "a partition lacks the marker of a transaction", Rule.HANGING, Rule.UNREAD
    LETS_A_ZOMBIE_WRITE = "a record of a fenced producer is appended", Rule.FENCED_WROTE
    DROPS_OFFSETS_OF_COMMITTED = "a transaction is committed without its offsets", Rule.OFFSET_LOST, Rule.TORN
    KEEPS_OFFSETS_OF_ABORTED = (
        "the offsets of an aborted transaction are kept",
        *(Rule.OFFSET_OF_ABORTED, Rule.OFFSET_OF_OPEN, Rule.TORN),
    )
    SHOWS_PENDING_OFFSETS = "offsets are in force before the transaction's end", Rule.OFFSET_OF_OPEN
    SHOWS_UNREPLICATED = "the high watermark is not heeded", Rule.SHOWN_THEN_GONE
    SKIPS = "a fetch leaves out its first record", Rule.SKIPPED, Rule.TORN
    HIDES_COMMITTED = "records of committed transactions are left out as if aborted", Rule.SKIPPED, Rule.TORN
    LEAVES_A_HOLE = "an offset is left out", Rule.HOLE
    GOES_BACK = "a fetch answers from before its offset", Rule.BACKWARDS
    END_GOES_BACK = "the end is told lower than before", Rule.END_BACK
    FORGETS_AN_OFFSET = "a committed offset is the one before again", Rule.OFFSET_LOST
    REPLICAS_DIFFER = "the follower holds another record", Rule.REPLICAS_DIFFER
    FOLLOWER_IS_SHORT = "the follower lacks the last record", Rule.REPLICAS_DIFFER
    SPOILS_A_BATCH = "a byte on disk is turned", Rule.DAMAGED
    CANNOT_BE_READ = "reading ends with an error", Rule.UNREAD
    ENDS_EARLY = "read_committed readers are stopped before the end", Rule.UNREAD

    @property
    def rule(self) -> Rule:
        return self.value[1]

    @property
    def rules(self) -> set[Rule]:
        return set(self.value[1:])


@dataclass
class Entry:
    offset: int
    value: str
    producer: str = ""
    sequence: int = -1
    transaction: int | None = None
    key: str | None = None
    is_commit: bool | None = None
    """Of a control record, the end of its producer's transaction."""

    acknowledged: bool = False


@dataclass
class Log:
    entries: list[Entry] = field(default_factory=list)
    start: int = 0
    high_watermark: int = 0
    known: dict[tuple[str, int], Entry] = field(default_factory=dict)
    """By producer and sequence number."""

    @property
    def end(self) -> int:
        return self.entries[-1].offset + 1 if self.entries else self.start

    def is_replicated(self, entry: Entry) -> bool:
        return entry.offset < self.high_watermark


class ReadError(Exception):
    pass


class Broker:
    def __init__(self, flaw: Flaw | None = None) -> None:
        self._flaw = flaw
        self.has_sinned = False
        """The flaw has had an occasion. Whether it did harm is another question: what came of it may have been undone."""

        self.leader_epoch = 0
        self.logs: dict[tuple[str, int], Log] = {}
        self._offsets: dict[tuple[str, int], list[int]] = {}
        self._told: dict[tuple[str, int], int] = {}
        self._processed: list[int] = [-1]
        self._pending: list[int] = []

    def log(self, where: tuple[str, int]) -> Log:
        return self.logs.setdefault(where, Log())

    def _sins(self, flaw: Flaw, occasion: bool = True, once: bool = False) -> bool:
        if self._flaw is not flaw or not occasion or (once and self.has_sinned):
            return False
        self.has_sinned = True
        return True

    # --- writing ------------------------------------------------------------------------------------------------------

    def append(self, where: tuple[str, int], sent: Entry) -> Entry:
        """The entry of this producer's sequence number, appended unless it is there already."""
        log, producer = self.log(where), sent.producer
        known = log.known.get((producer, sent.sequence))
        if known is not None and not self._sins(Flaw.APPENDS_A_RETRY):
            return known
        entry = replace(sent, offset=log.end, acknowledged=False)
        last = log.entries[-1] if log.entries else None
        if self._sins(Flaw.LEAVES_A_HOLE, last is not None and where[0] == "plain", once=True):
            entry.offset += 1
        if self._sins(Flaw.INVENTS, once=True):
            log.entries.append(Entry(log.end, "out of nowhere"))
            entry.offset += 1
        if self._sins(Flaw.GIVES_AN_OFFSET_TWICE, last is not None and last.is_commit is None, once=True):
            entry.offset -= 1
        log.entries.append(entry)
        log.known[producer, sent.sequence] = entry
        unsettled = (
            last is not None and not log.is_replicated(last) and (last.producer, last.is_commit) == (producer, None)
        )
        if self._sins(Flaw.REORDERS, unsettled):
            last.offset, entry.offset = entry.offset, last.offset
            log.entries[-2:] = [entry, last]
        return entry

    def refuse(self, where: tuple[str, int], producer: str, value: str) -> None:
        if self._sins(Flaw.APPENDS_WHAT_IT_REFUSES):
            log = self.log(where)
            log.entries.append(Entry(log.end, value, producer))
            log.high_watermark = log.end

    def end_transaction(self, producer: str, transaction: int, commit: bool) -> None:
        """In both partitions and for the offsets; replicated at once, with all that stands before it."""
        self._end_in(("transactions", 0), producer, transaction, commit)
        if not self._sins(Flaw.LEAVES_A_TRANSACTION_OPEN):
            otherwise = self._sins(Flaw.ENDS_OTHERWISE_IN_ONE_PARTITION)
            self._end_in(("transactions", 1), producer, transaction, commit != otherwise)
        drops, keeps = Flaw.DROPS_OFFSETS_OF_COMMITTED, Flaw.KEEPS_OFFSETS_OF_ABORTED
        if not self._sins(drops, bool(self._pending)) if commit else self._sins(keeps, bool(self._pending)):
            self._processed += self._pending
        self._pending.clear()

    def _end_in(self, where: tuple[str, int], producer: str, transaction: int, commit: bool) -> None:
        log = self.log(where)
        log.entries.append(Entry(log.end, "", producer, transaction=transaction, is_commit=commit))
        log.high_watermark = log.end

    def append_of_fenced(self, where: tuple[str, int], sent: Entry) -> None:
        """What a producer sends whose transactional id somebody else has."""
        if self._sins(Flaw.LETS_A_ZOMBIE_WRITE):
            self.append(where, sent)

    def replicate(self, where: tuple[str, int]) -> list[Entry]:
        """What is newly replicated, and so may be acknowledged."""
        log = self.log(where)
        new = [entry for entry in log.entries if not log.is_replicated(entry)]
        log.high_watermark = log.end
        return new

    def acknowledge(self, where: tuple[str, int], entry: Entry) -> int:
        """The offset that the producer is told."""
        entry.acknowledged = True
        return entry.offset + (1 if self._sins(Flaw.ACKNOWLEDGES_THE_NEXT_OFFSET, where == ("plain", 0)) else 0)

    def delete_before(self, where: tuple[str, int], offset: int) -> None:
        log = self.log(where)
        log.entries = [entry for entry in log.entries if entry.offset >= offset]
        log.start = offset

    def compact(self, where: tuple[str, int]) -> None:
        log = self.log(where)
        last = {entry.key: entry.offset for entry in log.entries if log.is_replicated(entry) and entry.key is not None}
        log.entries = [entry for entry in log.entries if entry.offset >= last.get(entry.key, -1)]

    def restart(self) -> None:
        self.leader_epoch += 1
        for log in self.logs.values():
            gone = [entry for entry in log.entries if not log.is_replicated(entry)]
            log.entries = [entry for entry in log.entries if log.is_replicated(entry)]
            for entry in gone:
                log.known.pop((entry.producer, entry.sequence), None)
            self._spoil(log)
        for committed in self._offsets.values():
            if self._sins(Flaw.FORGETS_AN_OFFSET, len(committed) > 1 and committed[-1] != committed[-2], once=True):
                committed.pop()

    def _spoil(self, log: Log) -> None:
        """What flaws do to the disk while the broker is down."""
        safe = [place for place, entry in enumerate(log.entries) if entry.acknowledged]
        is_last = bool(safe) and safe[-1] == len(log.entries) - 1
        if self._sins(Flaw.LOSES_A_RECORD_AT_A_RESTART, is_last, once=True):
            log.entries.pop()
            log.high_watermark = log.end
        if self._sins(Flaw.LOSES_A_RECORD_IN_THE_MIDDLE, bool(safe) and not is_last, once=True):
            log.entries.pop(safe[0])
        if self._sins(Flaw.CHANGES_A_RECORD_AT_A_RESTART, bool(safe), once=True):
            log.entries[safe[-1]] = replace(log.entries[safe[-1]], value="other bytes")

    # --- reading ------------------------------------------------------------------------------------------------------

    def fetch(
        self, where: tuple[str, int], position: int, count: int, committed_only: bool, final: bool
    ) -> tuple[list[tuple[int, str]], int]:
        """Up to `count` entries from position on as (offset, value), control records left out, and where to go on."""
        log = self.log(where)
        if self._sins(Flaw.CANNOT_BE_READ, final and len(log.entries) > 1):
            raise ReadError("the partition has no leader")
        limit = self._limit(log, committed_only)
        if self._sins(Flaw.ENDS_EARLY, final and committed_only and self._ends_in_a_record(log)):
            limit = log.end - 1
        if self._sins(Flaw.GOES_BACK, any(e.offset == position - 1 and e.is_commit is None for e in log.entries)):
            position, count = position - 1, max(count, 2)
        found = [entry for entry in log.entries if position <= entry.offset < limit]
        there = [entry for entry in found if entry.offset < position + count]
        go_on = there[-1].offset + 1 if there else (found[0].offset if found else position)
        seen = [entry for entry in there if entry.is_commit is None]
        if committed_only:
            seen = list(self._committed(log, seen))
            if self._sins(Flaw.SKIPS, bool(seen)):
                seen = seen[1:]
        return [(entry.offset, entry.value) for entry in seen], go_on

    def _limit(self, log: Log, committed_only: bool) -> int:
        """The high watermark, or the last stable offset."""
        if not committed_only:
            return log.end if self._sins(Flaw.SHOWS_UNREPLICATED) else log.high_watermark
        ended = {(entry.producer, entry.transaction) for entry in log.entries if entry.is_commit is not None}
        of_open = (e for e in log.entries if e.transaction is not None and (e.producer, e.transaction) not in ended)
        first = next((entry.offset for entry in of_open), log.high_watermark)
        if self._flaw is Flaw.SHOWS_OPEN:
            return log.high_watermark
        return min(first, log.high_watermark)

    @staticmethod
    def _ends_in_a_record(log: Log) -> bool:
        return bool(log.entries) and log.entries[-1].transaction is None

    def _committed(self, log: Log, entries: list[Entry]) -> Iterator[Entry]:
        outcomes = {(e.producer, e.transaction): e.is_commit for e in log.entries if e.is_commit is not None}
        for entry in entries:
            outcome = True if entry.transaction is None else outcomes.get((entry.producer, entry.transaction))
            if outcome is None:
                is_seen = self._sins(Flaw.SHOWS_OPEN)
            elif outcome:
                is_seen = not self._sins(Flaw.HIDES_COMMITTED, entry.transaction is not None)
            else:
                is_seen = self._sins(Flaw.SHOWS_ABORTED)
            if is_seen:
                yield entry

    def end(self, where: tuple[str, int]) -> int:
        end, before = self.log(where).high_watermark, self._told.get(where, 0)
        self._told[where] = end
        if self._sins(Flaw.END_GOES_BACK, end == before > 0):
            end -= 1
        return end

    # --- offsets ------------------------------------------------------------------------------------------------------

    def commit_offset(self, where: tuple[str, int], offset: int) -> None:
        self._offsets.setdefault(where, []).append(offset)

    def fetch_offset(self, where: tuple[str, int]) -> int:
        committed = self._offsets.get(where)
        return committed[-1] if committed else -1

    def add_offset(self, offset: int) -> None:
        """To the transaction that is open."""
        self._pending.append(offset)

    def fetch_processed(self) -> int:
        """A stable offset of the group that processes in transactions."""
        if self._sins(Flaw.SHOWS_PENDING_OFFSETS, bool(self._pending)):
            return self._pending[-1]
        return self._processed[-1]

    # --- what lies on the disks ---------------------------------------------------------------------------------------

    def replicas(self, where: tuple[str, int]) -> Replicas:
        log = self.log(where)
        leader = [_encoded(entry) for entry in log.entries if log.is_replicated(entry)]
        follower = list(leader)
        if self._sins(Flaw.FOLLOWER_IS_SHORT, where[0] != "compacted" and len(leader) > 1, once=True):
            follower.pop()
        if self._sins(Flaw.REPLICAS_DIFFER, where[0] != "compacted" and bool(leader), once=True):
            follower[-1] = _encoded(replace(log.entries[len(leader) - 1], value="not the leader's", is_commit=None))
        if self._sins(Flaw.SPOILS_A_BATCH, bool(leader), once=True):
            leader[-1] = leader[-1][:-1] + bytes([leader[-1][-1] ^ 1])
        # Behind the high watermark a log may hold anything.
        unreplicated = b"".join(_encoded(entry) for entry in log.entries if not log.is_replicated(entry))
        logs = {"broker 1": b"".join(leader) + unreplicated, "broker 2": b"".join(follower)}
        return Replicas(*where, log.high_watermark, logs, compacted=where[0] == "compacted")


def _encoded(entry: Entry) -> bytes:
    if entry.is_commit is not None:
        control_type = ControlType.COMMIT if entry.is_commit else ControlType.ABORT
        marker = EndTxnMarker(control_type, 0)
        return encode_end_txn_marker(marker, timestamp_ms=0, producer_id=1, producer_epoch=0, base_offset=entry.offset)
    return encode_batch([Record(entry.offset, 0, None, entry.value.encode())], base_offset=entry.offset)
