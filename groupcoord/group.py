"""A group as a shard sees it, whatever its kind: what offsets, listings, deletions and the shell ask of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

from ottla.groupcoord.runtime.outcome import Caller
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.list_groups import ListedGroup

PartitionCheck = Callable[[bytes, str, int], ErrorCode]
"""Whether the offset of (topic id, topic, partition) may be committed."""


class Group(Protocol):
    """One group. The calls may collect what they owe in the shard's `Effects`, unless they are said to be reads."""

    @property
    def group_id(self) -> str: ...

    @property
    def group_type(self) -> str:
        """Kafka's name of its kind, as ListGroups tells it: "classic", "consumer", "share" or "streams"."""

    @property
    def state_name(self) -> str:
        """Its state, as clients see it. A read."""

    def listed(self) -> ListedGroup:
        """How ListGroups shows it. A read."""

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
        """Whether offsets may be committed: an error, or NONE; or what tells it of each partition.

        `generation_id` is the member's epoch where the members of this kind have epochs.
        """

    def check_offset_fetch(self, member_id: str | None, member_epoch: int) -> ErrorCode:
        """Whether this member may read offsets; without a member id and an epoch everybody may. A read."""

    def check_offset_delete(self) -> ErrorCode:
        """Whether offsets of topics may be deleted that no member reads."""

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a member reads the topic at present, so that its offsets have to stay. A read."""

    def offsets_retained_since(self, commit_timestamp_ms: int) -> int | None:
        """The time from which an offset committed then is kept for the retention time; None: it does not expire now."""

    # ------------------------------------------------------------------ its end

    def check_delete(self) -> ErrorCode:
        """Whether an administrator may delete it."""

    @property
    def is_forgettable(self) -> bool:
        """Whether it may go when its last offset has expired. A read."""

    def delete(self) -> None:
        """Append its tombstones, behind those of its offsets."""

    # ------------------------------------------------------------------ the shell's calls

    def start_sessions(self) -> Iterator[None]:
        """Let every member have a whole session from now on, some at each step."""

    def cancel_timers(self) -> None:
        """Cancel all its deadlines: the group is gone. They would hit the next group of that name."""

    def abandon(self, caller: Caller) -> None:
        """Nobody waits for the answer of a caller that is parked here."""

    def unload(self, error: ErrorCode) -> None:
        """This broker no longer coordinates the group: answer `error` to everybody who is parked here."""
