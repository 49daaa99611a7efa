"""Sockets that are served while the event loop waits, without waking a task.

Theory
    Most requests are answered at once, so a connection's task has nothing to decide: it would be woken to read, answer,
    and go back to sleep, which costs more than a small request itself. Instead the task hands `Readiness.serve` a function
    and sleeps. The function is called, still inside the loop's wait for events, whenever the socket is ready, and says how
    to go on:

    WAIT_READABLE, WAIT_WRITABLE    call again when the socket is readable, or takes more
    anything else                   the task wakes up with it

    `poke` has the function called soon, too, although nothing happened at the socket: what it has to say came from inside.

    `turn_end` says how long one connection may go on. All connections share one budget of time between two looks at the
    sockets. When it is used up, those that are ready but have had no turn are served first after the next look. So a hundred
    peers that pipeline do not hold up other peers. What has to be awaited, in tasks, has a line and a budget of its own behind
    that (`work`).

    An exception wakes the task and is raised there. The function must not block for long, must not await and is not in
    any task; it may call whatever wakes tasks up. After each call that woke one, and when trio's time is up, trio goes on.

    Trio has no public way for that: the event loop's epoll and what waits for it are its own. What is used of them is in
    `_take_over_wait`; where it does not fit (another system, another version of trio) the task waits as tasks do.
"""

from __future__ import annotations

import enum
import math
import socket
import time
from collections.abc import Callable
from typing import Any

import outcome
import trio

from ottla.replication.system import EPOLLIN, EPOLLOUT, IS_LINUX
from ottla.server.network.background_worker import BackgroundWorker
from ottla.server.network.sliced_work import ROUND_S, WorkQueue


class Wait(enum.Enum):
    """Event that a served socket waits for: readable or writable."""

    READABLE = EPOLLIN
    WRITABLE = EPOLLOUT


WAIT_READABLE, WAIT_WRITABLE = Wait
# However late its turn begins, a connection gets on a little.
SHORT_TURN_S = 0.0002
SOCKETS_PER_LOOK = 64  # the kernel tells of the others next time, in turn
Step = Callable[[], Any]


class _Served:
    """Served socket: its step function, its sleeping task, and the event that epoll watches for."""

    __slots__ = ("step", "task", "waits_for")

    def __init__(self, step: Step, task: Any) -> None:
        self.step, self.task = step, task
        self.waits_for = WAIT_READABLE


class Readiness:
    """Sockets of one event loop, served inside trio's wait for events. Create this object inside `trio.run`."""

    def __init__(self) -> None:
        self._served: dict[int, _Served] = {}
        self._poked: dict[int, None] = {}
        self._epoll: Any = None
        self._runnable: Any = ()
        self._turns_end = math.inf
        self._left: list[tuple[int, int]] = []  # events for which there was no time
        self._give_back: Callable[[], None] = lambda: None
        self.worker = BackgroundWorker(self._call_when_readable)
        self.work = WorkQueue()
        self._take_over_wait()

    @property
    def is_inside_the_wait(self) -> bool:
        """True if step functions run inside trio's wait for events.

        False: each step runs in the task of its socket, which is woken for that.
        """
        return self._epoll is not None

    def _take_over_wait(self) -> None:
        # All of this is private to trio and may change. If it does not fit, tasks wait as they always do.
        if not IS_LINUX:
            return
        try:
            from trio._core._io_epoll import EpollIOManager
            from trio._core._run import GLOBAL_RUN_CONTEXT
        except ImportError:
            return
        runner = GLOBAL_RUN_CONTEXT.runner
        manager = runner.io_manager
        # Other systems have a manager of another kind, and a second `Readiness` finds that of the first.
        if type(manager) is not EpollIOManager:
            return
        readiness = self

        # The manager has slots, so it takes no method of its own. A subclass of the same layout can take its place.
        class ServingIOManager(EpollIOManager):
            """Trio's I/O manager for epoll, which serves sockets while trio waits."""

            __slots__ = ()

            def get_events(self, timeout: float) -> Any:
                return readiness.wait(timeout)

        def give_back() -> None:
            manager.__class__ = EpollIOManager

        manager.__class__ = ServingIOManager
        self._give_back = give_back
        # Trio's queue of tasks that can go on: if a step has woken one, trio has to have the loop back.
        self._runnable = runner.runq
        self._epoll = manager._epoll

    def close(self) -> None:
        """Restore trio's own wait, and stop serving sockets."""
        self.worker.close()
        self._epoll = None
        self._give_back()
        self.work.close()

    def turn_end(self, began: float) -> float:
        """Return when a connection that is served since `began` must let others go on (monotonic clock, seconds)."""
        end, turns_end = began + ROUND_S, self._turns_end
        # A turn ends when the time of all is over, but a connection that is late gets a short one.
        return end if end < turns_end else max(turns_end, began + SHORT_TURN_S)

    # --- the task's side

    async def serve(self, sock: socket.socket, step: Step) -> Any:
        """Call `step` whenever the socket is ready, until it returns a value other than a `Wait`; return this value."""
        # Not inside the wait: the socket is waited for like any other.
        if self._epoll is None:
            return await serve_in_task(sock, step)
        descriptor = sock.fileno()
        self._served[descriptor] = _Served(step, trio.lowlevel.current_task())
        self._watch(descriptor, WAIT_READABLE)

        # The task was cancelled, so its step must not be called any more.
        def abort(_: Callable[[], Any]) -> trio.lowlevel.Abort:
            self._let_go(descriptor)
            return trio.lowlevel.Abort.SUCCEEDED

        return await trio.lowlevel.wait_task_rescheduled(abort)

    def poke(self, sock: socket.socket) -> None:
        """Call the step of a served socket soon, as if the socket were ready; do nothing if it is not served."""
        self._poked[sock.fileno()] = None

    def _call_when_readable(self, descriptor: int, act: Callable[[], None]) -> None:
        """Call `act` whenever the descriptor is readable, until the descriptor is closed. `act` must not raise."""

        def step() -> Wait:
            act()
            return WAIT_READABLE

        self._watch(descriptor, WAIT_READABLE)
        self._served[descriptor] = _Served(step, None)

    def _watch(self, descriptor: int, waits_for: Wait) -> None:
        # Trio leaves a socket in its epoll after a wait (EPOLLONESHOT only turns it off), so it may be there already. As
        # a rule it is not: `_let_go` takes it out.
        try:
            self._epoll.register(descriptor, waits_for.value)
        except FileExistsError:
            self._epoll.modify(descriptor, waits_for.value)

    def _let_go(self, descriptor: int) -> None:
        del self._served[descriptor]
        # The task may not read for a while, and epoll would tell of the same input again and again.
        self._epoll.unregister(descriptor)

    # --- the loop's side

    def wait(self, timeout: float) -> list[tuple[int, int]]:
        """Serve sockets for up to `timeout` seconds, in place of trio's wait; return the events for trio."""
        work = self.work
        if work.goes_on:  # this round of work is not over
            work.goes_on = False
            return []
        if work.line:  # somebody stands in line, and sleeps until the next round
            timeout = 0
        served, runnable, poll = self._served, self._runnable, self._epoll.poll
        until = time.monotonic() + timeout if timeout > 0 else 0.0
        while True:
            # 1. Those whose answers became ready. If a step pokes others or wakes tasks, the loop must not sleep.
            if self._poked:
                self._serve_poked()
                if self._poked or runnable:
                    timeout = 0
            # 2. One look at the sockets, without waiting if some had no turn after the last one.
            others = []
            if self._left:
                events = self._after_those_left(poll(0, SOCKETS_PER_LOOK))
            else:
                events = poll(timeout, SOCKETS_PER_LOOK)
            self.worker.ready_count = len(events)
            # Counted from here, because the time that the loop slept belongs to no peer.
            self._turns_end = time.monotonic() + ROUND_S
            # 3. Turns, until their common time is over. If one has no turn, all behind it wait, to keep the order.
            is_first = True
            for event in events:
                if (found := served.get(event[0])) is None:
                    others.append(event)
                # As a rule only one is ready. The first has its turn without another look at the clock.
                elif is_first or not (self._left or time.monotonic() > self._turns_end):
                    is_first = False
                    self._serve_once(found, event[0])
                else:
                    self._left.append(event)
            # 4. Back to trio if it has something to do: a socket of its own, a task that a step has woken, a deadline.
            if others or runnable or work.line or timeout <= 0 or (timeout := until - time.monotonic()) <= 0:
                # A round of awaited work begins, for which there is seldom somebody in line.
                work.round_end = time.monotonic() + ROUND_S
                if work.line:
                    work.wake_first()
                return others

    def _after_those_left(self, events: list[tuple[int, int]]) -> list[tuple[int, int]]:
        """Return events left over from the last round, then new ones; drop new events that repeat left ones."""
        left, self._left = self._left, []
        descriptors = {event[0] for event in left}
        # A task may have ended meanwhile, and its descriptor may be that of another socket by now.
        waiting = [event for event in left if event[0] in self._served]
        return waiting + [event for event in events if event[0] not in descriptors or event[0] not in self._served]

    def _serve_poked(self) -> None:
        # A limit of its own: one append may make the answers to very many waiting fetches ready.
        end = time.monotonic() + ROUND_S
        # Exchanged before the first step: steps poke others, and a dictionary must not change while it is walked.
        poked, self._poked = list(self._poked), {}
        for number, descriptor in enumerate(poked, 1):
            if (found := self._served.get(descriptor)) is not None:
                self._serve_once(found, descriptor)
                if time.monotonic() > end:
                    # Those who had no turn stand in front of those who were poked since.
                    self._poked = dict.fromkeys(poked[number:]) | self._poked
                    return

    def _serve_once(self, served: _Served, descriptor: int) -> None:
        try:
            result = served.step()
        except Exception as error:  # noqa: BLE001 - the task that sleeps here raises it
            # Raised here, inside trio's wait, it would end the whole broker. In the task it ends one connection.
            self._let_go(descriptor)
            trio.lowlevel.reschedule(served.task, outcome.Error(error))
            return
        # The ordinary end of a step. It costs no call of the system.
        if result is served.waits_for:
            return
        if type(result) is Wait:
            served.waits_for = result
            self._epoll.modify(descriptor, result.value)
        else:
            self._let_go(descriptor)
            trio.lowlevel.reschedule(served.task, outcome.Value(result))


async def serve_in_task(sock: socket.socket, step: Step) -> Any:
    """Call `step` in this task whenever the socket is ready.

    The calls end when `step` returns a value other than a `Wait`; return this value.
    """
    result: Any = WAIT_READABLE
    while type(result) is Wait:
        await (trio.lowlevel.wait_readable if result is WAIT_READABLE else trio.lowlevel.wait_writable)(sock)
        result = step()
    return result
