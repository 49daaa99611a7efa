"""Texts of settings from Java's .properties format (`server.properties`, `meta.properties`).

A logical line is a key, then `=`, `:` or white space, then a value. `#` and `!` begin a comment line, a backslash at the
end of a line continues it without the next line's indentation, and `\\t \\n \\r \\f \\uXXXX` are escapes; any other
escaped character stands for itself; two `\\u` escapes may make one character beyond U+FFFF. A later value of a key replaces
an earlier one. Texts are read as UTF-8, as what Java calls Reader; Kafka itself takes the bytes of its file for Latin-1.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_BLANK = " \t\f"
_HEXADECIMAL = frozenset("0123456789abcdefABCDEF")


class MalformedProperties(ValueError):
    """Raised if Java's Properties would reject the text. The message names the line."""


def parse_properties(text: str) -> dict[str, str]:
    """Parse a .properties text; return its values by key. Raises MalformedProperties."""
    found: dict[str, str] = {}
    for number, line in _logical_lines(text):
        end = _end_of_key(line)
        try:
            key, value = _unescaped(line[:end]), _unescaped(_without_separator(line[end:]))
        except ValueError:
            raise MalformedProperties(f"line {number}: malformed \\uxxxx encoding") from None
        found[key] = value
    return found


def format_properties(texts: Mapping[str, str]) -> str:
    """Return settings as an ASCII text for `parse_properties`. Their names may have no blanks or special signs."""
    return "".join(f"{key}={_escaped(value)}\n" for key, value in texts.items())


def _escaped(value: str) -> str:
    text = "".join(
        character if " " <= character <= "~" else _as_units(character) for character in value.replace("\\", "\\\\")
    )
    # A blank in front would belong to the separator.
    return f"\\{text}" if text.startswith(" ") else text


def _as_units(character: str) -> str:
    units = character.encode("utf-16-be", errors="surrogatepass")
    return "".join(f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2))


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield lines with continuations joined and comments removed, each with the number of its first line."""
    pending, started = "", 0
    for number, natural in enumerate(text.replace("\r\n", "\n").replace("\r", "\n").split("\n"), 1):
        line = natural.lstrip(_BLANK)
        # Within a continued line blanks and comment signs belong to the value, but not while it has none.
        if not pending and line[:1] in ("", "#", "!"):
            started = 0
            continue
        pending, started = pending + line, started or number
        # Each pair of backslashes stands for one, so only an odd number continues the line.
        if (len(line) - len(line.rstrip("\\"))) % 2 == 1:
            pending = pending[:-1]
            continue
        yield started, pending
        pending, started = "", 0
    if pending:
        yield started, pending


def _end_of_key(line: str) -> int:
    position = 0
    while position < len(line):
        if line[position] == "\\":
            position += 1
        elif line[position] in "=:" or line[position] in _BLANK:
            return position
        position += 1
    return len(line)


def _without_separator(rest: str) -> str:
    stripped = rest.lstrip(_BLANK)
    return stripped[1:].lstrip(_BLANK) if stripped[:1] in ("=", ":") else stripped


def _unescaped(text: str) -> str:
    if "\\" not in text:
        return text
    parts: list[str] = []
    characters = iter(text)
    for character in characters:
        if character != "\\":
            parts.append(character)
            continue
        escaped = next(characters, "")
        if escaped == "u":
            _append_unit(parts, "".join(next(characters, "") for _ in range(4)))
        else:
            parts.append(_ESCAPES.get(escaped, escaped))
    return "".join(parts)


def _append_unit(parts: list[str], digits: str) -> None:
    r"""Append a Unicode escape's UTF-16 unit; join surrogates. Raises ValueError unless `digits` are four hex digits."""
    # int() alone would take signs, blanks, underscores and the digits of all scripts.
    if len(digits) != 4 or not _HEXADECIMAL.issuperset(digits):
        raise ValueError("four hexadecimal digits are needed")
    unit = int(digits, 16)
    if 0xDC00 <= unit <= 0xDFFF and parts and "\ud800" <= parts[-1] <= "\udbff":
        parts[-1] = chr(0x10000 + ((ord(parts[-1]) - 0xD800) << 10) + unit - 0xDC00)
    else:
        parts.append(chr(unit))
