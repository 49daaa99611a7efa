"""Leader epochs of one log: which leader's records begin at which offset (`leader-epoch-checkpoint`).

The list is what makes truncation safe: a follower asks the leader where an epoch ended and cuts its own log there, instead
of trusting high watermarks. Epochs and start offsets both rise strictly. An entry may begin at the log end offset, when
a leader has been elected but has not written yet.

The list changes in memory first. A flush writes the file (`is_dirty`) before it moves the recovery point past an epoch's
start: above the recovery point the epochs are found again in the batches themselves.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from threading import Lock

UNDEFINED_EPOCH = -1
UNDEFINED_EPOCH_OFFSET = -1


class LeaderEpochs:
    """A log's leader epochs and their start offsets, as two parallel sorted lists.

    `version` counts the changes, `written_version` is the version in the file; a thread that writes the file holds
    `lock`. `latest_epoch` is the last epoch, or -1; it is an attribute because every append reads it.
    """

    __slots__ = ("_epochs", "_start_offsets", "latest_epoch", "lock", "version", "written_version")

    def __init__(self, entries: list[tuple[int, int]] | None = None) -> None:
        self._epochs: list[int] = []
        self._start_offsets: list[int] = []
        self.latest_epoch = UNDEFINED_EPOCH
        self.lock = Lock()
        self.version = 0
        for epoch, start_offset in entries or ():
            self.assign(epoch, start_offset)
        self.written_version = self.version

    @property
    def is_dirty(self) -> bool:
        """True while the file differs from the epochs in memory."""
        return self.version != self.written_version

    def mark_dirty(self) -> None:
        """Request that the file is written again."""
        self.version += 1

    @property
    def entries(self) -> list[tuple[int, int]]:
        """(epoch, start offset) pairs in order."""
        return list(zip(self._epochs, self._start_offsets, strict=True))

    def assign(self, epoch: int, start_offset: int) -> None:
        """Record that `epoch` began at `start_offset`; remove later entries that contradict this."""
        assert epoch >= 0 and start_offset >= 0, f"leader epoch {epoch} at offset {start_offset}"
        # Nearly every call ends here: each batch of a follower names its epoch again.
        if self._epochs and epoch == self._epochs[-1] and start_offset >= self._start_offsets[-1]:
            return
        # Epochs and offsets must both rise. What breaks that is from a history that the log has left, as after an
        # unclean election, or of an epoch without records.
        keep = min(bisect_left(self._epochs, epoch), bisect_left(self._start_offsets, start_offset))
        self._truncate(keep)
        self._epochs.append(epoch)
        self._start_offsets.append(start_offset)
        self.latest_epoch = epoch
        self.version += 1

    def confirm(self, epoch: int, offset: int) -> None:
        """Record a batch of `epoch` at `offset`, and remove later epochs that contradict it."""
        # The batches are the truth: the file may be older or newer than what a crash has left of the log.
        if epoch < (self.epoch_for_offset(offset) or 0):
            self._truncate(bisect_right(self._epochs, epoch))
        if epoch > self.latest_epoch:
            self.assign(epoch, offset)

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """Return the largest known epoch at or below `epoch` and its end offset; (-1, -1) if unknown."""
        if epoch == UNDEFINED_EPOCH or not self._epochs:
            return UNDEFINED_EPOCH, UNDEFINED_EPOCH_OFFSET
        # The last epoch goes on, so it ends where the log ends.
        if epoch == self._epochs[-1]:
            return epoch, log_end_offset
        higher = bisect_right(self._epochs, epoch)
        # Above all known epochs: this log cannot say where such an epoch ended.
        if higher == len(self._epochs):
            return UNDEFINED_EPOCH, UNDEFINED_EPOCH_OFFSET
        # Below all known epochs the one asked for is named, as in Kafka: its records end where the first known epoch
        # begins.
        found = self._epochs[higher - 1] if higher else epoch
        return found, self._start_offsets[higher]

    def epoch_for_offset(self, offset: int) -> int | None:
        """Return the epoch of the record at `offset`; None if unknown."""
        slot = bisect_right(self._start_offsets, offset) - 1
        return self._epochs[slot] if slot >= 0 else None

    def truncate_from_end(self, end_offset: int) -> None:
        """Forget epochs that begin at or above `end_offset`."""
        self._truncate(bisect_left(self._start_offsets, end_offset))

    def truncate_from_start(self, start_offset: int) -> None:
        """Remove epochs that end at or below `start_offset`; the epoch at `start_offset` now begins there."""
        below = bisect_right(self._start_offsets, start_offset)
        # Nothing is below the start, so the file need not be written again.
        if below == 0 or (below == 1 and self._start_offsets[0] == start_offset):
            return
        del self._epochs[: below - 1], self._start_offsets[: below - 1]
        # The epoch in force at the start stays, because a follower may still ask for it.
        self._start_offsets[0] = start_offset
        self.version += 1

    def clear(self) -> None:
        """Remove all epochs."""
        self._truncate(0)

    def _truncate(self, count: int) -> None:
        if count < len(self._epochs):
            del self._epochs[count:], self._start_offsets[count:]
            self.latest_epoch = self._epochs[-1] if count else UNDEFINED_EPOCH
            self.version += 1
