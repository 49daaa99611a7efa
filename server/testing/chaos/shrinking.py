"""The fewest elements of a row that still make a test fail: delta debugging (Zeller's ddmin)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

TRIES_MAX: Final = 200


def fewest(
    elements: Sequence[int], fails: Callable[[Sequence[int]], bool], tries_max: int = TRIES_MAX
) -> list[int] | None:
    """Return a part of `elements` that fails, and fails no more without any one of them. None: all of them do not fail.

    `fails` is called at most `tries_max` times; the part is the smallest found by then.
    """
    kept, parts, left = list(elements), 2, tries_max - 1
    if not fails(kept):
        return None
    while len(kept) > 1 and left > 0:
        size = -(-len(kept) // parts)
        for start in range(0, len(kept), size):
            without = kept[:start] + kept[start + size :]
            left -= 1
            if without and fails(without):
                kept, parts = without, max(parts - 1, 2)
                break
            if left <= 0:
                return kept
        else:
            if size == 1:
                break
            parts = min(2 * parts, len(kept))
    if len(kept) == 1 and left > 0 and fails([]):
        return []
    return kept
