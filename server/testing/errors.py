"""Errors of the lab: wrong use, and what brokers refuse."""

from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.happenings import cut

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
