"""Counts what happens in one step of the event loop: between two points at which others have their turn."""

from __future__ import annotations

import sys
import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import trio

ROOT = Path(__file__).resolve().parents[2]
OURS = tuple(str(folder / room) for folder in (ROOT, ROOT / "src/ottla") for room in ("groupcoord", "server", "wire"))


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


LINES_ALL = 300_000
EVERY = 7
"""When so many lines were counted, only every seventh step is counted on: that is enough of what repeats itself."""


class Lines(trio.abc.Instrument):
    """How many lines of this project's code ran in one step, at most, and where the longest step was when it had run `bound`.

    A line that a loop or a comprehension comes back to counts each time. So the count says how much work a step has, whatever
    the machine, and takes no time into account.
    """

    def __init__(self, bound: int) -> None:
        self.most = 0
        self.where = ""
        self._bound = bound
        self._present = self._all = self._steps = 0
        self._is_ours: dict[str, bool] = {}

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self._end_step()
        if self._all > LINES_ALL:
            self._steps += 1
            sys.settrace(None if self._steps % EVERY else self._on_call)

    def _end_step(self) -> None:
        self._all += self._present
        self.most, self._present = max(self.most, self._present), 0

    def _on_call(self, frame: FrameType, event: str, argument: object) -> Any:
        name = frame.f_code.co_filename
        is_ours = self._is_ours.get(name)
        if is_ours is None:
            # Generated codecs have no file.
            is_ours = (name.startswith(OURS) and "/tests/" not in name) or name.startswith(("<encode", "<decode"))
            self._is_ours[name] = is_ours
        return self._on_line if is_ours else None

    def _on_line(self, frame: FrameType, event: str, argument: object) -> Any:
        if event == "line":
            self._present += 1
            if self._present == self._bound and not self.where:
                stack = [each for each in traceback.extract_stack(frame) if each.filename.startswith(OURS)]
                told = [f"{Path(each.filename).name}:{each.lineno} {each.name}" for each in stack]
                self.where = " > ".join(each for each in told if not each.startswith("test_"))
        return self._on_line

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Count in this block, and in all tasks that run meanwhile."""
        before = sys.gettrace()  # that of coverage, perhaps
        self._present = 0
        trio.lowlevel.add_instrument(self)
        sys.settrace(self._on_call)
        try:
            yield
        finally:
            sys.settrace(before)
            trio.lowlevel.remove_instrument(self)
            self._end_step()
