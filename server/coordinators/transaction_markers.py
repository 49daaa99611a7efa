"""Tells the leaders of partitions how transactions have ended: the port `Markers` of the transaction coordinator.

A *job* is one transaction whose markers are to be written. Its partitions are in the queues of their leaders. Each leader
has one request in flight; the next request takes all partitions that are queued when it is sent. This broker writes its own
markers without a request. When all partitions of a job are done the coordinator hears of it (`complete`).

What becomes of a partition, by the answer of its leader:

    NONE, a log too old for markers       done
    the topic or partition is gone        done: nobody can read it
    an epoch is outdated                  the job is given up, because another coordinator or transaction has come after it:
                                          it is never complete, and this leader is asked no more; other leaders are, as in Kafka
    anything else, or no answer           tried again after a pause, with whoever leads the partition then

A job ends early when this broker loses the partition of the transaction topic that it belongs to, or is elected its leader
again: loading that partition creates the jobs of its unfinished transactions again. Nothing else ends it early. A broker
that is cut off for a moment keeps its leaderships, so a marker that was dropped would never be sent again. That markers are
sent although another coordinator may exist by now does no harm: the decision is committed, and both tell the same.

Memory: there is one job for each transactional id that is prepared, and each of its partitions stands in one place.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING

import trio

from ottla.groupcoord.runtime.answers import finished
from ottla.groupcoord.transactions.metadata import EPOCH_PER_TRANSACTION, Partitions, TopicPartition
from ottla.groupcoord.transactions.shard import MarkersOwed
from ottla.replication.cluster.metadata_cache import NO_LEADER, TRANSACTION_STATE_TOPIC
from ottla.replication.cluster.peers import PeerUnavailable
from ottla.server.ports import BrokerParts
from ottla.wire.answers import Given, PendingAnswer, Worked
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.transactions import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from ottla.wire.time_slice import TimeSlice

if TYPE_CHECKING:
    from ottla.replication.cluster.peers import Peer

logger = logging.getLogger("ottla.transactions")

RETRY_S, RETRY_MAX_S = 0.1, 1.0
"""Pause before partitions are looked at again. For each thousand of them it is as long once more, up to the second."""
PARTITIONS_PER_REQUEST = 1_000
PARTITIONS_AT_ONCE = 500
"""Number of partitions that are put into queues in one step. A transaction may have a hundred thousand."""
VERSION_OF_ANY, VERSION_OF_ALL_NEW = 1, 2
"""Request versions for other brokers. Kafka 3.9 knows the first, which has no transaction version: epochs are checked in the
older way then. The second is for clusters that have finalized transaction.version 2, so that a late marker ends no later
transaction."""

DONE = frozenset({ErrorCode.NONE, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, ErrorCode.UNSUPPORTED_VERSION})
OUTDATED = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED})
EXPECTED = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)
"""Errors from leaders that are temporary."""

WriteHere = Callable[[WriteTxnMarkersRequest], Worked[Given[WriteTxnMarkersResponse]]]
"""Writes markers into partitions of this broker."""


class Job:
    """Transaction whose markers are being written. Its attribute `left` has the partitions that still lack a marker."""

    __slots__ = ("coordinator_epoch", "is_given_up", "is_over", "is_refusal_noted", "left", "owed", "partition")

    def __init__(self, partition: int, coordinator_epoch: int, owed: MarkersOwed) -> None:
        self.partition, self.coordinator_epoch, self.owed = partition, coordinator_epoch, owed
        self.left: set[TopicPartition] = set(owed.partitions)
        self.is_over = False
        self.is_given_up = False
        self.is_refusal_noted = False

    def marker(self, partitions: Iterable[TopicPartition]) -> WritableTxnMarker:
        topics = Partitions.of(partitions).in_order()
        owed = self.owed
        return WritableTxnMarker(
            producer_id=owed.producer_id,
            producer_epoch=owed.producer_epoch,
            transaction_result=owed.is_commit,
            topics=[WritableTxnMarkerTopic(name=name, partition_indexes=indexes) for name, indexes in topics.items()],
            coordinator_epoch=self.coordinator_epoch,
            transaction_version=owed.transaction_version,
        )


Part = tuple[Job, set[TopicPartition]]
"""Partitions of a job that are in the same place."""


class TransactionMarkers:
    """Sender of transaction markers to partition leaders (Kafka's TransactionMarkerChannelManager)."""

    def __init__(self, broker: BrokerParts, write_here: WriteHere) -> None:
        self._broker, self._write_here = broker, write_here
        self._jobs: dict[int, dict[str, Job]] = {}
        self._queues: dict[int, _Queue] = {}
        self._to_place: list[tuple[Job, Iterable[TopicPartition]]] = []
        self._resting: list[Part] = []
        self._wake = trio.Event()
        self._nursery: trio.Nursery | None = None
        self._knows_topics = False

    def send(self, partition: int, owed: Sequence[MarkersOwed]) -> None:
        """Queue markers that transactions in `partition` of the transaction topic still have to write.

        This broker leads the partition.
        """
        # Not by `broker.partition`, which refuses what a broker leads that is cut off.
        held = self._broker.replicas.partition(TRANSACTION_STATE_TOPIC, partition)
        if held is None:
            return  # lost by now: its next leader finds them in the log
        jobs = self._jobs.setdefault(partition, {})
        for each in owed:
            former = jobs.get(each.transactional_id)
            # The partition was loaded again, which hands out everything once more.
            if former is not None:
                former.is_over = True
            job = jobs[each.transactional_id] = Job(partition, held.leader_epoch, each)
            # This is called in the middle of an append, so nothing may come back to the shard before it returns.
            is_small = len(each.partitions) <= PARTITIONS_AT_ONCE
            if not self._knows_topics or not is_small or not self._place(job, set(each.partitions)):
                self._to_place.append((job, each.partitions))
                self._wake.set()

    def forget(self, partition: int) -> None:
        """Cancel the jobs of a transaction partition that was unloaded; its next load queues them again."""
        for job in self._jobs.pop(partition, {}).values():
            job.is_over = True

    def __len__(self) -> int:
        """Number of transactions that wait for markers."""
        return sum(map(len, self._jobs.values()))

    # ------------------------------------------------------------------ tasks

    def start_in(self, nursery: trio.Nursery) -> None:
        """Start the tasks that write markers, in `nursery`."""
        self._nursery = nursery
        nursery.start_soon(self._find_places)

    async def _find_places(self) -> None:
        # Until this broker has heard which topics there are, every other partition seems to be gone.
        await self._broker.member.await_metadata()
        self._knows_topics = True
        while True:
            await self._place_all()
            await self._wake.wait()
            self._wake = trio.Event()

    async def _place_all(self) -> None:
        waiting, self._to_place = self._to_place, []
        time_slice = TimeSlice()
        for job, partitions in waiting:
            for piece in _pieces(partitions):
                if job.is_over:
                    break
                if not self._place(job, piece):
                    self._complete(job)
                await time_slice.yield_if_over()

    def _place(self, job: Job, partitions: set[TopicPartition]) -> bool:
        """Queue a job's partitions for their leaders; return False if no partition lacks a marker any more."""
        leaders: dict[int | None, set[TopicPartition]] = {}
        gone = []
        # In order, so that a run of a simulation is the same whatever order Python gives to sets of texts.
        for partition in sorted(partitions):
            state = self._broker.cluster.partition(*partition)
            if state is None:
                gone.append(partition)
            else:
                leaders.setdefault(self._reachable(state.leader), set()).add(partition)
        if gone:
            job.left.difference_update(gone)
            text = "No marker of %s for %d partitions that are gone, such as %s-%d"
            logger.info(text, job.owed.transactional_id, len(gone), *gone[0])
        for leader, led in leaders.items():
            if leader is None:
                self._try_later(job, led)
            else:
                self._queue_of(leader).add(job, led)
        return bool(job.left)

    def _reachable(self, leader: int) -> int | None:
        if leader == NO_LEADER or (leader != self._broker.node_id and leader not in self._broker.cluster.brokers):
            return None
        return leader

    def _queue_of(self, leader: int) -> _Queue:
        queue = self._queues.get(leader)
        if queue is None:
            assert self._nursery is not None
            queue = self._queues[leader] = _Queue(leader)
            self._nursery.start_soon(self._work_off, queue)
        return queue

    def _try_later(self, job: Job, partitions: set[TopicPartition]) -> None:
        # One task for all of them, however many wait for a broker that is gone.
        if not self._resting:
            assert self._nursery is not None
            self._nursery.start_soon(self._rest)
        self._resting.append((job, partitions))

    async def _rest(self) -> None:
        await trio.sleep(RETRY_S)
        # To look at very many takes time, and most will find what they have found before.
        count = sum([len(partitions) for _, partitions in self._resting])
        await trio.sleep(min(count // PARTITIONS_PER_REQUEST * RETRY_S, RETRY_MAX_S))
        rested, self._resting = self._resting, []
        self._to_place += rested
        self._wake.set()

    async def _work_off(self, queue: _Queue) -> None:
        time_slice = TimeSlice()
        try:
            while parts := await queue.next_parts():
                request = WriteTxnMarkersRequest(markers=[job.marker(partitions) for job, partitions in parts])
                try:
                    response = await self._ask(queue, request)
                    results = _results(response)
                except PeerUnavailable:
                    results = {}
                except Exception:  # one bad request must not end the markers of everybody
                    logger.exception("bug: markers for broker %d", queue.leader)
                    results = {}
                self._take_up(parts, results)
                await time_slice.yield_if_over()
        finally:
            await queue.aclose()

    async def _ask(self, queue: _Queue, request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
        broker = self._broker
        if queue.leader == broker.node_id:
            return await finished(self._write_here(request))
        if queue.peer is None:
            purpose = f"broker-{broker.node_id}-txn-marker-sender"
            queue.peer = broker.member.peer(queue.leader, purpose=purpose)
        timeout_s = broker.config.server.request_timeout_ms / 1000
        try:
            response: WriteTxnMarkersResponse = await queue.peer.ask(request, self._version, timeout_s=timeout_s)
        except PeerUnavailable:
            # It may come back at another address.
            await queue.aclose()
            raise
        return response

    @property
    def _version(self) -> int:
        return VERSION_OF_ALL_NEW if self._broker.transaction_version >= EPOCH_PER_TRANSACTION else VERSION_OF_ANY

    # ------------------------------------------------------------------ results

    def _take_up(self, parts: Iterable[Part], results: dict[tuple[int, str, int], ErrorCode]) -> None:
        """Process a response's results by (producer id, topic, partition); partitions without a result are retried."""
        for job, partitions in parts:
            if job.is_over:
                continue
            again, is_outdated = set(), False
            for partition in partitions:
                code = results.get((job.owed.producer_id, *partition), ErrorCode.REQUEST_TIMED_OUT)
                if code in OUTDATED:
                    is_outdated = True
                    self._give_up(job, partition, code)
                elif code in DONE:
                    job.left.discard(partition)
                else:
                    again.add(partition)
                    self._note_refusal(job, partition, code)
            if is_outdated:
                # Kafka tries nothing of this answer again. Open transactions at other leaders have to end all the same.
                job.left -= partitions
            elif again:
                self._try_later(job, again)
            if not job.left:
                self._complete(job)

    def _note_refusal(self, job: Job, partition: TopicPartition, code: ErrorCode) -> None:
        # Once for each transaction, which may be tried again for hours.
        if code not in EXPECTED and not job.is_refusal_noted:
            job.is_refusal_noted = True
            transactional_id = job.owed.transactional_id
            logger.error("The marker of %s for %s-%d was refused: %s", transactional_id, *partition, code.name)

    def _give_up(self, job: Job, partition: TopicPartition, code: ErrorCode) -> None:
        if not job.is_given_up:
            job.is_given_up = True
            text = "The transaction of %s will not be complete: %s-%d has heard of a later one (%s)"
            logger.info(text, job.owed.transactional_id, *partition, code.name)

    def _end(self, job: Job) -> None:
        job.is_over = True
        jobs = self._jobs.get(job.partition, {})
        if jobs.get(job.owed.transactional_id) is job:
            del jobs[job.owed.transactional_id]

    def _complete(self, job: Job) -> None:
        """Let the coordinator write the transaction as complete, unless the job was given up."""
        if job.is_given_up:
            self._end(job)
            return
        answer = self._broker.transactions.complete(job.owed)
        if isinstance(answer, PendingAnswer):
            assert self._nursery is not None
            self._nursery.start_soon(self._complete_when_committed, job, answer)
        else:
            self._completed(job, answer)

    async def _complete_when_committed(self, job: Job, answer: PendingAnswer[ErrorCode]) -> None:
        self._completed(job, await finished(answer))

    def _completed(self, job: Job, code: ErrorCode) -> None:
        if job.is_over:
            return
        # INVALID_TXN_STATE: somebody else has said so, or is about to. After a load that undoes it there is another job.
        if code in (ErrorCode.NONE, ErrorCode.INVALID_TXN_STATE):
            self._end(job)
        else:
            # The log takes nothing at the moment, this broker is cut off, or the partition is loaded again.
            self._try_later(job, set())


def _pieces(partitions: Iterable[TopicPartition]) -> Iterator[set[TopicPartition]]:
    """Split partitions into pieces for one request each; without partitions there is one empty piece."""
    rest = iter(partitions)
    yield set(islice(rest, PARTITIONS_AT_ONCE))
    while piece := set(islice(rest, PARTITIONS_AT_ONCE)):
        yield piece


class _Queue:
    """Queue of markers for one broker: jobs, each with its partitions that this broker leads."""

    def __init__(self, leader: int) -> None:
        self.leader = leader
        self.peer: Peer | None = None
        self._parts: deque[Part] = deque()
        self._wake = trio.Event()

    def add(self, job: Job, partitions: set[TopicPartition]) -> None:
        self._parts.append((job, partitions))
        self._wake.set()

    async def next_parts(self) -> list[Part]:
        """Wait for markers; return as many as fit into one request."""
        while True:
            parts: list[Part] = []
            room = PARTITIONS_PER_REQUEST
            while self._parts and room > 0:
                job, partitions = self._parts.popleft()
                # It may have been given up while it stood here.
                if job.is_over:
                    continue
                parts.append((job, partitions))
                room -= len(partitions)
            if parts:
                return parts
            self._wake = trio.Event()
            await self._wake.wait()

    async def aclose(self) -> None:
        peer, self.peer = self.peer, None
        if peer is not None:
            await peer.aclose()


def _results(response: WriteTxnMarkersResponse) -> dict[tuple[int, str, int], ErrorCode]:
    return {
        (marker.producer_id, topic.name, partition.partition_index): ErrorCode.of(partition.error_code)
        for marker in response.markers
        for topic in marker.topics
        for partition in topic.partitions
    }
