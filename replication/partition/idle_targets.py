"""Idle partitions of a fetch session. The leader does not read them again until something happens to them.

Theory
    A broker follows thousands of partitions in one session, and most of them get no records. To read all of them for
    every fetch would cost more than to read the few that have news. So a partition becomes *idle* when its reader knows
    everything about it and asks for the end of its log. A watcher at the partition wakes it up.

| state | does a fetch read it? | it changes its state                                                            |
|-------|-----------------------|---------------------------------------------------------------------------------|
| awake | yes                   | when an answer held nothing of it, and its reader knows its high watermark      |
| idle  | no                    | when the partition calls its watchers                                           |
|       |                       | when a request of the session names or forgets it, or the session ends          |
|       |                       | when a request has another version, replica id or isolation level than the last |
|       |                       | when the cluster has changed, or this broker is fenced                          |

    Each fetch of the session says, for an idle follower too, that it holds the whole log. The leader does not write that
    down for each partition. The follower *rests* on the session's `LastFetch`, which says until when the follower was
    caught up. Only a follower that is in sync may be idle.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.replication.partition.fetch_session import FetchTarget
    from ottla.replication.partition.followers import Follower, LastFetch
    from ottla.replication.partition.partition import Partition

IDLE_FROM = 4  # partitions in a session: reading two or three again costs no more than watching them


class IdleTarget:
    """A partition without news for one session, and the watcher that wakes it up."""

    __slots__ = ("_follower", "_on_change", "partition", "role", "target")

    def __init__(
        self,
        target: FetchTarget,
        partition: Partition,
        role: tuple[object, ...],
        follower: Follower | None,
        on_change: Callable[[IdleTarget], None],
    ) -> None:
        """`role` is the partition's role when it became idle (`server/fetch/parked_partitions.py:role_of`)."""
        self.target = target
        self.partition = partition
        self.role = role
        self._follower = follower
        self._on_change = on_change

    def begin(self, last_fetch: LastFetch) -> None:
        """Watch the partition from now on."""
        if self._follower is not None:
            self._follower.rest_on(last_fetch)
        self.partition.watchers.add(self._changed)

    def end(self, last_fetch: LastFetch) -> None:
        """Stop watching."""
        self.partition.watchers.discard(self._changed)
        if self._follower is not None:
            self._follower.wake(last_fetch)

    def _changed(self) -> None:
        self._on_change(self)
