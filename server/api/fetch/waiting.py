"""Waiting fetches: until their partitions have enough to give, one of them ends the wait, or the time is over.

| what happens to a partition        | what follows                                                                   |
|------------------------------------|--------------------------------------------------------------------------------|
| records came, one byte is enough   | the wait is over; the partition is read when the response is made              |
| records came, more are wanted      | it is read again; the wait is over when all together have enough               |
| its role changed, it failed        | the same; a partition that cannot be read any more is settled                  |
| an idle one of the session changed | it counts from then on like the others                                         |
| anything else                      | it is noted, and the partition is read again when the response is made         |

While it waits a request keeps no file open. Records that it found are read again at the end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from ottla.replication.log.storage import NotCached, only_cached
from ottla.server.api.fetch.partition_answers import PartitionRead, failed
from ottla.server.api.fetch.reading import each_warmed
from ottla.server.api.fetch.responses import confirm_idle, response_in_slices, response_to, role_of
from ottla.wire.answers import PendingAnswer
from ottla.wire.errors import ErrorCode
from ottla.wire.time_slice import TimeSlice

if TYPE_CHECKING:
    from ottla.replication.partition.idle_partitions import IdleTarget
    from ottla.replication.partition.partition import Partition
    from ottla.server.api.fetch.reading import Reading
    from ottla.server.network.deadlines import Deadline
    from ottla.wire.messages.fetch import FetchResponse


class ParkedPartition:
    """Watcher of one partition of a waiting fetch; ignores changes such as appends that consumers may not read yet."""

    __slots__ = ("_end", "_index", "_partition", "_role", "_waiting")

    def __init__(
        self, waiting: WaitingFetch, index: int, partition: Partition, end: int, role: tuple[object, ...]
    ) -> None:
        self._waiting, self._index, self._partition = waiting, index, partition
        self._end, self._role = end, role
        # A bound method equals every other one of the same object, so `leave` finds it again.
        partition.watchers.add(self.look)

    def look(self) -> None:
        """Report a change of the partition to the waiting fetch."""
        end, role = self._waiting.end_of(self._partition), role_of(self._partition)
        # Such a change does not end the wait, but the response has the new log start and high watermark.
        if end == self._end and role == self._role:
            self._waiting.on_change(self._index, None)
        else:
            self._end, self._role = end, role
            self._waiting.on_change(self._index, end)

    def leave(self) -> None:
        """Stop watching."""
        self._partition.watchers.discard(self.look)


class WaitingFetch(PendingAnswer["FetchResponse"]):
    """Fetch that waits for more records; the wait begins when the object is created."""

    __slots__ = (
        "_available",
        "_changed",
        "_deadline",
        "_deadlines",
        "_is_any_read",
        "_parked",
        "_reader",
        "_reading",
        "_woken",
        "end_of",
    )

    is_abandonable = True

    def __init__(self, reading: Reading) -> None:
        super().__init__()
        reader = reading.reader
        # The first read has noted the follower's offset. Noting it again later would take an old offset for the
        # present one.
        reader.notes_progress = False
        self.end_of = reader.end_of  # bound here, because every append calls it
        self._reading, self._reader = reading, reader
        self._deadlines = reader.broker.deadlines
        self._parked: list[ParkedPartition] = []
        self._changed: set[int] = set()  # indexes of partitions that have changed since they were read
        self._woken = 0  # partitions that were idle when the request came
        self._available = 0  # in all partitions together
        self._is_any_read = False  # True if a partition gave records
        # The deadline refers to this object and this object to the deadline. `abandon` separates them, because the
        # garbage collector would not.
        self._deadline: Deadline | None = self._deadlines.add(reading.request.max_wait_ms / 1000, self.become_ready)
        # One walk for all of it: a follower that keeps up waits like this for each batch.
        for index, read in enumerate(reading.reads):
            self._available += read.available
            if read.size:
                self._is_any_read = True
                self._drop_records(index)
            if (partition := read.partition) is not None:
                self._parked.append(ParkedPartition(self, index, partition, self.end_of(partition), role_of(partition)))
        reading.opened.on_wake(self._on_woken)

    def on_change(self, index: int, end: int | None) -> None:
        """Handle a change of the partition at `index`: read it again, or end the wait.

        `end`: offset up to which the client may now read; None if neither the offset nor the role has changed.
        """
        # Noted in any case: the response has the newest offsets, also of a partition that did not end the wait.
        self._changed.add(index)
        if end is None or self.is_ready:
            return
        reading = self._reading
        target = reading.reads[index].target
        # The usual wait ends here without a read, which would be thrown away: the response reads the partition itself.
        # A throttled follower may get no records although there are some, so only a read can tell.
        if reading.bytes_min <= 1 and end > target.asked.fetch_offset and not self._reader.is_throttled(target):
            self.become_ready()
            return
        self._read_while_waiting(index)

    def _read_while_waiting(self, index: int) -> None:
        """Read the partition at `index` again; end the wait if the fetch has enough bytes."""
        self._reader.take_share_of_regions()
        try:
            with only_cached:
                self._read_again(index)
        # A watcher cannot await a thread. The response is made without these records, and the client fetches again.
        except NotCached:
            self.become_ready()
            return
        if self._reading.is_complete:
            self.become_ready()
        else:
            self._drop_records(index)

    def _on_woken(self, idle: IdleTarget) -> None:
        """Add a partition to the waiting fetch, because it was idle in the session and has changed."""
        target, partition, reads = idle.target, idle.partition, self._reading.reads
        # Appended, so that the places of the other reads stay what they are. `_have_to_share` puts all in order.
        self._reading.opened.add_woken(target)
        self._woken += 1
        unread = failed(target, ErrorCode.NONE)  # it is read again, for it has changed
        reads.append(PartitionRead(target, unread, is_settled=False, partition=partition))
        parked = ParkedPartition(self, len(reads) - 1, partition, target.asked.fetch_offset, idle.role)
        self._parked.append(parked)
        # The change that woke the partition came before this watcher was added.
        parked.look()

    def _drop_records(self, index: int) -> None:
        """Drop the records that were read, so that no file stays open during the wait; they are read again later."""
        read = self._reading.reads[index]
        if read.size:
            # This frees the region and its file. The read has to be repeated, so its index is noted.
            read.data.records = b""
            self._changed.add(index)

    def _read_again(self, index: int) -> None:
        """Read the changed partition at `index` again; set `is_complete` if the fetch then has enough bytes."""
        reading = self._reading
        # Sums are kept up to date by differences: to look at all partitions for each of a hundred appends took 470 ms
        # while five fetches of 4,000 partitions waited.
        before = reading.reads[index].available
        read = reading.read_alone(index)
        self._changed.discard(index)
        self._available += read.available - before
        self._is_any_read = self._is_any_read or read.size > 0
        is_full = self._reader.is_short_of_files and self._is_any_read
        if read.is_settled or self._available >= reading.bytes_min or is_full:
            reading.is_complete = True

    # ------------------------------------------------------------------ the end of the wait

    def response(self) -> FetchResponse:
        """Return the response after the wait. Records not in memory are omitted, and come with the next fetch."""
        self.abandon()
        # The connection takes the response in one step, so no thread can be awaited for the disk.
        self._reader.skips_cold = True
        with only_cached:
            self._reader.take_share_of_regions()
            # Sorted, because the partitions of a fetch are served in their order. A copy, because `_read_again` takes
            # them out.
            for index in sorted(self._changed):
                self._read_again(index)
            # Each was read as if it were alone, with all the room. If only one has records the response is right as it is.
            if self._have_to_share():
                self._reading.read_all()
        return response_to(self._reading)

    async def until_read(self) -> None:
        """Wait, then read changed partitions again, even from disk; read all again if several have records."""
        await self._until_ready()
        self._reader.take_share_of_regions()
        await each_warmed(sorted(self._changed), self._read_again)
        if self._have_to_share():
            await self._reading.read_in_slices()

    async def _until_ready(self) -> None:
        ready = trio.Event()
        self.on_ready = ready.set
        try:
            await self._look_again()
            if not self.is_ready:
                await ready.wait()
        finally:
            self.on_ready = None
            self.abandon()

    async def _look_again(self) -> None:
        """Read partitions again if they have changed between their first read and the begin of the wait."""
        time_slice = TimeSlice()
        reads = self._reading.reads
        for index, seen in enumerate(self._reading.seen_ends):
            if self.is_ready:
                return
            partition = reads[index].partition
            if partition is not None and self.end_of(partition) != seen:
                self._read_while_waiting(index)
                await time_slice.yield_if_over()

    def _have_to_share(self) -> bool:
        """True if several partitions have records, so that all must be read again in order, within the byte limit."""
        reading = self._reading
        # Idle partitions were appended. The client has to get them in the session's order.
        if self._woken:
            reading.reads.sort(key=lambda read: read.target.place)
            reading.opened.targets.sort(key=lambda target: target.place)
        has_to_share = sum([read.size > 0 for read in reading.reads]) > 1
        if has_to_share and reading.opened.may_look_at_idle:
            reading.cluster_version = self._reader.broker.cluster.version  # idle partitions may be gone by now
            # Idle partitions may have to be read after all, and then they take part in the sharing.
            confirm_idle(reading)
        return has_to_share

    def abandon(self) -> None:
        for parked in self._parked:
            parked.leave()
        # A parked partition refers to this object: without these lines neither would ever be freed.
        self._parked.clear()
        self._reading.opened.on_wake(None)
        if self._deadline is not None:
            self._deadlines.cancel(self._deadline)
            self._deadline = None


async def wait_in_slices(reading: Reading) -> None:
    """Wait until the fetch is complete or its time is over, then read changed partitions again."""
    if not reading.is_final:
        await WaitingFetch(reading).until_read()


async def answer_in_slices(reading: Reading) -> FetchResponse:
    """Read, wait and return a very long response, all in time slices.

    The connection awaits the result, and so encodes it in a thread.
    """
    try:
        await reading.read_in_slices()
        await wait_in_slices(reading)
        return await response_in_slices(reading)
    finally:
        # Otherwise the session would refer to this reading and its requests until the next fetch.
        reading.opened.on_wake(None)
