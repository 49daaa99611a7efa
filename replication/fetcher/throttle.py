"""Limits on the bytes that replication may move per second, for replicas that are marked so (KIP-73, KIP-113). Sans-IO.

Theory
    Which replicas are throttled is a topic's setting: a list of `partition:broker`, or '*' for all. How much they may move
    together is a setting of the broker. What was moved is counted whether there is a limit or not, in windows of time; it
    is too much while the mean over the windows that still count is above the limit. A reader or writer of bytes calls
    `is_exceeded` first, so one answer may exceed the quota, and the pause after it makes up for that (Kafka's
    ReplicationQuotaManager with a SimpleRate).

| throttle  | limit                                         | topic setting                              | who asks             |
|-----------|-----------------------------------------------|--------------------------------------------|----------------------|
| leader    | leader.replication.throttled.rate             | leader.replication.throttled.replicas      | the fetch handler    |
| follower  | follower.replication.throttled.rate           | follower.replication.throttled.replicas    | the replica fetchers |
| log dirs  | replica.alter.log.dirs.io.max.bytes.per.second | none: every replica that moves            | who moves replicas   |
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ottla.replication.config import LogConfig, ReplicationConfig

ALL_REPLICAS = "*"


class Limit(NamedTuple):
    """Rate limit in bytes per second, with the number and length of the time windows in which bytes are counted."""

    bytes_per_second: int
    window_count: int
    window_seconds: int


class _Window:
    __slots__ = ("last_ms", "size", "start_ms")

    def __init__(self, now_ms: int) -> None:
        self.start_ms = self.last_ms = now_ms
        self.size = 0


class ReplicationThrottle:
    """Replication quota, changeable at run time; `throttled_replicas(topic)` returns a topic's limited replicas."""

    def __init__(
        self, node_id: int, *, limit: Callable[[], Limit], throttled_replicas: Callable[[str], tuple[str, ...]]
    ) -> None:
        self._node_id = node_id
        self._limit = limit
        self._throttled_replicas = throttled_replicas
        self._windows: deque[_Window] = deque()

    def is_throttled(self, topic: str, index: int) -> bool:
        """Tell whether the limit applies to this broker's replica of a partition."""
        # Most topics list nothing, so no string is made for them.
        listed = self._throttled_replicas(topic)
        return bool(listed) and (listed == (ALL_REPLICAS,) or f"{index}:{self._node_id}" in listed)

    def is_exceeded(self, now_ms: int) -> bool:
        """Tell whether the measured rate exceeds the limit."""
        # Nothing was moved lately. The settings need not be looked up.
        if not self._windows:
            return False
        limit = self._limit()
        self._forget_old_windows(limit, now_ms)
        moved = sum([window.size for window in self._windows])
        if not moved:
            return False
        # At least one whole window: the first bytes after a pause would else count as an enormous rate.
        elapsed_ms = max(now_ms - self._windows[0].start_ms, limit.window_seconds * 1000)
        return moved * 1000 > limit.bytes_per_second * elapsed_ms

    def record(self, size: int, now_ms: int) -> None:
        """Record bytes transferred for throttled replicas."""
        limit = self._limit()
        windows = self._windows
        # Whole windows, not single answers: their number, and with it the cost of `is_exceeded`, stays bounded.
        if not windows or now_ms - windows[-1].start_ms >= limit.window_seconds * 1000:
            self._forget_old_windows(limit, now_ms)
            windows.append(_Window(now_ms))
        windows[-1].size += size
        windows[-1].last_ms = now_ms

    def _forget_old_windows(self, limit: Limit, now_ms: int) -> None:
        """Drop windows outside the measured time; a window that overlaps its start is kept and counted in full."""
        oldest_ms = now_ms - limit.window_count * limit.window_seconds * 1000
        while self._windows and self._windows[0].last_ms <= oldest_ms:
            self._windows.popleft()


class ReplicationThrottles:
    """A broker's three replication throttles: of leaders, of followers and of moves between log directories."""

    def __init__(
        self, node_id: int, *, config: Callable[[], ReplicationConfig], log_config: Callable[[str], LogConfig]
    ) -> None:
        self.leader = ReplicationThrottle(
            node_id,
            limit=lambda: _replication_limit(config(), config().leader_replication_throttled_rate),
            throttled_replicas=lambda topic: log_config(topic).leader_replication_throttled_replicas,
        )
        self.follower = ReplicationThrottle(
            node_id,
            limit=lambda: _replication_limit(config(), config().follower_replication_throttled_rate),
            throttled_replicas=lambda topic: log_config(topic).follower_replication_throttled_replicas,
        )
        self.log_dirs = ReplicationThrottle(
            node_id, limit=lambda: _log_dirs_limit(config()), throttled_replicas=lambda topic: (ALL_REPLICAS,)
        )


def _replication_limit(config: ReplicationConfig, bytes_per_second: int) -> Limit:
    return Limit(bytes_per_second, config.replication_quota_window_num, config.replication_quota_window_size_seconds)


def _log_dirs_limit(config: ReplicationConfig) -> Limit:
    return Limit(
        config.replica_alter_log_dirs_io_max_bytes_per_second,
        config.alter_log_dirs_replication_quota_window_num,
        config.alter_log_dirs_replication_quota_window_size_seconds,
    )
