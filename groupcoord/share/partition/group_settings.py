"""The settings of a share group that a leader of its partitions asks for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from ottla.groupcoord.group_settings import GroupSettings


@dataclass(frozen=True, slots=True)
class ShareGroupSettings:
    """The settings of one share group that are in force."""

    record_lock_duration_ms: int = 30_000
    delivery_count_limit: int = 5
    partition_max_record_locks: int = 2000
    auto_offset_reset: str = "latest"
    """earliest, latest, or by_duration: and a duration of ISO 8601."""
    reads_committed: bool = False
    may_renew: bool = True
    dead_letter_topic: str = ""
    """Where records go that nobody can process; empty: nowhere."""
    copies_dead_letters: bool = False
    """Whether key and value go there, too."""

    @classmethod
    def of(cls, group: GroupSettings) -> ShareGroupSettings:
        """Of all settings of a group those that count here."""
        return cls(
            record_lock_duration_ms=group.share_record_lock_duration_ms,
            delivery_count_limit=group.share_delivery_count_limit,
            partition_max_record_locks=group.share_partition_max_record_locks,
            auto_offset_reset=group.share_auto_offset_reset,
            reads_committed=group.share_isolation_level.lower() == "read_committed",
            may_renew=group.share_renew_acknowledge_enable,
            dead_letter_topic=group.errors_deadletterqueue_topic_name,
            copies_dead_letters=group.errors_deadletterqueue_copy_record_enable,
        )


class ShareGroupSettingsProvider(Protocol):
    """Where a share partition asks what its group has set; it may change at any time."""

    def __call__(self, group_id: str) -> ShareGroupSettings: ...
