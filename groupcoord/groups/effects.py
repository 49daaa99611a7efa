"""What the machines of one shard share while a call lasts: its time, the timers, and what it has collected so far."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Protocol

from ottla.groupcoord.config import GroupConfig
from ottla.groupcoord.groups.records import GroupRecord, KeyedRecord
from ottla.groupcoord.groups.timers import Timers
from ottla.groupcoord.runtime.outcome import Caller, Job, Outcome, Reply, Settlement
from ottla.groupcoord.runtime.transaction_append import Transaction
from ottla.wire.errors import ErrorCode


class KeyedState(Protocol):
    """A state that is always what its records say: for each key the value of the last record, or nothing."""

    def value_of(self, key: Any) -> Any | None:
        """The value in force for a key, as it could be written again; None: there is none."""

    def replay(self, record: GroupRecord) -> None:
        """Put a record in force."""


class Effects:
    """The time of the present call, the timers, and what the call has collected so far."""

    __slots__ = (
        "_jobs",
        "_restores",
        "_transaction",
        "_undos",
        "config",
        "make_uuid",
        "now_ms",
        "records",
        "replies",
        "settlements",
        "timers",
        "timestamp_ms",
        "work",
    )

    def __init__(self, config: GroupConfig, make_uuid: Callable[[], str]) -> None:
        self.config = config
        self.make_uuid = make_uuid
        self.timers = Timers()
        self.now_ms = 0  # for deadlines: never jumps
        self.timestamp_ms = 0  # the time of day, for what is written
        self.records: list[GroupRecord] = []
        self.replies: list[Reply] = []
        self.settlements: list[Settlement] = []
        self.work = 0
        """What the call has looked at beside its records, such as topics: more than a step may cost when much is due."""
        self._undos: list[Callable[[], object]] = []
        self._restores: list[Callable[[], object]] = []
        self._jobs: list[Job] = []
        self._transaction: Transaction | None = None

    def append(self, record: GroupRecord, settlement: Settlement | None = None) -> None:
        """Append a record. What it means happens in the settlement, or when it is committed and replayed."""
        self.records.append(record)
        if settlement is not None:
            self.settlements.append(settlement)

    def put(self, state: KeyedState, record: GroupRecord) -> None:
        """Append a record and put it in force at once. If the log refuses it, the one before it comes back in force."""
        before = KeyedRecord(record.key, state.value_of(record.key))
        state.replay(record)
        self.append(record)
        self.undo_if_refused(partial(state.replay, before))

    def undo_if_refused(self, undo: Callable[[], object]) -> None:
        """Call this if the log refuses what is appended. The last is called first, and all before any settlement."""
        self._undos.append(undo)

    def restore_if_refused(self, restore: Callable[[], object]) -> None:
        """As `undo_if_refused`, after all those, for what has no record of its own. Without records it stays as it is."""
        self._restores.append(restore)

    def be_part_of(self, transaction: Transaction) -> None:
        """All records of this call are part of a transaction."""
        self._transaction = transaction

    def compute(
        self,
        compute: Callable[[], Any],
        request: Callable[[Any], Any],
        narrow: Callable[[Any], Awaitable[Any]] | None = None,
    ) -> None:
        """Have something computed that takes long, from immutable values. Its result comes back as a request.

        `narrow` changes the result before that, on the event loop.
        """
        self._jobs.append(Job(compute, request, narrow))

    def reply(self, caller: Caller, response: object) -> None:
        """Answer at once, whatever becomes of the records."""
        self.replies.append(Reply(caller, response))

    def answer(self, caller: Caller, response: object, failed: Callable[[ErrorCode], object]) -> None:
        """Answer when the records collected so far are committed: with `response`, or with what `failed` makes."""
        # Nothing is being written, so there is nothing to wait for.
        if not self.records:
            self.reply(caller, response)
        else:
            self.settlements.append(lambda error: self.reply(caller, failed(error) if error else response))

    def take(self) -> Outcome[GroupRecord]:
        """End the call: everything collected, which the next call starts without."""
        undos, settlements = self._undos, self.settlements
        if undos:
            # Without records there is no append that could be refused, and nothing would ever be taken back.
            assert self.records
        if self.records and (undos or self._restores):
            # The last is called first.
            settlements = [partial(_undo, [*self._restores, *undos]), *settlements]
        outcome = Outcome(self.records, self.replies, settlements, bool(undos), self._transaction, self._jobs)
        # New lists, because the outcome keeps the old ones while later calls collect.
        self.records, self.replies, self.settlements, self._undos, self._jobs = [], [], [], [], []
        self._restores = []
        self._transaction = None
        self.work = 0
        return outcome


def _undo(undos: list[Callable[[], object]], error: ErrorCode) -> None:
    if error:
        for undo in reversed(undos):
            undo()
