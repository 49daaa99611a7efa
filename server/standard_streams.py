"""Standard streams of the process: how a write to them fails, for all commands alike.

    stream    trouble                               consequence
    stdin     closed                                its number is held, so that no data file gets it
    stdout    closed, full or broken                OutputFailed: the command says so in one line and ends with 1
              a pipe whose reader has gone          OutputUnread: the command ends without a word
    stderr    any of these                          the lines are lost, and nothing else happens

A process that serves, such as a broker, announces itself by `announce` and goes on in each case. Characters that the
encoding lacks are written as escapes. Neither exception is an OSError, so that a handler cannot mistake it for the failure
of another file.
"""

from __future__ import annotations

import errno
import io
import logging
import os
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, TextIO

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

logger = logging.getLogger("ottla")

STDIN, STDOUT, STDERR = range(3)
ESCAPES: Final = "backslashreplace"


class OutputFailed(Exception):
    """Error: a write to stdout failed. The text is one line for the user."""


class OutputUnread(OutputFailed):
    """Error: a write went to a pipe that nobody reads any more, for example because `head` has ended."""


class _Output(io.FileIO):
    def write(self, data: ReadableBuffer) -> int:
        try:
            while (written := super().write(data)) is None:
                _wait_writable(self)  # another process has made this pipe or terminal non-blocking
        except BrokenPipeError:
            raise OutputUnread("nobody reads stdout") from None
        except OSError as error:
            reason = "it is closed" if error.errno == errno.EBADF else error.strerror
            raise OutputFailed(f"cannot write to stdout: {reason}") from None
        return written


class _Lossy(io.FileIO):
    def write(self, data: ReadableBuffer) -> int:
        try:
            written: int | None = super().write(data)
        except OSError:
            written = None
        return memoryview(data).nbytes if written is None else written


def set_up_streams() -> None:
    """Replace stdout and stderr by streams that handle failed writes as the module's docstring describes.

    Call this once, when the process begins. A closed stdin is replaced by /dev/null.
    """
    for number in (STDIN, STDOUT, STDERR):
        try:
            os.fstat(number)
        except OSError:
            # This gets the lowest free number. A write to stdout fails, as it would have.
            os.open(os.devnull, os.O_WRONLY if number == STDERR else os.O_RDONLY)
    sys.stdout = _text(_Output(STDOUT, "w", closefd=False), sys.stdout)
    sys.stderr = _text(_Lossy(STDERR, "w", closefd=False), sys.stderr, is_by_line=True)


def _text(raw: io.FileIO, before: TextIO | None, *, is_by_line: bool = False) -> io.TextIOWrapper:
    encoding = "utf-8"
    if isinstance(before, io.TextIOWrapper):
        encoding, is_by_line = before.encoding, is_by_line or before.line_buffering or before.write_through
    return io.TextIOWrapper(io.BufferedWriter(raw), encoding, ESCAPES, "\n", line_buffering=is_by_line)


def announce(lines: Iterable[str]) -> None:
    """Print the addresses of the running servers to stdout. A closed stdout does not stop the process."""
    try:
        print("\n".join(lines), flush=True)
    except OutputUnread:
        give_up_output()
    except OutputFailed as failed:
        give_up_output()
        if sys.__stdout__ is not None:  # a stream that was closed before the start is meant to be silent
            logger.warning("The announcement is lost: %s", failed)


def check_reader() -> None:
    """Raise OutputUnread if stdout is a pipe that nobody reads any more, which else only the next write would find out."""
    import select  # only for those that wait

    try:
        poll = select.poll()
        poll.register(sys.stdout, 0)
    except (OSError, ValueError):  # a stand-in for stdout
        return
    if any(event & select.POLLERR for _, event in poll.poll(0)):
        raise OutputUnread("nobody reads stdout")


BOLD, RED = "1", "1;31"


def styled(text: str, style: str, stream: TextIO) -> str:
    """Return the text in a style, if `stream` is a terminal with colours and the user wants some (https://no-color.org)."""
    is_wanted = stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM", "dumb") != "dumb"
    return f"\x1b[{style}m{text}\x1b[0m" if is_wanted else text


def give_up_output() -> None:
    """Redirect stdout to /dev/null, so that pending and later output is discarded."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def _wait_writable(file: io.FileIO) -> None:
    import select  # hardly ever

    select.select([], [file], [])
