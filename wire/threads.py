"""What work in threads owes the event loop."""

import time


def let_others_run() -> None:
    """Let go of the interpreter lock for long enough that a thread that waits for it has it next.

    A busy thread keeps the lock for milliseconds at a time. One that lets go of it often, but each time for less than
    the other takes to wake up, may keep it for as long as it works: CPython asks for the lock only when it was not let
    go of for a while.
    """
    time.sleep(0)
