"""Runs the processes of a start with several workers as `fleet.py` says: forks them, hears them, signals them, reaps them.

The supervisor has one thread, no event loop and no broker. So each fork is clean, and all workers share with it what it has
imported. A process that it forks is a session of its own, because Ctrl-C is meant for the supervisor, and the kernel ends it
with the supervisor (`dying_with_this_process`).

Each process has a pipe to tell on, a JSON object a line (`Report`):
    {"ready": {...}}     it does what it is there for, with what the announcement needs
    {"problem": "..."}   why it is going to end
    {"beat": true}       its event loop goes round; told only if a service manager watches
"""

from __future__ import annotations

import json
import logging
import os
import select
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from ottla.replication import system
from ottla.server.launch.fleet import EXIT_FAILED, EXIT_OK, Action, Announce, AnnounceAgain, Fleet, Say, Send, Start
from ottla.server.launch.signals import STOPPING

if TYPE_CHECKING:
    from ottla.server.launch.running import ServiceManager

logger = logging.getLogger("ottla.workers")

TOLD_BYTES_MAX: Final = 64 * 1024  # of one line of a process
PROBLEM_CHARACTERS_MAX: Final = 600
REST_S: Final = 0.5  # after a wait that a bug has ended

Program = Callable[["Report"], int]
"""Program of a process; returns its exit status."""


class Report:
    """Write end of the pipe through which a child process reports to the supervisor."""

    def __init__(self, descriptor: int, told_before: Mapping[str, Any] | None = None) -> None:
        self._descriptor = descriptor
        self.told_before = told_before or {}
        """Report of the last process of this name at its readiness; empty if there was none."""

    def ready(self, **told: object) -> None:
        self._tell({"ready": told})

    def problem(self, text: str) -> None:
        self._tell({"problem": text[:PROBLEM_CHARACTERS_MAX]})  # a pipe takes a short line whole or not at all

    def beat(self) -> None:
        self._tell({"beat": True})

    def _tell(self, what: Mapping[str, object]) -> None:
        try:
            os.write(self._descriptor, json.dumps(what).encode() + b"\n")
        except OSError:  # no reader is left: the end of this process is near
            logger.debug("the supervisor does not hear")


class _Child:
    """Forked process that the supervisor has not reaped yet."""

    def __init__(self, name: str, pid: int, told: int, now: float) -> None:
        self.name, self.pid, self.told = name, pid, told
        self.last_beat = now
        self._rest = b""

    def hear(self) -> list[dict[str, Any]]:
        """Return the new reports of the process, without waiting."""
        lines: list[dict[str, Any]] = []
        try:
            while chunk := os.read(self.told, TOLD_BYTES_MAX):
                *whole, self._rest = (self._rest + chunk).split(b"\n")
                lines += [told for line in whole if (told := _parsed(line)) is not None]
                if len(self._rest) > TOLD_BYTES_MAX:
                    self._rest = b""
        except BlockingIOError:
            pass
        return lines

    def close(self) -> None:
        """Close the read end of the pipe; no further reports are received."""
        told, self.told = self.told, -1
        os.close(told)


def _parsed(line: bytes) -> dict[str, Any] | None:
    try:
        told = json.loads(line)
    except (ValueError, RecursionError):
        told = None
    if not isinstance(told, dict):
        logger.error("bug: a process tells the supervisor %r", line[:PROBLEM_CHARACTERS_MAX])
        return None
    return told


class Supervisor:
    """Supervisor that starts, restarts and ends the processes of `ottla start` with several workers.

    `announce` gets the readiness messages of all workers, in the order of `workers`. `announce_again` gets a restarted
    worker's number and message.
    """

    def __init__(
        self,
        programs: Mapping[str, Program],
        *,
        keeper: str | None,
        hand_over_s: float,
        announce: Callable[[Sequence[Mapping[str, Any]]], None],
        announce_again: Callable[[int, Mapping[str, Any]], None] = lambda number, told: None,
        manager: ServiceManager | None = None,
    ) -> None:
        self._programs = programs
        self._workers = [name for name in programs if name != keeper]
        self._fleet = Fleet(self._workers, keeper, hand_over_s)
        self._announce, self._announce_again, self._manager = announce, announce_again, manager
        self._next_beat = 0.0
        self._has_told_of_stop = False
        self._children: dict[str, _Child] = {}
        self._told: dict[str, Mapping[str, Any]] = {}  # by those that are ready
        self._told_before: dict[str, Mapping[str, Any]] = {}  # by those that were ready once
        self._heed_parent = system.dying_with_this_process()

    def run(self) -> str:
        """Run until all processes have ended; return the failure in one line, or "" without one."""
        with _wakeable() as woken:
            self._do(self._fleet.begin())
            while not self._fleet.is_over:
                if not _is_done(self._wait, woken):
                    time.sleep(REST_S)
                for name in _signals_taken(woken):
                    self._do(self._fleet.on_signal(name, time.monotonic()))
                for child in list(self._children.values()):
                    _is_done(self._hear, child)
                    _is_done(self._reap, child)
                self._do(self._fleet.on_time(time.monotonic()))
                _is_done(self._keep_watch, time.monotonic())
        if not self._fleet.failure and self._fleet.was_killed:
            return "not all workers have stopped in order"
        return self._fleet.failure

    # --- what happens

    def _wait(self, woken: int) -> None:
        until = min(self._fleet.deadline, self._next_beat if self._manager is not None else self._fleet.deadline)
        poll = select.poll()
        for descriptor in (woken, *(child.told for child in self._children.values())):
            poll.register(descriptor, select.POLLIN)
        wait_ms = (until - time.monotonic()) * 1000
        poll.poll(None if wait_ms == float("inf") else max(0, int(wait_ms) + 1))

    def _hear(self, child: _Child) -> None:
        for told in child.hear():
            if "ready" in told:
                self._told[child.name] = self._told_before[child.name] = told["ready"]
                self._do(self._fleet.on_ready(child.name))
            elif "problem" in told:
                self._fleet.on_problem(child.name, str(told["problem"]))
            else:
                child.last_beat = time.monotonic()

    def _reap(self, child: _Child) -> None:
        try:
            pid, status = os.waitpid(child.pid, os.WNOHANG)
        except ChildProcessError:  # somebody else has asked for its status
            pid, status = child.pid, signal.SIGKILL
        if not pid:
            return
        _is_done(self._hear, child)  # its last words
        del self._children[child.name]
        child.close()
        code = os.waitstatus_to_exitcode(status)
        how = f"exit status {code}" if code >= 0 else f"signal {-code}, {_signal_name(-code)}"
        self._do(self._fleet.on_ended(child.name, how, time.monotonic(), is_failure=code != EXIT_OK))

    def _keep_watch(self, now: float) -> None:
        """Send heartbeats to the service manager, and end workers whose event loop hangs."""
        manager = self._manager
        if manager is None:
            return
        if self._fleet.is_stopping and not self._has_told_of_stop:
            self._has_told_of_stop = True
            manager.stopping()
        if now < self._next_beat:
            return
        self._next_beat = now + manager.interval_s
        manager.beat()
        if manager.watchdog_s is not None:
            for child in self._children.values():
                if child.name in self._told and now - child.last_beat > manager.watchdog_s:
                    logger.error("%s has not answered for %.0f s and is ended", child.name, now - child.last_beat)
                    child.last_beat = now
                    # As a service manager does: what it was at is written to its log.
                    os.kill(child.pid, signal.SIGABRT)

    # --- what is done

    def _do(self, actions: Sequence[Action]) -> None:
        # In the order in which they were decided, because a fork that is refused leads to more of them: those must find
        # that all before them was done.
        waiting = deque(actions)
        while waiting:
            action = waiting.popleft()
            if isinstance(action, Start):
                waiting += self._fork(action.name)
            else:
                _is_done(self._do_one, action)

    def _do_one(self, action: Send | Announce | AnnounceAgain | Say) -> None:
        if isinstance(action, Send):
            # One whose fork was refused is not there. Its end is reported below.
            if (child := self._children.get(action.name)) is not None:
                os.kill(child.pid, action.number)
        elif isinstance(action, Announce):
            if self._manager is not None:
                self._manager.serving()
            self._announce([self._told[name] for name in self._workers])
        elif isinstance(action, AnnounceAgain):
            self._announce_again(self._workers.index(action.name), self._told[action.name])
        else:
            (logger.warning if action.is_bad else logger.info)("%s", action.line)

    def _fork(self, name: str) -> Sequence[Action]:
        self._told.pop(name, None)
        try:
            self._try_to_fork(name)
        except OSError as error:
            # There are too many processes, or too little memory. Running workers go on.
            how = f"it cannot begin: {error.strerror}"
            return self._fleet.on_ended(name, how, time.monotonic(), is_failure=True)
        return []

    def _try_to_fork(self, name: str) -> None:
        hears, tells = os.pipe()
        # A supervisor that is held up must not hold up a broker.
        os.set_blocking(tells, False)
        # No handler of the supervisor may run in the child: what wakes one would wake the other.
        signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)
        try:
            pid = os.fork()
            if pid == 0:
                os.close(hears)
                self._become(name, tells)
        except OSError:
            os.close(hears)
            raise
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPPING)
            os.close(tells)
        os.set_blocking(hears, False)
        self._children[name] = _Child(name, pid, hears, time.monotonic())
        logger.info("%s begins as process %d", name, pid)

    def _become(self, name: str, tells: int) -> None:
        """Run the program `name` in the forked child process; never returns. `tells`: descriptor to report through."""
        status = EXIT_FAILED
        try:
            self._heed_parent()
            os.setsid()
            for child in self._children.values():
                child.close()
            _forget_signals()
            signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPPING)
            status = self._programs[name](Report(tells, self._told_before.get(name)))
        except BaseException:
            logger.exception("bug: %s ends", name)
        finally:
            # Whatever happens, it must not go on as a second supervisor.
            try:
                for stream in (sys.stdout, sys.stderr):
                    stream.flush()
            finally:
                os._exit(status)


def _is_done(step: Callable[..., None], *arguments: object) -> bool:
    """Call a function; return False if it raises: the supervisor logs the bug and outlives its children."""
    try:
        step(*arguments)
    except Exception:
        logger.exception("bug: the supervisor of the workers goes on")
        return False
    return True


@contextmanager
def _wakeable() -> Iterator[int]:
    """Yield a descriptor that is readable at a signal or a child's end; then restore the former signal handlers."""
    hears, wakes = os.pipe()
    os.set_blocking(hears, False)
    os.set_blocking(wakes, False)
    # A process in the background of a shell may not be meant by its Ctrl-C: such a setting is left alone.
    heeded = [each for each in STOPPING if signal.getsignal(each) is not signal.SIG_IGN]
    before = {number: signal.signal(number, _ignore) for number in (*heeded, signal.SIGCHLD)}
    former = signal.set_wakeup_fd(wakes, warn_on_full_buffer=False)
    try:
        yield hears
    finally:
        signal.set_wakeup_fd(former)
        for number, handler in before.items():
            signal.signal(number, handler)
        os.close(hears)
        os.close(wakes)


def _ignore(number: int, frame: object) -> None:
    """Do nothing: the signal only has to write its number to the wakeup pipe."""


def _forget_signals() -> None:
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for number in STOPPING:
        # Until its program takes them: nothing has been touched by then.
        signal.signal(number, lambda number, frame: os._exit(EXIT_OK))


def _signals_taken(woken: int) -> list[str]:
    try:
        numbers = os.read(woken, 4096)
    except BlockingIOError:
        return []
    return [signal.Signals(number).name for number in numbers if number in STOPPING]


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "unknown"
