"""State machine of the processes of several workers: starts, restarts and ends. `supervisor.py` carries out its decisions.

    state      how it begins                            what ends it
    beginning  the tree's keeper starts, and when it    all workers serve -> serving; one ends, or a signal -> stopping
               is ready all workers, side by side
    serving    clients are served                       a signal, no worker is left, or the tree is lost -> stopping
    stopping   every worker is asked to stop; when all  all processes have ended
               have ended, the keeper

A worker that ends while others serve is started again, whatever it ended by: its bug, its disk, a signal of an operator. At
once the first time, and later each time that follows within RESTARTS_S, because what has ended it may take a moment to be
over. After more than RESTARTS_MAX ends in that time it stays down, and the others go on. A worker that reported why it
cannot serve is also restarted after the minute: its disk may have been repaired or have room again. When all workers are
down, nothing is tried any more.

The keeper of the tree is restarted, too, and its members wait. A keeper that reports why it cannot go on is not restarted,
because the workers cannot serve without one.

Workers that are the whole cluster, because they have its tree, are sent ALL_STOP, and hand nothing over. Those that share a tree with
other machines are sent SIGTERM, and hand over to these. Who stops is patient, then not: SIGTERM, SIGKILL. An operator's second and third
signals do the same sooner. A process that does not even end then (its disk hangs) is left to the system.
"""

from __future__ import annotations

import math
import signal
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from ottla.server.launch.signals import ALL_STOP

RESTARTS_MAX: Final = 5
RESTARTS_S: Final = 60.0
REST_S: Final = RESTARTS_S + 1  # before a worker is tried again that is down, and has said why
DELAYS_S: Final = (0.0, 0.5, 1.0, 2.0, 4.0)  # before each start within RESTARTS_S
FLUSH_S: Final = 30.0  # how long a broker may need to bring its logs to disk
KILL_S: Final = 10.0  # how long the system may need to end a process that was killed
EXIT_OK: Final = 0
EXIT_FAILED: Final = 1
HANG_UP: Final = "SIGHUP"
_KILLED: Final = 2  # the urgency at which processes are killed


class Start(NamedTuple):
    """Action: start the process of this name."""

    name: str


class Send(NamedTuple):
    """Action: send the process of this name a signal."""

    name: str
    number: signal.Signals


class Say(NamedTuple):
    """Action: log a line for the operator; `is_bad`: as a warning."""

    line: str
    is_bad: bool = True


class Announce(NamedTuple):
    """Action: announce, once, that all workers have become ready."""


class AnnounceAgain(NamedTuple):
    """Action: announce that a restarted worker serves again, perhaps at another port."""

    name: str


Action = Start | Send | Say | Announce | AnnounceAgain


class Restarts:
    """Counter of one process's recent restarts; it gives the delay before the next restart."""

    def __init__(self) -> None:
        self._ends: deque[float] = deque(maxlen=RESTARTS_MAX + 1)

    def delay_s(self, now: float) -> float | None:
        """Count an end of the process; return the seconds until its restart, None at the limit of restarts."""
        self._ends.append(now)
        recent = sum(now - each <= RESTARTS_S for each in self._ends)
        return DELAYS_S[recent - 1] if recent <= RESTARTS_MAX else None


class _Process:
    def __init__(self, name: str) -> None:
        self.name = name
        self.is_alive = self.is_ready = self.is_given_up = False
        self.due = math.inf  # when it is started again
        self.problem = ""
        self.restarts = Restarts()

    @property
    def is_missed(self) -> bool:
        """True if the process has ended, and it is not yet decided whether to restart it."""
        return not self.is_alive and not self.is_given_up and self.due == math.inf


class Fleet:
    """State machine of the processes of `ottla start --workers`. Times are in seconds of a monotonic clock."""

    def __init__(self, workers: Sequence[str], keeper: str | None, hand_over_s: float) -> None:
        """Create the state of `workers`, none of which runs yet; `hand_over_s`: seconds for a controlled shutdown.

        `keeper`: name of the process that holds the coordination tree; None if the tree is elsewhere.
        """
        self._workers = [_Process(name) for name in workers]
        self._keeper = None if keeper is None else _Process(keeper)
        self._patience_s = hand_over_s + FLUSH_S
        self._is_announced = self.is_stopping = False
        self._urgency = 0
        self._deadline = math.inf
        self.failure = ""
        """Why it could not start, or had to stop; one line for the operator."""

        self.was_killed = False
        """Whether a process had to be killed at the end."""

    # --- what is the case

    @property
    def is_over(self) -> bool:
        """True if the stop is complete: no process runs any more."""
        return self.is_stopping and not any(each.is_alive for each in self._all)

    @property
    def is_serving(self) -> bool:
        return self._is_announced and not self.is_stopping

    @property
    def deadline(self) -> float:
        """Time at which `on_time` must be called next."""
        return min(self._deadline, *(each.due for each in self._all))

    @property
    def _all(self) -> list[_Process]:
        return [*self._workers, *([self._keeper] if self._keeper else [])]

    def _process(self, name: str) -> _Process:
        return next(each for each in self._all if each.name == name)

    # --- what happens

    def begin(self) -> list[Action]:
        """Return the actions that start the first processes."""
        return self._start([self._keeper] if self._keeper else self._workers)

    def on_ready(self, name: str) -> list[Action]:
        """Return the actions that follow when a process has become ready."""
        process = self._process(name)
        process.is_ready, process.is_given_up = True, False
        if self.is_stopping:
            return []
        if process is self._keeper:
            return self._start([each for each in self._workers if each.is_missed])
        if self._is_announced:
            return [Say(f"{name} serves again", is_bad=False), AnnounceAgain(name)]
        if all(each.is_ready for each in self._workers):
            self._is_announced = True
            return [Announce()]
        return []

    def on_problem(self, name: str, problem: str) -> None:
        """Record the reason that a process has reported for its imminent end."""
        self._process(name).problem = problem

    def on_ended(self, name: str, how: str, now: float, *, is_failure: bool) -> list[Action]:
        """Return the actions that follow the end of a process; `how` is a text that says how it ended."""
        process = self._process(name)
        process.is_alive = process.is_ready = False
        problem, process.problem = process.problem, ""
        told = f"{name} has ended ({problem or how})"
        if self.is_stopping:
            self.was_killed |= is_failure
            return [*([Say(told)] if is_failure and not self.failure else []), *self._go_on_stopping(now)]
        if not self._is_announced:
            return self._fail(f"{name}: {problem}" if problem else told, now)
        if process is self._keeper and problem:
            return self._fail(f"{name}: {problem}", now)
        if (delay_s := process.restarts.delay_s(now)) is not None:
            process.due = now + delay_s
            when = f" in {delay_s:g} s" if delay_s else ""
            return [Say(f"{told} and is started again{when}"), *self._start_due(now)]
        process.is_given_up = True
        if process is self._keeper or all(each.is_given_up and not each.is_alive for each in self._workers):
            return self._fail(f"{told} too often", now)
        times = f"{RESTARTS_MAX + 1} times within {RESTARTS_S:.0f} s"
        if problem:
            process.due = now + REST_S
            return [Say(f"{told}, {times}; what it led is away until it is tried again in {REST_S:.0f} s")]
        return [Say(f"{told}, {times}; it stays down, and so does what it led, until all are started anew")]

    def on_signal(self, name: str, now: float) -> list[Action]:
        """Return the actions that follow an operator's signal; `name` is the signal's name."""
        if not self.is_stopping:
            return [Say(f"stopping on {name}", is_bad=False), *self._stop(now)]
        if name == HANG_UP:
            return []  # shell and kernel may each send it when a terminal is closed
        return [Say(f"stopping at once on another signal, {name}"), *self._press(now)]

    def on_time(self, now: float) -> list[Action]:
        """Return the actions due at time `now`: restarts, or stronger signals if the time for the stop is over."""
        if now < self._deadline:
            return self._start_due(now)
        return self._press(now) if self._urgency < _KILLED else self._abandon(now)

    # --- what follows

    def _start_due(self, now: float) -> list[Action]:
        return self._start([each for each in self._all if each.due <= now])

    def _start(self, processes: Iterable[_Process]) -> list[Action]:
        actions: list[Action] = []
        for each in processes:
            each.is_alive, each.due = True, math.inf
            actions.append(Start(each.name))
        return actions

    def _fail(self, failure: str, now: float) -> list[Action]:
        self.failure = failure
        return self._stop(now)

    def _stop(self, now: float) -> list[Action]:
        self.is_stopping = True
        for each in self._all:
            each.due = math.inf
        number = signal.SIGTERM if self._keeper is None else ALL_STOP
        return self._ask(self._workers, number, now) or self._go_on_stopping(now)

    def _go_on_stopping(self, now: float) -> list[Action]:
        # Workers need the tree to hand over, so its keeper comes last.
        if self._keeper is None or any(each.is_alive for each in self._workers):
            return []
        return self._ask([self._keeper], signal.SIGTERM, now)

    def _ask(self, processes: Sequence[_Process], number: signal.Signals, now: float) -> list[Action]:
        alive = [each for each in processes if each.is_alive]
        if alive:
            self._urgency, self._deadline = 0, now + self._patience_s
        return [Send(each.name, number) for each in alive]

    def _press(self, now: float) -> list[Action]:
        self._urgency += 1
        self._deadline = now + (FLUSH_S if self._urgency < _KILLED else KILL_S)
        number = signal.SIGTERM if self._urgency < _KILLED else signal.SIGKILL
        return [Send(each.name, number) for each in self._next_to_end()]

    def _abandon(self, now: float) -> list[Action]:
        left = self._next_to_end()
        for each in left:
            each.is_alive = False
        self.was_killed, self._deadline = True, math.inf
        return [
            *(Say(f"{each.name} does not end, and is left to the system") for each in left),
            *self._go_on_stopping(now),
        ]

    def _next_to_end(self) -> list[_Process]:
        return [each for each in self._workers if each.is_alive] or [each for each in self._all if each.is_alive]
