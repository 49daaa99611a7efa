"""Which topics the regular expressions of a group match. It may take seconds, so it is done in a thread."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from ottla.groupcoord.patterns import Pattern

logger = logging.getLogger("ottla.groupcoord")

COST_MAX = 500_000_000
"""For all patterns of a group together, in the worst case. Ordinary patterns take a hundredth of what they may cost."""


def resolve(patterns: Iterable[str], names: Iterable[str]) -> Mapping[str, list[str] | None]:
    """The names that each pattern matches as a whole; None for a pattern that could take too long."""
    topics, left = list(names), COST_MAX
    resolved: dict[str, list[str] | None] = {}
    for text in patterns:
        pattern = Pattern(text)
        cost = pattern.cost("") * (len(topics) + sum(map(len, topics)))
        if cost > left:
            logger.warning("a regular expression of %d characters takes too long to be resolved", len(text))
            resolved[text] = None
        else:
            left -= cost
            resolved[text] = [each for each in topics if pattern.matches(each)]
    return resolved
