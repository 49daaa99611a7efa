"""What strangers have written, made harmless for a terminal: control characters are shown and never obeyed.

Shown as backslash escapes are C0 and C1 control characters (an escape sequence begins with one of these), DEL, characters that
turn the direction of a line (Unicode's bidirectional controls), line separators, and bytes that are not UTF-8. A tab and, in a
record, the end of a line stay what they are.
"""

from __future__ import annotations

import re
import sys

SHOWN_BYTES_MAX = 8 * 1024
"""Of one key, value or header on a terminal."""

_HARMFUL = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff\\U000e0000-\\U000e007f]"
)


def shown_text(text: str) -> str:
    """A text without anything that a terminal would obey."""
    return _HARMFUL.sub(_escaped, text)


def shown_bytes(data: bytes) -> str:
    """The same of bytes, cut with their size where there are very many."""
    size = len(data)
    cut = data[:SHOWN_BYTES_MAX]
    text = shown_text(bytes(cut).decode("utf-8", "backslashreplace"))
    return text if size <= SHOWN_BYTES_MAX else f"{text}... ({size:,} bytes)"


def say(text: str) -> None:
    """One line on stderr, beside what the command prints."""
    line = " ".join(shown_text(text).split())
    print(f"ottla: {line}".encode("utf-8", "backslashreplace").decode(), file=sys.stderr, flush=True)


def _escaped(found: re.Match[str]) -> str:
    code = ord(found[0])
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
