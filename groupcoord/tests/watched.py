"""A shard whose steps are held against a number of function calls, which is the same on every machine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from cProfile import Profile
from typing import Any, TypeVar

from ottla.groupcoord.runtime.answers import Reply
from ottla.groupcoord.runtime.coordinator_shard import Outcome, Rest
from ottla.groupcoord.shard import Shard

T = TypeVar("T")


class Watched(Shard):
    """Counts the calls of functions in each step: between two points at which the shell may give way."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.most: Counter[str] = Counter()
        self.steps = 0

    def handle(self, request: Any, *arguments: Any, **options: Any) -> Outcome:
        handle = super().handle
        return self._counted(type(request).__name__, lambda: handle(request, *arguments, **options))

    def expire(self, **options: Any) -> Outcome:
        expire = super().expire
        return self._counted("expire", lambda: expire(**options))

    def settle(self, *arguments: Any, **options: Any) -> list[Reply]:
        settle = super().settle
        return self._counted("settle", lambda: settle(*arguments, **options))

    def replay(self, *arguments: Any, **options: Any) -> None:
        replay = super().replay
        self._counted("replay", lambda: replay(*arguments, **options))

    def start_sessions(self, now_ms: int) -> Iterator[None]:
        steps = super().start_sessions(now_ms)
        while self._counted("start_sessions", lambda: next(steps, self)) is None:
            yield

    def unfinished(self) -> Rest | None:
        rest = super().unfinished()
        return None if rest is None else self._watched(rest)

    def _watched(self, rest: Rest) -> Rest:
        while True:
            try:
                yield self._counted("rest", lambda: next(rest))
            except StopIteration as end:
                whole: Outcome = end.value
                return whole

    def _counted(self, name: str, work: Callable[[], T]) -> T:
        profile = Profile()
        self.steps += 1
        profile.enable()
        try:
            return work()
        finally:
            profile.disable()
            count = sum(each.callcount for each in profile.getstats())
            self.most[name] = max(self.most[name], count)
