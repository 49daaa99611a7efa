"""The reads of one fetch request: all its partitions, in their order and within its limits.

After a look at all partitions `is_complete` is True if there is enough to answer. If not, the request waits
(`waiting.py`), and partitions that change meanwhile are read again, one by one. The event loop never waits for the disk: a
thread brings cold pages into memory, then the read is repeated.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import trio

from ottla.replication.log.storage import NotCached, only_cached
from ottla.server.api.fetch.partition_answers import Answer, PartitionRead, failed
from ottla.server.api.fetch.partition_reader import PartitionReader
from ottla.server.network.sliced_work import PARTITIONS_PER_SLICE
from ottla.server.ports import BrokerParts
from ottla.wire.time_slice import TimeSlice

if TYPE_CHECKING:
    from ottla.replication.partition.fetch_session import FetchContext
    from ottla.replication.partition.idle_partitions import FetchTarget
    from ottla.server.dispatch.context import Charge, RequestContext
    from ottla.wire.messages.fetch import FetchRequest

TRIES_MAX = 100
"""Tries after which a read waits for the disk: memory is so short that the system evicts pages at once. Finding a batch in
a full segment takes up to 20, as its index is bisected by pages."""

Element = TypeVar("Element")

_warmed_in_threads = trio.CapacityLimiter(4)
"""A limit, so that many readers of old records leave threads to others."""

AT_LEAST_ONE_BATCH_SINCE = 3
# Bytes of a response beside records.
PARTITION_BYTES, ENVELOPE_BYTES = 50, 20


async def each_warmed(elements: Sequence[Element], do: Callable[[Element], None]) -> None:
    """Call `do` for each element; yield to other tasks in between.

    If `do` raises NotCached, a thread reads the pages and `do` is called again, so `do` must change nothing before.
    """
    time_slice = TimeSlice()
    for element in elements:
        tries = 0
        while True:
            # The block holds for the whole thread. It must not be open across an await, or other tasks would read
            # under it.
            try:
                with only_cached if tries < TRIES_MAX else contextlib.nullcontext():
                    do(element)
                break
            except NotCached as cold:
                tries += 1
                # `warm` ignores disk errors. The next try meets them, and the log handles them.
                await trio.to_thread.run_sync(cold.warm, limiter=_warmed_in_threads)
        await time_slice.yield_if_over()


class Reading:
    """Reads of all partitions of one fetch request."""

    __slots__ = (
        "_bytes_read",
        "_gives_one_batch",
        "bytes_max",
        "bytes_min",
        "charge",
        "cluster_version",
        "is_complete",
        "opened",
        "reader",
        "reads",
        "refused",
        "request",
        "seen_ends",
    )

    def __init__(
        self, broker: BrokerParts, request: FetchRequest, context: RequestContext[Any], opened: FetchContext
    ) -> None:
        self.reader = PartitionReader(broker, request, context)
        self.request, self.opened = request, opened
        self.reads: list[PartitionRead] = []
        self.refused: list[Answer] = []
        self.seen_ends: list[int] = []  # of the partitions in `reads`, if others ran in between
        self.is_complete = False
        self.cluster_version = broker.cluster.version
        self.bytes_max = min(request.max_bytes, broker.config.replication.fetch_max_bytes)
        self.charge = context.charge
        if self.charge is not None:
            self._keep_to_quota(self.charge)
        # A request that wants more than it allows would always wait to its end.
        self.bytes_min = min(request.min_bytes, self.bytes_max)
        # Older clients cannot take more than the limit that they name for a partition.
        self._gives_one_batch = context.api_version >= AT_LEAST_ONE_BATCH_SINCE
        self._bytes_read = 0

    def _keep_to_quota(self, charge: Charge) -> None:
        if self.reader.is_follower:
            charge.exempt()  # the replication throttles count what it gets
        else:
            # A longer response would be refused each time, and the consumer would never get on.
            self.bytes_max = int(min(self.bytes_max, charge.fetched_bytes_max))

    @property
    def answer_bytes(self) -> int:
        """Estimated length of the response with all records that were read, in bytes."""
        is_partial = self.opened.session is not None  # a session leaves out partitions without news
        sizes = [read.size for read in self.reads if read.size or not is_partial]
        return sum(sizes) + len(sizes) * PARTITION_BYTES + ENVELOPE_BYTES

    def has_readable_targets(self) -> bool:
        """True if the request has a partition that this broker would try to read."""
        return self.opened.has_idle or any(self.reader.refusal(target) is None for target in self.opened.targets)

    @property
    def is_final(self) -> bool:
        """True if the request does not have to wait."""
        return self.is_complete or self.request.max_wait_ms <= 0

    # ------------------------------------------------------------------ all partitions

    def read_all(self) -> None:
        """Read all partitions within the limits; set `is_complete`. Raises NotCached: then call `read_in_slices`."""
        self._start_over()
        for target in self.opened.targets:
            self._read_target(target)
        self.is_complete = self._is_satisfied()

    async def read_in_slices(self) -> None:
        """Read all partitions in time slices; a thread first loads records that are not in memory."""
        self._start_over()
        # An idle partition that changes while this yields is appended to `targets`, so the loop meets it.
        targets = self.opened.targets
        self.opened.on_wake(lambda idle: self.opened.add_woken(idle.target))
        start = 0
        while start < len(targets):  # more may come meanwhile
            piece = targets[start : start + PARTITIONS_PER_SLICE]
            await each_warmed(piece, self._read_and_note_end)
            start += len(piece)
            await trio.lowlevel.checkpoint()
        self.is_complete = self._is_satisfied()

    def _start_over(self) -> None:
        # The old regions are dropped first: they count against the share that is taken below.
        self.refused, self.reads, self.seen_ends = [], [], []
        self._bytes_read = 0
        self.reader.take_share_of_regions()

    def _read_and_note_end(self, target: FetchTarget) -> None:
        self._read_target(target)
        if len(self.reads) > len(self.seen_ends):
            partition = self.reads[-1].partition
            self.seen_ends.append(-1 if partition is None else self.reader.end_of(partition))

    def _read_target(self, target: FetchTarget) -> None:
        reader = self.reader
        if (error := reader.refusal(target)) is not None:
            refused = failed(target, error)
            refused.aborted_transactions = []
            self.refused.append((target, refused))
            return
        # Less than no bytes are allowed to the first partition only: Kafka's room for the others is never below 0.
        room = self.bytes_max if not self.reads else max(0, self.bytes_max - self._bytes_read)
        room = reader.with_files(room, is_first=not self._bytes_read)
        read = reader.read(target, room, at_least_one=self._gives_one_batch and not self._bytes_read)
        self.reads.append(read)
        self._bytes_read += read.size

    def _is_satisfied(self) -> bool:
        # Partitions that are refused end no wait, unless there is nothing else to wait for.
        has_nothing_to_read = not self.reads and not self.opened.has_idle
        return self._bytes_read >= self.bytes_min or self._is_enough() or has_nothing_to_read

    def _is_enough(self) -> bool:
        """True if enough bytes were read to end a wait."""
        if self.reader.is_short_of_files and any(read.size for read in self.reads):
            return True  # there is no more to come
        # Unlike the bytes read, this counts those that the limit of the whole response left out (Kafka's DelayedFetch).
        available = 0
        for read in self.reads:
            if read.is_settled:
                return True
            available += read.available
        return available >= self.bytes_min

    # ------------------------------------------------------------------ one partition

    def read_alone(self, index: int) -> PartitionRead:
        """Read the partition at `index` again, with the whole request's byte limit; replace and return its read."""
        room = self.reader.with_files(self.bytes_max, is_first=True)
        read = self.reader.read(self.reads[index].target, room, at_least_one=self._gives_one_batch)
        self.reads[index] = read
        return read
