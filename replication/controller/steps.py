"""What takes long, made in steps: whoever asks for it takes one after the other, and may let others run in between.

A decision about all partitions of a cluster is one: it yields after each partition, and its result is the decision. Between two
steps nobody may change what it looks at. Inputs that count at once do so before the first step.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeVar

T = TypeVar("T")
Steps = Generator[None, None, T]


def at_once(steps: Steps[T]) -> T:
    """All steps, and what they come to."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result
