"""Cells of the page: keys, values and headers, cut to a number of bytes, with their form and their length.

JSON    the whole value is there, it is UTF-8, an object or a list, and parses
text    UTF-8 without a NUL; a cut may go through its last character
hex     everything else, or when it is asked for
"""

from __future__ import annotations

from typing import Any

from ottla.wire.foreign_json import parse_json

HEADERS_SHOWN_MAX = 32
HEADER_BYTES_MAX = 512
JSON_BYTES_MAX = 64 * 1024  # longer values are not parsed, only shown
HEX = "hex"
_LAST_CHARACTER = 4  # bytes that the longest character of UTF-8 has

Buffer = bytes | bytearray | memoryview


def cell(value: Buffer | None, cut: int, form: str = "auto") -> dict[str, Any] | None:
    """Make the console's JSON cell of a key or value, cut to `cut` bytes; None for null. `form`: auto or hex."""
    if value is None:
        return None
    shown = bytes(memoryview(value)[:cut])
    is_cut = len(value) > len(shown)
    text = None if form == HEX else _text(shown, is_cut)
    if text is None:
        return {"form": HEX, "text": shown.hex(" "), "size": len(value), "isCut": is_cut}
    is_json = not is_cut and _is_json(text)
    return {"form": "json" if is_json else "text", "text": text, "size": len(value), "isCut": is_cut}


def header_cells(headers: tuple[tuple[Buffer, Buffer | None], ...], form: str = "auto") -> list[list[Any]]:
    """Return JSON cells (name, value) of the first HEADERS_SHOWN_MAX headers. `form`: auto or hex."""
    shown = headers[:HEADERS_SHOWN_MAX]
    return [[cell(name, HEADER_BYTES_MAX, form), cell(value, HEADER_BYTES_MAX, form)] for name, value in shown]


def _text(shown: bytes, is_cut: bool) -> str | None:
    if b"\0" in shown:
        return None
    try:
        return shown.decode()
    except UnicodeDecodeError as error:
        # Where the value was cut there may be the beginning of a character.
        if is_cut and error.start >= len(shown) - _LAST_CHARACTER and error.reason == "unexpected end of data":
            return shown[: error.start].decode()
        return None


def _is_json(text: str) -> bool:
    if text[:64].lstrip()[:1] not in ("{", "[") or len(text) > JSON_BYTES_MAX:
        return False
    try:
        # Numbers stay text: one of a million digits would take long.
        parse_json(text, parse_int=str, parse_float=str)
    except ValueError:
        return False
    return True
