"""Events with their times, written down while clients and faults are at work.

A history is a sequence of events in the order of their times, which are seconds of one clock that only moves forward:
`time.monotonic` (the processes of one machine share it), or a simulation's own. Nothing in it is an opinion; what is
right and wrong is the business of `ottla.server.testing.history.checker`.

Who writes an event, and when, is part of its meaning:

- what a client asks for (`Sent`, `EndAsked`, `OffsetSent`, `OffsetAdded`, `ReadBegan`) is written before the client is told to do it;
- what it learns (`Acknowledged`, `Failed`, `Ended`, `Fenced`, `Read`, `ReachedEnd`, `EndSeen`, `OffsetFetched`) after it learned it.

So an event that could have been the cause of another always stands before it. A producer's `Sent` events stand in the
order in which they were handed to it.

A value must be sent once only in a partition, by whoever: it is what a record is known by. It is written down as `told`
tells it, so that a large value costs a line and not a page. `Read` carries many records, because consumers get many at once.

As a file a history is JSON lines, one array an event: ["Sent", 12.5, "producer 0", "topic", 3, "value", null, null].
"""

import hashlib
import heapq
import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

from ottla.server.testing.history.group_events import GroupEvent

TOLD_WHOLE_MAX = 64
UNKNOWN_OFFSET = -1


class TopicBegan(NamedTuple):
    """A topic whose records are in this history. `compacted` and `transactional` say why offsets may be missing in it."""

    at: float
    topic: str
    partitions: int
    compacted: bool = False
    transactional: bool = False


class ProducerBegan(NamedTuple):
    at: float
    producer: str
    idempotent: bool
    acks: int
    """-1 for all."""


TIMED_OUT = "message(s) timed out"
"""librdkafka's words for the reason of a new epoch that lies with the producer: it gave up records in flight."""


class EpochRaised(NamedTuple):
    """An idempotent producer took a new epoch by itself, and sends what has no answer yet once more under new sequences."""

    at: float
    producer: str
    words: str


class Sent(NamedTuple):
    at: float
    producer: str
    topic: str
    partition: int
    value: str
    key: str | None = None
    transaction: int | None = None


class Acknowledged(NamedTuple):
    at: float
    producer: str
    topic: str
    partition: int
    value: str
    offset: int
    """UNKNOWN_OFFSET if the client was told of success and of no offset."""


class Failed(NamedTuple):
    at: float
    producer: str
    topic: str
    partition: int
    value: str
    error: str
    may_be_written: bool
    """False only if the broker refused it at its first and only attempt, or it never left the client."""


class EndAsked(NamedTuple):
    """A producer asks for its transaction to be committed or else aborted."""

    at: float
    producer: str
    transaction: int
    commit: bool


class Ended(NamedTuple):
    """The transaction is known to have ended so. A transaction whose end nobody learned has no such event."""

    at: float
    producer: str
    transaction: int
    committed: bool


class Fenced(NamedTuple):
    """Another producer has been given the transactional id of this one, and so everything of this one has ended."""

    at: float
    producer: str


class ReadBegan(NamedTuple):
    """A reader begins at an offset, or is set to one. `final`: nothing is written any more and all faults are over."""

    at: float
    reader: str
    topic: str
    partition: int
    offset: int
    committed_only: bool = False
    final: bool = False


class Read(NamedTuple):
    at: float
    reader: str
    topic: str
    partition: int
    records: tuple[tuple[int, str], ...]
    """(offset, value) in the order in which the reader got them."""


class ReachedEnd(NamedTuple):
    """The reader was told that nothing more can be read at present; it stands at this offset."""

    at: float
    reader: str
    topic: str
    partition: int
    offset: int


class ReadFailed(NamedTuple):
    """The reader was told that it can't go on; what it may try again by itself is no failure."""

    at: float
    reader: str
    topic: str
    partition: int
    error: str


class EndSeen(NamedTuple):
    """A connection was told the end of a partition, and by a leader of which epoch (None if that was not told)."""

    at: float
    viewer: str
    topic: str
    partition: int
    end: int
    leader_epoch: int | None


class OffsetSent(NamedTuple):
    """A group's only member commits an offset; it also does the fetching, so that both come one after the other."""

    at: float
    group: str
    topic: str
    partition: int
    offset: int


class OffsetAdded(NamedTuple):
    """A producer asks for an offset of a group to be committed with its transaction. Only producers of one transactional id do so for a group."""

    at: float
    producer: str
    transaction: int
    group: str
    topic: str
    partition: int
    offset: int


class OffsetCommitted(NamedTuple):
    at: float
    group: str
    topic: str
    partition: int
    offset: int


class OffsetFailed(NamedTuple):
    at: float
    group: str
    topic: str
    partition: int
    offset: int
    error: str
    may_be_written: bool


class OffsetFetched(NamedTuple):
    """A group is told its offset. If it is committed in transactions the broker was asked for a stable one."""

    at: float
    group: str
    topic: str
    partition: int
    offset: int
    """UNKNOWN_OFFSET if the group has none."""


class RecordsDeleted(NamedTuple):
    """Retention or DeleteRecords was allowed to take away what lies before this offset."""

    at: float
    topic: str
    partition: int
    before: int


class ProbeBegan(NamedTuple):
    """From now on somebody asks for this service of a partition, and writes down when it was served."""

    at: float
    what: str
    topic: str
    partition: int
    away_max_s: float
    """For so long it may not be served although nothing is wrong that a cluster cannot bear."""


class Served(NamedTuple):
    at: float
    what: str
    topic: str
    partition: int


class TroubleBegan(NamedTuple):
    """More is wrong from now on than a cluster has to bear."""

    at: float


class TroubleEnded(NamedTuple):
    """All is well again."""

    at: float


class FaultBegan(NamedTuple):
    at: float
    fault: str
    target: str


class FaultEnded(NamedTuple):
    at: float
    fault: str
    target: str


Event = (
    TopicBegan | ProducerBegan | EpochRaised | Sent | Acknowledged | Failed | EndAsked | Ended | ReadBegan | Read | ReachedEnd | ReadFailed
    | EndSeen | Fenced | OffsetSent | OffsetAdded | OffsetCommitted | OffsetFailed | OffsetFetched | RecordsDeleted | FaultBegan | FaultEnded
    | ProbeBegan | Served | TroubleBegan | TroubleEnded | GroupEvent
)  # fmt: skip
KINDS: dict[str, type[Event]] = {kind.__name__: kind for kind in Event.__args__}

_make: Callable[..., Event] = lambda kind, *fields: kind(*fields)  # the fields differ by kind

_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), check_circular=False).encode


def told(value: bytes | None) -> str:
    """Return the text that stands for a value in a history: a short one whole, of a long one its beginning and a checksum."""
    if value is None:
        return "(null)"
    if len(value) <= TOLD_WHOLE_MAX:
        return value.decode("latin-1")
    return f"{value[:24].decode('latin-1')}... {len(value)} bytes {hashlib.blake2b(value, digest_size=12).hexdigest()}"


def to_line(event: Event) -> bytes:
    return (_encode((type(event).__name__, *event)) + "\n").encode()


def from_line(line: bytes) -> Event:
    name, *fields = json.loads(line)
    event = _make(KINDS[name], *fields)
    if isinstance(event, Read):
        return event._replace(records=tuple((offset, value) for offset, value in event.records))
    return event


class Recorder:
    """Stamps events with the time and hands them on in that order, from any number of threads.

    `recorder.add(Sent, "producer 0", "topic", 3, "value")`. The sink is a file, or a list: `Recorder(events.append)`.
    """

    def __init__(self, sink: Callable[[Event], object], clock: Callable[[], float] = time.monotonic) -> None:
        self._sink = sink
        self._clock = clock
        self._lock = threading.Lock()

    def add(self, kind: type[Event], *fields: object) -> None:
        with self._lock:  # the time within it, or two threads could be written down in the other order
            self._sink(_make(kind, self._clock(), *fields))


class HistoryFile:
    """A history on disk: `Recorder(history_file.append)` writes it, iterating reads it, any number of times."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._writing: BinaryIO | None = None

    def append(self, event: Event) -> None:
        if self._writing is None:
            self._writing = self.path.open("ab", buffering=1 << 18)
        self._writing.write(to_line(event))

    def flush(self) -> None:
        """Hand everything appended to the system, so that it outlives the process."""
        assert self._writing is not None
        self._writing.flush()

    def close(self) -> None:
        """Write everything that was appended to the file, and close it."""
        if self._writing is not None:
            self._writing.close()
            self._writing = None

    def __iter__(self) -> Iterator[Event]:
        assert self._writing is None, "close it before it is read"
        with self.path.open("rb") as file:
            yield from map(from_line, file)


class Merged:
    """One history of those that several processes of a machine wrote."""

    def __init__(self, histories: list[HistoryFile]) -> None:
        self._histories = histories

    def __iter__(self) -> Iterator[Event]:
        return heapq.merge(*self._histories, key=lambda event: event.at)
