"""A partition on this broker: its leader, its high watermark, and the rules for reads and appends. Sans-IO.

`PartitionRegistry` finds the partitions of this broker by their names.

Theory
    A partition has a replica here (`local_replica.py`: the log, its high watermark, those who wait for changes) and a role.
    The *leader* appends what producers send and moves the high watermark; everybody else answers NOT_LEADER_OR_FOLLOWER.
    Roles change by `make_leader` and `make_follower`, which carry the epochs the controller gave out; a change with an older
    `partition_epoch` than the present one is ignored.

    The high watermark is the smallest of the offsets the in-sync replicas are sure to hold; `followers` knows of the
    others. This replica is sure to hold its log up to the log end offset or, where the topic asks for it with
    flush.messages or flush.ms, only what has been synced to disk (`log.recovery_point`). So a forced flush needs no rule of
    its own: a record is committed, visible to consumers and acknowledged when the high watermark has passed it, and the high
    watermark waits for the disk. For acks=1 only this replica's own offset counts.

    The watermark stands still while fewer replicas than min.insync.replicas are in sync. It never falls while a broker
    leads. The last stable offset is the high watermark, or the start of the oldest undecided transaction before it.

| state           | append                          | read                | left by                                    |
|-----------------|---------------------------------|---------------------|--------------------------------------------|
| leader          | yes, given enough replicas      | yes                 | make_follower, mark_deleted                |
| not leader      | NOT_LEADER_OR_FOLLOWER          | same error          | make_leader, mark_deleted                  |
| deleted         | UNKNOWN_TOPIC_OR_PARTITION      | same error          | never                                      |
| offline log dir | KAFKA_STORAGE_ERROR, in any of the states above           | a restart                                  |
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NoReturn

from ottla.replication.log.batch_checks import AppendOrigin, CheckedRecords
from ottla.replication.log.log_reader import EMPTY
from ottla.replication.log.partition_log import AppendInfo, PartitionLog
from ottla.replication.log.time_search import TimestampedOffset, TimestampSearch
from ottla.replication.partition.followers import Followers, Holder, IsEligible
from ottla.replication.partition.local_replica import LocalReplica
from ottla.replication.partition.reading import (
    ABORTED_MAX,
    LATEST_TIMESTAMP,
    ReadInfo,
    diverging_epoch_of,
    look_up,
    with_aborted,
)
from ottla.replication.partition.traffic import TopicTraffic, Traffic
from ottla.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla.replication.config import LogConfig
    from ottla.replication.log.removal import Removal
    from ottla.replication.log.storage import LogDirectory
    from ottla.replication.log.verification import VerificationGuard

new_tuple = tuple.__new__  # past NamedTuple's keyword handling: each record is read several times

NO_LEADER = -1
LAG_TIME_MAX_MS = 30_000
UNKNOWN_PATIENCE_MS = 10_000
"""Time for which a new leader doubts a producer that it does not know and that does not begin at 0: as long as a client
waits at a leader that does not answer, and no longer than whose state has expired can wait."""

NO_LEADER_EPOCH = -1  # in a request that does not fence


class Partition(LocalReplica):
    """A partition with a replica on this broker."""

    __slots__ = (
        "_is_eligible",
        "_lag_ms",
        "_local_id",
        "doubts_unknown_until_ms",
        "followers",
        "has_begun_epoch",
        "is_deleted",
        "isr",
        "leader_epoch_start_offset",
        "leader_id",
        "min_isr",
        "must_hear",
        "partition_epoch",
        "replicas",
    )

    def __init__(
        self,
        topic: str,
        index: int,
        log: PartitionLog,
        *,
        local_id: int,
        high_watermark: int = 0,
        request_flush: Callable[[Partition], None] | None = None,
        lag_ms: int = LAG_TIME_MAX_MS,
        is_eligible: IsEligible = lambda broker, broker_epoch: True,
        traffic: TopicTraffic | None = None,
    ) -> None:
        super().__init__(topic, index, log, high_watermark=high_watermark, request_flush=request_flush, traffic=traffic)
        self._local_id = local_id
        self._lag_ms = lag_ms
        self._is_eligible = is_eligible
        self.leader_id = NO_LEADER
        self.leader_epoch_start_offset = self.partition_epoch = -1
        self.has_begun_epoch = False  # as its leader, since the log was loaded: then no crash has cost records of it
        self.doubts_unknown_until_ms = 0
        self.replicas: tuple[int, ...] = ()
        self.isr: tuple[int, ...] = ()
        self.followers: Followers | None = None  # where this broker leads and is not the only replica
        self.min_isr = 0  # how many replicas must be in sync; never more than there are
        self.is_deleted = False
        self.must_hear = False  # of its role from the controller, before it serves: another broker may have taken over

    def __repr__(self) -> str:
        return (
            f"Partition({self.topic}-{self.index}, leader={self.leader_id}, leader_epoch={self.leader_epoch},"
            f" high_watermark={self.high_watermark}, log={self.log!r})"
        )

    @property
    def is_leader(self) -> bool:
        """True if this broker is the partition's leader."""
        return self.leader_id == self._local_id and not self.is_deleted

    @property
    def is_under_min_isr(self) -> bool:
        """True if the ISR is smaller than min.insync.replicas."""
        return len(self.isr) < self.min_isr

    # --- roles --------------------------------------------------------------------------------------------------------

    def make_leader(
        self,
        *,
        leader_epoch: int,
        partition_epoch: int,
        replicas: tuple[int, ...],
        isr: tuple[int, ...],
        now_ms: int = 0,
    ) -> bool:
        """Make this broker the leader; return True if it was not before. Without followers `now_ms` may be omitted."""
        self._check_offsets()
        if partition_epoch < self.partition_epoch:
            return False
        # A repeated request leaves an open proposal open: the controller may have agreed to it, so its replicas are waited for.
        if self.is_leader and (leader_epoch, partition_epoch) == (self.leader_epoch, self.partition_epoch):
            return False
        is_new_leader = not self.is_leader
        self._set_replicas(replicas, isr)
        self._set_followers()
        if leader_epoch > self.leader_epoch:
            self.leader_epoch = leader_epoch
            self.has_begun_epoch = self.log.latest_leader_epoch < leader_epoch
            # The epoch is noted before its first record: a follower may ask at once where the epoch before it ended.
            self.leader_epoch_start_offset = self.log.log_end_offset
            self.log.assign_epoch(leader_epoch, self.leader_epoch_start_offset)
            if self.followers is not None:
                self.followers.begin_epoch(self.leader_epoch_start_offset, is_new_leader=is_new_leader, now_ms=now_ms)
                # There was a leader before, at which the first batches of a producer may still be on their way.
                if is_new_leader and leader_epoch > 0:
                    self.doubts_unknown_until_ms = now_ms + UNKNOWN_PATIENCE_MS
        self.partition_epoch = partition_epoch
        self.leader_id = self._local_id
        # No other code requests this flush before the next append, and until it is done the high watermark stands still.
        if self.log.is_flush_required and self.log.recovery_point < self.log.log_end_offset:
            self._flush()
        self._advance_high_watermark()
        self.notify_watchers()
        return is_new_leader

    def make_follower(
        self, *, leader_id: int, leader_epoch: int, partition_epoch: int, replicas: tuple[int, ...]
    ) -> bool:
        """Make this broker a follower of `leader_id`; return True if the leader epoch is new."""
        self._check_offsets()
        if partition_epoch < self.partition_epoch:
            return False
        is_new_epoch = leader_epoch > self.leader_epoch
        self.leader_id = leader_id
        self.leader_epoch = leader_epoch
        # Only a leader knows where its epoch begins, and a look-up must not be held against an old value.
        self.leader_epoch_start_offset = -1
        self.partition_epoch = partition_epoch
        # Only the leader keeps the in-sync replicas up to date; a follower would hold old ones.
        self._set_replicas(replicas, ())
        self.followers = None
        self.notify_watchers()
        return is_new_epoch

    def _set_replicas(self, replicas: tuple[int, ...], isr: tuple[int, ...]) -> None:
        self.replicas, self.isr = replicas, isr
        # With fewer replicas than min.insync.replicas nothing could ever be committed. Kafka bounds it in the same way.
        self.min_isr = min(self.log.config.min_insync_replicas, len(replicas))

    def _set_followers(self) -> None:
        if len(self.replicas) < 2:
            self.followers = None
            return
        if self.followers is None:
            self.followers = Followers(self._local_id, lag_ms=self._lag_ms, is_eligible=self._is_eligible)
        # The object stays over changes of the replicas, so that what is known of those who remain is kept.
        self.followers.assign(self.replicas, self.isr)

    def mark_deleted(self) -> None:
        """Mark the partition as deleted; all later requests get errors."""
        self.is_deleted = True
        # Appends compare only the leader's id, so this also lets none in any more.
        self.leader_id = NO_LEADER
        self.notify_watchers()

    def set_config(self, config: LogConfig) -> None:
        """Adopt changed settings of the topic."""
        # First, because min.insync.replicas is read from there.
        self.log.config = config
        self._set_replicas(self.replicas, self.isr)
        if self.is_leader:
            # If flushes are asked for from now on: what was appended before has asked for none.
            if self.log.is_flush_required and self.high_watermark < self.log.log_end_offset:
                self._flush()
            self._advance_high_watermark()
            self.notify_watchers()

    def leading_log(self, current_leader_epoch: int = NO_LEADER_EPOCH) -> PartitionLog:
        """Return the log for a request to the leader. Raises KafkaError if this broker does not lead."""
        if current_leader_epoch not in (NO_LEADER_EPOCH, self.leader_epoch):
            raise self._other_epoch(current_leader_epoch)
        if self.leader_id != self._local_id:
            raise self._not_leader()
        return self.log

    def _readable_log(self, current_leader_epoch: int, *, only_from_leader: bool) -> PartitionLog:
        """Return the log for a reader; a follower's log is enough unless `only_from_leader` (KIP-392)."""
        if only_from_leader:
            return self.leading_log(current_leader_epoch)
        if current_leader_epoch not in (NO_LEADER_EPOCH, self.leader_epoch):
            raise self._other_epoch(current_leader_epoch)
        # `leading_log` sees this by the leader's id, which does not matter here.
        if self.is_deleted:
            raise self._not_leader()
        return self.log

    def _other_epoch(self, current_leader_epoch: int) -> KafkaError:
        # A client with older metadata has to look for the leader. One with newer metadata has to wait until this broker
        # has heard, too.
        is_old = current_leader_epoch < self.leader_epoch
        return KafkaError(ErrorCode.FENCED_LEADER_EPOCH if is_old else ErrorCode.UNKNOWN_LEADER_EPOCH)

    def _not_leader(self) -> KafkaError:
        if self.is_deleted:
            return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{self.topic}-{self.index} has been deleted")
        reason = f"Leader not local for partition {self.topic}-{self.index} on broker {self._local_id}"
        return KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, reason)

    # --- writing ------------------------------------------------------------------------------------------------------

    def append_as_leader(
        self,
        records: memoryview,
        *,
        required_acks: int,
        now_ms: int,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        checked: CheckedRecords | None = None,
        transaction_version: int = 0,
        guard: VerificationGuard | None = None,
    ) -> AppendInfo:
        """Append a batch; `acknowledgement` says when it is committed. Raises KafkaError if nothing was appended."""
        # This covers a deleted partition, too; see `mark_deleted`.
        if self.leader_id != self._local_id:
            raise self._not_leader()
        # Asked before the append: records that could not be committed for now should not get into the log. As in Kafka
        # a producer that does not wait for replicas is not refused.
        if required_acks == -1 and len(self.isr) < self.min_isr:
            raise KafkaError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"The size of the current ISR : {len(self.isr)} is insufficient to satisfy the min.isr requirement of"
                f" {self.min_isr} for partition {self.topic}-{self.index}, live replica(s) broker.id are :"
                f" {', '.join(map(str, self.isr))}",
            )
        try:
            info = self.log.append_as_leader(
                records,
                leader_epoch=self.leader_epoch,
                now_ms=now_ms,
                origin=origin,
                checked=checked,
                transaction_version=transaction_version,
                guard=guard,
            )
        finally:  # of a failed append, too, if a segment was finished for it
            if self.log.has_rolled:
                self._flush()
        traffic = self.traffic  # of all partitions of the topic together
        traffic.produce_requests += 1
        # Unpacked at once, because names of a tuple are looked up slowly.
        first_offset, last_offset, _, _, is_duplicate, flush_due = info
        # A duplicate has written nothing. Its producer waits for the records that are there already.
        if not is_duplicate:
            traffic.messages_in += last_offset - first_offset + 1
            traffic.bytes_in += len(records)
            if flush_due:
                self._flush()
            # Watchers look at the high watermark when they are called, so it moves first. Followers want the records
            # even if it stands still.
            self._advance_high_watermark()
            if self._watchers:
                self.notify_watchers()
        return info

    def on_flushed(self) -> None:
        """Advance the high watermark after more of the log has reached the disk."""
        if not self.is_leader or self._advance_high_watermark():
            self.notify_watchers()

    def _advance_high_watermark(self) -> bool:
        # What is committed with too few replicas could be lost with them, although a producer was promised more.
        if len(self.isr) < self.min_isr:
            return False
        # This replica's own part, then that of the others. `_local_offset` says the same without flushes, but costs a call.
        offset = self._local_offset() if self.log.is_flush_required else self.log.log_end_offset
        if self.followers is not None:
            offset = self.followers.common_end(offset, self.log.log_end_offset)
        # It never falls: consumers have read up to here.
        if offset <= self.high_watermark:
            return False
        self.high_watermark = offset
        self.log.on_high_watermark(offset)
        return True

    def acknowledgement(self, next_offset: int, required_acks: int) -> ErrorCode | None:
        """Return the error code for a producer whose records end before `next_offset`; None while it must wait."""
        # Failures come first: a disk that is gone, or another leader's truncation, may have taken the records away
        # again, whatever the offsets say.
        if self.log.log_directory.failure is not None:
            return ErrorCode.KAFKA_STORAGE_ERROR
        if self.leader_id != self._local_id:
            return self._not_leader().code
        # With acks=1 the producer asks for this replica alone: its memory, or its disk where flushes are forced.
        if required_acks != -1:
            return ErrorCode.NONE if self._local_offset() >= next_offset else None
        if self.high_watermark < next_offset:
            return None
        # The in-sync replicas may have become too few since the append. Replicas that are about to join count, as in
        # Kafka: the high watermark has waited for them.
        in_sync = self.isr if self.followers is None else self.followers.maximal_isr
        return ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND if len(in_sync) < self.min_isr else ErrorCode.NONE

    def is_held_in_sync(self, next_offset: int) -> bool:
        """Tell whether all in-sync replicas hold everything below `next_offset`, even if they are too few (min ISR).

        No leader elected from the ISR will truncate these records. Raises KafkaError if this broker does not lead.
        """
        log = self.leading_log()
        if log.log_directory.failure is not None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
        offset = self._local_offset()
        if self.followers is not None:
            offset = self.followers.common_end(offset, log.log_end_offset)
        return max(offset, self.high_watermark) >= next_offset

    # --- in-sync replicas ---------------------------------------------------------------------------------------------

    def on_follower_fetch(
        self, broker: int, fetch_offset: int, log_start_offset: int, *, broker_epoch: int = -1, now_ms: int
    ) -> None:
        """Record that a follower holds everything below `fetch_offset`.

        Raises KafkaError if `broker` is no follower.
        """
        log = self.leading_log()
        if self.followers is None:
            raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH, f"Nobody follows {self.topic}-{self.index}")
        is_news = self.followers.on_fetch(
            broker, fetch_offset, log_start_offset, log.log_end_offset, broker_epoch=broker_epoch, now_ms=now_ms
        )
        # Also if only the follower's log start has moved: DeleteRecords waits for that.
        if is_news:
            self._advance_high_watermark()
            self.notify_watchers()

    def joining_isr(self, broker: int) -> tuple[int, ...] | None:
        """Return the ISR extended by a follower that has just fetched; None if it may not join."""
        if self.followers is None or not self.is_leader:
            return None
        return self.followers.joiner(broker, self.high_watermark, self.leader_epoch_start_offset)

    def shrunk_isr(self, now_ms: int) -> tuple[int, ...] | None:
        """Return the ISR without lagging replicas, to be proposed to the controller; None if it does not shrink."""
        if self.followers is None or not self.is_leader:
            return None
        return self.followers.without_laggards(self.log.log_end_offset, now_ms)

    def settle_isr(self, isr: tuple[int, ...], *, leader_epoch: int, partition_epoch: int) -> bool:
        """Adopt an ISR that the controller has accepted; return False if either epoch is outdated."""
        # A late answer: LeaderAndIsr has told of a newer state since the question was sent.
        if self.followers is None or leader_epoch != self.leader_epoch or partition_epoch < self.partition_epoch:
            return False
        self.partition_epoch = partition_epoch
        self.isr = isr
        # The high watermark may move now. It waits no more for one who has left, and there may be enough replicas
        # again.
        self.followers.settle(isr)
        self._advance_high_watermark()
        self.notify_watchers()
        return True

    def reconsider(self) -> None:
        """Advance the high watermark if possible, after brokers became eligible or ineligible for the ISR."""
        if self.is_leader and self._advance_high_watermark():
            self.notify_watchers()

    # --- reading ------------------------------------------------------------------------------------------------------

    def read(
        self,
        fetch_offset: int,
        max_bytes: int,
        *,
        read_committed: bool = False,
        at_least_one_batch: bool = False,
        is_follower: bool = False,
        only_from_leader: bool = True,
        current_leader_epoch: int = NO_LEADER_EPOCH,
        last_fetched_epoch: int = -1,
        aborted_max: int = ABORTED_MAX,
    ) -> ReadInfo:
        """Read batches from `fetch_offset` on, for a consumer or a follower. Raises KafkaError like Kafka's fetch.

        The result has at most `aborted_max` aborted transactions; with more, fewer records are read.
        """
        log = self._readable_log(current_leader_epoch, only_from_leader=only_from_leader)
        if log.log_directory.failure is not None:
            raise log.log_directory.error()
        high_watermark = self.high_watermark
        stable = self.last_stable_offset
        start = log.log_start_offset
        # A reader that copies the log says of which epoch its last record is. If its log has left this one, records
        # would not help it: it has to cut first.
        if last_fetched_epoch >= 0:
            diverging_epoch = diverging_epoch_of(log, fetch_offset, last_fetched_epoch)
            if diverging_epoch is not None:
                return ReadInfo(EMPTY, high_watermark, stable, start, log.log_end_offset, None, diverging_epoch)
        # A follower gets everything, because records are committed only once followers have them. A consumer must not
        # see what may be lost again.
        upper_bound = log.log_end_offset if is_follower else stable if read_committed else high_watermark
        read = log.read(fetch_offset, max_bytes, upper_bound=upper_bound, at_least_one_batch=at_least_one_batch)
        aborted = None
        if read_committed:
            # A reader of committed records has to know which of these records to skip.
            read, aborted = with_aborted(log, fetch_offset, read, aborted_max, at_least_one_batch=at_least_one_batch)
        region, _, available, is_behind = read
        found = region, high_watermark, stable, start, log.log_end_offset, aborted, None, available, is_behind
        return new_tuple(ReadInfo, found)

    def is_followed_by(self, broker: int) -> bool:
        """Tell whether a broker may fetch this partition as a follower while this broker is the leader."""
        return self.followers is not None and broker in self.followers.by_id

    def refuse_follower(self, current_leader_epoch: int) -> NoReturn:
        """Raise the error for a broker that fetches as a follower but has no replica of this partition."""
        self.leading_log(current_leader_epoch)
        is_newer = current_leader_epoch >= 0  # the asker may know of a reassignment that has not come here yet
        raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH if is_newer else ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def list_offset(
        self,
        timestamp: int,
        *,
        read_committed: bool = False,
        current_leader_epoch: int = NO_LEADER_EPOCH,
        for_replica: bool = False,
        only_from_leader: bool = True,
        search: TimestampSearch | None = None,
    ) -> TimestampedOffset | TimestampSearch:
        """Look up an offset, or return a search, as `look_up` does. `for_replica`: the latest offset is the log end."""
        log = self._readable_log(current_leader_epoch, only_from_leader=only_from_leader)
        log.log_directory.check_online()
        # A replica asks where the log ends, not what is committed.
        if timestamp == LATEST_TIMESTAMP and for_replica:
            return TimestampedOffset(-1, log.log_end_offset, self.leader_epoch)
        bound = self.last_stable_offset if read_committed else self.high_watermark
        # A new leader may not know yet how much the leader before it had committed. Until its watermark reaches its own
        # epoch an answer could go back behind what a consumer has seen.
        is_behind = self.high_watermark < self.leader_epoch_start_offset
        return look_up(log, timestamp, bound=bound, leader_epoch=self.leader_epoch, is_behind=is_behind, search=search)

    def log_of_offsets(self, *, only_from_leader: bool = True) -> PartitionLog:
        """Return the log, whose offsets a client asks for. Raises KafkaError if this broker cannot answer."""
        log = self._readable_log(NO_LEADER_EPOCH, only_from_leader=only_from_leader)
        log.log_directory.check_online()
        return log

    def holders(self, offset: int) -> list[Holder]:
        """Return followers that may serve a consumer at this offset; empty if this broker does not lead."""
        return [] if self.followers is None or not self.is_leader else self.followers.holders(offset)

    def low_watermark(self, is_alive: Callable[[int], bool]) -> int:
        """Return the lowest log start offset of all live replicas. Raises KafkaError if this broker does not lead."""
        log = self.leading_log()
        log.log_directory.check_online()
        start = log.log_start_offset
        return start if self.followers is None else self.followers.common_start(start, is_alive)

    def end_offset_for_epoch(self, epoch: int, *, current_leader_epoch: int = NO_LEADER_EPOCH) -> tuple[int, int]:
        """Return the largest known epoch up to `epoch` and its end offset; (-1, -1) if unknown.

        Raises KafkaError if this broker does not lead.
        """
        log = self.leading_log(current_leader_epoch)
        log.log_directory.check_online()
        return log.end_offset_for_epoch(epoch)

    # --- deleting -----------------------------------------------------------------------------------------------------

    def delete_records(self, offset: int, removal: Removal | None = None) -> int:
        """Raise the log start offset to `offset` (-1: to the high watermark); return the new log start offset.

        `removal` gets an account of the records below it. Raises KafkaError.
        """
        log, start = self.leading_log(), self.start_after_deletion(offset)
        if removal is not None:
            removal.add("DeleteRecords", log, log.log_start_offset, start, is_compacted=log.config.is_compacted)
        if log.increase_log_start_offset(start):
            self.notify_watchers()
        return start

    def start_after_deletion(self, offset: int) -> int:
        """Return the offset to which `delete_records` would raise the log start offset. Raises KafkaError."""
        log = self.leading_log()
        log.log_directory.check_online()
        if log.config.is_compacted and not log.config.is_deleting:
            reason = f"Records of partition {self.topic}-{self.index} can not be deleted due to the configured policy"
            raise KafkaError(ErrorCode.POLICY_VIOLATION, reason)
        # Not beyond the high watermark: what is not committed yet must not be skipped by the start of the log.
        start = self.high_watermark if offset == -1 else offset
        if not 0 <= start <= self.high_watermark:
            reason = f"The offset {offset} for partition {self.topic}-{self.index} is not valid"
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, reason)
        return start


class PartitionRegistry:
    """This broker's partitions by topic and number; used only on the event loop."""

    def __init__(self) -> None:
        # Nested: those of a topic are found without going through all others.
        self._topics: dict[str, dict[int, Partition]] = {}
        self.traffic = Traffic()

    def partition(self, topic: str, index: int) -> Partition | None:
        """Return a partition with a log on this broker; None if there is none."""
        partitions = self._topics.get(topic)
        return None if partitions is None else partitions.get(index)

    def partitions_of(self, topic: str) -> list[Partition]:
        """Return a topic's partitions on this broker."""
        return list(self._topics.get(topic, {}).values())

    def topics(self) -> list[str]:
        """Return the names of topics with partitions on this broker."""
        return list(self._topics)

    def partitions(self) -> Iterator[Partition]:
        """Yield all partitions; partitions may be added and removed meanwhile."""
        # Copies, because callers give way between two partitions, and topics are made and deleted meanwhile.
        for topic in list(self._topics):
            yield from self.partitions_of(topic)

    def partitions_in(self, log_directory: LogDirectory) -> list[Partition]:
        """Return the partitions whose logs are in a directory."""
        return [partition for partition in self.partitions() if partition.log.log_directory is log_directory]

    def add(self, partition: Partition) -> None:
        """Register a partition."""
        self._topics.setdefault(partition.topic, {})[partition.index] = partition

    def remove(self, topic: str, index: int) -> Partition | None:
        """Remove a partition and return it; None if it is not registered."""
        of_topic = self._topics.get(topic, {})
        partition = of_topic.pop(index, None)
        # An empty entry for each topic that ever was would stay for the life of the broker.
        if not of_topic and self._topics.pop(topic, None) is not None:
            self.traffic.forget(topic)
        return partition
