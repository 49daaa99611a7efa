"""Runs `ottla start` with a watch on its event loop: how long was the loop held between two looks at its sockets, and by whom?

    python -m compat_tests.siege.watched_broker NOTES start --override ...

NOTES is a file that others map: numbers of 64 bits, see `Notes`. Whoever wants a new count writes zeros.

The time of a turn is that of

    busy      the loop's thread had a processor: the broker's own work
    blocked   it slept in the kernel: for the disk, for a lock such as the interpreter's, for a page that is not in memory
    starved   it slept, and another thread of the broker, which may have had the lock, was itself queued meanwhile
    queued    it could have run, and the scheduler gave the processor to others (proc(5), schedstat)
    stolen    it could have run, and the hypervisor ran something else instead of this machine

The first two are a hold, for which the broker answers. The others are the machine's: `away`. What the hypervisor takes is counted
nowhere in a thread. It is what is left over of a turn in which the thread never went to sleep by itself, as whoever blocks does
(getrusage(2), ru_nvcsw). If it did, all that is left over counts as blocked, or starved.

The stack of a turn that lasts long is printed once, while it lasts.

SIGUSR1 has it count the objects that only a full collection of garbage finds, as a broker hardly ever makes one.
"""

import contextlib
import gc
import mmap
import os
import resource
import select
import signal
import struct
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import Any, NamedTuple, Self

import trio

_counts = struct.Struct("=4q")
_turn = struct.Struct("=6q")
_garbage = struct.Struct("=q")
SIZE = _counts.size + _turn.size + _garbage.size
STACK_AFTER_S = 0.05
LONG_NS = 20_000_000
"""Of a turn that is longer the watch asks what other threads did. To ask takes a system call for each."""
OTHERS_INTERVAL_NS = 5_000_000
LASTING = "the turn lasts for "
"""So begins what is printed of a long turn."""
LOOK_INTERVAL_S = 0.02


class Moment(NamedTuple):
    """What the clocks and counters of a thread say, in nanoseconds. Those that only a thread that is not away moves come last."""

    now: int
    ran: int
    queued: int
    sleeps: int
    faults: int


class Turn(NamedTuple):
    """The time between two looks at the sockets, by who had it; see the module's docstring."""

    busy_ns: int = 0
    blocked_ns: int = 0
    starved_ns: int = 0
    queued_ns: int = 0
    stolen_ns: int = 0
    faults: int = 0
    """How many pages had to come from the disk."""

    @classmethod
    def between(cls, began: Moment, ended: Moment, other_queued: int = 0) -> Self:
        """`other_queued`: for how long another thread was, the one for which it was longest."""
        passed, busy, queued, sleeps, faults = (after - before for before, after in zip(began, ended, strict=True))
        left = max(passed - busy - queued, 0)
        if not sleeps:
            return cls(busy, 0, 0, queued, left, faults)
        starved = min(left, other_queued)
        return cls(busy, left - starved, starved, queued, 0, faults)

    @property
    def held_ns(self) -> int:
        """The broker's part."""
        return self.busy_ns + self.blocked_ns

    @property
    def away_ns(self) -> int:
        """The machine's part."""
        return self.starved_ns + self.queued_ns + self.stolen_ns


class Seen(NamedTuple):
    """What the watch has seen since it was cleared."""

    count: int
    over: int
    """How many turns were held for more than 50 ms."""
    busy_ns: int
    """The longest time for which the loop's thread ran within one turn."""
    away_ns: int
    """The longest time for which the machine kept it from that."""
    longest: Turn
    """The turn that was held longest."""


class Notes:
    """What the watch has seen, in a file that several processes map."""

    def __init__(self, path: Path, *, create: bool = False) -> None:
        if create:
            path.write_bytes(bytes(SIZE))
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), SIZE)

    def read(self) -> Seen:
        return Seen(*_counts.unpack_from(self._map), Turn(*_turn.unpack_from(self._map, _counts.size)))

    def clear(self) -> None:
        self._write(Seen(0, 0, 0, 0, Turn()))

    def note(self, turn: Turn) -> None:
        count, over, busy_ns, away_ns, longest = self.read()
        over += turn.held_ns > STACK_AFTER_S * 1e9
        longest = max(longest, turn, key=lambda each: each.held_ns)
        self._write(Seen(count + 1, over, max(busy_ns, turn.busy_ns), max(away_ns, turn.away_ns), longest))

    def _write(self, seen: Seen) -> None:
        _counts.pack_into(self._map, 0, *seen[:4])
        _turn.pack_into(self._map, _counts.size, *seen.longest)

    @property
    def garbage(self) -> int:
        """What was counted last."""
        (count,) = _garbage.unpack_from(self._map, SIZE - _garbage.size)
        return int(count)

    @garbage.setter
    def garbage(self, count: int) -> None:
        _garbage.pack_into(self._map, SIZE - _garbage.size, count)


class Clocks:
    """Those of the thread that made this."""

    def __init__(self) -> None:
        self._schedstat = os.open("/proc/thread-self/schedstat", os.O_RDONLY)
        self._own = str(threading.get_native_id())
        self._others: dict[str, int] = {}
        self._others_at = 0

    def began(self) -> Moment:
        """Now. The thread may go away between two looks: the time is looked at last, so that this never counts as a hold."""
        if time.monotonic_ns() - self._others_at > OTHERS_INTERVAL_NS:
            self._others, self._others_at = self._others_queued(), time.monotonic_ns()
        queued, (sleeps, faults), ran = self._queued(), _sleeps_and_faults(), time.thread_time_ns()
        return Moment(time.monotonic_ns(), ran, queued, sleeps, faults)

    def turn(self, began: Moment) -> Turn:
        """The turn that ends now."""
        ended = self.ended()
        if ended.now - began.now < LONG_NS:
            return Turn.between(began, ended)
        waits = [queued - self._others.get(thread, 0) for thread, queued in self._others_queued().items()]
        # They were looked at some time before the turn began.
        return Turn.between(began, ended, max(max(waits, default=0) - (began.now - self._others_at), 0))

    def ended(self) -> Moment:
        """Now. The time is looked at first, for the same reason."""
        now, ran = time.monotonic_ns(), time.thread_time_ns()
        return Moment(now, ran, self._queued(), *_sleeps_and_faults())

    def _queued(self) -> int:
        return _second(os.pread(self._schedstat, 100, 0))

    def _others_queued(self) -> dict[str, int]:
        found = {}
        for thread in os.listdir("/proc/self/task"):
            with contextlib.suppress(OSError):  # it has ended
                if thread != self._own:
                    found[thread] = _second(Path(f"/proc/self/task/{thread}/schedstat").read_bytes())
        return found


def _second(schedstat: bytes) -> int:
    # A thread has run for the first number, and waited for the second.
    return int(schedstat.split()[1])


def _sleeps_and_faults() -> tuple[int, int]:
    used = resource.getrusage(resource.RUSAGE_THREAD)
    return used.ru_nvcsw, used.ru_majflt


class WatchedEpoll:
    """An epoll that tells how long it was not asked. Made by the thread that asks it."""

    def __init__(self, epoll: select.epoll, notes: Notes) -> None:
        self._epoll = epoll
        self._notes = notes
        self._clocks = Clocks()
        self._began: Moment | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._epoll, name)

    @property
    def turn_began_ns(self) -> int | None:
        """When the turn began that goes on."""
        return None if (began := self._began) is None else began.now

    def poll(self, *arguments: Any) -> Any:
        began, self._began = self._began, None
        if began is not None:
            self._notes.note(self._clocks.turn(began))
        try:
            return self._epoll.poll(*arguments)
        finally:
            self._began = self._clocks.began()


class Watch(trio.abc.Instrument):
    """Puts the watch in place when the loop begins, before the broker takes over its wait."""

    def __init__(self, notes: Notes) -> None:
        self._notes = notes
        self._epoll: WatchedEpoll | None = None

    def before_run(self) -> None:
        from trio._core._run import GLOBAL_RUN_CONTEXT

        manager = GLOBAL_RUN_CONTEXT.runner.io_manager
        manager._epoll = self._epoll = WatchedEpoll(manager._epoll, self._notes)
        threading.Thread(target=self._print_long_turns, args=(threading.get_ident(),), daemon=True).start()

    def _print_long_turns(self, loop_thread: int) -> None:
        printed: int | None = None
        while True:
            time.sleep(LOOK_INTERVAL_S)
            began = self._epoll.turn_began_ns if self._epoll is not None else None
            if began is None or began == printed or time.monotonic_ns() - began < STACK_AFTER_S * 1e9:
                continue
            printed = began
            stack = "".join(traceback.format_stack(sys._current_frames()[loop_thread])[-8:])
            print(
                f"{LASTING}{(time.monotonic_ns() - began) / 1e6:.0f} ms so far:\n{stack}", file=sys.stderr, flush=True
            )


def main() -> int:
    from ottla.server.cli import cli

    notes = Notes(Path(sys.argv[1]))

    def count_garbage(*_: object) -> None:
        notes.garbage = gc.collect()

    signal.signal(signal.SIGUSR1, count_garbage)
    run = trio.run
    trio.run = lambda *arguments, **options: run(*arguments, **options, instruments=[Watch(notes)])
    return cli.main(sys.argv[2:])


if __name__ == "__main__":
    sys.exit(main())
