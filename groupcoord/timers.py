"""Deadlines by key. A key has at most one deadline; scheduling it again replaces the earlier one.

Sessions are put off with every heartbeat, so that must be cheap: the heap keeps one entry per key, at or before the
key's deadline, and an entry that comes up too early is put back. `next_deadline_ms` may therefore be early, never late.
"""

from heapq import heapify, heappop, heappush
from typing import NamedTuple


class TimerKey(NamedTuple):
    """What a deadline is for: its kind, the group and, for sessions, the member."""

    kind: str
    group_id: str = ""
    member_id: str = ""


class Timers:
    """The deadlines of one shard, in milliseconds of a clock that never jumps."""

    __slots__ = ("_deadlines", "_heap")

    def __init__(self) -> None:
        self._deadlines: dict[TimerKey, int] = {}
        self._heap: list[tuple[int, TimerKey]] = []

    def __len__(self) -> int:
        return len(self._deadlines)

    def deadline_ms(self, key: TimerKey) -> int | None:
        return self._deadlines.get(key)

    def schedule(self, key: TimerKey, deadline_ms: int) -> None:
        known = self._deadlines.get(key)
        self._deadlines[key] = deadline_ms
        # A later deadline leaves the heap as it is: the old entry comes up too early and is put back then. So a
        # heartbeat costs one assignment in a dict.
        if known is None or deadline_ms < known:
            heappush(self._heap, (deadline_ms, key))
            self._forget_cancelled()

    def cancel(self, key: TimerKey) -> None:
        # The entry stays in the heap, where looking for it would take a walk. `pop_due` passes over it.
        self._deadlines.pop(key, None)

    def pop_due(self, now_ms: int) -> TimerKey | None:
        """A key whose deadline has passed, or None; it has no deadline from here on."""
        heap, deadlines = self._heap, self._deadlines
        while heap and heap[0][0] <= now_ms:
            key = heappop(heap)[1]
            deadline_ms = deadlines.get(key)
            # The key was cancelled, or another entry of it came up before.
            if deadline_ms is None:
                continue
            # The deadline was put off after this entry was made: come back at the right time.
            if deadline_ms > now_ms:
                heappush(heap, (deadline_ms, key))
                continue
            del deadlines[key]
            return key
        return None

    def next_deadline_ms(self) -> int | None:
        return self._heap[0][0] if self._heap else None

    def _forget_cancelled(self) -> None:
        """Keep the heap in proportion to the keys when deadlines come and go faster than they pass."""
        # The 64 keep a small heap from being rebuilt again and again.
        if len(self._heap) > 2 * len(self._deadlines) + 64:
            self._heap = [(deadline_ms, key) for key, deadline_ms in self._deadlines.items()]
            heapify(self._heap)
