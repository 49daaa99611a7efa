"""What work in threads owes the event loop."""

import time
from collections.abc import Callable

PIECE_S = 0.001


def let_others_run() -> None:
    """Let go of the interpreter lock for long enough that a thread that waits for it has it next.

    A busy thread keeps the lock for milliseconds at a time. One that lets go of it often, but each time for less than
    the other takes to wake up, may keep it for as long as it works: CPython asks for the lock only when it was not let
    go of for a while.
    """
    time.sleep(0)


def paced(give_way: Callable[[], None] = let_others_run) -> Callable[[], None]:
    """To be called after each little piece of work: gives way once a millisecond.

    To let go of the lock costs little while nobody waits for it. When the event loop is busy each time is a change of
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
