"""Answers for people and for programs: columns that line up, or JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from ottla.server.client.escaping import shown_text

Cell = str | int | None


def print_table(headings: Sequence[str], rows: Sequence[Sequence[Cell]]) -> None:
    """Print a heading and a line for each row. Columns that hold only numbers are aligned at their right."""
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
    """Print names and values, one pair a line."""
    names = [_text(name) for name, _ in pairs]
    width = max(map(len, names))
    for name, (_, value) in zip(names, pairs, strict=True):
        print_line(f"{name.ljust(width)}  {_text(value)}".rstrip())


def print_json(value: Any) -> None:
    """Print a value as one document of JSON."""
    print(json.dumps(value, indent=2, ensure_ascii=True))


def print_line(text: str) -> None:
    """Print one line."""
    print(text)


def ids(numbers: Sequence[int]) -> str:
    """Ids of brokers or partitions in one cell."""
    return ",".join(map(str, numbers)) or "-"


def _text(cell: Cell) -> str:
    if cell is None:
        return "-"
    return shown_text(cell).replace("\n", "\\n").replace("\t", "\\t") if isinstance(cell, str) else str(cell)
