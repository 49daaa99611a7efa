"""Answers about the whole cluster, kept encoded until the cluster changes: many clients ask the same again and again."""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple

ANSWERS_MAX = 8  # versions, listeners and options that clients of one cluster ask with


class EncodedAnswer(NamedTuple):
    """What a handler may return in place of a response: its body as it goes out."""

    body: bytes


class LongAnswers:
    """Encoded answers that hold for one version of the cluster's state."""

    def __init__(self) -> None:
        self._cluster_version = -1
        self._answers: dict[Hashable, EncodedAnswer] = {}

    def get(self, cluster_version: int, key: Hashable) -> EncodedAnswer | None:
        """The answer to the question `key`, if it was kept and nothing has changed since."""
        return self._answers.get(key) if cluster_version == self._cluster_version else None

    def keep(self, cluster_version: int, key: Hashable, body: bytes) -> EncodedAnswer:
        if cluster_version != self._cluster_version or len(self._answers) >= ANSWERS_MAX:
            self._answers.clear()
            self._cluster_version = cluster_version
        answer = self._answers[key] = EncodedAnswer(body)
        return answer
