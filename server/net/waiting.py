"""What a connection's task has to await before the connection goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ottla.server.net.calls import Call
    from ottla.server.net.sliced_work import QueuedWork
    from ottla.server.quotas.charge import Charge
    from ottla.wire.schema import Message


class Waiting(NamedTuple):
    """A request without an answer yet: its call, its correlation id, and the work that gives the answer."""

    call: Call
    correlation_id: int
    work: QueuedWork
    is_large: bool = False
    charge: Charge | None = None
    request: Message | None = None
    """What an error is an answer to; None of a large one, which `handle_large` answers."""


END_OF_TURN = Waiting(None, 0, None)  # type: ignore[arg-type]
"""In place of a request: other connections are due."""
FLUSH = Waiting(None, 1, None)  # type: ignore[arg-type]
"""In place of a request: what is to be sent has to come from the disk first."""
DRAIN = Waiting(None, 2, None)  # type: ignore[arg-type]
"""In place of a request: the answers to those before it are due first."""
ROOM = Waiting(None, 3, None)  # type: ignore[arg-type]
"""In place of a request: too many answers are pending."""
MEMORY = Waiting(None, 4, None)  # type: ignore[arg-type]
"""In place of a request: there is no memory for the rest of a large one."""
MUTED = Waiting(None, 5, None)  # type: ignore[arg-type]
"""In place of a request: the client has to pause."""
UNKNOWN_CALL = Waiting(None, 6, None)  # type: ignore[arg-type]
"""In place of a request: the first of its kind, or the broker does not know its cluster yet."""
END_OF_STREAM = Waiting(None, 7, None)  # type: ignore[arg-type]
"""In place of a request: the peer will send no more."""
