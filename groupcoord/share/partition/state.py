"""The state of a share partition, its group's settings, and rules for both acquisition and acknowledgement. Sans-IO."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ottla.groupcoord.group_settings import GroupSettings
from ottla.groupcoord.share.coordinator.records import SharePartitionKey
from ottla.groupcoord.share.partition.in_flight import InFlight, Run
from ottla.groupcoord.share.partition.in_flight import RecordState as State


@dataclass(frozen=True, slots=True)
class ShareGroupSettings:
    """Settings in force of one share group that the leaders of its partitions need."""

    record_lock_duration_ms: int = 30_000
    delivery_count_limit: int = 5
    partition_max_record_locks: int = 2000
    auto_offset_reset: str = "latest"
    """earliest, latest, or by_duration: with an ISO 8601 duration."""
    reads_committed: bool = False
    may_renew: bool = True
    dead_letter_topic: str = ""
    """Topic for records that no member can process; empty if there is none."""
    copies_dead_letters: bool = False
    """True if dead letters have the key and value of the record."""

    @classmethod
    def of(cls, group: GroupSettings) -> ShareGroupSettings:
        """Return those of a share group's settings that the leaders of its partitions need."""
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


ShareGroupSettingsProvider = Callable[[str], ShareGroupSettings]
"""Settings in force by group id; they may change at any time."""


class ShareState:
    """State and settings of a share partition; base class of `SharePartition`."""

    def __init__(self, key: SharePartitionKey, settings_of: ShareGroupSettingsProvider) -> None:
        self.key = key
        self._settings_of = settings_of
        self.start_offset = 0
        self.end_offset = 0
        self.in_flight = InFlight()
        self.has_free_records = False  # or may have
        self.gap_start = self.gaps_end = -1
        self.deadline_ms: int | None = None  # no lock ends before it

    @property
    def settings(self) -> ShareGroupSettings:
        return self._settings_of(self.key.group_id)

    @property
    def has_gaps(self) -> bool:
        """True if holes between batches in flight may have records that were not fetched yet."""
        return self.gap_start >= 0 and self.gaps_end == self.end_offset

    def on_acquired_new(self, first: int, last: int, last_acquired: int) -> None:
        """Update the offsets after `first` to `last` came in flight and `first` to `last_acquired` were acquired."""
        if self.in_flight.batches[0].first == first:
            self.start_offset = first
        self.end_offset = max(self.end_offset, last)
        self.move_gap(last_acquired + 1)

    def move_gap(self, offset: int) -> None:
        """Note that the holes before `offset` have been fetched."""
        if self.gap_start < 0:
            return
        # Records in flight are no hole.
        while (batch := self.in_flight.floor(offset)) is not None and batch.last >= offset:
            offset = batch.last + 1
        if self.has_gaps and offset <= self.gaps_end:
            self.gap_start = offset
        else:
            self.gap_start = -1

    def state_after(self, run: Run, state: State, *, is_rejected: bool = False) -> State:
        """Return the new state of records that their holder gives up as `state`.

        Records before the log's start are archived. Records that are rejected or were delivered too often go to the
        dead-letter queue; without such a queue they are archived.
        """
        if run.last < self.start_offset:
            return State.ARCHIVED  # the log has dropped them meanwhile
        if state is not State.AVAILABLE and not is_rejected:
            return state
        settings = self.settings
        if not is_rejected and run.delivery_count < settings.delivery_count_limit:
            return state
        return State.ARCHIVING if settings.dead_letter_topic else State.ARCHIVED

    def lock(self, run: Run, now_ms: int) -> None:
        """Lock the run's records for the lock duration from `now_ms` on."""
        run.locked_until_ms = now_ms + self.settings.record_lock_duration_ms
        self.expect_deadline(run.locked_until_ms)

    def expect_deadline(self, at_ms: int) -> None:
        """Set the deadline to `at_ms` if it is later than that, or not set."""
        if self.deadline_ms is None or at_ms < self.deadline_ms:
            self.deadline_ms = at_ms
