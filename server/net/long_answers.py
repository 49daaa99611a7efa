"""Answers about the whole cluster, kept encoded until the cluster changes: many clients ask the same again and again."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Hashable
from typing import Any, NamedTuple

import trio

from ottla.wire.answers import EncodedAnswer

CHANGED = -1
ANSWERS_MAX = 8  # versions, listeners and options that clients of one cluster ask with


class _Made(NamedTuple):
    answer: EncodedAnswer
    number: int  # answers are counted in the order in which they were begun
    cluster_version: int  # `CHANGED`: it changed while the answer was made


class LongAnswers:
    """Encoded answers about the whole cluster.

    Those who ask at once, even different questions, wait in line. Whoever's turn comes makes its answer, and all behind it
    that asked the same before it was begun take that. So a crowd costs as much work and memory as one or two who ask.
    """

    def __init__(self) -> None:
        self._made: dict[Hashable, _Made] = {}
        self._begun = 0
        self._turn = trio.Lock()

    def get(self, cluster_version: int, key: Hashable) -> EncodedAnswer | None:
        """The answer to the question `key`, if it was made and nothing has changed since."""
        made = self._made.get(key)
        return made.answer if made is not None and made.cluster_version == cluster_version else None

    def make(
        self, key: Hashable, put_together: Callable[[], Awaitable[bytes]], cluster_version: Callable[[], int]
    ) -> Coroutine[Any, Any, EncodedAnswer]:
        """The answer that is begun first from now on. If the cluster changes meanwhile, parts of it may be older than others."""
        # Noted now and not when the coroutine begins: only an answer begun after the question may be given to it.
        return self._make(key, put_together, cluster_version, asked=self._begun)

    async def _make(
        self,
        key: Hashable,
        put_together: Callable[[], Awaitable[bytes]],
        cluster_version: Callable[[], int],
        *,
        asked: int,
    ) -> EncodedAnswer:
        # One at a time: each takes the work and the memory of a whole cluster.
        async with self._turn:
            made = self._made.get(key)
            # Somebody in front may have made what this one needs: begun after it asked, or still true.
            if made is not None and (made.number > asked or made.cluster_version == cluster_version()):
                return made.answer
            self._begun += 1
            number, before = self._begun, cluster_version()
            answer = EncodedAnswer(await put_together())
            # Clients of one cluster ask in few ways. The limit is for a peer that asks in ever new ones.
            if len(self._made) >= ANSWERS_MAX:
                self._made.clear()
            self._made[key] = _Made(answer, number, before if cluster_version() == before else CHANGED)
            return answer
