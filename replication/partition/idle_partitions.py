"""The partitions of a fetch session. The leader does not read an idle one again until something happens to it.

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

from ottla.wire.schema import ZERO_UUID

if TYPE_CHECKING:
    from ottla.replication.partition.followers import Follower, LastFetch
    from ottla.replication.partition.partition import Partition
    from ottla.wire.messages.fetch import FetchPartition, PartitionData

Key = tuple[str | bytes, int]  # topic name, or topic id from v13 on, and partition

IDLE_FROM = 4  # partitions in a session: reading two or three again costs no more than watching them


class FetchTarget:
    """A partition of a fetch, with its last requested parameters and the offsets last sent (-1: nothing sent yet)."""

    __slots__ = ("asked", "idle", "key", "place", "told_high_watermark", "told_log_start_offset", "topic", "topic_id")

    def __init__(self, topic: str | None, topic_id: bytes, asked: FetchPartition) -> None:
        self.topic = topic  # None while the topic id is unknown here
        self.topic_id = topic_id
        self.asked = asked
        self.told_high_watermark = -1
        self.told_log_start_offset = -1
        # Up to v12 there is a name and no id. A v13 client may send the zero id: no topic has it, and it stays an id.
        name: str | bytes = topic if topic is not None and topic_id == ZERO_UUID else topic_id
        self.key: Key = (name, asked.partition)
        self.place = 0  # in its session's order
        self.idle: IdleTarget | None = None

    def has_news(self, data: PartitionData) -> bool:
        """Tell whether `data` has news for the client, and remember the offsets in `data` as sent."""
        # No early return: what is told has to be remembered below in any case. As in Kafka, a last stable offset that
        # moved alone is no news.
        news = bool(data.records) or data.preferred_read_replica >= 0 or data.diverging_epoch.epoch >= 0
        news = news or data.error_code != 0
        if self.told_high_watermark != data.high_watermark or self.told_log_start_offset != data.log_start_offset:
            news = True
        # After an error the next good answer is news, even with the watermark that the client knows.
        self.told_high_watermark = -1 if data.error_code else data.high_watermark
        self.told_log_start_offset = data.log_start_offset
        return news


class IdleTarget:
    """A partition without news for one fetch session, and the watcher that wakes it when it changes."""

    __slots__ = ("_follower", "_on_change", "partition", "role", "target")

    def __init__(
        self,
        target: FetchTarget,
        partition: Partition,
        role: tuple[object, ...],
        follower: Follower | None,
        on_change: Callable[[IdleTarget], None],
    ) -> None:
        """Create an idle target; `role` is the partition's role now (`server/api/fetch/waiting.py:role_of`)."""
        self.target = target
        self.partition = partition
        self.role = role
        self._follower = follower
        self._on_change = on_change

    def begin(self, last_fetch: LastFetch) -> None:
        """Begin to watch the partition; from now on the session's fetches count as fetches of its follower."""
        if self._follower is not None:
            # Until the partition changes each fetch of the session counts as a fetch of the log end. One object for all idle
            # partitions of the session: a fetch notes its time once and not for each of them.
            self._follower.rests_on = last_fetch
        self.partition.watchers.add(self._changed)

    def end(self, last_fetch: LastFetch) -> None:
        """Stop watching the partition; from now on only the follower's own fetches count."""
        self.partition.watchers.discard(self._changed)
        if self._follower is not None:
            # The follower keeps the time up to which it rested. From now on its own fetches count.
            self._follower.wake(last_fetch)

    def _changed(self) -> None:
        self._on_change(self)
