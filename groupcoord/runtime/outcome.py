"""What a call of a coordinator's machine gives back.

A machine never writes and never waits. It returns an `Outcome`: records to append, replies that do not depend on them,
and settlements. A settlement is called exactly once, when it is known whether the log has taken the records: with NONE,
or with the error that kept them from being appended. Whatever must not happen if they are refused (a reply, a state)
belongs in a settlement. The shell calls nothing that changes a shard between the outcome and its settlement; only
heartbeats and reads may pass.

The records are not committed yet by then. So the shell keeps every reply until all that was appended before it is
committed, and puts the records in force (`replay`) at that moment.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

from ottla.wire.errors import ErrorCode

RecordT = TypeVar("RecordT")

Settlement = Callable[[ErrorCode], None]


class Caller:
    """Who sent a request. Replies are addressed to this object, which a machine may keep while the request is parked."""

    __slots__ = ("api_version", "client_host", "client_id", "is_answered", "parked_group_id", "parked_member_id")

    def __init__(self, *, api_version: int, client_id: str = "", client_host: str = "") -> None:
        self.api_version = api_version
        self.client_id = client_id
        self.client_host = client_host
        self.is_answered = False  # a reply may wait for a commit before it goes out
        # Where the request is parked, so that it can be found again when its connection is gone.
        self.parked_group_id = ""
        self.parked_member_id = ""


class Reply(NamedTuple):
    """The answer to one request."""

    caller: Caller
    response: object


class Outcome(NamedTuple, Generic[RecordT]):
    """What the shell owes the machine: append the records, send the replies, settle what waits for the records."""

    records: list[RecordT]
    replies: list[Reply]
    settlements: list[Settlement]
