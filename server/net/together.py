"""Requests of one read that are carried out together, because each differs little from the one before.

What is cut from the inbox here is prepared (`AtOnce`) and nothing more. Whatever does not follow stays in the inbox, also what
is no request at all: those before it are answered first.

Limits: so many requests and bytes, and the time of the connection's turn.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from ottla.wire.errors import ProtocolViolation

if TYPE_CHECKING:
    from ottla.server.gate.context import RequestContext
    from ottla.server.gate.dispatch import AtOnce
    from ottla.server.net.inbox import Inbox

TOGETHER_MAX = 32
TOGETHER_BYTES_MAX = 1024 * 1024
_CORRELATION_ID_AT, _CORRELATION_ID_END = 4, 8  # in a frame; all else of the header is the same in all of a client's requests


def take_following(
    inbox: Inbox, at_once: AtOnce, context: RequestContext[Any], start: int, body: int, prepared: Any, turn_end: float
) -> tuple[list[int], list[Any]]:
    """Cut the frames behind the one at `start`, whose body is at `body`, as far as each follows. Returns where they begin, and what is prepared.

    The first of both is the frame at `start`.
    """
    buffer, header_bytes = inbox.buffer, body - start
    kind = buffer[start : start + _CORRELATION_ID_AT]
    rest = buffer[start + _CORRELATION_ID_END : body]
    starts, together = [start], [prepared]
    while len(starts) < TOGETHER_MAX and inbox.start < start + TOGETHER_BYTES_MAX and time.monotonic() < turn_end:
        try:
            frame = inbox.next_frame()
        except ProtocolViolation:
            break
        if frame is None:
            break
        start_of_next, end = frame
        body_of_next = start_of_next + header_bytes
        has_same_header = (
            body_of_next <= end
            and buffer[start_of_next : start_of_next + _CORRELATION_ID_AT] == kind
            and buffer[start_of_next + _CORRELATION_ID_END : body_of_next] == rest
        )
        prepared = at_once.follow(prepared, buffer, body_of_next, end, context) if has_same_header else None
        if prepared is None:
            inbox.put_back(start_of_next)
            break
        starts.append(start_of_next)
        together.append(prepared)
    return starts, together
