"""Output of commands: failures, tables that fit a terminal, JSON, one line of progress, and texts that cannot control a terminal.

Control characters are shown as backslash escapes: C0 and C1 (an escape sequence begins with one of these), DEL, Unicode's bidirectional
controls, line separators, and bytes that are not UTF-8. A tab and, in a record, the end of a line stay what they are.
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Collection, Iterator, Sequence
from itertools import zip_longest
from typing import Any

from ottla.server.standard_streams import BOLD, RED, styled


class RequestFailed(Exception):
    """Failure or refusal of a request; exit code 1. The text is printed on stderr and suggests a remedy."""


class UsageError(Exception):
    """Wrong usage of the command, independent of the cluster; exit code 2. The text is printed on stderr."""


class ConnectionLost(RequestFailed):
    """Error: a connection was lost, or a peer does not respond. Another broker may still answer."""


class NoResponse(ConnectionLost):
    """Timeout of a request: the peer is connected and has sent no response."""


GAP = "  "
WIDTH_MIN = 8
"""Width below which a column of texts is not narrowed."""

_BREAKS = " ,.-_/:"
"""Characters after which a text is broken rather than elsewhere."""

SHOWN_BYTES_MAX = 8 * 1024
"""Limit of one key, value or header on a terminal."""

_HARMFUL = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff\\U000e0000-\\U000e007f]"
)


def shown_text(text: str) -> str:
    """Escape the control characters in a text."""
    return _HARMFUL.sub(_escaped, text)


def shown_command(command: str) -> str:
    """Escape a command line made by `shlex.join`. A line break in a name stays one in a shell, and begins no line here."""
    # In such a command a line break is always between single quotes.
    return shown_text(command).replace("\n", "'$'\\n''")


def shown_bytes(data: bytes) -> str:
    """Return bytes as text with escapes. A very long value is cut, and its size is added."""
    size = len(data)
    cut = data[:SHOWN_BYTES_MAX]
    text = shown_text(bytes(cut).decode("utf-8", "backslashreplace"))
    return text if size <= SHOWN_BYTES_MAX else f"{text}... ({size:,} bytes)"


def say(text: str) -> None:
    """Print one line on stderr; stdout is for the command's output."""
    _print_marked("ottla:", text)


def note(text: str) -> None:
    """Print one line about the records of a command on stderr, marked as kcat marks such lines."""
    _print_marked("%", text)


def _print_marked(mark: str, text: str) -> None:
    line = " ".join(shown_text(text).split())
    print(f"{mark} {line}".encode("utf-8", "backslashreplace").decode(), file=sys.stderr, flush=True)


def note_end(place: tuple[str, int], offset: int, open_until: int | None, *, is_last: bool) -> None:
    """Print that the end of a partition is reached. `is_last`: the command ends with it.

    `open_until`: end offset of the records that wait for the end of a transaction; None if there are none.
    """
    text = f"Reached end of topic {place[0]} [{place[1]}] at offset {offset}"
    if open_until is not None:
        text += f", and records of an open transaction follow, up to {open_until} (--isolation-level read_committed)"
    note(text + (": exiting" if is_last else ""))


def _escaped(found: re.Match[str]) -> str:
    code = ord(found[0])
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def terminal_width() -> int | None:
    """Return the width of the terminal that stdout is; None if it is a file or a pipe, whose lines are never cut."""
    if not sys.stdout.isatty():
        return None
    import shutil  # it loads all that compresses

    return shutil.get_terminal_size().columns


Cell = str | int | None


def print_table(headings: Sequence[str], rows: Sequence[Sequence[Cell]]) -> None:
    """Print headings and rows as a table. Columns that contain only numbers are right-aligned.

    On a terminal long texts are wrapped within their columns, so that each line fits.
    """
    numeric = [
        bool(rows) and all(isinstance(row[i], int) or row[i] is None for row in rows) for i in range(len(headings))
    ]
    table = Table(headings, [[_text(cell) for cell in row] for row in rows], numeric, terminal_width())
    heading, body = table.lines()
    for line in heading:
        print_line(styled(line, BOLD, sys.stdout))
    for line in body:
        print_line(line)


def print_pairs(pairs: Sequence[tuple[str, Cell]], alarming: Collection[str] = ()) -> None:
    """Print pairs of name and value, one pair a line; on a terminal long values are wrapped.

    `alarming`: names of the pairs that are printed in red on a terminal.
    """
    names = [_text(name) for name, _ in pairs]
    width = max(map(len, names))
    room = None if (whole := terminal_width()) is None else max(whole - width - 2, WIDTH_MIN)
    for name, (given, value) in zip(names, pairs, strict=True):
        text = _text(value)
        for index, line in enumerate([text] if room is None else wrapped(text, room)):
            shown = f"{(name if index == 0 else '').ljust(width)}  {line}".rstrip()
            print_line(styled(shown, RED, sys.stdout) if given in alarming else shown)


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


# --- tables


class Table:
    """Headings and rows of texts. `numeric`: columns that are right-aligned; `width`: of a line, None: any."""

    def __init__(
        self, headings: Sequence[str], rows: Sequence[Sequence[str]], numeric: Sequence[bool], width: int | None
    ) -> None:
        self._headings, self._rows, self._numeric = headings, rows, numeric
        self._widths = [max(map(len, column)) for column in zip(headings, *rows, strict=True)]
        if width is not None:
            least = [self._least(index) for index in range(len(headings))]
            self._widths = fitting(self._widths, least, width - len(GAP) * (len(headings) - 1))

    def _least(self, index: int) -> int:
        # A number is never broken.
        longest = max((len(row[index]) for row in self._rows), default=0) if self._numeric[index] else 0
        return max(longest, min(WIDTH_MIN, self._widths[index]))

    def lines(self) -> tuple[list[str], list[str]]:
        """Return the lines of the headings, and those of the rows."""
        return list(self._row(self._headings)), [line for row in self._rows for line in self._row(row)]

    def _row(self, row: Sequence[str]) -> Iterator[str]:
        cells = [wrapped(text, width) for text, width in zip(row, self._widths, strict=True)]
        for parts in zip_longest(*cells, fillvalue=""):
            aligned = zip(parts, self._widths, self._numeric, strict=True)
            yield GAP.join(text.rjust(width) if right else text.ljust(width) for text, width, right in aligned).rstrip()


def fitting(widths: Sequence[int], least: Sequence[int], room: int) -> list[int]:
    """Narrow the widest columns until all together fit into `room`, or have the width `least`."""
    found = list(widths)
    while sum(found) > room:
        wide = [index for index, width in enumerate(found) if width > least[index]]
        if not wide:
            break
        found[max(wide, key=lambda index: found[index])] -= 1
    return found


def wrapped(text: str, width: int) -> list[str]:
    """Break a text into lines of at most `width` characters, if possible after a space or a mark."""
    lines = []
    while len(text) > width:
        end = max(text.rfind(each, 0, width) for each in _BREAKS) + 1
        # A break far in front would make many short lines.
        end = end if end > width // 2 else width
        lines.append(text[:end].rstrip())
        text = text[end:].lstrip(" ")
    return [*lines, text]
