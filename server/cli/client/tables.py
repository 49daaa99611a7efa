"""Tables that fit a terminal: cells that are too long are wrapped within their columns, and nothing is left out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest

GAP = "  "
WIDTH_MIN = 8
"""Width below which a column of texts is not narrowed."""

_BREAKS = " ,.-_/:"
"""Characters after which a text is broken rather than elsewhere."""


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
