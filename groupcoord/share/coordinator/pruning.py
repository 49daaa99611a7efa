"""Which records at the start of a partition nobody needs any more, because later snapshots say all that they said."""

from __future__ import annotations

from collections import OrderedDict

from ottla.groupcoord.share.coordinator.keys import SharePartitionKey


class RedundantPrefix:
    """The offset of each share partition's last snapshot. Everything before the first of them is redundant."""

    def __init__(self) -> None:
        # In the order of the log, as a snapshot moves its share partition to the end: the first one has the lowest offset.
        self._snapshots: OrderedDict[SharePartitionKey, int] = OrderedDict()
        self._last_end = 0

    def note_snapshot(self, key: SharePartitionKey, offset: int) -> None:
        self._snapshots[key] = offset
        self._snapshots.move_to_end(key)

    def note_end(self, key: SharePartitionKey, offset: int) -> None:
        """Nothing is known of a share partition any more, as this record says."""
        self._snapshots.pop(key, None)
        self._last_end = offset

    def end_offset(self) -> int | None:
        """The first offset that is needed; None where nothing is redundant."""
        first = next(iter(self._snapshots.values()), self._last_end)
        return first if first > 0 else None
