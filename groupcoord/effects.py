"""Effects of one call to a shard's machines: its time, the deadlines, and the records and replies collected so far.

A call whose work grows with the group's size passes that work to `carry_on`, as steps. The runtime runs the steps after the
call and yields to other tasks between them. Until the last step all other requests of the shard wait, except reads. Reads
see consistent state after every step: most steps build a new object, and the last step swaps it in.

Every heartbeat moves a session's deadline, so that move must be cheap: the heap of `Timers` keeps one entry per key, at or
before the key's deadline, and an entry that comes up too early is put back. `next_deadline_ms` may therefore be early,
never late.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator
from functools import partial
from heapq import heapify, heappop, heappush
from typing import Any, NamedTuple, Protocol, TypeVar

from ottla.groupcoord.config import GroupConfig
from ottla.groupcoord.records import GroupRecord, KeyedRecord
from ottla.groupcoord.runtime.answers import Caller, Reply
from ottla.groupcoord.runtime.coordinator_shard import Job, Outcome, Rest, Settlement, Transaction
from ottla.wire.errors import ErrorCode
from ottla.wire.happenings import Note, note_nothing

RECORDS_PER_CALL = 500
TIMERS_PER_CALL = 100
WORK_PER_CALL = 10_000
GROUPS_PER_SCAN = 100
OFFSETS_PER_CALL = 2_000
"""Limits of the work of one call, so that later requests do not wait long; the rest is due at once."""

PIECE = 100
"""Members, partitions or records that a step of a long call handles at most, before others have a turn."""

TEXT_LENGTH_MAX = 8_000
"""Characters of a name that is kept: at most 32,000 bytes, so that it still fits into a record with a UUID behind it."""

NAMED_MAX = 10_000
"""Topics and partitions that a member, or an administrator, may name at once for one group. They are looked at in one step,
and kept in one record."""


class TimerKey(NamedTuple):
    """Key of a deadline: its kind, the group's id and, for a member's deadline, the member's id."""

    kind: str
    group_id: str = ""
    member_id: str = ""


class Timers:
    """Deadlines of one shard, in milliseconds of a monotonic clock."""

    __slots__ = ("_deadlines", "_heap")

    def __init__(self) -> None:
        self._deadlines: dict[TimerKey, int] = {}
        self._heap: list[tuple[int, TimerKey]] = []

    def __len__(self) -> int:
        return len(self._deadlines)

    def deadline_ms(self, key: TimerKey) -> int | None:
        return self._deadlines.get(key)

    def schedule(self, key: TimerKey, deadline_ms: int) -> None:
        known = self._deadlines.get(key)
        self._deadlines[key] = deadline_ms
        # A later deadline leaves the heap as it is: the old entry comes up too early and is put back then. So a
        # heartbeat costs one assignment in a dict.
        if known is None or deadline_ms < known:
            heappush(self._heap, (deadline_ms, key))
            self._forget_cancelled()

    def cancel(self, key: TimerKey) -> None:
        # The entry stays in the heap, where looking for it would take a walk. `pop_due` passes over it.
        self._deadlines.pop(key, None)

    def pop_due(self, now_ms: int) -> TimerKey | None:
        """Remove and return a key whose deadline has passed; None if there is none."""
        heap, deadlines = self._heap, self._deadlines
        while heap and heap[0][0] <= now_ms:
            key = heappop(heap)[1]
            deadline_ms = deadlines.get(key)
            # The key was cancelled, or another entry of it came up before.
            if deadline_ms is None:
                continue
            # The deadline was put off after this entry was made: come back at the right time.
            if deadline_ms > now_ms:
                heappush(heap, (deadline_ms, key))
                continue
            del deadlines[key]
            return key
        return None

    def next_deadline_ms(self) -> int | None:
        return self._heap[0][0] if self._heap else None

    def _forget_cancelled(self) -> None:
        """Rebuild the heap without cancelled deadlines when it has grown far beyond the number of keys."""
        # The 64 keep a small heap from being rebuilt again and again.
        if len(self._heap) > 2 * len(self._deadlines) + 64:
            self._heap = [(deadline_ms, key) for key, deadline_ms in self._deadlines.items()]
            heapify(self._heap)


T = TypeVar("T")

Steps = Iterator[None]
"""Work in pieces of at most `PIECE` elements."""


class KeyedState(Protocol):
    """State that is rebuilt from records: at most one value for each record key."""

    def value_of(self, key: Any) -> Any | None:
        """Return the value of the record with this key, ready to be written again; None if there is none."""

    def replay(self, record: GroupRecord) -> None:
        """Apply a record to the state."""


class Effects:
    """Context of a shard's current call: the time, the timers, and the collected records and replies."""

    __slots__ = (
        "_is_cuttable",
        "_is_stopped",
        "_jobs",
        "_rest",
        "_restores",
        "_undos",
        "config",
        "make_uuid",
        "note",
        "now_ms",
        "records",
        "replies",
        "settlements",
        "source",
        "timers",
        "timestamp_ms",
        "transaction",
        "work",
    )

    def __init__(self, config: GroupConfig, make_uuid: Callable[[], str], note: Note = note_nothing) -> None:
        self.config = config
        self.make_uuid = make_uuid
        self.note = note
        self.source = ""
        """Address of the client that the call is about, as the source of happenings; empty: none is known."""
        self.timers = Timers()
        self.now_ms = 0  # for deadlines: never jumps
        self.timestamp_ms = 0  # the time of day, for what is written
        self.records: list[GroupRecord] = []
        self.replies: list[Reply] = []
        self.settlements: list[Settlement] = []
        self.work = 0
        """Number of objects, such as topics, that the call has read beside its records; may exceed a step's limit when much is
        due."""
        self._undos: list[Callable[[], object]] = []
        self._restores: list[Callable[[], object]] = []
        self._jobs: list[Job] = []
        self.transaction: Transaction | None = None  # which all records of the call become part of
        self._is_cuttable = False
        self._rest: deque[Steps | tuple[Settlement, ErrorCode]] = deque()
        self._is_stopped = False

    # ------------------------------------------------------------------ what takes long

    def carry_on(self, steps: Steps) -> None:
        """Queue `steps` for `advance`, after the steps that the call has queued already."""
        if self._is_stopped:
            deque(steps, maxlen=0)
        else:
            self._rest.append(steps)

    def then(self, settlement: Settlement, error: ErrorCode = ErrorCode.NONE) -> None:
        """Call `settlement` with `error` when no queued steps are left.

        If `stop` ends the call first, the settlement is in the outcome that `stop` returns.
        """
        if self._rest:
            self._rest.append((settlement, error))
        else:
            settlement(error)

    def advance(self) -> bool:
        """Take one step. Return True if steps remain."""
        while self._rest:
            work = self._rest[0]
            if isinstance(work, tuple):
                self._rest.popleft()
                work[0](work[1])
                continue
            for _ in work:
                return True
            self._rest.popleft()
        return False

    def rest(self) -> Rest:
        """Take all remaining steps at this call's time. Yield the replies before each step; return the outcome."""
        now_ms, timestamp_ms = self.now_ms, self.timestamp_ms
        is_left = True
        while is_left:
            yield self.take_replies()
            # A read may have set its own time since.
            self.now_ms, self.timestamp_ms = now_ms, timestamp_ms
            is_left = self.advance()
        return self.take()

    def stop(self) -> Outcome[GroupRecord]:
        """End a call before its steps are taken, because its shard is unloaded; return the outcome.

        Steps that are queued later are taken immediately.
        """
        self._is_stopped = True
        outcome, rest, self._rest = self.take(), self._rest, deque()
        return outcome._replace(
            settlements=[*outcome.settlements, *(each[0] for each in rest if isinstance(each, tuple))]
        )

    # ------------------------------------------------------------------ what comes of the call

    def append(self, record: GroupRecord, settlement: Settlement | None = None) -> None:
        """Append a record. It takes effect when `settlement` is called, or when the committed record is replayed."""
        self.records.append(record)
        if settlement is not None:
            self.settlements.append(settlement)

    def put(self, state: KeyedState, record: GroupRecord) -> None:
        """Append a record and apply it to `state` immediately; if the log refuses it, restore the former value."""
        before = KeyedRecord(record.key, state.value_of(record.key))
        state.replay(record)
        self.append(record)
        self.undo_if_refused(partial(state.replay, before))

    def undo_if_refused(self, undo: Callable[[], object]) -> None:
        """If the log refuses the call's records, call `undo`; the last registered first, before any settlement."""
        self._undos.append(undo)

    def restore_if_refused(self, restore: Callable[[], object]) -> None:
        """If the log refuses the records, call `restore` after all undo functions; for state that has no records."""
        self._restores.append(restore)

    def be_cuttable(self) -> None:
        """Allow the call's records to be split into several batches: a log that ends between two is consistent."""
        self._is_cuttable = True

    def compute(
        self,
        compute: Callable[[], Any],
        request: Callable[[Any], Any],
        narrow: Callable[[Any], Awaitable[Any]] | None = None,
    ) -> None:
        """Run `compute` in a thread, on immutable values. Submit `request(result)` to the shard afterwards.

        `narrow` converts the result on the event loop before `request` is called; None: unchanged.
        """
        self._jobs.append(Job(compute, request, narrow))

    def reply(self, caller: Caller, response: object) -> None:
        """Send `response` immediately, even if the call's records are never committed."""
        self.replies.append(Reply(caller, response))

    def answer(self, caller: Caller, response: object, failed: Callable[[ErrorCode], object]) -> None:
        """Send `response` when the call's records so far are committed; `failed(error)` if the log refuses them."""

        def tell(error: ErrorCode) -> None:
            self.reply(caller, failed(error) if error else response)

        if self._rest:
            self._rest.append((partial(self._answer, tell), ErrorCode.NONE))
        else:
            self._answer(tell, ErrorCode.NONE)

    def _answer(self, tell: Settlement, error: ErrorCode) -> None:
        # If nothing is being written there is nothing to wait for.
        if self.records and not error:
            self.settlements.append(tell)
        else:
            tell(error)

    def take_replies(self) -> list[Reply]:
        """Remove and return the replies collected so far."""
        replies, self.replies = self.replies, []
        return replies

    def take(self) -> Outcome[GroupRecord]:
        """End the call and return its outcome: all records, replies and settlements collected."""
        undos, settlements = self._undos, self.settlements
        if undos:
            # Without records there is no append that could be refused, and nothing would ever be taken back. A bug may have
            # ended the call before the first one.
            assert self.records or self._is_stopped
        if undos or (self.records and self._restores):
            # The last is called first.
            settlements = [partial(self._undo, [*self._restores, *undos]), *settlements]
        outcome = Outcome(
            self.records,
            self.replies,
            settlements,
            bool(undos),
            self.transaction,
            self._jobs,
            is_cuttable=self._is_cuttable,
        )
        # New lists, because the outcome keeps the old ones while later calls collect.
        self.records, self.replies, self.settlements, self._undos, self._jobs = [], [], [], [], []
        self._restores = []
        self.transaction, self._is_cuttable = None, False
        self.work = 0
        return outcome

    def _undo(self, undos: list[Callable[[], object]], error: ErrorCode) -> None:
        if error:
            self.carry_on(in_pieces(reversed(undos), lambda undo: undo()))


def in_pieces(items: Iterable[T], work: Callable[[T], object]) -> Steps:
    """Call `work` with each item; yield after every limited number of items."""
    for number, item in enumerate(items, 1):
        work(item)
        if number % PIECE == 0:
            yield
