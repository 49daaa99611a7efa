"""Checks of heartbeats that need no group, and are alike in all newer kinds."""

from __future__ import annotations

from ottla.groupcoord.limits import TEXT_LENGTH_MAX
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.settings import trimmed


def invalid(problem: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, problem)


def check_texts(**texts: str | None) -> None:
    """Raise KafkaError if one of these, by Kafka's names, is blank, or too long for a record of its group."""
    for name, text in texts.items():
        if text is None:
            continue
        if not trimmed(text):
            raise invalid(f"{name} can't be empty.")
        if len(text) > TEXT_LENGTH_MAX:
            raise invalid(f"{name} is too long.")
