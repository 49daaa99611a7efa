"""All replica fetchers of this broker: num.replica.fetchers for each leader, and which partition belongs to which of them.

Kafka: ReplicaFetcherManager, AbstractFetcherManager.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING
from zlib import crc32

import trio

from ottla.replication.fetcher.fetch_session_handler import PartitionFetchState
from ottla.replication.fetcher.fetcher import Connect, Fetcher, FetcherContext, cut_to_high_watermark
from ottla.wire.errors import KafkaError

if TYPE_CHECKING:
    from ottla.replication.config import ReplicationConfig
    from ottla.replication.fetcher.throttle import ReplicationThrottle
    from ottla.replication.partition.partition import Partition
    from ottla.replication.partition.removals import Removals


class ReplicaFetcherManager:
    """All fetchers of this broker."""

    def __init__(
        self,
        node_id: int,
        *,
        connect: Connect,
        config: Callable[[], ReplicationConfig],
        clock_ms: Callable[[], int],
        broker_epoch: Callable[[], int],
        throttle: ReplicationThrottle,
        removals: Removals,
    ) -> None:
        """Create the manager; `connect(leader id, fetcher number)` opens a connection and may raise PeerUnavailable."""
        self._context = FetcherContext(node_id, connect, config, clock_ms, broker_epoch, throttle, removals)
        self._count = config().num_replica_fetchers
        self._fetchers: dict[tuple[int, int], Fetcher] = {}
        self._followed: dict[tuple[str, int], tuple[Fetcher, PartitionFetchState]] = {}
        self._nursery: trio.Nursery | None = None

    @property
    def partition_count(self) -> int:
        """Number of partitions that this broker fetches as a follower."""
        return len(self._followed)

    def follow(self, partition: Partition) -> None:
        """Fetch a partition from its leader in the current leader epoch; a former fetch of the partition ends."""
        key = (partition.topic, partition.index)
        if key in self._followed:
            fetcher, following = self._followed[key]
            # The same said once more must not interrupt the fetch that waits at the leader.
            if following.partition is partition and following.is_wanted and not fetcher.has_failed(following):
                return
            # The same fetcher replaces the old entry in `add`. Only
            # the fetcher of another leader has to let go of it here.
            if following.leader_id != partition.leader_id:
                fetcher.remove(following)
        following = PartitionFetchState(partition)
        # Records of old formats, without epochs and beyond the high watermark, may differ from the leader's, and it could not
        # tell where.
        log = partition.log
        following.must_be_cut = log.latest_leader_epoch < 0 and log.log_end_offset > partition.high_watermark
        if following.must_be_cut:
            with suppress(KafkaError):  # then it is tried again before anything is appended
                cut_to_high_watermark(following, self._context.removals, now_ms=self._context.clock_ms())
        fetcher = self._fetcher(partition.leader_id, self._number(partition))
        self._followed[key] = (fetcher, following)
        fetcher.add(following)

    def forget(self, partition: Partition) -> None:
        """Stop fetching a partition."""
        key = (partition.topic, partition.index)
        if key in self._followed and self._followed[key][1].partition is partition:
            fetcher, following = self._followed.pop(key)
            fetcher.remove(following)

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run the fetchers until cancelled."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            try:
                # `follow` may have been called before this runs, when there was no nursery for its fetchers.
                for fetcher in self._fetchers.values():
                    nursery.start_soon(fetcher.run)
                task_status.started()
                await trio.sleep_forever()
            finally:
                self._nursery = None

    def _number(self, partition: Partition) -> int:
        # Python's own hash of a string differs from process to
        # process. This one spreads the same way after every restart.
        return (crc32(partition.topic.encode()) + partition.index) % self._count

    def _fetcher(self, leader_id: int, number: int) -> Fetcher:
        fetcher = self._fetchers.get((leader_id, number))
        if fetcher is None:
            fetcher = Fetcher(self._context, leader_id, number, before_round=self.resize, on_end=self._forget_fetcher)
            self._fetchers[leader_id, number] = fetcher
            if self._nursery is not None:
                self._nursery.start_soon(fetcher.run)
        return fetcher

    def _forget_fetcher(self, fetcher: Fetcher) -> None:
        del self._fetchers[fetcher.leader_id, fetcher.number]

    def resize(self) -> None:
        """Redistribute the partitions over the fetchers if num.replica.fetchers has changed."""
        count = self._context.config().num_replica_fetchers
        if count == self._count:
            return
        self._count = count
        for key, (fetcher, following) in list(self._followed.items()):
            wanted = self._fetcher(following.leader_id, self._number(following.partition))
            # The old entry dies with its fetcher's session. What its
            # answers still bring must not be used, so a new one goes on.
            if wanted is not fetcher:
                fetcher.remove(following)
                moved = PartitionFetchState(following.partition)
                # A cut that failed so far is still owed: the new fetcher must not append on top of those records.
                moved.must_be_cut = following.must_be_cut
                self._followed[key] = (wanted, moved)
                wanted.add(moved)
