"""The outcome of a call of a coordinator's state machine.

A machine never writes and never waits. It returns an `Outcome`: records to append, replies that do not depend on them,
and settlements. A settlement is called exactly once, when it is known whether the log has taken the records: with NONE,
or with the error that kept them from being appended. Whatever must not happen if they are refused (a reply, a state)
belongs in a settlement. The shell calls nothing that changes a shard between the outcome and its settlement; only
heartbeats and reads may pass.

What takes long is left to do: the machine's call returns after a first step, and the shell takes the others (`Rest`), giving
way to other tasks in between. Until the last one is taken it calls nothing else of the machine but reads.

An atomic outcome is one batch, so that a crash leaves all of it in the log or nothing. A long one is compressed. If it is too
large even so the log refuses it, as Kafka's does. Records of which each beginning is good (`is_cuttable`) may go into several
batches. If the log refuses one of these when others are written, no settlement can take back a part: the shell loads the
shard again from the log.

The records are not committed yet by then. So the shell keeps every reply until all that was appended before it is
committed, and puts the records in force (`replay`) at that moment.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Iterable, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from ottla.groupcoord.runtime.transactions import Transaction
from ottla.wire.errors import ErrorCode

RecordT = TypeVar("RecordT")

Settlement = Callable[[ErrorCode], None]

FORGETTING_REFUSED = -1
"""The answer to a request to forget something if the log has refused the records. Else the answer is a count."""


HiddenTopics = Callable[[Iterable[str]], Awaitable[Iterable[str]]]
"""Which of some topics a client may not see. It gives way between many."""


class Caller:
    """Sender of a request. Replies are addressed to this object, which a machine may keep while the request is parked."""

    __slots__ = (
        "api_version",
        "client_host",
        "client_id",
        "hidden_topics",
        "is_answered",
        "parked_group_id",
        "parked_member_id",
    )

    def __init__(
        self, *, api_version: int, client_id: str = "", client_host: str = "", hidden_topics: HiddenTopics | None = None
    ) -> None:
        """`hidden_topics` None: it may see all topics."""
        self.api_version = api_version
        self.client_id = client_id
        self.client_host = client_host
        self.hidden_topics = hidden_topics
        self.is_answered = False  # a reply may wait for a commit before it goes out
        # Where the request is parked, so that it can be found again when its connection is gone.
        self.parked_group_id = ""
        self.parked_member_id = ""


class Reply(NamedTuple):
    """The answer to one request."""

    caller: Caller
    response: object


class Job(NamedTuple):
    """Work that takes long: `compute` runs in a thread, so all that it uses must be immutable."""

    compute: Callable[[], Any]
    request: Callable[[Any], Any]
    """The request that the shard gets with the result, or with None if a bug kept it from being computed."""
    narrow: Callable[[Any], Awaitable[Any]] | None = None
    """What else becomes of the result before that, on the event loop."""


class Outcome(NamedTuple, Generic[RecordT]):
    """Duties of the runtime after a call: append the records, send the replies, settle what waits for the records."""

    records: list[RecordT]
    replies: list[Reply]
    settlements: list[Settlement]
    is_atomic: bool = False
    """The records are in force already, so the log has to take all of them or none."""
    transaction: Transaction | None = None
    """What the records are part of; they fit into one batch then."""
    jobs: Sequence[Job] = ()
    """Computed beside the event loop, whatever becomes of the records. Each result comes back as a request."""
    parts: Sequence[Outcome[RecordT]] = ()
    """What it was put together from. They have nothing to do with each other, so each may be appended on its own."""
    is_cuttable: bool = False
    """Each beginning of the records leaves a good state when it is loaded, so they may go into several batches."""


Rest = Generator[list[Reply], None, Outcome[Any]]
"""What a call has left to do: gives the replies of each step, and in the end what the whole call comes to."""


def together(parts: Sequence[Outcome[RecordT]]) -> Outcome[RecordT]:
    """Several outcomes that have nothing to do with each other, for one append."""
    return Outcome(
        [record for part in parts for record in part.records],
        [reply for part in parts for reply in part.replies],
        [settlement for part in parts for settlement in part.settlements],
        jobs=[job for part in parts for job in part.jobs],
        parts=parts,
    )
