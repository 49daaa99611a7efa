"""A world in which a program runs on virtual time and every run of one seed is the same, byte for byte.

`run(main, seed)` is `trio.run` on a clock that jumps to the next deadline when nobody has anything to do, and makes the
calls of an agenda on its way. All that could
differ between two runs is replaced meanwhile: the order in which trio wakes tasks (seeded), the clocks of the `time`
module (they tell virtual time), `uuid`, `os.urandom`, `secrets` and the `random` module (seeded), threads (the work is done
in place, after a virtual delay). What is left is the order of sets: Python has another one in each process for sets of texts
and for sets of objects. So brokers go through no set where the order shows. Other threads of the process go on as they are,
such as that of a lab.

Trio has no public way to fix its order (pytest-trio uses the same two names), nor to jump to anything but a deadline.
"""

from __future__ import annotations

import contextlib
import heapq
import math
import os
import random
import threading
import time
import uuid
from collections.abc import Awaitable, Callable, Iterator
from typing import Any
from unittest import mock

import trio
from trio._core import _run as trio_run
from trio.testing import MockClock

from ottla.replication import random_ids
from ottla.replication.random_ids import UuidSupply
from ottla.server.coordinators import coordinator_log
from ottla.server.dispatch.dispatch import Route
from ottla.server.testing.memory.agenda import Agenda, Call

EPOCH_S = 1_800_000_000  # what virtual wall clocks tell at the start
THREAD_DELAY_S = (0.0001, 0.003)
ROUNDS_MAX = 100_000
"""Rounds of trio's loop at one time."""

RunInThread = Callable[..., Awaitable[Any]]
Due = tuple[float, int, Call]


class Standstill(AssertionError):
    """Raised if a run would not end. As the failure of a call it ends tasks that are shielded, too."""


class ClockedAgenda(Agenda):
    """An agenda whose calls are made by the clock."""

    def __init__(self) -> None:
        self.due: list[Due] = []
        self.scope = trio.CancelScope()
        self.failure: Exception | None = None
        self._count = 0

    def at(self, when: float, call: Call) -> None:
        self._count += 1
        heapq.heappush(self.due, (when, self._count, call))

    def make(self, call: Call) -> None:
        """Make a call, in no task; a failure ends the run."""
        try:
            call()
        except Standstill:
            raise
        except Exception as failure:  # noqa: BLE001 - raised again by the main task
            self.end(failure)

    def end(self, failure: Exception) -> None:
        """End the run."""
        self.failure = failure
        self.scope.cancel()


def run(main: Callable[[Agenda], Awaitable[Any]], seed: int) -> Any:
    """Run to the end on virtual time; returns what `main` returns, which gets the agenda of that time."""
    clock, agenda = MockClock(autojump_threshold=0), ClockedAgenda()
    jumps = _Jumps(clock, agenda)
    # Trio jumps with nothing but a MockClock, which cannot be extended.
    clock._autojump, clock.current_time = jumps.jump, jumps.now  # type: ignore[method-assign]
    with _world(seed, jumps.now):
        return trio.run(
            _until_a_call_fails, main, agenda, clock=clock, instruments=[_StandstillWatch(agenda, jumps.now)]
        )


async def _until_a_call_fails(main: Callable[[Agenda], Awaitable[Any]], agenda: ClockedAgenda) -> Any:
    with agenda.scope:
        return await main(agenda)
    assert agenda.failure is not None
    raise agenda.failure


class _Jumps:
    """Clock that jumps to the next deadline, and makes the agenda's calls on the way until a task can run."""

    def __init__(self, clock: MockClock, agenda: ClockedAgenda) -> None:
        self._clock = clock
        self._agenda = agenda

    def now(self) -> float:
        return self._clock._virtual_base

    def jump(self) -> None:
        """Called by trio's loop when no task can run."""
        runner, due, clock = trio_run.GLOBAL_RUN_CONTEXT.runner, self._agenda.due, self._clock
        runnable, next_deadline = runner.runq, runner.deadlines.next_deadline
        while due and due[0][0] <= next_deadline():
            when, _, call = heapq.heappop(due)
            clock._virtual_base = max(clock._virtual_base, when)
            self._agenda.make(call)
            if runnable:
                return
        deadline = next_deadline()
        if deadline < math.inf:
            clock._virtual_base = max(clock._virtual_base, deadline)


class _StandstillWatch(trio.abc.Instrument):
    """Ends a run in which tasks go on and on without waiting, so that no time passes."""

    def __init__(self, agenda: ClockedAgenda, now: Callable[[], float]) -> None:
        self._agenda = agenda
        self._now = now
        self._at = -1.0
        self._rounds = 0

    def before_io_wait(self, timeout: float) -> None:
        if self._at != (now := self._now()):
            self._at, self._rounds = now, 0
        self._rounds += 1
        if self._rounds == ROUNDS_MAX:
            self._agenda.end(
                Standstill(
                    "no virtual time passes, because a task goes on and on without waiting: use await sim.sleep(0.1)"
                )
            )


def thread_runner(chance: random.Random) -> RunInThread:
    """Return a function that does a thread's work in place, a little later."""

    async def run_in_thread(function: Callable[..., Any], *arguments: Any, **_: Any) -> Any:
        await trio.sleep(chance.uniform(*THREAD_DELAY_S))
        return function(*arguments)

    return run_in_thread


def only_here(inside: Callable[..., Any], outside: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that is `inside` in the thread of the caller, and `outside` in all others."""
    here = threading.get_ident()

    def either(*arguments: Any, **options: Any) -> Any:
        return (inside if threading.get_ident() == here else outside)(*arguments, **options)

    return either


class _Order:
    """The choices of trio's scheduler: those of a seed in the thread of the caller, any in others."""

    def __init__(self, seeded: random.Random, other: Any) -> None:
        self.random = only_here(seeded.random, other.random)
        self.shuffle = only_here(seeded.shuffle, other.shuffle)
        self.uniform = only_here(seeded.uniform, other.uniform)


@contextlib.contextmanager
def _world(seed: int, now: Callable[[], float]) -> Iterator[None]:
    chance = random.Random(f"world {seed}")
    bytes_of = chance.randbytes
    with contextlib.ExitStack() as replaced:
        replaced.enter_context(mock.patch.object(trio_run, "_ALLOW_DETERMINISTIC_SCHEDULING", True))
        replaced.enter_context(mock.patch.object(trio_run, "_r", _Order(random.Random(seed), trio_run._r)))
        replaced.enter_context(mock.patch.object(random_ids, "_topic_ids", UuidSupply()))
        # Loaded in threads once in a process: here in each run, or the first one would take other time than the next.
        replaced.enter_context(mock.patch.object(coordinator_log, "_topics_with_codecs", set()))
        for owner, name, value in (
            (trio.to_thread, "run_sync", thread_runner(chance)),
            (time, "time", lambda: EPOCH_S + now()),
            (time, "time_ns", lambda: int((EPOCH_S + now()) * 1e9)),
            (time, "monotonic", now),
            (time, "monotonic_ns", lambda: int(now() * 1e9)),
            (time, "perf_counter", now),
            (time, "perf_counter_ns", lambda: int(now() * 1e9)),
            (os, "urandom", bytes_of),
            (random, "_urandom", bytes_of),  # of `secrets`
            (Route, "is_loaded", lambda route, version: True),  # or the first run of a process would load in threads
            (uuid, "uuid4", lambda: uuid.UUID(bytes=bytes_of(16), version=4)),
        ):
            replaced.enter_context(mock.patch.object(owner, name, only_here(value, getattr(owner, name))))
        state = random.getstate()
        random.seed(seed)
        try:
            yield
        finally:
            random.setstate(state)
