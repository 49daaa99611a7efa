"""Counts what happens in one step of the event loop: between two points at which others have their turn."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import trio


class Steps(trio.abc.Instrument):
    """How often each of some functions was called in one step, at most."""

    def __init__(self) -> None:
        self.most: Counter[str] = Counter()
        self.all: Counter[str] = Counter()
        self._present: Counter[str] = Counter()

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self._present.clear()

    def count(self, name: str) -> None:
        self._present[name] += 1
        self.all[name] += 1
        self.most[name] = max(self.most[name], self._present[name])


@contextmanager
def counted(*functions: tuple[Any, str]) -> Iterator[Steps]:
    """Count the calls of these functions (owner, name), under their names."""
    steps = Steps()
    trio.lowlevel.add_instrument(steps)
    with pytest.MonkeyPatch.context() as patch:
        for owner, name in functions:
            patch.setattr(owner, name, _counting(steps, name, getattr(owner, name)))
        yield steps
    trio.lowlevel.remove_instrument(steps)


def _counting(steps: Steps, name: str, function: Any) -> Any:
    def call(*arguments: Any, **options: Any) -> Any:
        steps.count(name)
        return function(*arguments, **options)

    return call
