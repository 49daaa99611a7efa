"""Errors of the lab: wrong use, and what brokers refuse."""

import difflib
from collections.abc import Iterable

from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.happenings import cut

LIKENESS = 0.5
WORD_LENGTH_MAX = 500
TEXT_LENGTH_MAX = 20_000


class LabError(Exception):
    """Error of a call to `ottla.testing` that cannot be carried out. Its text says what to do instead.

    Control characters of names become escapes; very long words and texts are cut.
    """

    def __init__(self, text: str) -> None:
        super().__init__(shown(text))


def shown(text: str) -> str:
    """Return a text with names of strangers as it may be shown: control characters escaped, long words cut."""
    printable = "".join(each if each.isprintable() else ascii(each)[1:-1] for each in cut(text, TEXT_LENGTH_MAX))
    return " ".join(cut(word, WORD_LENGTH_MAX) for word in printable.split(" "))


def check(code: int, message: str | None = None) -> None:
    """Raise KafkaError for an error code of an answer other than NONE."""
    if code:
        raise KafkaError(ErrorCode.of(code), message)


def nearest(name: str, known: Iterable[str], otherwise: str = ".") -> str:
    """Return the end of a sentence about an unknown name: the most similar known one, or `otherwise` if none is similar."""
    by_case = {each.casefold(): each for each in known}
    close = difflib.get_close_matches(str(name).casefold(), by_case, n=1, cutoff=LIKENESS)
    return f"; did you mean {by_case[close[0]]!r}?" if close else otherwise
