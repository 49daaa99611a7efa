"""Requests of one read that are carried out together, because each differs little from the one before.

What is cut from the inbox here is prepared (`AtOnce`) and nothing more. Whatever does not follow stays in the inbox, also what
is no request at all: those before it are answered first.

Limits: so many requests and bytes, and the time of the connection's turn.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.wire.errors import ProtocolViolation

if TYPE_CHECKING:
    from ottla.server.gate.context import RequestContext
    from ottla.server.gate.dispatch import AtOnce
    from ottla.server.net.inbox import Inbox

TOGETHER_MAX = 32
TOGETHER_BYTES_MAX = 1024 * 1024
SIZE_BYTES = 4  # before each frame
_correlation_id = struct.Struct(">4xi").unpack_from
_CORRELATION_ID_AT, _CORRELATION_ID_END = (
    4,
    8,
)  # in a frame; all else of the header is the same in all of a client's requests


class Taken(NamedTuple):
    """A request that was cut from the inbox and is to be carried out."""

    start: int
    end: int
    prepared: Any


def take_following(
    inbox: Inbox, at_once: AtOnce, context: RequestContext[Any], start: int, body: int, prepared: Any, turn_end: float
) -> list[Taken]:
    """The request at `start`, whose body is at `body`, which was cut already, and those behind it, as far as each follows."""
    buffer, header_bytes = inbox.buffer, body - start
    kind = buffer[start : start + _CORRELATION_ID_AT]
    rest = buffer[start + _CORRELATION_ID_END : body]
    taken = [Taken(start, inbox.start, prepared)]
    while len(taken) < TOGETHER_MAX and inbox.start < start + TOGETHER_BYTES_MAX and time.monotonic() < turn_end:
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
        taken.append(Taken(start_of_next, end, prepared))
    return taken


def answers_of(
    taken: Sequence[Taken], inbox: Inbox, at_once: AtOnce, context: RequestContext[Any]
) -> list[tuple[int, list[Any]]]:
    """The correlation ids and answers of requests, up to the first that is not ordinary after all.

    What comes behind that is in the inbox again, and that itself, too, unless it is the first one.
    """
    together = at_once.carry_out_all([each.prepared for each in taken], context) if len(taken) > 1 else None
    answers: list[tuple[int, list[Any]]] = []
    for number, (start, end, prepared) in enumerate(taken):
        # Not together, as where a segment ends: then one by one.
        parts = at_once.carry_out(prepared, context) if together is None else together[number]
        if parts is None:
            inbox.put_back(start if answers else end + SIZE_BYTES)
            break
        answers.append((_correlation_id(inbox.buffer, start)[0], parts))
    return answers
