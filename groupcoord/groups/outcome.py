"""What a call of the coordinator's machines gives back, and what its machines share while the call lasts.

A machine never writes and never waits. It returns an `Outcome`: records to append, replies that can be sent at once,
and settlements. A settlement is called exactly once, when the fate of the records is known: with NONE after they were
committed and replayed, or with the error that kept them from being appended. Whatever must not be promised before the
records are safe (a reply, a state) belongs in a settlement. The shell calls nothing that changes a shard between the
outcome and its settlement; only heartbeats and reads may pass.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ottla.groupcoord.config import GroupConfig
from ottla.groupcoord.groups.records import GroupRecord
from ottla.groupcoord.groups.timers import Timers
from ottla.wire.errors import ErrorCode

Settlement = Callable[[ErrorCode], None]


class Caller:
    """Who sent a request. Replies are addressed to this object, which a machine may keep while the request is parked."""

    __slots__ = ("api_version", "client_host", "client_id", "parked_group_id", "parked_member_id")

    def __init__(self, *, api_version: int, client_id: str = "", client_host: str = "") -> None:
        self.api_version = api_version
        self.client_id = client_id
        self.client_host = client_host
        self.parked_group_id = ""
        self.parked_member_id = ""


class Reply(NamedTuple):
    """The answer to one request."""

    caller: Caller
    response: object


class Outcome(NamedTuple):
    """What the shell owes the machine: append the records, send the replies, settle what waits for the records."""

    records: list[GroupRecord]
    replies: list[Reply]
    settlements: list[Settlement]


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
        if not self.records:
            self.reply(caller, response)
        else:
            self.settlements.append(lambda error: self.reply(caller, failed(error) if error else response))

    def take(self) -> Outcome:
        """End the call: everything collected, which the next call starts without."""
        outcome = Outcome(self.records, self.replies, self.settlements)
        self.records, self.replies, self.settlements = [], [], []
        return outcome
