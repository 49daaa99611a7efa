"""Runs `ottla start` with a watch on its event loop: how long was the loop held between two looks at its sockets?

    python -m compat_tests.siege.watched_broker NOTES start --override ...

NOTES is a file that others map: five numbers of 64 bits, see `Notes`. Whoever wants a new count writes zeros.

A turn of the loop is held by the broker, or the system takes the processor away meanwhile. The whole time of a turn counts,
as a wait for the disk or for the interpreter's lock holds up clients too, but for the time in which the loop's thread could
have run and had no processor. The stack of a turn that lasts long is printed once, while it lasts.

SIGUSR1 has it count the objects that only a full collection of garbage finds, as a broker hardly ever makes one.
"""

import gc
import mmap
import os
import select
import signal
import struct
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import Any

import trio

_numbers = struct.Struct("=4q")
_garbage = struct.Struct("=q")
SIZE = _numbers.size + _garbage.size
STACK_AFTER_S = 0.05
LOOK_INTERVAL_S = 0.02


class Notes:
    """What the watch has seen, in a file that several processes map.

    `longest_ns`: the longest hold. `count`: how many turns there were. `busy_ns`: the longest time for which the loop's
    thread ran within one turn. `over`: how many turns were longer than 50 ms.
    """

    def __init__(self, path: Path, *, create: bool = False) -> None:
        if create:
            path.write_bytes(bytes(SIZE))
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), SIZE)

    def read(self) -> tuple[int, int, int, int]:
        longest_ns, count, busy_ns, over = _numbers.unpack_from(self._map)
        return longest_ns, count, busy_ns, over

    def clear(self) -> None:
        _numbers.pack_into(self._map, 0, 0, 0, 0, 0)

    @property
    def garbage(self) -> int:
        """What was counted last."""
        (count,) = _garbage.unpack_from(self._map, _numbers.size)
        return int(count)

    @garbage.setter
    def garbage(self, count: int) -> None:
        _garbage.pack_into(self._map, _numbers.size, count)

    def note(self, held_ns: int, busy_ns: int) -> None:
        longest_ns, count, longest_busy_ns, over = _numbers.unpack_from(self._map)
        over += held_ns > STACK_AFTER_S * 1e9
        _numbers.pack_into(
            self._map, 0, max(longest_ns, held_ns), count + 1, max(longest_busy_ns, busy_ns), over
        )


class Queue:
    """How long this thread has waited for a processor: with others at work that is most of a long turn (proc(5), schedstat)."""

    def __init__(self) -> None:
        self._file = os.open("/proc/thread-self/schedstat", os.O_RDONLY)

    def waited_ns(self) -> int:
        """In all. It has run for the first number, and waited for the second."""
        return int(os.pread(self._file, 100, 0).split()[1])


class WatchedEpoll:
    """An epoll that tells how long it was not asked. Made by the thread that asks it."""

    def __init__(self, epoll: select.epoll, notes: Notes) -> None:
        self._epoll = epoll
        self._notes = notes
        self._queue = Queue()
        self.turn_began_ns: int | None = None
        self._began_cpu_ns = 0
        self._began_waited_ns = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._epoll, name)

    def poll(self, *arguments: Any) -> Any:
        self._end_turn()
        try:
            return self._epoll.poll(*arguments)
        finally:
            self._began_waited_ns = self._queue.waited_ns()
            self._began_cpu_ns = time.thread_time_ns()
            self.turn_began_ns = time.monotonic_ns()

    def _end_turn(self) -> None:
        if self.turn_began_ns is None:
            return
        held_ns = time.monotonic_ns() - self.turn_began_ns
        self.turn_began_ns = None
        busy_ns = time.thread_time_ns() - self._began_cpu_ns
        waited_ns = self._queue.waited_ns() - self._began_waited_ns
        self._notes.note(max(busy_ns, held_ns - waited_ns), busy_ns)


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
            print(f"held for {(time.monotonic_ns() - began) / 1e6:.0f} ms so far:\n{stack}", file=sys.stderr, flush=True)


def main() -> int:
    from ottla.server.commands import cli

    notes = Notes(Path(sys.argv[1]))

    def count_garbage(*_: object) -> None:
        notes.garbage = gc.collect()

    signal.signal(signal.SIGUSR1, count_garbage)
    run = trio.run
    trio.run = lambda *arguments, **options: run(*arguments, **options, instruments=[Watch(notes)])
    return cli.main(sys.argv[2:])


if __name__ == "__main__":
    sys.exit(main())
