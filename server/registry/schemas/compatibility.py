"""Levels of compatibility: which earlier schemas a new one is compared with, and in which direction.

    BACKWARD   the new schema reads what the earlier one has written        FORWARD   the earlier one reads what the new one writes
    FULL       both                                                         NONE      nothing is compared

Without _TRANSITIVE only the latest schema counts. Source: Confluent's page "Schema Evolution and Compatibility".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from ottla.server.registry.schemas.format import ParsedSchema

NONE, BACKWARD = "NONE", "BACKWARD"


class Level(NamedTuple):
    """Compatibility level: directions to check, and if transitive, against all earlier versions."""

    is_backward: bool
    is_forward: bool
    is_transitive: bool


LEVELS = {
    "NONE": Level(False, False, False),
    "BACKWARD": Level(True, False, False),
    "BACKWARD_TRANSITIVE": Level(True, False, True),
    "FORWARD": Level(False, True, False),
    "FORWARD_TRANSITIVE": Level(False, True, True),
    "FULL": Level(True, True, False),
    "FULL_TRANSITIVE": Level(True, True, True),
}

SHOWN_MAX = 10 * 1024
"""An earlier schema is shown in a problem up to so many characters."""


class Earlier(NamedTuple):
    """Earlier version of a subject: number, type, text, and a function that parses the text."""

    version: int
    type: str
    text: str
    parse: Callable[[], ParsedSchema]


def problems(
    level: str, new: ParsedSchema, kind: str, earlier: Sequence[Earlier], *, is_lenient: bool = False
) -> list[str]:
    """Return incompatibilities of `new` with `earlier` versions; empty if none.

    `earlier`: sorted, latest last. `kind`: schema type of `new`. `is_lenient`: JSON Schema's lenient policy.
    """
    wanted = LEVELS[level]
    if not (wanted.is_backward or wanted.is_forward):
        return []
    for each in reversed(earlier if wanted.is_transitive else earlier[-1:]):
        if kind != each.type:
            return ["Incompatible because of different schema type"]
        if found := _between(wanted, new, each.parse(), is_lenient):
            cut = each.text[:SHOWN_MAX]
            shown = f"{{oldSchema: '{cut}'}}" if cut == each.text else f"{{oldSchema: <truncated> '{cut}...'}}"
            return [*found, f"{{oldSchemaVersion: {each.version}}}", shown]
    return []


def _between(level: Level, new: ParsedSchema, earlier: ParsedSchema, is_lenient: bool) -> list[str]:
    found = []
    if level.is_forward:
        found += [_named(each, "old", "new") for each in earlier.problems_reading(new, is_lenient=is_lenient)]
    if level.is_backward:
        found += [_named(each, "new", "old") for each in new.problems_reading(earlier, is_lenient=is_lenient)]
    return found


def _named(text: str, reader: str, writer: str) -> str:
    """Replace %s in a problem's text, in turn, by the names `reader` and `writer`, and %% by %."""
    sides = [reader, writer] * (text.count("%s") // 2 + 1)
    return "%".join(_filled(part, sides) for part in text.split("%%"))


def _filled(part: str, sides: list[str]) -> str:
    while "%s" in part:
        part = part.replace("%s", sides.pop(0), 1)
    return part
