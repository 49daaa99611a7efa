"""Observations of a test's clients, told so that the checker can read them: each record by a name of its own.

Values may be sent more than once, and a partition be known only when the record is acknowledged. So everything is looked at
before the first event is told:

1. A record that was read is the one that was acknowledged at its offset, if the values agree; else one of the same value of
   which nobody knows the offset, in the order of the sends; else one that was sent and has another offset, which makes it a
   duplicate; else it is a stranger's.
2. Records of the same value in a partition get numbers.
3. Without logs to look at, the union of what consumers were given stands for the log. An acknowledgement counts only where a
   consumer went past its offset.
"""

import bisect
import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, NamedTuple

from ottla.server.testing.history.history import (
    UNKNOWN_OFFSET,
    Acknowledged,
    Ended,
    EndSeen,
    Event,
    Failed,
    ReachedEnd,
    Read,
    ReadBegan,
    RecordsDeleted,
    Sent,
    TopicBegan,
)

Place = tuple[str, int]
LAST_READER = "the log"
CANDIDATES_MAX = 1000
"""Records of one value among which the next one is looked for, so that ten thousand alike take no quadratic time."""


class Note(NamedTuple):
    """An observation: when, the kind of event that it becomes, and the fields, with `Sending` for a record."""

    at: float
    kind: type[Event]
    fields: tuple[Any, ...]

    @property
    def topic(self) -> str | None:
        """Topic that it is about; None if it is about none."""
        if self.fields and isinstance(self.fields[0], Sending):
            return self.fields[0].topic
        names = self.kind._fields[1:]
        return self.fields[names.index("topic")] if "topic" in names else None


@dataclass(eq=False, slots=True)
class Sending:
    """A record that was handed to a producer. `offset`: None until it is acknowledged."""

    producer: str
    topic: str
    partition: int | None
    told: str
    key: str | None = None
    transaction: int | None = None
    offset: int | None = None
    name: str = ""

    @property
    def place(self) -> Place | None:
        return None if self.partition is None else (self.topic, self.partition)


class FinalRead(NamedTuple):
    """All records of a partition as they are in the end, as (offset, text of `told`); `end`: where the reader got to.

    `is_open`: an open transaction keeps a read_committed reader from the end of the log.
    """

    topic: str
    partition: int
    start: int
    end: int
    records: Sequence[tuple[int, str]]
    committed_only: bool = False
    is_open: bool = False


@dataclass
class Seen:
    """Observations of consumers in one partition: values by offset, and the ranges of offsets that they went through."""

    records: dict[int, str] = field(default_factory=dict)
    ranges: list[tuple[int, int]] = field(default_factory=list)

    def merge(self) -> None:
        """Order the ranges, and make one of those that meet; `covers` may be asked then."""
        merged: list[tuple[int, int]] = []
        for first, after in sorted(self.ranges):
            if merged and first <= merged[-1][1]:
                merged[-1] = (merged[-1][0], max(merged[-1][1], after))
            else:
                merged.append((first, after))
        self.ranges = merged

    def covers(self, offset: int) -> bool:
        place = bisect.bisect_right(self.ranges, (offset, math.inf)) - 1
        return place >= 0 and offset < self.ranges[place][1]


class Narration:
    """Events of all notes. `read_places`: partitions whose logs were given, none if there are no logs."""

    def __init__(self, notes: Sequence[Note], compacted: Collection[str], final: Sequence[FinalRead]) -> None:
        self._notes = notes
        self._final = list(final)
        self._sendings: list[Sending] = [note.fields[0] for note in notes if note.kind is Sent]
        self._committed = {note.fields[:2] for note in notes if note.kind is Ended and note.fields[2]}
        self._seen = self._all_seen()
        self._names: dict[tuple[Place, int, str], str] = {}
        self._name_all()
        self._has_logs = bool(final)
        self.read_places = {(each.topic, each.partition) for each in final}
        if not final:
            self._final = list(self._unions())
        self.events = [*self._topics(compacted), *self._told(), *self._final_events()]

    # ------------------------------------------------------------------ what was seen

    def _all_seen(self) -> dict[tuple[Place, bool], Seen]:
        """Return the readers' observations by place and kind of reader (True: read_committed)."""
        seen: dict[tuple[Place, bool], Seen] = defaultdict(Seen)
        readers: dict[tuple[str, Place], tuple[bool, int]] = {}
        for _, kind, fields in self._notes:
            if kind is ReadBegan:
                reader, topic, partition, offset, committed_only = fields
                readers[reader, (topic, partition)] = (committed_only, offset)
            elif kind is Read:
                reader, topic, partition, records, position = fields
                place = (topic, partition)
                committed_only, before = readers[reader, place]
                found = seen[place, committed_only]
                for offset, value in records:
                    found.records.setdefault(offset, value)
                found.ranges.append((min([before, *(offset for offset, _ in records)]), position))
                readers[reader, place] = (committed_only, position)
        for each in self._final:
            found = seen[(each.topic, each.partition), each.committed_only]
            for offset, value in each.records:
                found.records.setdefault(offset, value)
        for found in seen.values():
            found.merge()
        return seen

    def _read_pairs(self) -> dict[Place, list[tuple[int, str]]]:
        """Return every offset and value that any reader was shown, by place, in the order of offsets."""
        pairs: dict[Place, set[tuple[int, str]]] = defaultdict(set)
        for _, kind, fields in self._notes:
            if kind is Read:
                pairs[fields[1], fields[2]].update(fields[3])
        for each in self._final:
            pairs[each.topic, each.partition].update(each.records)
        return {place: sorted(found) for place, found in pairs.items()}

    # ------------------------------------------------------------------ which record is which

    def _identify(self) -> dict[tuple[Place, int, str], Sending]:
        """Return the record that each offset and value stands for, without strangers; give partitions to those without."""
        by_place: dict[Place, list[int]] = defaultdict(list)
        anywhere: dict[tuple[str, str], list[int]] = defaultdict(list)
        for number, each in enumerate(self._sendings):
            if each.place is not None:
                by_place[each.place].append(number)
            else:
                anywhere[each.topic, each.told].append(number)
        found = {}
        for place, pairs in self._read_pairs().items():
            for (offset, value), sending in self._identify_in(place, pairs, by_place[place], anywhere).items():
                sending.partition = place[1]
                found[place, offset, value] = sending
        return found

    def _identify_in(
        self,
        place: Place,
        pairs: Iterable[tuple[int, str]],
        numbers: Iterable[int],
        anywhere: Mapping[tuple[str, str], list[int]],
    ) -> dict[tuple[int, str], Sending]:
        """Choose among records of a value the next one that its producer sent, as long as its order allows."""
        acknowledged: dict[tuple[int, str], int] = {}
        unplaced: dict[str, list[int]] = defaultdict(list)
        any_of: dict[str, int] = {}
        for number in numbers:
            each = self._sendings[number]
            any_of.setdefault(each.told, number)
            if each.offset is None or each.offset == UNKNOWN_OFFSET:
                unplaced[each.told].append(number)
            else:
                acknowledged.setdefault((each.offset, each.told), number)
        found: dict[tuple[int, str], Sending] = {}
        latest: dict[str, int] = {}
        for offset, value in pairs:
            chosen = acknowledged.get((offset, value))
            if chosen is None:
                chosen = self._next_of([unplaced[value], anywhere.get((place[0], value), [])], latest)
            if chosen is None:
                chosen = any_of.get(value)
            if chosen is not None:
                sending = found[offset, value] = self._sendings[chosen]
                latest[sending.producer] = max(latest.get(sending.producer, -1), chosen)
        return found

    def _next_of(self, lists: Sequence[list[int]], latest: Mapping[str, int]) -> int | None:
        """Take the first record that was sent after the latest one of its producer, or else the first; None if there is none."""
        in_order, others = [], []
        for candidates in filter(None, lists):
            others.append((candidates[0], candidates))
            for each in islice(candidates, CANDIDATES_MAX):
                if each > latest.get(self._sendings[each].producer, -1):
                    in_order.append((each, candidates))
                    break
        if not others:
            return None
        chosen, candidates = min(in_order or others, key=lambda pair: pair[0])
        candidates.remove(chosen)
        return chosen

    def _name_all(self) -> None:
        found = self._identify()
        counts: dict[tuple[Place, str], int] = defaultdict(int)
        for each in self._sendings:
            if each.place is not None:
                counts[each.place, each.told] = count = counts[each.place, each.told] + 1
                each.name = each.told if count == 1 else f"{each.told} (sent for the {count}. time)"
        for place, pairs in self._read_pairs().items():
            for offset, value in pairs:
                sending = found.get((place, offset, value))
                self._names[place, offset, value] = value if sending is None else sending.name

    # ------------------------------------------------------------------ events

    def _topics(self, compacted: Collection[str]) -> Iterator[Event]:
        counts: dict[str, int] = {}
        for place in [*(each.place for each in self._sendings if each.place), *self._all_places()]:
            counts[place[0]] = max(counts.get(place[0], 0), place[1] + 1)
        transactional = {each.topic for each in self._sendings if each.transaction is not None}
        for topic, count in counts.items():
            yield TopicBegan(0.0, topic, count, topic in compacted, topic in transactional)

    def _all_places(self) -> Iterator[Place]:
        for _, kind, fields in self._notes:
            if kind in (ReadBegan, EndSeen):
                yield fields[1], fields[2]
        yield from ((each.topic, each.partition) for each in self._final)

    def _told(self) -> Iterator[Event]:
        for at, kind, fields in self._notes:
            if kind in (Sent, Acknowledged, Failed):
                yield from self._told_of_record(at, kind, fields)
            elif kind is Read:
                reader, topic, partition, records, position = fields
                named = self._named((topic, partition), records)
                yield Read(at, reader, topic, partition, named)
                yield ReachedEnd(at, reader, topic, partition, position)
            else:
                make: Any = kind
                yield make(at, *fields)

    def _told_of_record(self, at: float, kind: type[Event], fields: tuple[Any, ...]) -> Iterator[Event]:
        sending: Sending = fields[0]
        if sending.partition is None:  # nobody knows where it would be, nor has seen it
            return
        who = (sending.producer, sending.topic, sending.partition, sending.name)
        if kind is Sent:
            yield Sent(at, *who, sending.key, sending.transaction)
        elif kind is Failed:
            yield Failed(at, *who, *fields[1:])
        elif sending.offset is not None and self._can_be_missed(sending):
            yield Acknowledged(at, *who, sending.offset)

    def _can_be_missed(self, sending: Sending) -> bool:
        """Return True if somebody has looked where the record is to be."""
        assert sending.place is not None and sending.offset is not None
        if self._has_logs:
            return sending.place in self.read_places
        if sending.offset == UNKNOWN_OFFSET:
            return False
        # A read_committed reader goes past what was aborted, and past what it does not know to be committed.
        is_shown = sending.transaction is None or (sending.producer, sending.transaction) in self._committed
        kinds = (False, True) if is_shown else (False,)
        return any(self._covers(sending.place, committed_only, sending.offset) for committed_only in kinds)

    def _covers(self, place: Place, committed_only: bool, offset: int) -> bool:
        seen = self._seen.get((place, committed_only))
        return seen is not None and seen.covers(offset)

    def _named(self, place: Place, records: Iterable[tuple[int, str]]) -> tuple[tuple[int, str], ...]:
        return tuple((offset, self._names[place, offset, value]) for offset, value in records)

    def _unions(self) -> Iterator[FinalRead]:
        """Return what consumers were given, by the two kinds of readers."""
        for (place, committed_only), seen in self._seen.items():
            if seen.ranges:
                start, end = min(first for first, _ in seen.ranges), max(after for _, after in seen.ranges)
                yield FinalRead(*place, start, end, sorted(seen.records.items()), committed_only)

    def _final_events(self) -> Iterator[Event]:
        at = self._notes[-1].at if self._notes else 0.0
        for each in self._final:
            place = (each.topic, each.partition)
            if self._has_logs and each.start:
                yield RecordsDeleted(at, *place, each.start)
            reader = f"{LAST_READER} of {each.topic}-{each.partition}{' as committed' * each.committed_only}"
            yield ReadBegan(at, reader, *place, each.start, each.committed_only, not each.is_open)
            # One event for each, so that a duplicate is one of another event.
            for record in each.records:
                yield Read(at, reader, *place, self._named(place, [record]))
            yield ReachedEnd(at, reader, *place, each.end)
