"""Quotas of one connection: requests are charged, and a client that has to pause is not read (KIP-219).

The answer goes out at once and says how long the pause is, in the versions that have a field for it. Whether the client
keeps to that is its own affair: until the pause is over the broker does not read its connection, so that a client costs
nothing meanwhile, and whatever it sends waits in its own socket. Older clients, which know nothing of pauses, are treated
alike.
"""

from __future__ import annotations

import copy
import struct
import time
from typing import TYPE_CHECKING, Any

import trio

from ottla.server.security.quotas.client_quotas import Charge
from ottla.wire.answers import EncodedAnswer
from ottla.wire.happenings import THROTTLE, cut, in_seconds

if TYPE_CHECKING:
    from ottla.server.dispatch.context import RequestContext
    from ottla.server.network.calls import Call
    from ottla.server.network.sliced_work import Work
    from ottla.server.security.quotas.client_quotas import ClientQuotas

_int32 = struct.Struct(">i").pack


def now_ms() -> int:
    """Return the event loop's monotonic time in milliseconds."""
    return int(trio.current_time() * 1000)


class Throttling:
    """Quota charges and throttle time of one connection."""

    __slots__ = ("_context", "muted_until", "quotas")

    def __init__(self, quotas: ClientQuotas, context: RequestContext[Any] | None = None) -> None:
        """`context`: that of the connection's requests, which notes throttles; None: nobody does."""
        self.quotas, self._context = quotas, context
        self.muted_until = 0.0  # by the clock of the event loop; 0: it is read

    @property
    def is_muted(self) -> bool:
        """True while the client is throttled. The task that waits for the end of the throttle time calls `unmute`."""
        return self.muted_until > 0

    def unmute(self) -> None:
        self.muted_until = 0.0

    def begin(self, call: Call, context: RequestContext[Any], size: int) -> Charge:
        """Return the charge for a received request of `size` bytes, after setting it in the context."""
        charge = Charge(
            self.quotas,
            now_ms,
            context.principal,
            context.client_id,
            produced_bytes=size if call.takes_records else 0,
            is_exempt=call.route.unmetered,
        )
        context.charge = charge
        return charge

    def settle(self, call: Call, response: Any, charge: Charge) -> Any:
        """Charge an answered request to the client's quotas, and return `response`; None: there is none.

        If the client is throttled, the response gets the throttle time.
        """
        pause_ms = charge.settle(is_answered=response is not None)
        if pause_ms <= 0:
            return response
        if self._context is not None:
            note_throttle(self._context, call.route.name, charge.quota, pause_ms)
        self.muted_until = max(self.muted_until, trio.current_time() + pause_ms / 1000)
        if response is None or not call.tells_throttle_time:
            return response
        # Others may be sent the same answer, so it is not changed.
        if type(response) is EncodedAnswer:
            return _told(response, pause_ms) if call.starts_with_throttle_time else response
        told = copy.copy(response)
        told.throttle_time_ms = pause_ms
        return told


def _told(answer: EncodedAnswer, pause_ms: int) -> EncodedAnswer:
    return EncodedAnswer(_int32(pause_ms) + answer.body[4:])


def note_throttle(context: RequestContext[Any], api: str, quota: str, pause_ms: int) -> None:
    """Note that a client is not read for `pause_ms`, because its request `api` exceeded `quota`."""
    host = context.client_host.removeprefix("/")
    who = f"{cut(context.client_id)!r} at {host}"
    cause = f"{who} was throttled for {in_seconds(pause_ms)} after {api}: it used more than its {quota}"
    context.note(THROTTLE, cause, source=host, client_id=context.client_id, host=host, error=quota)


class Timed:
    """Work on a request whose processing time is charged to the client's request quota."""

    __slots__ = ("_charge", "_work")

    def __init__(self, work: Work, charge: Charge) -> None:
        self._work, self._charge = work, charge

    def send(self, value: Any) -> Any:
        """Run the next piece of the work and return what it yields; add the piece's time to the charge."""
        began = time.perf_counter_ns()
        try:
            return self._work.send(value)
        finally:
            self._charge.spent_ns += time.perf_counter_ns() - began

    def close(self) -> None:
        self._work.close()
