"""Regular expressions that clients send, by the rules of RE2, which Kafka follows for them.

RE2 has no backtracking: the time for a match grows with the pattern and with the text, and not faster. Both are bounded
here, and `cost` says how much work a match is, so that an expensive one is left to a thread. The library does not hold the
interpreter meanwhile.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from ottla.wire.errors import ErrorCode, KafkaError

CHARACTERS_MAX = 4_096
INSTRUCTIONS_MAX = 3_000
"""Longer programs come of patterns that repeat something hundreds of times. Kafka has no such limit."""

PROPERTIES_MAX = 50
"""Greatest number of Unicode properties (`\\pL`) in a pattern: the library makes a list of some hundred ranges for each of them,
before it finds the pattern too large."""

MEMORY_MAX = 1024 * 1024
"""Memory for one pattern, in bytes. A pattern that needs more is matched in a slower way."""


class Pattern:
    """Compiled regular expression. Raises KafkaError INVALID_REGULAR_EXPRESSION if the text is invalid or too large."""

    __slots__ = ("_compiled",)

    def __init__(self, text: str) -> None:
        if len(text) > CHARACTERS_MAX:
            raise _invalid(text[:100] + "...", "it is too long")
        if _is_dear(text):
            raise _invalid(text, "it is too large")
        library = _library()
        try:
            self._compiled = library.compile(text, options=_options())
        except (library.error, UnicodeError) as error:
            raise _invalid(text, _words_of(error)) from None
        if self._compiled.programsize > INSTRUCTIONS_MAX:
            raise _invalid(text, "it is too large")

    def matches(self, text: str) -> bool:
        """Return True if the pattern matches the whole text."""
        return self._compiled.fullmatch(text) is not None

    def cost(self, text: str) -> int:
        """Return the estimated steps of matching a text; a million steps take some hundred milliseconds."""
        steps: int = self._compiled.programsize * (1 + len(text))
        return steps


def _is_dear(text: str) -> bool:
    """Return True if a pattern takes long to compile. The regex library holds the interpreter lock meanwhile."""
    # It writes repetitions out before it counts instructions.
    copies = sum([_copies(part.partition("}")[0]) for part in text.split("{")[1:]])
    return copies > INSTRUCTIONS_MAX or text.count("\\p") + text.count("\\P") > PROPERTIES_MAX


def _copies(bounds: str) -> int:
    """Return the number of copies that a repetition `{bounds}` makes; 0 if `bounds` is no repetition."""
    least, _, most = bounds.partition(",")
    number = most or least
    # The library refuses more than a thousand by itself.
    return int(number) if len(number) <= 4 and number.isascii() and number.isdigit() else 0


def _invalid(text: str, reason: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REGULAR_EXPRESSION, f"`{text}` is not a valid regular expression: {reason}.")


def _words_of(error: Exception) -> str:
    # The library hands its words over as bytes.
    words = error.args[0] if error.args else ""
    return words.decode(errors="replace") if isinstance(words, bytes) else str(words)


@cache
def _library() -> Any:
    import re2  # here, because few brokers are ever sent a pattern

    return re2


@cache
def _options() -> Any:
    options = _library().Options()
    options.max_mem = MEMORY_MAX
    options.log_errors = False
    return options
