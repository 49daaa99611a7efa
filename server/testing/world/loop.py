"""The lab's thread: a trio run in which brokers live, called from the threads of tests.

It starts with the first call and serves until the process ends or `close` is called. A child made by `os.fork` has no such
thread; the child's first use starts one of its own, and leaves the parent's sockets alone.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import Future, wait
from contextlib import suppress
from functools import partial
from typing import Any, Protocol, TypeVar, TypeVarTuple

import trio

from ottla.server.network.readiness import Readiness
from ottla.server.testing.errors import LabError
from ottla.server.testing.world.clock import LabClock

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

END_PATIENCE_S = 10.0
FROZEN_PATIENCE_S = 10.0
"""Real time that a call may take while the clock is frozen."""
FROZEN = "This waits for the brokers' time, which is frozen; clock.advance() moves it, and clock.speed(1) lets it run."
CLOSED = "The lab is closed; make a new Kafka()."


class LoopWorld(Protocol):
    """World, as far as its thread needs to know it."""

    def close_sockets(self) -> None:
        """Close the sockets in a forked child, where nobody serves them."""

    def on_jump(self, seconds: float) -> None:
        """Spare the brokers the consequences of a clock that has jumped over their timers."""


class LabLoop:
    """A thread that runs trio on a `LabClock`. `nursery` and `readiness` are there once it is started."""

    nursery: trio.Nursery
    readiness: Readiness

    def __init__(self) -> None:
        self.clock = LabClock()
        self.worlds: dict[LoopWorld, None] = {}
        """Open worlds, in the order of their opening."""
        self.paced_by: LoopWorld | None = None
        """World whose test has chosen the speed of the clock; None: it is that of real time."""
        self._token: trio.lowlevel.TrioToken | None = None
        self._thread: threading.Thread | None = None
        self._pid = os.getpid()
        self._is_closed = False
        self._start()

    def call(self, function: Callable[[*Ts], Awaitable[T]], *arguments: *Ts, patience_s: float | None = None) -> T:
        """Run an async function in the lab's thread; return its result, or raise its exception.

        If the caller is interrupted, as by Ctrl-C or pytest-timeout, the function is cancelled. The same after `patience_s`
        of real time, which raises TimeoutError, and with None if it waits for long on a frozen clock, which raises LabError.
        """
        outcome: Future[T] = Future()
        scope = trio.CancelScope()
        self._soon(lambda: self.nursery.start_soon(_carry_out, scope, function, arguments, outcome), outcome)
        try:
            if patience_s is not None:
                return outcome.result(patience_s)
            while not self.clock.factor and not outcome.done():
                with suppress(TimeoutError):
                    outcome.result(FROZEN_PATIENCE_S)
                if not self.clock.factor and not outcome.done():
                    raise LabError(FROZEN)
            return outcome.result()
        except BaseException:
            if not outcome.done():
                self._give_up(scope, outcome)
            raise

    def _give_up(self, scope: trio.CancelScope, outcome: Future[T]) -> None:
        # An advance that went on would move the clock under the tests that follow.
        assert self._token is not None
        with suppress(trio.RunFinishedError):
            self._token.run_sync_soon(scope.cancel)
            wait([outcome], END_PATIENCE_S)

    def call_sync(self, function: Callable[[*Ts], T], *arguments: *Ts) -> T:
        """Run a plain function in the lab's thread; return its result, or raise its exception."""
        outcome: Future[T] = Future()
        self._soon(lambda: outcome.set_result(function(*arguments)), outcome)
        return outcome.result()

    def _soon(self, begin: Callable[[], object], outcome: Future[T]) -> None:
        # Not by trio's `from_thread`, which refuses whoever is in a trio program of their own.
        self.check_usable()
        assert self._token is not None

        def begin_or_fail() -> None:
            try:
                begin()
            except BaseException as error:  # noqa: BLE001 - it belongs to the caller
                outcome.set_exception(error)

        try:
            self._token.run_sync_soon(begin_or_fail)
        except trio.RunFinishedError:
            raise LabError(CLOSED) from None

    def on_jump(self, seconds: float) -> None:
        """Tell all worlds that the clock has jumped over their timers."""
        for world in self.worlds:
            world.on_jump(seconds)

    def check_usable(self) -> None:
        """Raise LabError in a forked child, in the lab's own thread, and after `close`."""
        if self._pid != os.getpid():
            raise LabError("This Kafka belongs to the process that was forked; make a new Kafka() in the child.")
        if self._is_closed:
            raise LabError(CLOSED)
        if self._thread is threading.current_thread():
            raise LabError("This was called in the lab's own thread, which would wait for itself.")

    @property
    def is_usable(self) -> bool:
        """False after `close`, and in a forked child."""
        return not self._is_closed and self._pid == os.getpid()

    def close(self) -> None:
        """End all brokers and the thread. A second call does nothing, nor does one in a forked child."""
        if not self.is_usable:
            return
        self._is_closed = True
        atexit.unregister(self.close)
        assert self._token is not None and self._thread is not None
        with suppress(trio.RunFinishedError):
            self._token.run_sync_soon(self._end)
        self._thread.join(END_PATIENCE_S)

    # ------------------------------------------------------------------ the thread

    def _start(self) -> None:
        ready = threading.Event()
        # A daemon: a test that ends by force, as pytest-timeout does, is not held up by it.
        self._thread = threading.Thread(target=self._run, args=[ready], name="ottla-lab", daemon=True)
        self._thread.start()
        ready.wait()
        # Not by atexit's own order: threads that serve must end before the interpreter takes modules away.
        atexit.register(self.close)

    def _run(self, ready: threading.Event) -> None:
        try:
            trio.run(partial(self._live, ready), clock=self.clock)
        finally:
            self._is_closed = True  # also by a bug: the next Kafka gets a thread that works

    async def _live(self, ready: threading.Event) -> None:
        self._token = trio.lowlevel.current_trio_token()
        self.readiness = Readiness()
        try:
            async with trio.open_nursery() as self.nursery:
                ready.set()
                await trio.sleep_forever()
        finally:
            self.readiness.close()

    def _end(self) -> None:
        self.nursery.cancel_scope.cancel()


async def _carry_out(
    scope: trio.CancelScope, function: Callable[..., Awaitable[T]], arguments: Iterable[Any], outcome: Future[T]
) -> None:
    try:
        with scope:
            outcome.set_result(await function(*arguments))
            return
        outcome.set_exception(LabError("This call was interrupted."))
    except trio.Cancelled:
        outcome.set_exception(LabError(CLOSED))
        raise
    except BaseException as error:  # noqa: BLE001 - it belongs to the caller
        outcome.set_exception(error)


_lock = threading.Lock()
_shared: LabLoop | None = None


def shared_loop() -> LabLoop:
    """Return the loop of this process, and start it if there is none."""
    global _shared
    with _lock:
        if _shared is None or not _shared.is_usable:
            _shared = LabLoop()
        return _shared


def _forget() -> None:
    # The parent's lock may be held by a thread that the child does not have.
    global _lock, _shared
    if _shared is not None:
        for world in _shared.worlds:
            world.close_sockets()
    _lock, _shared = threading.Lock(), None


os.register_at_fork(after_in_child=_forget)
