"""Output of commands: failures, tables and JSON, one line of progress, and texts that cannot control a terminal.

Control characters are shown as backslash escapes: C0 and C1 (an escape sequence begins with one of these), DEL, Unicode's bidirectional
controls, line separators, and bytes that are not UTF-8. A tab and, in a record, the end of a line stay what they are.
"""

from __future__ import annotations

import json
import re
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Self


class RequestFailed(Exception):
    """Failure or refusal of a request; exit code 1. The text is printed on stderr and suggests a remedy."""


class UsageError(Exception):
    """Wrong usage of the command, independent of the cluster; exit code 2. The text is printed on stderr."""


class ConnectionLost(RequestFailed):
    """Error: a connection was lost, or a peer does not respond. Another broker may still answer."""


class NoResponse(ConnectionLost):
    """Timeout of a request: the peer is connected and has sent no response."""


SHOWN_BYTES_MAX = 8 * 1024
"""Limit of one key, value or header on a terminal."""

_HARMFUL = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff\\U000e0000-\\U000e007f]"
)


def shown_text(text: str) -> str:
    """Escape the control characters in a text."""
    return _HARMFUL.sub(_escaped, text)


def shown_bytes(data: bytes) -> str:
    """Return bytes as text with escapes. A very long value is cut, and its size is added."""
    size = len(data)
    cut = data[:SHOWN_BYTES_MAX]
    text = shown_text(bytes(cut).decode("utf-8", "backslashreplace"))
    return text if size <= SHOWN_BYTES_MAX else f"{text}... ({size:,} bytes)"


def say(text: str) -> None:
    """Print one line on stderr; stdout is for the command's output."""
    line = " ".join(shown_text(text).split())
    print(f"ottla: {line}".encode("utf-8", "backslashreplace").decode(), file=sys.stderr, flush=True)


def _escaped(found: re.Match[str]) -> str:
    code = ord(found[0])
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


Cell = str | int | None


def print_table(headings: Sequence[str], rows: Sequence[Sequence[Cell]]) -> None:
    """Print headings and rows as a table. Columns that contain only numbers are right-aligned."""
    texts = [[_text(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(headings, *texts, strict=True)]
    numeric = [
        bool(rows) and all(isinstance(row[i], int) or row[i] is None for row in rows) for i in range(len(headings))
    ]
    for line in (headings, *texts):
        cells = [
            text.rjust(width) if right else text.ljust(width)
            for text, width, right in zip(line, widths, numeric, strict=True)
        ]
        print_line("  ".join(cells).rstrip())


def print_pairs(pairs: Sequence[tuple[str, Cell]]) -> None:
    """Print pairs of name and value, one pair a line."""
    names = [_text(name) for name, _ in pairs]
    width = max(map(len, names))
    for name, (_, value) in zip(names, pairs, strict=True):
        print_line(f"{name.ljust(width)}  {_text(value)}".rstrip())


def print_json(value: Any) -> None:
    """Print a value as one JSON document."""
    print(json.dumps(value, indent=2, ensure_ascii=True))


def print_line(text: str) -> None:
    print(text)


def ids(numbers: Sequence[int]) -> str:
    """Format ids of brokers or partitions as the text of one table cell."""
    return ",".join(map(str, numbers)) or "-"


def _text(cell: Cell) -> str:
    if cell is None:
        return "-"
    return shown_text(cell).replace("\n", "\\n").replace("\t", "\\t") if isinstance(cell, str) else str(cell)


PIPE_BYTES = select.PIPE_BUF
"""Bytes that a pipe takes at once when it is ready for more."""

DUTY_S, READY_S = 1.0, 0.2


class Interruption:
    """Block in which SIGINT, SIGTERM and SIGHUP raise KeyboardInterrupt.

    Within `held`, they do so only at `check` and at the end of `held`.
    """

    def __init__(self) -> None:
        self._is_held = self._is_asked = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            self._before[each] = signal.signal(each, self._on_signal)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _on_signal(self, *_: object) -> None:
        self._is_asked = True
        if not self._is_held:
            self.check()

    def check(self) -> None:
        """Raise KeyboardInterrupt if a signal has arrived since the last call."""
        if self._is_asked:
            self._is_asked = False
            raise KeyboardInterrupt

    @contextmanager
    def held(self) -> Iterator[None]:
        """Delay signals until this block ends, so that no signal separates an action from the note that it is done."""
        self._is_held = True
        try:
            yield
        finally:
            self._is_held = False
        self.check()


class PacedOutput:
    """Stdout of a command that must do something regularly, even while the reader of its output is slow."""

    def __init__(self, duty: Callable[[], None], check: Callable[[], None]) -> None:
        """`duty` is called about once a second, `check` before each piece. `check` may raise KeyboardInterrupt."""
        self._duty, self._check, self._next_duty_s = duty, check, time.monotonic() + DUTY_S
        self.written = 0
        """Bytes of the last `write` that have been written, also if it has failed or was interrupted."""

    def write(self, data: bytes) -> None:
        """Write `data` to stdout and flush. Raises the errors of stdout, of `duty` and of `check`."""
        self.written = 0
        raw = getattr(sys.stdout.buffer, "raw", None)
        if raw is None:  # a stand-in for stdout, which takes everything at once
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()
            self.written = len(data)
            return
        sys.stdout.flush()
        while self.written < len(data):
            self._check()
            is_ready = bool(select.select([], [raw], [], READY_S)[1])
            if time.monotonic() >= self._next_duty_s:
                self._duty()
                self._next_duty_s = time.monotonic() + DUTY_S
            if is_ready:
                self.written += raw.write(data[self.written : self.written + PIPE_BYTES])


INTERVAL_S = 0.5


class Progress:
    """Progress line on stderr, updated twice a second; hidden for short work or without a terminal."""

    def __init__(self, *, is_quiet: bool = False) -> None:
        self._is_shown = sys.stderr.isatty() and not is_quiet
        self._began_s = time.monotonic()
        self._next_s = self._began_s + INTERVAL_S
        self._width = 0

    def note(self, records: int, size: int) -> None:
        """Update the number of records and of bytes done so far."""
        if not self._is_shown or (now_s := time.monotonic()) < self._next_s:
            return
        self._next_s = now_s + INTERVAL_S
        rate = records / (now_s - self._began_s)
        text = f"{records:,} records, {size / 1e6:,.1f} MB, {rate:,.0f} records/s"
        print(f"\r{text.ljust(self._width)}", end="", file=sys.stderr, flush=True)
        self._width = len(text)

    def end(self) -> None:
        """Clear the progress line."""
        if self._width:
            print(f"\r{' ' * self._width}\r", end="", file=sys.stderr, flush=True)
            self._width = 0
