"""Fetch: read record batches, now or when there are enough of them.

Behaviour
* Partitions are read in the order of the request or session. The first that has data returns at least one whole batch
  even if that is larger than all limits; the others keep within what the limits leave (KIP-74). A partition named twice
  is read once, as it was asked for last.
* The answer goes out at once if nothing is waited for: MaxWaitMs <= 0, no partition to read, MinBytes reached, an error
  or a diverging epoch anywhere. Otherwise the request waits until the partitions together have MinBytes to give, each
  counted up to its own limit, one of them changes its leader or is gone, or the time is over; then all are read again.
* Records travel as regions of the log files, straight from the page cache into the socket, each of which keeps a file open.
  When too many are on their way answers are shorter (`server/fetch/fetched_files.py`). Only versions below 4, which
  know no record batches, have them read and converted down to magic 0 or 1 (`server/fetch/down_conversion.py`); what comes
  behind such a request on its connection waits, as with Kafka.
* The event loop waits for no disk: a thread reads what is not in memory, and the connection waits (`server/fetch/cold_reads.py`).
* With replica.selector.class a leader that has followers in sync in the consumer's rack names one of them instead of giving
  records (KIP-392). From v11 on consumers are served by followers, too, up to the high watermark these know.
* A partition with an error has high watermark -1 and no records; the others are served. A limit below zero and an
  isolation level that does not exist are UNKNOWN_SERVER_ERROR, as Kafka fails over them.
* A replica (ReplicaId >= 0) reads up to the log end, and is refused unless it follows the partition. Its fetch offset is
  the end of its log, unless the answer carries a diverging epoch. It gets nothing while the leader's replication throttle
  is exceeded, unless it is in sync. A broker that is alone has no followers.
* In a large session only the partitions that may have news are read; the others are idle (`replication/partition/fetch_targets.py`).

Version notes
* v0-2 have no limit for the whole answer, and one batch more than a partition's limit allows is not given. v4 isolation
  level. v7 sessions (KIP-227). v9 and v12 fence by leader epochs.
  v13 topic ids. Clients below v6 do not know KAFKA_STORAGE_ERROR and get NOT_LEADER_OR_FOLLOWER in its place.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Protocol

import trio

from ottla.replication.log.storage import FileRegion, NotCached, only_cached
from ottla.replication.partition.fetch_session import FetchContext, NamedPartitions
from ottla.replication.partition.fetch_targets import FetchTarget
from ottla.replication.partition.followers import UNKNOWN_BROKER_EPOCH
from ottla.replication.partition.partition import NO_LEADER_EPOCH
from ottla.replication.partition.replica_selector import in_same_rack
from ottla.server.fetch.answers import (
    CURRENT_LEADER_SINCE,
    Answer,
    PartitionRead,
    aborted,
    add_answers,
    failed,
    failed_read,
    leaders_of,
    not_understood,
    without_records,
)
from ottla.server.fetch.cold_reads import each_warmed
from ottla.server.fetch.fetched_files import KeepsFewFilesOpen
from ottla.server.fetch.old_fetches import ConvertsDown
from ottla.server.fetch.parked_partitions import ParkedPartition, role_of
from ottla.server.gate.context import RequestContext
from ottla.server.gate.dispatch import handles
from ottla.server.net.pending import PendingAnswer
from ottla.server.net.turns import PARTITIONS_PER_TURN, each_in_turns
from ottla.server.ports import (
    HasCluster,
    HasDeadlines,
    HasFetchSessions,
    HasMember,
    HasPartitions,
    HasReplicas,
    HasSettings,
    HasSurroundings,
    HasThrottles,
)
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from ottla.wire.schema import ZERO_UUID

if TYPE_CHECKING:
    from ottla.replication.partition.fetch_targets import IdleTarget
    from ottla.replication.partition.partition import Partition, ReadInfo
    from ottla.server.net.deadlines import Deadline

READ_UNCOMMITTED, READ_COMMITTED = 0, 1
AT_LEAST_ONE_BATCH_SINCE = 3
DOWN_CONVERTED_BELOW = 4
READ_FROM_FOLLOWERS_SINCE = 11
REPLICA_STATE_SINCE = 15

Answered = FetchResponse | PendingAnswer


class Port(
    HasCluster,
    HasDeadlines,
    HasFetchSessions,
    HasMember,
    HasPartitions,
    HasReplicas,
    HasSettings,
    HasSurroundings,
    HasThrottles,
    Protocol,
):
    """What is needed of the broker here."""


@handles(FetchRequest, abandonable=True, answers_at_length=True)
def fetch(request: FetchRequest, context: RequestContext[Port]) -> Answered | Coroutine[Any, Any, Answered]:
    count = sum([len(topic.partitions) for topic in request.topics])
    if request.forgotten_topics_data:
        count += sum([len(topic.partitions) for topic in request.forgotten_topics_data])
    return _fetch(request, context) if count <= PARTITIONS_PER_TURN else _fetch_in_turns(request, context)


async def _fetch_in_turns(request: FetchRequest, context: RequestContext[Port]) -> Answered:
    named = NamedPartitions(request, context.api_version, context.broker.cluster)
    await each_in_turns(named.steps(), lambda step: step)
    answer = _fetch(request, context, named)
    return await answer if isinstance(answer, Coroutine) else answer


def _fetch(
    request: FetchRequest, context: RequestContext[Port], named: NamedPartitions | None = None
) -> Answered | Coroutine[Any, Any, Answered]:
    broker = context.broker
    opened = broker.fetch_sessions.open(request, context.api_version, broker.cluster, context.now_ms, named)
    if opened.error:
        return FetchResponse(error_code=opened.error, responses=[])
    reading = Reading(broker, request, context, opened)
    if request.isolation_level not in (READ_UNCOMMITTED, READ_COMMITTED) and reading.has_readable_targets():
        return not_understood(request, context.api_version)
    if opened.has_idle:
        reading.confirm_idle()
    if context.api_version < DOWN_CONVERTED_BELOW:
        return reading.converted()
    if len(opened.targets) > PARTITIONS_PER_TURN:
        return reading.finish_in_turns()
    try:
        with only_cached:
            reading.read_all()
    except NotCached:
        return reading.finish_in_turns()
    return reading.answer()


class Reading(PendingAnswer, KeepsFewFilesOpen, ConvertsDown):
    """The reads of one fetch request, and the wait between the first and the last of them."""

    is_abandonable = True

    _broker: Port

    def __init__(self, broker: Port, request: FetchRequest, context: RequestContext[Port], opened: FetchContext) -> None:
        super().__init__()
        self._broker = broker
        self._request = request
        self._version = version = context.api_version
        self._listener_name = context.listener_name
        self._opened = opened
        if version < REPLICA_STATE_SINCE:
            self._replica_id, self._replica_epoch = request.replica_id, UNKNOWN_BROKER_EPOCH
        else:
            self._replica_id, self._replica_epoch = request.replica_state.replica_id, request.replica_state.replica_epoch
        self._is_follower = self._replica_id >= 0
        self._is_committed_only = request.isolation_level == READ_COMMITTED and not self._is_follower
        self._only_from_leader = self._is_follower or version < READ_FROM_FOLLOWERS_SINCE
        selector = broker.config.replication.replica_selector_class
        self._rack = request.rack_id if selector is not None and not self._only_from_leader else ""
        self._now_ms = context.now_ms
        self._cluster_version = broker.cluster.version
        self._notes_progress = self._is_follower  # what a follower asks for tells how far it has come, once
        self._gives_one_batch = version >= AT_LEAST_ONE_BATCH_SINCE
        self._bytes_max = min(request.max_bytes, broker.config.replication.fetch_max_bytes)
        self._bytes_min = min(request.min_bytes, self._bytes_max)
        self._parked: list[ParkedPartition] = []
        self._changed: set[int] = set()  # places in `_reads` of what has changed since it was read
        self._deadline: Deadline | None = None
        self._descriptors = broker.surroundings.descriptors
        self._woken = 0  # partitions that were idle when the request came
        self._refused: list[Answer] = []
        self._reads: list[PartitionRead] = []
        self._bytes_read = 0
        self._available = 0  # in all partitions together, while this waits
        self._passes_over_cold = False
        self._is_any_read = False  # whether a partition gave records, while this waits
        self.is_complete = False

    def has_readable_targets(self) -> bool:
        """Whether anything is asked for that this broker would try to read."""
        return self._opened.has_idle or any(self._refusal(target) is None for target in self._opened.targets)

    def read_all(self) -> None:
        """Read every partition within the request's limits; decides `is_complete`. NotCached: begin again, in turns."""
        self._start_over()
        for target in self._opened.targets:
            self._read_target(target)
        self.is_complete = self._is_satisfied()

    async def finish_in_turns(self) -> FetchResponse:
        """Answer for a great many partitions, giving way between pieces. The connection waits, and so encodes in a thread."""
        try:
            await self._read_in_turns()
            await self._wait_in_turns()
            return await self._response_in_turns()
        finally:
            self.abandon()

    async def _wait_in_turns(self) -> None:
        """Wait if that is due, then read again what has changed."""
        if not self._is_final:
            self._wait()
            await self._until_ready()
            await self._read_changed_in_turns()

    async def _read_in_turns(self) -> None:
        self._start_over()
        targets = self._opened.targets
        self._opened.on_wake(self._on_woken)
        start = 0
        while start < len(targets):  # there may come more
            piece = targets[start : start + PARTITIONS_PER_TURN]
            await each_warmed(piece, self._read_target)
            start += len(piece)
            await trio.lowlevel.checkpoint()
        self.is_complete = self._is_satisfied()

    def _start_over(self) -> None:
        self._refused, self._reads = [], []
        self._bytes_read = 0
        self._take_share_of_regions()

    def _read_target(self, target: FetchTarget) -> None:
        if (error := self._refusal(target)) is not None:
            refused = failed(target, error)
            refused.aborted_transactions = []
            self._refused.append((target, refused))
            return
        # Less than no bytes are allowed to the first partition only: Kafka's room for the others is never below 0.
        room = self._bytes_max if not self._reads else max(0, self._bytes_max - self._bytes_read)
        room = self._with_files(room, is_first=not self._bytes_read)
        read = self._read(target, room, at_least_one=self._gives_one_batch and not self._bytes_read)
        self._reads.append(read)
        self._bytes_read += read.size

    def _is_satisfied(self) -> bool:
        has_nothing_to_read = not self._reads and not self._opened.has_idle
        return self._bytes_read >= self._bytes_min or self._is_enough() or has_nothing_to_read

    def _is_enough(self) -> bool:
        """Whether what the partitions have to give ends a wait."""
        if self._is_short_of_files and any(read.size for read in self._reads):
            return True  # there is no more to come
        available = 0
        for read in self._reads:
            if read.is_settled:
                return True
            available += read.available
        return available >= self._bytes_min

    def _refusal(self, target: FetchTarget) -> ErrorCode | None:
        """Why this broker does not even try to read; such partitions do not end a wait."""
        if target.topic is None:
            return ErrorCode.UNKNOWN_TOPIC_ID
        if self._broker.cluster.partition(target.topic, target.asked.partition) is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return None

    def _read(self, target: FetchTarget, room: int, *, at_least_one: bool) -> PartitionRead:
        asked = target.asked
        try:
            partition = self._partition(target)
            preferred = self._preferred_replica(partition, asked.fetch_offset) if self._rack else None
            read = partition.read(
                asked.fetch_offset,
                min(asked.partition_max_bytes, room),  # nothing is given out if another replica is preferred
                read_committed=self._is_committed_only,
                at_least_one_batch=at_least_one,
                is_follower=self._is_follower,
                only_from_leader=self._only_from_leader,
                current_leader_epoch=max(asked.current_leader_epoch, NO_LEADER_EPOCH),
                last_fetched_epoch=asked.last_fetched_epoch,
            )
            if type(read.records) is FileRegion:
                read = self._kept(partition, read, as_region=self._version < DOWN_CONVERTED_BELOW)
        except KafkaError as error:
            return PartitionRead(target, failed_read(self._broker, self._version, target, error.code))
        except NotCached:
            if not self._passes_over_cold:
                raise
            return PartitionRead(target, without_records(target, partition), is_settled=False, partition=partition)
        if preferred is not None:
            return PartitionRead(target, without_records(target, partition, preferred), partition=partition)
        if self._is_follower:
            read = self._as_follower(partition, asked, read)
        data = PartitionData(
            partition_index=asked.partition,
            error_code=0,
            high_watermark=read.high_watermark,
            last_stable_offset=read.last_stable_offset,
            log_start_offset=read.log_start_offset,
            aborted_transactions=aborted(read.aborted_transactions),
            records=read.records,
        )
        if read.diverging_epoch is not None:
            epoch, end_offset = read.diverging_epoch
            data.diverging_epoch = EpochEndOffset(epoch=epoch, end_offset=end_offset)
        available = min(read.bytes_available, asked.partition_max_bytes)
        is_settled = read.diverging_epoch is not None or read.is_behind
        layout = partition.log.layout
        return PartitionRead(target, data, len(read.records), available, is_settled, partition, layout)

    def _preferred_replica(self, partition: Partition, offset: int) -> int | None:
        def rack_of(broker: int) -> str | None:
            endpoint = self._broker.cluster.endpoint(broker, self._listener_name)
            return None if endpoint is None else endpoint.rack

        return in_same_rack(self._rack, self._broker.node_id, partition.holders(offset), rack_of)

    def _as_follower(self, partition: Partition, asked: FetchPartition, read: ReadInfo) -> ReadInfo:
        """Note what a follower holds; what it gets now, which is nothing while it is throttled."""
        broker, follower = self._broker, self._replica_id
        member = broker.member
        assert member is not None
        if self._notes_progress and read.diverging_epoch is None:
            partition.on_follower_fetch(
                follower,
                asked.fetch_offset,
                asked.log_start_offset,
                broker_epoch=self._replica_epoch,
                now_ms=self._now_ms,
            )
            member.isr_changes.on_follower_fetch(partition, follower)
            if partition.high_watermark > read.high_watermark:
                read = read._replace(high_watermark=partition.high_watermark)
        throttle = broker.throttles.leader
        if (
            throttle.is_throttled(partition.topic, partition.index)
            and follower not in partition.isr
            and throttle.is_exceeded(broker.now_ms())
        ):
            return read._replace(records=b"", bytes_available=0, is_behind=False)
        return read

    def _partition(self, target: FetchTarget) -> Partition:
        assert target.topic is not None
        partition = self._broker.partition(target.topic, target.asked.partition)
        if target.topic_id != ZERO_UUID and partition.topic_id not in (None, target.topic_id):
            raise KafkaError(ErrorCode.INCONSISTENT_TOPIC_ID)
        if self._is_follower:
            current_leader_epoch = max(target.asked.current_leader_epoch, NO_LEADER_EPOCH)
            if self._broker.member is None:
                partition.refuse_follower(current_leader_epoch)
            partition.check_follower(self._replica_id, current_leader_epoch)
        return partition

    # ------------------------------------------------------------------ waiting

    def answer(self) -> Answered:
        """The response if nothing is waited for, else this, which will have it."""
        if self._is_final:
            return self._response()
        self._wait()
        return self

    @property
    def _is_final(self) -> bool:
        """Whether nothing is waited for."""
        return self.is_complete or self._request.max_wait_ms <= 0

    def _wait(self) -> None:
        self._notes_progress = False
        self._available = sum([read.available for read in self._reads])
        self._is_any_read = any(read.size for read in self._reads)
        self._deadline = self._broker.deadlines.add(self._request.max_wait_ms / 1000, self.become_ready)
        for index, read in enumerate(self._reads):
            self._let_go(index)
            if (partition := read.partition) is not None:
                self._parked.append(ParkedPartition(self, index, partition, self.end_of(partition), role_of(partition)))
        self._opened.on_wake(self._on_woken)

    def end_of(self, partition: Partition) -> int:
        """Up to where this request may read a partition."""
        if self._is_follower:
            return partition.log_end_offset
        return partition.last_stable_offset if self._is_committed_only else partition.high_watermark

    def on_change(self, index: int, end: int | None) -> None:
        """A partition has changed: its role, or its end to `end`; None: something else that does not end a wait."""
        self._changed.add(index)
        if end is None or self.is_ready:
            return
        target = self._reads[index].target
        if self._bytes_min <= 1 and end > target.asked.fetch_offset and not self._is_throttled(target):
            self.become_ready()
            return
        self._take_share_of_regions()
        try:
            with only_cached:
                self._read_again(index)
        except NotCached:
            self.become_ready()
            return
        if self.is_complete:
            self.become_ready()
        else:
            self._let_go(index)

    def _let_go(self, index: int) -> None:
        """Keep no file open while this waits: what was found there is read again at the end."""
        read = self._reads[index]
        if read.size:
            read.data.records = b""
            self._changed.add(index)

    def _is_throttled(self, target: FetchTarget) -> bool:
        return self._is_follower and self._broker.throttles.leader.is_throttled(
            target.topic or "", target.asked.partition
        )

    def _read_again(self, index: int) -> None:
        """Read a partition that has changed, as if it were the only one; may set `is_complete`, without a look at the others."""
        before = self._reads[index]
        room = self._with_files(self._bytes_max, is_first=True)
        read = self._reads[index] = self._read(before.target, room, at_least_one=self._gives_one_batch)
        self._changed.discard(index)
        self._available += read.available - before.available
        self._is_any_read = self._is_any_read or read.size > 0
        if read.is_settled or self._available >= self._bytes_min or (self._is_short_of_files and self._is_any_read):
            self.is_complete = True

    def response(self) -> FetchResponse:
        """The answer after the wait. Records that are not in memory are left out; the client gets them with its next fetch."""
        self.abandon()
        self._passes_over_cold = True
        with only_cached:
            self._read_changed()
        return self._response()

    def _read_changed(self) -> None:
        """After the wait read the partitions that have changed. The others keep their room in the answer."""
        self._take_share_of_regions()
        for index in sorted(self._changed):
            self._read_again(index)
        if self._have_to_share():
            self.read_all()

    async def _read_changed_in_turns(self) -> None:
        self._take_share_of_regions()
        await each_warmed(sorted(self._changed), self._read_again)
        if self._have_to_share():
            await self._read_in_turns()

    async def _until_ready(self) -> None:
        ready = trio.Event()
        self.on_ready = ready.set
        try:
            if not self.is_ready:
                await ready.wait()
        finally:
            self.on_ready = None
            self.abandon()

    def _have_to_share(self) -> bool:
        """Whether more than one partition has something to give, so that all are to be read again, in their order."""
        if self._woken:
            self._reads.sort(key=lambda read: read.target.place)
            self._opened.sort_targets()
        has_to_share = sum([read.size > 0 for read in self._reads]) > 1
        if has_to_share and self._opened.may_look_at_idle:
            self._cluster_version = self._broker.cluster.version  # what is idle may be gone by now
            self.confirm_idle()
        return has_to_share

    def abandon(self) -> None:
        for parked in self._parked:
            parked.leave()
        self._parked.clear()
        self._opened.on_wake(None)
        if self._deadline is not None:
            self._broker.deadlines.cancel(self._deadline)
            self._deadline = None

    # ------------------------------------------------------------------ idle partitions

    def _circumstances(self) -> object:
        """Everything beside a partition on which its answer depends. None: no partition may be idle."""
        if self._rack or self._bytes_max < 0:
            return None
        asks = (self._version, self._replica_id, self._replica_epoch, self._request.isolation_level)
        return *asks, self._cluster_version

    def confirm_idle(self) -> None:
        """Leave the idle partitions idle, if this request asks in the same way as the last one of its session."""
        member = self._broker.member
        is_certain = member is None or not member.is_fenced
        self._opened.confirm(self._circumstances() if is_certain else None, self._now_ms)

    def _on_woken(self, idle: IdleTarget) -> None:
        """An idle partition has changed."""
        target, partition = idle.target, idle.partition
        self._opened.add_woken(target)
        if self._deadline is None:
            return  # what was added is still to be read
        self._woken += 1
        never_told = failed(target, ErrorCode.NONE)  # it is read again, for it has changed
        self._reads.append(PartitionRead(target, never_told, is_settled=False, partition=partition))
        parked = ParkedPartition(self, len(self._reads) - 1, partition, target.asked.fetch_offset, idle.role)
        self._parked.append(parked)
        parked.look()

    def _let_idle(self) -> None:
        """Let the partitions without news be idle from now on."""
        circumstances = self._circumstances()
        if circumstances is None:
            return
        for target, _, size, _, is_settled, partition, _ in self._reads:
            if partition is None or size or is_settled or target.told_high_watermark != partition.high_watermark:
                continue
            follower = None
            if self._is_follower:
                followers = partition.followers
                follower = None if followers is None else followers.in_sync(self._replica_id)
                if follower is None or follower.log_end_offset != target.asked.fetch_offset:
                    continue
            if self._has_all(target, partition):
                self._opened.let_idle(
                    target, partition, role=role_of(partition), follower=follower, circumstances=circumstances
                )

    def _has_all(self, target: FetchTarget, partition: Partition) -> bool:
        """Whether the reader knows all that it may, also if the partition has changed since it was read."""
        asked = target.asked
        return (
            asked.fetch_offset == self.end_of(partition)
            and target.told_log_start_offset == partition.log_start_offset
            and not partition.is_deleted
            and asked.current_leader_epoch in (NO_LEADER_EPOCH, partition.leader_epoch)
            and partition.log.log_directory.failure is None
            and (partition.is_leader or not self._only_from_leader)
        )

    # ------------------------------------------------------------------ answering

    def _response(self) -> FetchResponse:
        """The answer to what was read last."""
        answers = self._answers()
        selected = self._opened.select(answers) if self._opened.begin(answers) else []
        return self._response_of(add_answers([], selected))

    async def _response_in_turns(self) -> FetchResponse:
        opened, answers = self._opened, self._answers()
        topics: list[Any] = []
        for start in range(0, len(answers) if opened.begin(answers) else 0, PARTITIONS_PER_TURN):
            if opened.goes_on():
                add_answers(topics, opened.select(answers[start : start + PARTITIONS_PER_TURN]))
            await trio.lowlevel.checkpoint()
        return self._response_of(topics if opened.goes_on() else [])

    def _answers(self) -> list[Answer]:
        if not self._is_follower:
            # Kafka sorts out ids that it does not know before it looks for partitions.
            self._refused.sort(key=lambda answer: answer[0].topic is not None)
        return [(read.target, read.data) for read in self._reads] + self._refused

    def _response_of(self, topics: list[FetchableTopicResponse]) -> FetchResponse:
        opened = self._opened
        if opened.may_let_idle:
            self._let_idle()
        if self._is_follower:
            self._count_throttled()
        response = FetchResponse(error_code=opened.error, session_id=opened.session_id, responses=topics)
        if self._version >= CURRENT_LEADER_SINCE and not self._is_follower:
            response.node_endpoints = leaders_of(self._broker, self._listener_name, [read.data for read in self._reads])
        return response

    def _count_throttled(self) -> None:
        size = sum([read.size for read in self._reads if read.size and self._is_throttled(read.target)])
        if size:
            self._broker.throttles.leader.record(size, self._broker.now_ms())
