"""Errors of the lab: wrong use, and what brokers refuse."""

from ottla.wire.errors import ErrorCode, KafkaError


class LabError(Exception):
    """Error of a call to `ottla.testing` that cannot be carried out. Its text says what to do instead."""


def check(code: int, message: str | None = None) -> None:
    """Raise KafkaError for an error code of an answer other than NONE."""
    if code:
        raise KafkaError(ErrorCode.of(code), message)
