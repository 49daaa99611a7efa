"""A group of any type, as its shard sees it: what offsets, listings, deletions and the shell ask of it, and why it rebalanced.

Each rebalance is one line of the log, and the last one is kept for `AskLastRebalance`. Classic groups rebalance when they
gather their members. Of the other types the group's epoch rises, whereupon the broker makes another assignment. The reason is
kept in memory: another coordinator, or this one after a restart, knows of none.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sized
from functools import partial
from typing import NamedTuple, Protocol

from ottla.groupcoord.effects import Effects, Steps
from ottla.groupcoord.runtime.answers import Caller
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.groups import ListedGroup

logger = logging.getLogger("ottla.groupcoord")

IS_NEW, HAS_LEFT, WAS_SILENT = "is new", "has left", "was silent for too long"
READS_OTHER_TOPICS = "reads other topics"
HAS_OTHER_PATTERN = "has another regular expression"
OTHER_ASSIGNOR = "most members ask for another assignor"
OTHER_MATCHES = "a regular expression stands for other topics"
TOPICS_HAVE_CHANGED = "their topics have changed"
REASON_LENGTH_MAX = 500


class LastRebalance(NamedTuple):
    """Last rebalance of a group: its time of day, the generation or epoch before it, and the reason."""

    timestamp_ms: int
    after_generation: int
    reason: str


class AskLastRebalance:
    """Internal request for the last rebalance of a group of any type."""

    __slots__ = ("group_id",)

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id


PartitionCheck = Callable[[bytes, str, int], ErrorCode]
"""Whether the offset of (topic id, topic, partition) may be committed."""


class Group(Protocol):
    """One group of any type. Calls that change it collect records and replies in the shard's `Effects`."""

    last_rebalance: LastRebalance | None
    """Last rebalance, for people; None: none since this broker coordinates the group."""

    @property
    def group_id(self) -> str: ...

    @property
    def group_type(self) -> str:
        """Kafka's name of the group's type, as in ListGroups: "classic", "consumer", "share" or "streams"."""

    @property
    def members(self) -> Sized: ...

    @property
    def state_name(self) -> str:
        """Name of the group's state, as clients see it. A read."""

    def listed(self) -> ListedGroup:
        """The group's entry in ListGroups. A read."""

    # ------------------------------------------------------------------ offsets

    def check_offset_commit(
        self,
        member_id: str,
        group_instance_id: str | None,
        generation_id: int,
        *,
        api_version: int,
        is_transactional: bool = False,
    ) -> ErrorCode | PartitionCheck:
        """Check a commit of offsets: an error, NONE, or a check of each partition.

        `generation_id` is the member's epoch where the members of this kind have epochs.
        """

    def check_offset_fetch(self, member_id: str | None, member_epoch: int) -> ErrorCode:
        """Check that this member may read offsets; clients without member id and epoch always may. A read."""

    def check_offset_delete(self) -> ErrorCode:
        """Check that offsets may be deleted of topics that no member reads."""

    def is_subscribed_to(self, topic: str) -> bool:
        """True if a member subscribes to the topic, so that its offsets must stay. A read."""

    def offsets_retained_since(self, commit_timestamp_ms: int) -> int | None:
        """Time from which an offset committed then is retained; None while the group's offsets do not expire."""

    # ------------------------------------------------------------------ its end

    def check_delete(self) -> ErrorCode:
        """Check that an administrator may delete it."""

    @property
    def is_forgettable(self) -> bool:
        """True if the group may be deleted when its last offset has expired. A read."""

    def delete(self) -> None:
        """Append its tombstones, behind those of its offsets."""

    # ------------------------------------------------------------------ the shell's calls

    def start_sessions(self) -> Steps:
        """Restart the sessions of all members at their full length, some members at each step."""

    def cancel_timers(self) -> None:
        """Cancel all deadlines of a removed group, so that they do not hit a new group of its name."""

    def abandon(self, caller: Caller) -> None:
        """Forget a parked caller, whose connection is gone."""

    def unload(self, error: ErrorCode) -> Steps:
        """Answer `error` to all parked callers, some at each step: this broker no longer coordinates the group."""


def member_reason(member_id: str, what: str) -> str:
    """Reason for a rebalance: a member's id and what it did."""
    return f"member {member_id!r} {what}"


def note_rebalance(effects: Effects, group: Group, epoch: int, reason: str) -> None:
    """Record a rebalance that raises the epoch to this one. If the log refuses it, the former rebalance stays recorded."""
    effects.undo_if_refused(partial(setattr, group, "last_rebalance", group.last_rebalance))
    group.last_rebalance = LastRebalance(effects.timestamp_ms, epoch - 1, reason[:REASON_LENGTH_MAX])
    log_rebalance(group.group_type, group.group_id, epoch, len(group.members), reason)


def log_rebalance(kind: str, group_id: str, generation: int, member_count: int, reason: str) -> None:
    """Log a rebalance's reason. `generation`: the new generation, or the epoch where the broker assigns."""
    text = "Rebalance of %s group %r: generation %d, members %d, because %s"
    logger.info(text, kind, group_id, generation, member_count, reason)
