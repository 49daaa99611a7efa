"""Slow processors: a broker whose turns take long, as on a machine where others want the processor too.

A turn is what a broker does between two looks at what has become ready. Ordinarily it takes no time here. Of a host that is
slow, whatever has become ready, a task or a socket, waits for its next turn, and all that wait for one have it together; what
a task awaits in between, it awaits for a turn at least. So a request that takes ten steps takes ten turns, while clients,
other brokers and ZooKeeper go on at their speed.

A turn takes up to `TURN_S`, times the factor of the fault.
"""

import contextlib
import random
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any
from unittest import mock

import trio
from trio._core import _run as trio_run

from ottla.server.testing.memory.agenda import Agenda

TURN_S = 0.01
FACTORS = (1, 10, 100)

whose_task: ContextVar[int] = ContextVar("whose_task", default=0)
"""The broker that a task belongs to, where that is known."""


class Processors:
    """Processors of all hosts, each slowed down by its factor."""

    def __init__(self, agenda: Agenda, chance: random.Random) -> None:
        self._agenda = agenda
        self._chance = chance
        self._slow: dict[int, list[int]] = {}  # by how much, of each fault
        self._turn_ends: dict[int, float] = {}
        self._waiting: dict[tuple[int, float], list[trio.lowlevel.Task]] = {}  # by host and turn

    def slow_down(self, host: int, factor: int) -> None:
        self._slow.setdefault(host, []).append(factor)

    def speed_up(self, host: int, factor: int) -> None:
        """End one slow-down of a host."""
        self._slow[host].remove(factor)
        if not self._slow[host]:
            del self._slow[host]

    def next_turn(self, host: int) -> float | None:
        """Return the time of the host's next turn, at which its ready tasks go on; None: at once."""
        factors = self._slow.get(host)
        if factors is None:
            return None
        now = trio.current_time()
        if self._turn_ends.get(host, now) <= now:
            self._turn_ends[host] = now + TURN_S * max(factors) * self._chance.uniform(0.1, 1.0)
        return self._turn_ends[host]

    @contextlib.contextmanager
    def in_force(self) -> Iterator[None]:
        """Tasks of slow hosts wait for their turns. Trio has no public way to keep a task waiting that could go on."""
        with mock.patch.object(trio_run.Runner, "reschedule", self._rescheduling(trio_run.Runner.reschedule)):
            yield

    def _rescheduling(self, reschedule: Callable[..., None]) -> Callable[..., None]:
        def instead(runner: Any, task: Any, *next_send: Any) -> None:
            reschedule(runner, task, *next_send)
            if self._slow and (due := self.next_turn(task.context.get(whose_task, 0))) is not None:
                self._let_wait(runner, runner.runq.pop(), due)

        return instead

    def _let_wait(self, runner: Any, task: trio.lowlevel.Task, due: float) -> None:
        """Keep a task until a turn. Trio reschedules in the order of addresses, and sorts what becomes ready together."""
        turn = task.context.get(whose_task, 0), due
        if turn not in self._waiting:
            self._waiting[turn] = []
            self._agenda.at(due, lambda: runner.runq.extend(self._waiting.pop(turn)))
        self._waiting[turn].append(task)
