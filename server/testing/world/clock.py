"""The clock of the lab: real time that can be advanced, frozen and sped up.

The lab's event loop runs on it, so that every timer of the brokers follows: sessions, rebalances, transactions, locks of share
groups, retention, compaction, quotas, rolling of segments. Two things remain real: what a client in its own thread or process
measures, and the pauses that protect a broker's processor (turns of the event loop, idle connections).

    time of the lab = base + (real time - real base) * factor        a change of the factor moves both bases
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import trio
import trio.testing

from ottla.server.testing.errors import LabError

EXACT_S, TOGETHER_SHARE = 5.0, 1 / 5
"""An advance goes from timer to timer in its first and last seconds. In between what lies closer together than this share of
the time since its beginning, or until its end, runs in one step: some hundred steps make a week as well as a century."""
STEP_MIN_S = 0.001

ADVANCE_MAX_S = 36_525 * 86_400
FACTOR_MAX = 1e6
"""Beyond these a double has no room for the fractions of a second that timers need, and the lab would hang for good."""

LOOKS_MAX, LOOK_AGAIN_S = 10_000, 0.0005  # at threads that are still at work
_pausing = trio.CapacityLimiter(1000)


class LabClock(trio.abc.Clock):
    """Clock of a trio run, in seconds. All methods but `current_time` and `now_ms` are called in that run's thread."""

    def __init__(self) -> None:
        self._real_base = self._base = time.perf_counter()
        self._wall_s = time.time() - self._base  # what has to be added for the time of day
        self.factor = 1.0

    # ------------------------------------------------------------------ what trio asks

    def start_clock(self) -> None:
        """Begin: nothing is to be done."""

    def current_time(self) -> float:
        return self._base + (time.perf_counter() - self._real_base) * self.factor

    def deadline_to_sleep_time(self, deadline: float) -> float:
        left = deadline - self.current_time()
        if left <= 0:
            return 0.0
        return left / self.factor if self.factor else math.inf

    # ------------------------------------------------------------------ what brokers ask

    def now_ms(self) -> int:
        """Return the lab's time of day in ms since 1970."""
        return int((self._wall_s + self.current_time()) * 1000)

    # ------------------------------------------------------------------ what tests do

    def set_factor(self, factor: float) -> None:
        """Let time pass `factor` times as fast as real time; 0 freezes it."""
        if not 0 <= factor < math.inf:
            raise LabError(f"Time cannot run {factor} times as fast; give 0 or a positive number.")
        if factor > FACTOR_MAX:
            raise LabError(
                f"Time cannot run {factor} times as fast, but {FACTOR_MAX:.0f} times; clock.advance() jumps."
            )
        self._base, self._real_base = self.current_time(), time.perf_counter()
        self.factor = factor

    def synchronize(self) -> None:
        """Let time run as real time does, and set the time of day to the real one; what was advanced is forgotten."""
        self.set_factor(1.0)
        self._wall_s = time.time() - self.current_time()

    def jump(self, seconds: float) -> None:
        """Move the time forward at once; what is due runs when the loop looks next."""
        self._base += seconds

    async def advance(self, seconds: float, on_jump: Callable[[float], object]) -> None:
        """Move the time forward in steps from timer to timer; return when all has run.

        What runs at a step runs to the end, as far as it needs nobody in another thread or process, before the next step.
        `on_jump`: called with the seconds of each step that goes beyond the next timer, before anything runs.
        """
        if not 0 <= seconds < math.inf:
            raise LabError(f"Time cannot be advanced by {seconds} seconds; it only goes forward, so give 0 or more.")
        if seconds > ADVANCE_MAX_S:
            raise LabError(f"Time cannot be advanced by {seconds} seconds at once; 100 years is the most.")
        begin = self.current_time()
        end = begin + seconds
        await _settle()
        while (now := self.current_time()) < end:
            next_timer = max(trio.lowlevel.current_statistics().seconds_to_next_deadline, STEP_MIN_S)
            together = (min(now - begin, end - now) - EXACT_S) * TOGETHER_SHARE
            step = min(max(next_timer, together), end - now)
            self.jump(step)
            if step > next_timer:
                on_jump(step)
            await _settle()


async def _settle() -> None:
    """Wait until all tasks wait for a timer, a socket or the lab itself, and none for a thread."""
    threads = trio.to_thread.current_default_thread_limiter()
    await trio.testing.wait_all_tasks_blocked()
    for _ in range(LOOKS_MAX):
        if not threads.borrowed_tokens:
            return
        await pause(LOOK_AGAIN_S)
        await trio.testing.wait_all_tasks_blocked()


async def pause(seconds: float) -> None:
    """Wait for some real time, which goes on while the lab's is frozen."""
    await trio.to_thread.run_sync(time.sleep, seconds, limiter=_pausing)
