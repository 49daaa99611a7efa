"""What there is to say of one thing in a file, under Kafka's names: as a line of text, or as JSON.

Texts of records come from strangers. What a terminal would take for a command, or would hide, is written as an escape.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

Row = dict[str, Any]


class OptionalLong(NamedTuple):
    """A number that may be missing, as Java prints it."""

    value: int | None

    def __str__(self) -> str:
        return "OptionalLong.empty" if self.value is None else f"OptionalLong[{self.value}]"


class Decoded(NamedTuple):
    """What was decoded of bytes, as JSON; or a text that says why it was not."""

    data: Any

    def __str__(self) -> str:
        if isinstance(self.data, str):
            return self.data
        return json.dumps(self.data, separators=(",", ":"))


def as_text(row: Row, indent: str = "") -> str:
    """`name: value name: value`, as Kafka's DumpLogSegments prints it."""
    return indent + " ".join(f"{name}: {_text(value)}" for name, value in row.items())


def as_json_line(row: Row) -> str:
    """One JSON object, without anything that is not ASCII."""
    plain = {name: value[0] if isinstance(value, OptionalLong | Decoded) else value for name, value in row.items()}
    return json.dumps(plain)


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return f"[{','.join(map(_text, value))}]"
    return escaped(str(value))


def text_of(data: bytes) -> str:
    """A key or value as text; bytes that are no UTF-8 as \\xNN."""
    return bytes(data).decode("utf-8", "backslashreplace")


def escaped(text: str) -> str:
    """A text that can be shown on a terminal as it is."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)
