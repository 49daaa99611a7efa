"""Keys in the terminal of `ottla cluster`: 1 to 9 kill that broker, or start it again.

Only if the command runs in the foreground of a terminal, from which it has its input and to which it writes. The terminal then
hands over single keys, which it does not show; Ctrl-C and Ctrl-Z mean what they always do. Its modes come back at the end.

The terminal is opened anew, so that a read never waits and nobody else's descriptor is changed. Whoever reads a terminal, or
sets its modes, from the background is stopped by the system: so nobody does so there.
"""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

import trio

BACKGROUND_S = 0.5  # between two looks whether this process is in the foreground again
_READ_BYTES = 64


class Keyboard:
    """A terminal that gives keys one by one."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.is_open = True
        """Afterwards the number of the descriptor may be that of another file."""


@contextmanager
def terminal() -> Iterator[Keyboard | None]:
    """The terminal's keys while this is entered; None: there is no such terminal. In a program of trio."""
    import termios  # there is none on every system

    descriptor = _opened()
    if descriptor is None:
        yield None
        return
    keyboard = Keyboard(descriptor)
    try:
        before = termios.tcgetattr(descriptor)
        modes = termios.tcgetattr(descriptor)
        modes[3] &= ~(termios.ICANON | termios.ECHO)
        termios.tcsetattr(descriptor, termios.TCSADRAIN, modes)
        try:
            yield keyboard
        finally:
            if _is_in_foreground(descriptor):
                termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
    finally:
        keyboard.is_open = False
        trio.lowlevel.notify_closing(descriptor)
        os.close(descriptor)


def _opened() -> int | None:
    try:
        if not (os.isatty(sys.stdin.fileno()) and os.isatty(sys.stdout.fileno())):
            return None
        descriptor = os.open(os.ttyname(sys.stdin.fileno()), os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
    except (OSError, ValueError, AttributeError):  # there is no input, or it is closed
        return None
    if _is_in_foreground(descriptor):
        return descriptor
    os.close(descriptor)
    return None


def _is_in_foreground(descriptor: int) -> bool:
    try:
        return os.tcgetpgrp(descriptor) == os.getpgrp()
    except OSError:  # it is the terminal of another session, or has gone
        return False


async def keys(keyboard: Keyboard) -> AsyncIterator[str]:
    """Each key that is pressed while this process is in the foreground, until the terminal is closed or gone."""
    descriptor = keyboard.descriptor
    while keyboard.is_open:
        try:
            await trio.lowlevel.wait_readable(descriptor)
            # Closed since this task was woken: the loop lets others go first.
            if not keyboard.is_open:
                return
            if not _is_in_foreground(descriptor):
                await trio.sleep(BACKGROUND_S)
                continue
            pressed = os.read(descriptor, _READ_BYTES)
        except BlockingIOError:  # somebody else was quicker
            continue
        except (OSError, trio.ClosedResourceError):
            return
        if not pressed:
            return
        for key in pressed.decode("ascii", "replace"):
            yield key
