"""Which topics the regular expressions of a group match. It may take seconds, so it is done in a thread."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from ottla.groupcoord.patterns import Pattern

logger = logging.getLogger("ottla.groupcoord")

COST_MAX = 500_000_000
"""For all patterns of a group together, in the worst case. Ordinary patterns take a hundredth of what they may cost."""

CHARACTERS_MAX = 1_000_000
"""Of the names that all patterns of a group stand for together. They are written in one batch, which has no room for more."""
NAME_OVERHEAD = 8


def resolve(patterns: Iterable[str], names: Iterable[str]) -> Mapping[str, list[str] | None]:
    """The names that each pattern matches as a whole; None for a pattern that could take too long, or has no room."""
    topics, left, room = list(names), COST_MAX, CHARACTERS_MAX
    resolved: dict[str, list[str] | None] = {}
    for text in patterns:
        pattern = Pattern(text)
        cost = pattern.cost("") * (len(topics) + sum(map(len, topics)))
        if cost > left:
            logger.warning("a regular expression of %d characters takes too long to be resolved", len(text))
            resolved[text] = None
        else:
            left -= cost
            matched = [each for each in topics if pattern.matches(each)]
            size = sum([NAME_OVERHEAD + len(each) for each in matched])
            # One alone may stand for all topics there are.
            if size > room and room < CHARACTERS_MAX:
                logger.warning("a regular expression of %d characters stands for too many topics", len(text))
                resolved[text] = None
            else:
                room -= min(size, room)
                resolved[text] = matched
    return resolved
