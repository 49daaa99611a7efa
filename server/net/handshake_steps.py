"""The steps of TLS handshakes, where they hold nobody up.

The dearest step is mostly one signature. Steps that the event loop can afford are done there, one at each turn of the loop,
so that a crowd that connects at once holds nobody up. A dear key (RSA 4096) signs in a thread. Which kind a key is is
measured with its first handshakes, in a thread as well.
"""

from __future__ import annotations

import ssl
import time
from typing import TYPE_CHECKING, Protocol

import trio

if TYPE_CHECKING:
    from ottla.server.auth.tls_listener import KeyCost


class Session(Protocol):
    """An `ssl.SSLSocket` or its like, which does not block."""

    def do_handshake(self) -> None:
        """Take a step. Raises SSLWantReadError or SSLWantWriteError if it is not the last one."""

    def fileno(self) -> int:
        """Of the socket."""


class HandshakeSteps:
    """Those of many connections, which take turns."""

    def __init__(self) -> None:
        self._turn = trio.Lock()
        self._thread = trio.CapacityLimiter(1)

    async def take_all(self, tls: Session, cost: KeyCost) -> None:
        """Shake hands on a socket that does not block. Raises OSError, which ssl.SSLError is."""
        dearest_s = 0.0
        in_thread = not cost.is_low
        while True:
            try:
                if in_thread:
                    # Not abandoned: a thread must not use a socket that is closed meanwhile.
                    dearest_s = max(dearest_s, await trio.to_thread.run_sync(_timed_step, tls, limiter=self._thread))
                else:
                    await self._step_on_loop(tls)
            except ssl.SSLWantReadError:
                await trio.lowlevel.wait_readable(tls)
            except ssl.SSLWantWriteError:
                await trio.lowlevel.wait_writable(tls)
            else:
                break
        if in_thread and not cost.is_known:
            cost.note(dearest_s)

    async def _step_on_loop(self, tls: Session) -> None:
        # Who waits for the lock is woken at the next turn of the loop: one step each turn.
        async with self._turn:
            tls.do_handshake()


def _timed_step(tls: Session) -> float:
    """Seconds of the processor; whoever waits for a thread or the interpreter does not count."""
    began = time.thread_time()
    tls.do_handshake()
    return time.thread_time() - began
