"""Reports of removed records: lines of the log, and a short history of each topic.

Retention, DeleteRecords, the deletion of a topic and truncations remove records that somebody may look for. Each run of
one of them makes a line for each log, LINES_PER_RUN at most, and one line for all further logs. DeleteRecords and
truncations may come many times a minute. For these each log has one line a minute.

The history keeps an event for each cause and hour. It is bounded by EVENTS_PER_TOPIC, and by EVENTS_MAX for all topics:
then the topic that lost records longest ago loses its oldest event. A restart of the broker empties it.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ottla.replication.log.removal import Removal, older
from ottla.replication.reminders import Reminders, counted, log_with_count
from ottla.wire.happenings import REMOVAL, Fact, Note, note_nothing
from ottla.wire.records import NO_TIMESTAMP

logger = logging.getLogger("ottla.replication")

LINES_PER_RUN = 100
EVENTS_PER_TOPIC = 20
EVENTS_MAX = 2_000
HOUR_MS = 3_600_000


class RemovalEvent:
    """Removals from a topic for one reason, in one hour.

    `logs` is the largest number of partitions in one run. `oldest_ms` and `newest_ms` are NO_TIMESTAMP if no time is
    known.
    """

    __slots__ = ("cause", "first_ms", "has_gaps", "last_ms", "logs", "newest_ms", "oldest_ms", "records", "runs")

    def __init__(self, cause: str, now_ms: int) -> None:
        self.cause, self.first_ms, self.last_ms = cause, now_ms, now_ms
        self.records = self.logs = self.runs = 0
        self.oldest_ms = self.newest_ms = NO_TIMESTAMP
        self.has_gaps = False

    def add(self, other: RemovalEvent) -> None:
        """Add the removals of a later run."""
        self.last_ms = other.last_ms
        self.runs += 1
        self.records += other.records
        self.logs = max(self.logs, other.logs)
        self.oldest_ms = older(self.oldest_ms, other.oldest_ms)
        self.newest_ms = max(self.newest_ms, other.newest_ms)
        self.has_gaps = self.has_gaps or other.has_gaps


class Removals:
    """Lines and history of removed records; used only on the event loop."""

    def __init__(self, note: Note = note_nothing) -> None:
        self.note_happening = note
        self._events: dict[str, deque[RemovalEvent]] = {}  # the topic that lost records last comes last
        self._count = 0
        self._reminders = Reminders(LINES_PER_RUN)

    def of_topic(self, topic: str) -> list[RemovalEvent]:
        """Return the events of a topic, newest first. The topic may be deleted."""
        return list(reversed(self._events.get(topic, ())))

    def latest(self, limit: int) -> list[tuple[str, RemovalEvent]]:
        """Return the newest events of all topics with the topics' names, newest first."""
        found = [(topic, event) for topic, events in self._events.items() for event in events]
        return sorted(found, key=lambda each: -each[1].last_ms)[:limit]

    def begin(self, now_ms: int, *, is_frequent: bool = False) -> RemovalRun:
        """Begin a run, whose caller has to end it.

        `is_frequent`: runs of this kind follow one another quickly, so that a log has one line a minute.
        """
        return RemovalRun(self, now_ms, self._reminders if is_frequent else None)

    @contextmanager
    def run(self, now_ms: int, *, is_frequent: bool = False) -> Iterator[RemovalRun]:
        """Begin a run, and end it after the block."""
        run = self.begin(now_ms, is_frequent=is_frequent)
        try:
            yield run
        finally:
            run.end()

    def note(self, topic: str, event: RemovalEvent) -> None:
        """Add an event to a topic's history, or to its last event if that has the same cause and is of the same hour."""
        events = self._events.pop(topic, None) or deque()
        self._events[topic] = events
        if events and events[-1].cause == event.cause and event.last_ms < events[-1].first_ms + HOUR_MS:
            events[-1].add(event)
            return
        begun = RemovalEvent(event.cause, event.first_ms)
        begun.add(event)
        events.append(begun)
        self._count += 1
        if len(events) > EVENTS_PER_TOPIC:
            events.popleft()
            self._count -= 1
        elif self._count > EVENTS_MAX:
            self._forget_oldest()

    def _forget_oldest(self) -> None:
        topic = next(iter(self._events))
        events = self._events[topic]
        events.popleft()
        self._count -= 1
        if not events:
            del self._events[topic]


class RemovalRun:
    """Removals of one run, such as one round of retention or one request."""

    def __init__(self, removals: Removals, now_ms: int, reminders: Reminders | None) -> None:
        self._removals, self._now_ms, self._reminders = removals, now_ms, reminders
        self._noted = self._looked = self._untold_logs = self._untold_records = 0
        self._topic = ""
        self._event: RemovalEvent | None = None
        self._whole: tuple[str, Removal] | None = None

    @property
    def is_told(self) -> bool:
        """True if the next log may have a line of its own. For others no file is read to find their times."""
        return self._noted < LINES_PER_RUN

    def removal(self) -> Removal:
        """Begin the account of the next log."""
        return Removal(reads_times=self.is_told)

    def note_log(self, topic: str, partition: int, removal: Removal, client: str = "", host: str = "") -> None:
        """Report what a log has lost; `client` and `host`: principal and address of who asked for it, or empty."""
        removal.logs = 1
        name = f"{topic}-{partition}"
        if not removal.records:
            if removal.segments:
                self._tell(
                    name, "", 0, "%s: %d segments below the log start offset are deleted", name, removal.segments
                )
            return
        offsets = f"offsets {removal.first_offset} to {removal.end_offset - 1}"
        end = f", for {client} at {host}" if client else ""
        if self.is_told:
            cause = f"{_cause(removal)} removed {_records(removal)} of {name}, {offsets}, {_times(removal)}{end}"
            facts: dict[str, Fact] = {"host": host} if host else {}
            facts |= {"partition": partition, "first_offset": removal.first_offset, "end_offset": removal.end_offset}
            self._removals.note_happening(REMOVAL, cause, source=topic, topic=topic, **facts)
        self._tell_records(name, removal, lambda: f"{offsets}, {_times(removal)}{end}")
        self._add(topic, removal)

    @property
    def reads_next(self) -> bool:
        """True if the account of the next log by `of_topic` reads times from files."""
        return self._looked < LINES_PER_RUN

    def of_topic(self, topic: str) -> Removal:
        """Return the account of a topic, to which the caller adds its next log.

        The account is reported when the first log of another topic comes, or when the run ends.
        """
        if self._whole is None or self._whole[0] != topic:
            self._note_topic()
            self._whole = topic, Removal()
        removal = self._whole[1]
        self._looked += 1
        removal.reads_times = self._looked <= LINES_PER_RUN
        return removal

    def _note_topic(self) -> None:
        whole, self._whole = self._whole, None
        if whole is None or not whole[1].records:
            return
        topic, removal = whole
        self._tell_records(topic, removal, lambda: f"{counted(removal.logs, 'log')}, {_times(removal)}")
        self._add(topic, removal)

    def _tell_records(self, name: str, removal: Removal, about: Callable[[], str]) -> None:
        cause, records = _cause(removal), removal.records
        # Ten thousand logs are not described for the hundred lines that are written.
        if not self.is_told:
            self._leave_out(records)
            return
        self._tell(name, cause, records, "%s: %s removed %s, %s", name, cause, _records(removal), about())

    def _tell(self, name: str, cause: str, records: int, text: str, *arguments: object) -> None:
        if not self.is_told:
            self._leave_out(records)
            return
        self._noted += 1
        untold = 0 if self._reminders is None else self._reminders.untold((name, cause))
        if untold is not None:
            log_with_count(untold, logger.info, text, *arguments)

    def _leave_out(self, records: int) -> None:
        self._untold_logs += 1
        self._untold_records += records

    def _add(self, topic: str, removal: Removal) -> None:
        # Partitions of a topic come one after the other, so that their sum is one event.
        event, cause = self._event, _cause(removal)
        if event is None or self._topic != topic or event.cause != cause:
            self._note_event()
            self._topic = topic
            event = self._event = RemovalEvent(cause, self._now_ms)
        event.records += removal.records
        event.logs += removal.logs
        event.has_gaps = event.has_gaps or removal.has_gaps
        event.oldest_ms = older(event.oldest_ms, removal.oldest_ms)
        event.newest_ms = max(event.newest_ms, removal.newest_ms)

    def _note_event(self) -> None:
        if self._event is not None:
            self._removals.note(self._topic, self._event)
            self._event = None

    def end(self) -> None:
        """Complete the history, and log one line for all logs that got none."""
        self._note_topic()
        self._note_event()
        untold = 0 if self._reminders is None or not self._untold_logs else self._reminders.untold(None)
        if self._untold_logs and untold is not None:
            text = "%d records of %d further logs were removed in the same run, after the first %d logs"
            log_with_count(untold, logger.info, text, self._untold_records, self._untold_logs, self._noted)


def _cause(removal: Removal) -> str:
    return " and ".join(removal.causes)


def _records(removal: Removal) -> str:
    few = "at most " if removal.has_gaps else ""
    return few + counted(removal.records, "record")


def _times(removal: Removal) -> str:
    if removal.newest_ms < 0:
        return "of unknown time"
    newest = utc(removal.newest_ms)
    return f"of {utc(removal.oldest_ms)} to {newest}" if removal.oldest_ms >= 0 else f"the newest of {newest}"


def utc(time_ms: int) -> str:
    """Return a time in ms as ISO 8601 in UTC, to the second. A time outside the years 1 to 9999 becomes "N ms"."""
    from datetime import UTC, datetime, timedelta  # here, because a start needs none

    try:
        moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=time_ms)
    except OverflowError:
        return f"{time_ms} ms"
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
