"""Partitions of a fetch session that have nothing to tell: they are not read again until something happens to them.

Theory
    A broker follows thousands of partitions in one session, and most of them stand still. Reading each of them for each
    fetch would cost more than what the others have to tell. So a partition is *idle* once its reader has been told
    everything and asks for the end of what it may read. It has a watcher at the partition, which wakes it.

| state | read by a fetch | becomes the other                                                                     |
|-------|-----------------|---------------------------------------------------------------------------------------|
| awake | yes             | when an answer had nothing of it, and there is nothing that the reader does not know    |
| idle  | no              | the partition calls its watchers; a request names or forgets it; the session ends; who |
|       |                 | asks, how it asks, or what is known of the cluster is not as it was; fenced brokers    |

    A follower that is idle has fetched the end as often as its session has fetched. It is not told so each time: it *rests*
    on the session's `LastFetch`, by which its leader knows until when it was caught up. Only who is in sync is left idle.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.replication.fetch_session import FetchTarget
    from ottla.replication.followers import Follower, LastFetch
    from ottla.replication.partition import Partition

IDLE_FROM = 4  # partitions in a session: reading two or three again costs no more than watching them


class IdleTarget:
    """A partition that has nothing to tell to one session, and the watcher that wakes it."""

    __slots__ = ("_follower", "_on_change", "partition", "role", "target")

    def __init__(
        self,
        target: FetchTarget,
        partition: Partition,
        role: tuple[object, ...],
        follower: Follower | None,
        on_change: Callable[[IdleTarget], None],
    ) -> None:
        """`role`: the partition's, as whoever waits for another one compares it."""
        self.target = target
        self.partition = partition
        self.role = role
        self._follower = follower
        self._on_change = on_change

    def begin(self, last_fetch: LastFetch) -> None:
        """Be called when something changes."""
        if self._follower is not None:
            self._follower.rest_on(last_fetch)
        self.partition.watchers.add(self._changed)

    def end(self, last_fetch: LastFetch) -> None:
        """Be called no more."""
        self.partition.watchers.discard(self._changed)
        if self._follower is not None:
            self._follower.wake(last_fetch)

    def _changed(self) -> None:
        self._on_change(self)
