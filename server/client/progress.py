"""How far long work is, for whoever sits at a terminal: one line on stderr, written over twice a second."""

from __future__ import annotations

import sys
import time

INTERVAL_S = 0.5


class Progress:
    """Says nothing unless stderr is a terminal, and nothing of work that is done at once."""

    def __init__(self, *, is_quiet: bool = False) -> None:
        self._is_shown = sys.stderr.isatty() and not is_quiet
        self._began_s = time.monotonic()
        self._next_s = self._began_s + INTERVAL_S
        self._width = 0

    def note(self, records: int, size: int) -> None:
        """So many records and bytes are done."""
        if not self._is_shown or (now_s := time.monotonic()) < self._next_s:
            return
        self._next_s = now_s + INTERVAL_S
        rate = records / (now_s - self._began_s)
        text = f"{records:,} records, {size / 1e6:,.1f} MB, {rate:,.0f} records/s"
        print(f"\r{text.ljust(self._width)}", end="", file=sys.stderr, flush=True)
        self._width = len(text)

    def end(self) -> None:
        """Leave the line empty for what comes next."""
        if self._width:
            print(f"\r{' ' * self._width}\r", end="", file=sys.stderr, flush=True)
            self._width = 0
