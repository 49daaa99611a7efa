"""What the machines of one shard share while a call lasts: its time, the timers, and what it has collected so far."""

from __future__ import annotations

from collections.abc import Callable

from ottla.groupcoord.config import GroupConfig
from ottla.groupcoord.groups.records import GroupRecord
from ottla.groupcoord.groups.timers import Timers
from ottla.groupcoord.runtime.outcome import Caller, Outcome, Reply, Settlement
from ottla.wire.errors import ErrorCode


class Effects:
    """The time of the present call, the timers, and what the call has collected so far."""

    __slots__ = ("config", "make_uuid", "now_ms", "records", "replies", "settlements", "timers", "timestamp_ms")

    def __init__(self, config: GroupConfig, make_uuid: Callable[[], str]) -> None:
        self.config = config
        self.make_uuid = make_uuid
        self.timers = Timers()
        self.now_ms = 0  # for deadlines: never jumps
        self.timestamp_ms = 0  # the time of day, for what is written
        self.records: list[GroupRecord] = []
        self.replies: list[Reply] = []
        self.settlements: list[Settlement] = []

    def append(self, record: GroupRecord, settlement: Settlement | None = None) -> None:
        self.records.append(record)
        if settlement is not None:
            self.settlements.append(settlement)

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
        outcome = Outcome(self.records, self.replies, self.settlements)
        # New lists, because the outcome keeps the old ones while later calls collect.
        self.records, self.replies, self.settlements = [], [], []
        return outcome
