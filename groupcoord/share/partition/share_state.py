"""What a share partition knows of its records, and the rules that fetching and acknowledging share. Sans-IO."""

from __future__ import annotations

from ottla.groupcoord.share.coordinator.keys import SharePartitionKey
from ottla.groupcoord.share.partition.group_settings import ShareGroupSettings, ShareGroupSettingsProvider
from ottla.groupcoord.share.partition.in_flight import InFlight, Run
from ottla.groupcoord.share.partition.in_flight import RecordState as State


class ShareState:
    """The base of `SharePartition`, which has the theory."""

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
        """Whether there may be holes that have to be fetched."""
        return self.gap_start >= 0 and self.gaps_end == self.end_offset

    def on_acquired_new(self, first: int, last: int, last_acquired: int) -> None:
        """Records came into flight (for `Acquisition`)."""
        if self.in_flight.batches[0].first == first:
            self.start_offset = first
        self.end_offset = max(self.end_offset, last)
        self.move_gap(last_acquired + 1)

    def move_gap(self, offset: int) -> None:
        """Holes before this offset have been fetched."""
        if self.gap_start < 0:
            return
        # What is in flight is no hole.
        while (batch := self.in_flight.floor(offset)) is not None and batch.last >= offset:
            offset = batch.last + 1
        if self.has_gaps and offset <= self.gaps_end:
            self.gap_start = offset
        else:
            self.gap_start = -1

    def state_after(self, run: Run, state: State, *, is_rejected: bool = False) -> State:
        """What records become that their holder gives away as `state`."""
        if run.last < self.start_offset:
            return State.ARCHIVED  # the log has dropped them meanwhile
        if state is not State.AVAILABLE and not is_rejected:
            return state
        settings = self.settings
        if not is_rejected and run.delivery_count < settings.delivery_count_limit:
            return state
        return State.ARCHIVING if settings.dead_letter_topic else State.ARCHIVED

    def lock(self, run: Run, now_ms: int) -> None:
        """The holder keeps it for another lock duration."""
        run.locked_until_ms = now_ms + self.settings.record_lock_duration_ms
        self.expect_deadline(run.locked_until_ms)

    def expect_deadline(self, at_ms: int) -> None:
        """A lock ends then."""
        if self.deadline_ms is None or at_ms < self.deadline_ms:
            self.deadline_ms = at_ms
