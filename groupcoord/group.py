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
from ottla.wire.happenings import REBALANCE, cut
from ottla.wire.messages.groups import ListedGroup

logger = logging.getLogger("ottla.groupcoord")

IS_NEW, HAS_LEFT, WAS_SILENT = "is new", "has left", "was silent for too long"
READS_OTHER_TOPICS = "reads other topics"
TOPICS_HAVE_CHANGED = "their topics have changed"
REASON_LENGTH_MAX = 500


class LastRebalance(NamedTuple):
    """Last rebalance of a group: its wall-clock time, the generation or epoch before it, and the reason."""

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
    """Interface of a group of any type. Methods that change the group collect records and replies in `Effects`."""

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
        """Name of the group's state, as clients see it. Read only."""

    def listed(self) -> ListedGroup:
        """Return the group's entry in ListGroups. Read only."""

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
        """Return an error, NONE, or a function that checks each partition.

        `generation_id` is the member's epoch in groups with epochs.
        """

    def check_offset_fetch(self, member_id: str | None, member_epoch: int) -> ErrorCode:
        """Return an error if the member may not read offsets. A client without member id and epoch may. Read only."""

    def check_offset_delete(self) -> ErrorCode:
        """Return an error if OffsetDelete is forbidden. NONE allows it, but not for topics that members read."""

    def is_subscribed_to(self, topic: str) -> bool:
        """Return True if a member subscribes to the topic, so that its offsets must not be deleted. Read only."""

    def offsets_retained_since(self, commit_timestamp_ms: int) -> int | None:
        """Return the time in ms from which an offset's retention counts; None if the group's offsets are kept now."""

    # ------------------------------------------------------------------ its end

    def check_delete(self) -> ErrorCode:
        """Return an error if an administrator may not delete the group; else NONE."""

    @property
    def is_forgettable(self) -> bool:
        """True if the group may be deleted when its last offset has expired. Read only."""

    def delete(self) -> None:
        """Append the group's tombstones. Call this after appending the tombstones of the group's offsets."""

    # ------------------------------------------------------------------ the shell's calls

    def start_sessions(self) -> Steps:
        """Restart every member's session at full length, in steps of a limited number of members."""

    def cancel_timers(self) -> None:
        """Cancel all deadlines of a removed group, so that they do not fire for a new group with this name."""

    def abandon(self, caller: Caller) -> None:
        """Forget a parked caller whose connection is closed."""

    def unload(self, error: ErrorCode) -> Steps:
        """Answer `error` to all parked callers in steps, because this broker no longer coordinates the group."""


def member_reason(member_id: str, what: str) -> str:
    """Return a rebalance's reason as text: the member's id, and what the member did (`what`)."""
    return f"member {member_id!r} {what}"


def note_rebalance(effects: Effects, group: Group, epoch: int, reason: str) -> None:
    """Record and log a rebalance to `epoch`. If the log refuses the call's records, undo the record of it."""
    effects.undo_if_refused(partial(setattr, group, "last_rebalance", group.last_rebalance))
    group.last_rebalance = LastRebalance(effects.timestamp_ms, epoch - 1, reason[:REASON_LENGTH_MAX])
    tell_rebalance(effects, group, epoch, reason)


def tell_rebalance(
    effects: Effects, group: Group, generation: int, reason: str, *, host: str = "", after: str = ""
) -> None:
    """Log a rebalance, and note it as a happening.

    `generation`: the new generation or, in groups with epochs, the new epoch. `host`: address of one of the members, if it
    is known. `after`: how long the members took, as the end of a sentence.
    """
    count = len(group.members)
    text = "Rebalance of %s group %r: generation %d, members %d, because %s"
    logger.info(text, group.group_type, group.group_id, generation, count, reason)
    cause = f"{group.group_type} group {cut(group.group_id)!r} rebalanced to generation {generation}"
    cause += f" with {counted_members(count)}{after}, because {reason}"
    source = host or effects.source
    effects.note(REBALANCE, cause, source=source, group=group.group_id, generation=generation, members=count)


def counted_members(count: int) -> str:
    """Return a number of members as text: "no members", "1 member", "2 members"."""
    return "1 member" if count == 1 else f"{count or 'no'} members"
