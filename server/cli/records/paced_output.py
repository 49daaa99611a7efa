"""Output of a group's member, which sends heartbeats even while the reader of its output is slow, and the signals that end it."""

from __future__ import annotations

import select
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Self

PIPE_BYTES = select.PIPE_BUF
"""Bytes that a pipe takes at once when it is ready for more."""

DUTY_S, READY_S = 1.0, 0.2


class Interruption:
    """Block in which SIGINT, SIGTERM and SIGHUP raise KeyboardInterrupt.

    Within `held`, they do so only at `check` and at the end of `held`. After `begin_end` they leave the clean end alone, which is
    short: only a second SIGINT raises KeyboardInterrupt. A SIGTERM or SIGHUP that has done so is ignored from then on, also behind
    the block: coreutils' `timeout` sends it to the process and again to its group.
    """

    def __init__(self) -> None:
        self._is_held = self._is_asked = self._is_ending = False
        self._before: dict[int, Any] = {}
        self._ended_by = 0

    def __enter__(self) -> Self:
        for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            # Under nohup, and in the background of a script, some are ignored on purpose.
            if signal.getsignal(each) != signal.SIG_IGN:
                self._before[each] = signal.signal(each, self._on_signal)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, signal.SIG_IGN if number == self._ended_by != signal.SIGINT else handler)

    def _on_signal(self, number: int, _: object) -> None:
        is_repeated, self._ended_by = number == self._ended_by, number
        is_first = self._is_ending and not is_repeated
        is_ignored = is_first if number == signal.SIGINT else self._is_ending or is_repeated
        if is_ignored:
            return
        self._is_asked = True
        if not self._is_held:
            self.check()

    def begin_end(self) -> None:
        """Let no signal but a second SIGINT raise KeyboardInterrupt from now on."""
        self._is_ending, self._is_asked = True, False

    def check(self) -> None:
        """Raise KeyboardInterrupt if a signal has arrived since the last call."""
        if self._is_asked:
            self._is_asked = False
            raise KeyboardInterrupt

    @contextmanager
    def held(self) -> Iterator[None]:
        """Delay signals until this block ends, so that no signal separates an action from the note that it is done."""
        self._is_held = True
        try:
            yield
        finally:
            self._is_held = False
        self.check()


class PacedOutput:
    """Stdout of a command that must do something regularly, even while the reader of its output is slow."""

    def __init__(self, duty: Callable[[], None], check: Callable[[], None]) -> None:
        """`duty` is called about once a second, `check` before each piece. `check` may raise KeyboardInterrupt."""
        self._duty, self._check, self._next_duty_s = duty, check, time.monotonic() + DUTY_S
        self.written = 0
        """Bytes of the last `write` that have been written, also if it has failed or was interrupted."""

    def write(self, data: bytes) -> None:
        """Write `data` to stdout and flush. Raises the errors of stdout, of `duty` and of `check`."""
        self.written = 0
        raw = getattr(sys.stdout.buffer, "raw", None)
        if raw is None:  # a stand-in for stdout, which takes everything at once
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()
            self.written = len(data)
            return
        sys.stdout.flush()
        while self.written < len(data):
            self._check()
            is_ready = bool(select.select([], [raw], [], READY_S)[1])
            if time.monotonic() >= self._next_duty_s:
                self._duty()
                self._next_duty_s = time.monotonic() + DUTY_S
            if is_ready:
                self.written += raw.write(data[self.written : self.written + PIPE_BYTES])


class IdleClock:
    """Time since the last record. `limit_s`: seconds after which it is too long; None: it never is."""

    def __init__(self, limit_s: float | None) -> None:
        self._limit_s, self._since_s = limit_s, time.monotonic()

    def restart(self) -> None:
        """Note that a record has come."""
        self._since_s = time.monotonic()

    def is_over(self, since_s: float = 0.0) -> bool:
        """Tell whether too much time has gone by, counted from `since_s` by time.monotonic() if that is later."""
        return self._limit_s is not None and time.monotonic() - max(self._since_s, since_s) > self._limit_s
