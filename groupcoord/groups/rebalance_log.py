"""One line of the log for each rebalance of a group of any kind."""

from __future__ import annotations

import logging

logger = logging.getLogger("ottla.groupcoord")

MEMBERS_HAVE_CHANGED = "members or their subscriptions have changed"
TOPICS_HAVE_CHANGED = "their topics have changed"


def log_rebalance(kind: str, group_id: str, generation: int, member_count: int, reason: str) -> None:
    """`generation`: the one that begins, which groups whose members hear from the broker count as their epoch."""
    text = "Rebalance of %s group %r: generation %d, members %d, because %s"
    logger.info(text, kind, group_id, generation, member_count, reason)
