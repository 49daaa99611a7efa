"""The walk over the records of large batches, which a connection may have handed over before it answers (`errands.py`).

The request is looked at twice: until its records are to be walked over, and again, with what is known of them by then. In between
nothing of it was done, and its frame is the next one in the inbox, which the connection does not touch.
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any

from ottla.server.net.errands import WALKED_BYTES_MAX, Errands, HandedOver
from ottla.wire.compressed_walk import Found, is_for_native_alone, walk_stored
from ottla.wire.compression import Buffer

if TYPE_CHECKING:
    from ottla.server.gate.context import RequestContext
    from ottla.server.gate.dispatch import AtOnce
    from ottla.server.net.calls import Call
    from ottla.server.net.inbox import Inbox


class Ahead:
    """The walk over the records of one connection's large batches: `walk_stored`, which may be handed over."""

    __slots__ = ("_errands", "_found", "_has_come_back", "_socket", "is_known")

    def __init__(self, errands: Errands, sock: socket.socket) -> None:
        self._errands = errands
        self._socket = sock
        self._found: Found | None = None
        self._has_come_back = False
        self.is_known = False

    def take(self) -> bool:
        """Whether it has just come back. What is known now is known of the first frame, until that is answered."""
        self.is_known, self._has_come_back = self._has_come_back, False
        return self.is_known

    def prepare(
        self,
        call: Call,
        at_once: AtOnce,
        inbox: Inbox,
        start: int,
        position: int,
        end: int,
        context: RequestContext[Any],
    ) -> Any:
        """`at_once.prepare` of the frame that was just cut. HandedOver: the frame is in front once more, and a thread looks at it."""
        if not inbox.has_own_buffer:
            return at_once.prepare(inbox.buffer, position, end, context)
        try:
            return at_once.prepare(inbox.buffer, position, end, context, self._walk)
        except HandedOver:
            inbox.put_back(start)
            call.route.request_count -= 1
            call.route.request_bytes -= end - start
            raise
        finally:
            # This frame may have been answered without it, as where its topic has other settings by now. It is not the next one's.
            self.is_known = False

    def _walk(self, codec: int, data: Buffer, limit: int, count: int) -> Found | None:
        if self.is_known:
            self.is_known = False
            return self._found
        # What is only stored is walked over in less time than it takes to hand it over.
        if limit == WALKED_BYTES_MAX and is_for_native_alone(codec, data):
            self._errands.walk(self._socket.fileno(), self._deliver, codec, data, count)
        return walk_stored(codec, data, limit, count)

    def _deliver(self, found: Found | None) -> None:
        self._found, self._has_come_back = found, True
