"""Yielding of the interpreter lock by work in threads, so that the event loop goes on."""

import time
from collections.abc import Callable

PIECE_S = 0.001


def let_others_run() -> None:
    """Release the interpreter lock for long enough that a waiting thread gets it next.

    A busy thread keeps the lock for milliseconds at a time. One that releases it often, but each time for less than
    the other takes to wake up, may keep it for as long as it works: CPython asks for the lock only when it was not
    released for a while.
    """
    time.sleep(0)


def paced(give_way: Callable[[], None] = let_others_run) -> Callable[[], None]:
    """Make a function to call after each little piece of work: it yields once a millisecond.

    Releasing the lock costs little while nobody waits for it. When the event loop is busy each time is a change of
    threads, which takes longer than many a piece.
    """
    until = 0.0

    def give_way_when_due() -> None:
        nonlocal until
        now = time.perf_counter()
        if now >= until:
            give_way()
            until = time.perf_counter() + PIECE_S

    return give_way_when_due
