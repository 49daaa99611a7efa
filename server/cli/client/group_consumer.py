"""Consumer in a group: reads the partitions that the group assigns to this member, and commits the offsets of written records.

At least once: an offset is committed only after the records before it have been written to stdout. `done` holds those offsets. The
caller sets them batch by batch. Between two rounds of fetches all records are written, and `done` takes the consumer's own positions:
these are also past records that are not shown, such as aborted ones and markers of transactions.

When the group takes partitions away, their offsets are committed first. If the group has already given them to others (`Member.is_lost`),
nothing is committed, and those records come again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence

from ottla.server.cli.client.cluster import Cluster, Partition, Patience
from ottla.server.cli.client.connection import ANSWER_TIMEOUT_S
from ottla.server.cli.client.consumer import AtEnd, Batch, Consumer
from ottla.server.cli.client.groups import OffsetsUnstable, committed_of
from ottla.server.cli.client.membership import Member
from ottla.server.cli.client.output import ConnectionLost, RequestFailed, say

COMMIT_S = 5.0
"""Time between two commits while records come, Kafka's auto.commit.interval.ms."""

IDLE_S = 0.1
END_S = 3.0
"""Time for retries of the last commit."""

UNSTABLE_S = 900.0
"""Time to wait for transactions that commit offsets; Kafka's transaction.max.timeout.ms."""

Begin = Callable[[Sequence[Partition]], Mapping[Partition, int]]
"""Return the first offsets to read of partitions that have no committed offset. Raises RequestFailed."""


class GroupConsumer:
    """Consumer of the partitions that a group assigns to `member`. It also commits their offsets."""

    def __init__(
        self,
        cluster: Cluster,
        group: str,
        member: Member,
        isolation: int,
        begin: Begin,
        commit_s: float | None,
        *,
        restarts: bool = True,
    ) -> None:
        """Create the consumer. `commit_s`: seconds between two commits; None: never commit."""
        self.done: dict[Partition, int] = {}
        """Offset up to which each assigned partition is written."""
        self.committed: dict[Partition, int] = {}
        """Committed offsets of the assigned partitions; in the end also of those that were taken away."""
        self._reader = Consumer(cluster, {}, isolation, restarts=restarts)
        self._cluster, self._group, self._member, self._begin = cluster, group, member, begin
        self._commit_s = commit_s
        self._next_commit_s = time.monotonic() + (commit_s or 0)
        self.assigned_s = time.monotonic()
        """Time by time.monotonic() at which the partitions were assigned."""
        self._assigned: tuple[Partition, ...] | None = None
        """Assignment that is not taken over yet."""
        self._unstable_since_s: float | None = None
        """Time by time.monotonic() since which open transactions delay the assignment; None: there are none."""
        self._patience = Patience()
        self._closed: set[Partition] = set()
        self._told_gone: set[Partition] = set()

    @property
    def is_over(self) -> bool:
        """True if all assigned partitions are closed, or if none is assigned."""
        is_joined = self._assigned is None and not self._member.must_join
        return is_joined and not self._reader.positions and self._member.is_settled

    @property
    def open_count(self) -> int:
        """Number of partitions that are still read."""
        return len(self._reader.positions)

    def close(self, place: Partition) -> None:
        """Stop reading a partition."""
        self._closed.add(place)
        self._reader.close(place)

    def round(self) -> Iterator[Batch | AtEnd]:
        """Yield the responses to one round of fetches. Before the round, take over assignments and commit offsets."""
        self.attend()
        if self._assigned is not None or not self._reader.positions:
            time.sleep(IDLE_S)
            return
        yield from self._reader.round()
        self.done.update(self._reader.positions)

    def attend(self) -> None:
        """Send a heartbeat, take over a new assignment, and commit offsets, each if it is due.

        Before the call, the caller must have written all records that it got. Raises RequestFailed if no broker can be
        reached for ANSWER_TIMEOUT_S.
        """
        try:
            self._attend()
            self._patience.renew()
        except ConnectionLost as error:
            self._patience.bear(error)

    def _attend(self) -> None:
        self._member.beat()
        while self._member.must_join or self._assigned is not None:
            if self._assigned is None or self._member.must_join:
                if not self._member.is_lost:
                    self.commit()
                if self._member.is_lost:
                    self._forget()
                self._assigned = self._member.join()
            # A failure here must not lose what is assigned.
            try:
                self._take(self._assigned)
            except OffsetsUnstable as error:
                self._wait_for_stable(error)
                return
            self._assigned = self._unstable_since_s = None
        if self._commit_s and time.monotonic() >= self._next_commit_s:
            self.commit()

    def _wait_for_stable(self, error: OffsetsUnstable) -> None:
        """Report, once, that the assignment waits for a transaction. Raises RequestFailed after UNSTABLE_S seconds."""
        now_s = time.monotonic()
        if self._unstable_since_s is None:
            self._unstable_since_s = now_s
            say(f"{error}; waiting for its end")
        elif now_s - self._unstable_since_s > UNSTABLE_S:
            raise RequestFailed(f"{error}; given up after {UNSTABLE_S:g} s")

    def beat(self) -> None:
        """Send a heartbeat if one is due. Call this while records are being written."""
        self._member.beat()

    def commit(self, timeout_s: float = ANSWER_TIMEOUT_S) -> None:
        """Commit the offsets in `done` that are new. Raises RequestFailed.

        `timeout_s`: time for further attempts after a failure.
        """
        new = {place: offset for place, offset in self.done.items() if self.committed.get(place) != offset}
        if self._commit_s is None or not new:
            return
        taken = self._member.commit(new, timeout_s)
        self.committed.update({place: new[place] for place in taken})
        self._next_commit_s = time.monotonic() + self._commit_s
        if self._member.is_lost:
            return
        for topic, number in sorted(new.keys() - set(taken) - self._told_gone):
            self._told_gone.add((topic, number))
            say(f"the offset of {topic}-{number} is not committed: the topic is gone")

    def end(self) -> None:
        """Commit the offsets of written records, leave the group and disconnect. Raises RequestFailed."""
        self._reader.close_all()
        try:
            if not self._member.is_lost:
                self.commit(END_S)
            if self._member.is_lost:
                self._forget()
        finally:
            self._member.leave()

    def _forget(self) -> None:
        lost = sum(self.committed.get(place) != offset for place, offset in self.done.items())
        if lost and self._commit_s is not None:
            say(
                f"group {self._group} has given {lost} partitions to others before their offsets were committed:"
                " some records come again"
            )
        self.done.clear()
        self._reader.assign({})

    def _take(self, assigned: Sequence[Partition]) -> None:
        """Read the assigned partitions. New ones begin at their committed offsets, if they have any."""
        kept = {place: offset for place, offset in self.done.items() if place in assigned}
        new = [place for place in assigned if place not in kept]
        if new:
            stored = committed_of(self._cluster, self._group, new, is_stable=True)
            found = {place: stored[place] for place in new if place in stored}
            self.committed.update(found)
            others = [place for place in new if place not in found]
            kept.update(found | dict(self._begin(others) if others else {}))
        self.done = kept
        self._closed &= set(assigned)
        self.assigned_s = time.monotonic()
        self._reader.assign({place: offset for place, offset in kept.items() if place not in self._closed})
