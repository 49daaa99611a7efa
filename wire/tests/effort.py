"""How much of a random test is done: all of it, or what `make check` has time for.

The hypothesis profile `quick` has fewer examples than `thorough`, which is loaded where none is asked for. The counts that tests
ask for shrink in proportion. Marks say which cases are left out of a quick run.
"""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import settings

THOROUGH_EXAMPLES = 100  # hypothesis' own default, which the profile `thorough` keeps


def examples(count: int) -> int:
    """Number of examples for a test that has `count` in the profile `thorough`; at least 2."""
    return max(2, count * settings().max_examples // THOROUGH_EXAMPLES)


def thorough_or_quick(in_thorough: int, in_quick: int) -> int:
    """Choice by the profile, as of a stride over the cases of a test."""
    return in_thorough if settings().max_examples >= THOROUGH_EXAMPLES else in_quick


def first(count: int, cases: Sequence[Any]) -> list[Any]:
    """Parameters for all `cases`; a quick run does the first `count` of them."""
    return [*cases[:count], *(_thorough(case) for case in cases[count:])]


def _thorough(case: Any) -> Any:
    return pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.thorough)
