"""Why a group rebalanced: one line of the log each time, and the last one kept for who asks.

Classic groups rebalance when they gather their members. Of the other kinds the group's epoch rises, whereupon the broker makes
another assignment. What is kept is kept in memory: another coordinator, or this one after a restart, knows of none.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Sized

    from ottla.groupcoord.effects import Effects

logger = logging.getLogger("ottla.groupcoord")

IS_NEW, HAS_LEFT, WAS_SILENT = "is new", "has left", "was silent for too long"
READS_OTHER_TOPICS = "reads other topics"
HAS_OTHER_PATTERN = "has another regular expression"
OTHER_ASSIGNOR = "most members ask for another assignor"
OTHER_MATCHES = "a regular expression stands for other topics"
TOPICS_HAVE_CHANGED = "their topics have changed"
REASON_LENGTH_MAX = 500


class LastRebalance(NamedTuple):
    """When a group began to rebalance, by the time of day; after which generation or epoch, and why."""

    timestamp_ms: int
    after_generation: int
    reason: str


class AskLastRebalance:
    """The question about one group, of whatever kind."""

    __slots__ = ("group_id",)

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id


class _Group(Protocol):
    group_id: str
    group_type: str
    last_rebalance: LastRebalance | None

    @property
    def members(self) -> Sized: ...


def member_reason(member_id: str, what: str) -> str:
    """Why, if it is one member: its id and what it did."""
    return f"member {member_id!r} {what}"


def note_rebalance(effects: Effects, group: _Group, epoch: int, reason: str) -> None:
    """The epoch of a group rises to this. If the log refuses that, the rebalance before it stays the last one."""
    effects.undo_if_refused(partial(_set, group, group.last_rebalance))
    _set(group, LastRebalance(effects.timestamp_ms, epoch - 1, reason[:REASON_LENGTH_MAX]))
    log_rebalance(group.group_type, group.group_id, epoch, len(group.members), reason)


def _set(group: Any, rebalance: LastRebalance | None) -> None:
    group.last_rebalance = rebalance


def log_rebalance(kind: str, group_id: str, generation: int, member_count: int, reason: str) -> None:
    """`generation`: the one that begins, which groups whose members hear from the broker count as their epoch."""
    text = "Rebalance of %s group %r: generation %d, members %d, because %s"
    logger.info(text, kind, group_id, generation, member_count, reason)
