"""A thread that receives large frames for the event loop, without the interpreter lock, while the loop serves others.

Theory
    To receive a large batch takes about as long as to check it and to write it to the log, and needs nothing that is the event loop's. Where
    several connections have something for the loop, they hand over the rest of their large frames to one thread, which is kept.
    The task of the connection waits until that is done (`Connection`, `RECEIVE`), so no other code touches its socket and its
    buffer.

    A task that is cancelled meanwhile goes on waiting: the thread writes into its buffer, for a millisecond or two.
    The next thing that it awaits raises `Cancelled`.

    What finds no room the loop receives itself, as it does when it has nothing else to do, and where there is no such thread:
    without the native module, where the thread cannot be started, where sockets are not served inside the wait, and for
    TLS, which only the loop can read.
"""

from __future__ import annotations

import errno
import math
import os
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

import outcome
import trio

from ottla.wire.native import native

HANDED_OVER_BYTES_MIN = 128 * 1024
"""Fewer are received sooner than handed over and taken back."""
PENDING_MAX = 4
TRIED_AGAIN_S = 10.0

_hand_over: Any = native("hand_over", None)
_serve_receives: Any = native("serve_receives", None)
_take_received: Any = native("take_received", None)


class BackgroundWorker:
    """Thread that receives large frames on behalf of one event loop.

    `watch(descriptor, function)` makes this loop call the function when the descriptor is readable.
    """

    __slots__ = ("_end", "_pending", "_thread", "_thread_end", "_tried_again_at", "_watch", "ready_count")

    def __init__(self, watch: Callable[[int, Callable[[], None]], None]) -> None:
        self._watch = watch
        self._end: socket.socket | None = None
        self._pending = 0
        self._tried_again_at = math.inf if _hand_over is None else 0.0
        self.ready_count = 0
        """Number of sockets for which the loop had something to do when it last looked."""

    @property
    def is_wanted(self) -> bool:
        """True if the thread should receive: the event loop has other sockets to serve, and the thread has capacity.

        Starts the thread if necessary; False if it cannot be started.
        """
        if not (self._pending < PENDING_MAX and (self.ready_count > 1 or self._pending)):
            return False
        return self._end is not None or (time.monotonic() >= self._tried_again_at and self._start())

    def _start(self) -> bool:
        """Start the thread; return False if that fails. Called at first use: most brokers never need the thread."""
        self._tried_again_at = time.monotonic() + TRIED_AGAIN_S
        try:
            end, thread_end = socket.socketpair()
        except OSError:
            return False
        thread = threading.Thread(target=_serve_receives, args=(thread_end.fileno(),), daemon=True, name="background")
        try:
            thread.start()
            self._watch(end.fileno(), self._take_received)
        except (OSError, RuntimeError):
            end.close()
            if thread.ident is not None:
                thread.join()  # it has read the end of the stream
            thread_end.close()
            return False
        self._end, self._thread_end, self._thread = end, thread_end, thread
        return True

    async def receive(self, sock: socket.socket, buffer: Any, start: int, size: int) -> int:
        """Let the thread receive into `buffer[start:start + size]`; return the number of bytes.

        0: the event loop must receive itself. Raises OSError if the connection is broken. Cancellation waits until the
        thread is done.
        """
        if self._end is None or self._pending >= PENDING_MAX:
            return 0
        try:
            _hand_over(self._end.fileno(), trio.lowlevel.current_task(), sock.fileno(), buffer, start, size)
        except OSError:
            return 0
        self._pending += 1
        result: int = await trio.lowlevel.wait_task_rescheduled(lambda _: trio.lowlevel.Abort.FAILED)
        if result < 0 and -result != errno.EAGAIN:
            raise OSError(-result, os.strerror(-result))
        return max(result, 0)

    def _take_received(self) -> None:
        assert self._end is not None
        while self._pending and (received := _take_received(self._end.fileno())) is not None:
            self._pending -= 1
            task, result = received
            trio.lowlevel.reschedule(task, outcome.Value(result))

    def close(self) -> None:
        """Stop the thread when its pending work is done."""
        self._tried_again_at = math.inf
        if self._end is not None:
            self._end.shutdown(socket.SHUT_WR)
            self._thread.join()
            self._take_received()
            self._end.close()
            self._thread_end.close()
            self._end = None
