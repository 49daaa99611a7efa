"""Patterns and replacements of rules that name users, as Java's regular expressions read them.

Patterns are RE2's and not Java's: one name takes a time that grows with its length and the pattern's, whoever wrote them. What
Java's have beyond that (looking ahead, back references within the pattern) is refused. A replacement is that of Java's
Matcher.appendReplacement: `$1` is a group, and a backslash makes the next character plain.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

PATTERN_MEMORY_MAX = 1024 * 1024
RESULT_CHARACTERS_MAX = 32_767

_DIGITS = frozenset("0123456789")


class InvalidPattern(ValueError):
    """A pattern that RE2 cannot match, or a replacement that Java would refuse."""


class ResultTooLong(Exception):
    """A replacement makes more of a name than RESULT_CHARACTERS_MAX."""


def compiled(pattern: str) -> Any:
    """RE2's pattern. InvalidPattern."""
    import re2  # here, because few listeners have rules

    options = re2.Options()
    options.max_mem = PATTERN_MEMORY_MAX
    options.log_errors = False
    try:
        return re2.compile(pattern, options=options)
    except (re2.error, UnicodeError):
        raise InvalidPattern(f"`{pattern}` is not a regular expression that RE2 can match") from None


def replacement_parts(text: str, groups: int, *, absent_are_plain: bool) -> list[str | int]:
    """Texts, and numbers of groups. InvalidPattern.

    `absent_are_plain`: `$9` stands for itself if there are groups, but not as many (Kafka's escapeLiteralBackReferences).
    """
    parts: list[str | int] = []
    position = 0
    while position < len(text):
        here, following = text[position], text[position + 1 : position + 2]
        if here == "\\":
            # A backslash at the end is half of an escape.
            if not following:
                raise InvalidPattern(f"`{text}`: character to be escaped is missing")
            parts.append(following)
            position += 2
        elif here != "$":
            parts.append(here)
            position += 1
        elif following not in _DIGITS:
            raise InvalidPattern(f"`{text}`: a $ in a replacement is followed by the number of a group")
        else:
            group, position = _group(text, position + 1, groups, absent_are_plain=absent_are_plain)
            parts.append(group)
    return parts


def _group(text: str, position: int, groups: int, *, absent_are_plain: bool) -> tuple[str | int, int]:
    """The group that a number means: as many of its digits as are a group that there is. A text if there is none."""
    number = int(text[position])
    if number > groups:
        if groups == 0 or not absent_are_plain:
            raise InvalidPattern(f"No group {number}")
        return f"${number}", position + 1
    position += 1
    while position < len(text) and text[position] in _DIGITS and number * 10 + int(text[position]) <= groups:
        number = number * 10 + int(text[position])
        position += 1
    return number, position


def replaced(pattern: Any, parts: Sequence[str | int], text: str, *, only_first: bool = False) -> str:
    """What is left of a text when matches are replaced, also empty ones behind others, as in Java. ResultTooLong."""
    result: list[str] = []
    end = size = 0
    for match in pattern.finditer(text):
        result.append(text[end : match.start()])
        result += [(match.group(part) or "") if isinstance(part, int) else part for part in parts]
        end = match.end()
        size += sum(map(len, result[-len(parts) - 1 :]))
        if size > RESULT_CHARACTERS_MAX:
            raise ResultTooLong(f"the name that a rule makes has more than {RESULT_CHARACTERS_MAX} characters")
        if only_first:
            break
    result.append(text[end:])
    return "".join(result)
