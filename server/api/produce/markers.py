"""The markers that end transactions, written into the partitions that this broker leads.

Behaviour
* Every partition gets a control batch of its own, and answers for itself: with an error, or when all in-sync replicas have
  the marker. After request.timeout.ms the answer is REQUEST_TIMED_OUT, although the marker may still be written.
* A coordinator that was replaced is TRANSACTION_COORDINATOR_FENCED, and the marker of an earlier transaction
  INVALID_PRODUCER_EPOCH; `replication/log/producers.py` has the rules, which depend on the transaction version. One that
  names no producer or no epoch is UNKNOWN_SERVER_ERROR.
* In a partition of `__consumer_offsets` offsets may have been committed in the transaction. There the group coordinator
  writes the marker, in order with its own records. Its errors that a transaction coordinator does not know become
  NOT_LEADER_OR_FOLLOWER, after which that tries again.
* Results stand together by producer. If a request ends two transactions of one producer in the same partition, the later
  result counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from ottla.groupcoord.runtime.coordinator_shard import TransactionEnd
from ottla.replication.cluster.metadata_cache import GROUP_METADATA_TOPIC
from ottla.replication.log.batch_checks import AppendOrigin
from ottla.server.ports import BrokerParts
from ottla.wire.answers import Given, PendingAnswer, Worked
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.messages.transactions import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from ottla.wire.records import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from ottla.wire.time_slice import TimeSlice

if TYPE_CHECKING:
    from ottla.replication.partition.delayed_produce import DelayedProduce
    from ottla.server.network.deadlines import Deadline

ALL_REPLICAS = -1
MARKERS_AT_ONCE = 200
"""Each of them is an append. With more than these, others are served in between."""

_OF_COORDINATORS = frozenset(
    {ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR}
)


class Place(NamedTuple):
    """Producer id and partition under which a result is listed in the response."""

    producer_id: int
    topic: str
    partition: int


def write_markers(
    broker: BrokerParts, request: WriteTxnMarkersRequest, refusal: ErrorCode = ErrorCode.NONE
) -> Worked[Given[WriteTxnMarkersResponse]]:
    """Write transaction markers to local partitions; return the response, or a pending answer or coroutine for it.

    If `refusal` is not NONE, nothing is written, and every partition gets this error.
    """
    markers = _Markers(broker, refusal)
    if sum([len(topic.partition_indexes) for marker in request.markers for topic in marker.topics]) > MARKERS_AT_ONCE:
        return markers.write_in_slices(request)
    for marker in request.markers:
        for place, end in _ends(marker):
            markers.write(place, end)
    return markers.answer()


def _ends(marker: WritableTxnMarker) -> Iterator[tuple[Place, TransactionEnd]]:
    """Yield the marker's transaction end for each of its partitions; repeated partitions are yielded once."""
    end = TransactionEnd(
        producer_id=marker.producer_id,
        producer_epoch=marker.producer_epoch,
        coordinator_epoch=marker.coordinator_epoch,
        committed=marker.transaction_result,
        transaction_version=marker.transaction_version,
    )
    seen: set[tuple[str, int]] = set()
    for topic in marker.topics:
        for index in topic.partition_indexes:
            if (topic.name, index) not in seen:
                seen.add((topic.name, index))
                yield Place(marker.producer_id, topic.name, index), end


class _Markers(PendingAnswer[WriteTxnMarkersResponse]):
    """Transaction markers of one request, which wait until all of them are committed."""

    __slots__ = ("_broker", "_deadline", "_is_writing", "_of_groups", "_refusal", "_results", "_undecided", "_waits")

    def __init__(self, broker: BrokerParts, refusal: ErrorCode) -> None:
        super().__init__()
        self._broker, self._refusal = broker, refusal
        self._results: dict[int, dict[str, dict[int, ErrorCode]]] = {}
        self._undecided = 0
        self._is_writing = True
        self._waits: list[DelayedProduce] = []
        self._of_groups: list[PendingAnswer[ErrorCode]] = []
        self._deadline: Deadline | None = None

    # ------------------------------------------------------------------ writing

    async def write_in_slices(self, request: WriteTxnMarkersRequest) -> Given[WriteTxnMarkersResponse]:
        """Write many markers in time slices; return the response or a pending answer, as `answer` does."""
        time_slice = TimeSlice()
        try:
            for marker in request.markers:
                for place, end in _ends(marker):
                    self.write(place, end)
                    await time_slice.yield_if_over()
        except BaseException:  # cancelled
            self.abandon()
            raise
        return self.answer()

    def write(self, place: Place, end: TransactionEnd) -> None:
        """Write one marker and record its result. If the result is still pending, reserve its place in the response."""
        if self._refusal:
            self._note(place, self._refusal)
            return
        try:
            # As in Kafka a replica on a failed disk is as good as none here.
            held = self._broker.replicas.partition(place.topic, place.partition)
            if held is None or not held.log.log_directory.is_online:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            # Kafka fails over the request. The marker would end nothing, and the log would have a control batch of nobody.
            if end.producer_id == NO_PRODUCER_ID or end.producer_epoch == NO_PRODUCER_EPOCH:
                raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "A marker does not say whose transaction it ends")
            if place.topic == GROUP_METADATA_TOPIC:
                self._write_for_groups(place, end)
            else:
                self._append(place, end)
        except KafkaError as error:
            self._note(place, error.code)

    def _append(self, place: Place, end: TransactionEnd) -> None:
        broker = self._broker
        now_ms = broker.now_ms()
        partition = broker.partition(place.topic, place.partition)
        # A buffer of its own, because the log writes offset and leader epoch into the header in place.
        info = partition.append_as_leader(
            memoryview(bytearray(end.marker(now_ms))),
            required_acks=ALL_REPLICAS,
            now_ms=now_ms,
            origin=AppendOrigin.COORDINATOR,
            transaction_version=end.transaction_version,
        )
        next_offset = info.last_offset + 1
        code = partition.acknowledgement(next_offset, ALL_REPLICAS)
        if code is not None:
            self._note(place, code)
            return
        self._expect(place)
        decide = partial(self._decide, place)
        self._waits.append(broker.replicas.produce_purgatory.add(partition, next_offset, ALL_REPLICAS, decide))

    def _write_for_groups(self, place: Place, end: TransactionEnd) -> None:
        answer = self._broker.groups.end_transaction(place.partition, end)
        if not isinstance(answer, PendingAnswer):
            self._note(place, answer)
            return
        self._expect(place)
        self._of_groups.append(answer)
        answer.on_ready = partial(self._take_from_groups, place, answer)

    def _take_from_groups(self, place: Place, answer: PendingAnswer[ErrorCode]) -> None:
        # The answer and this object know each other.
        answer.on_ready = None
        self._of_groups.remove(answer)
        code = answer.response()
        assert code is not None
        self._decide(place, code)

    # ------------------------------------------------------------------ results

    def _note(self, place: Place, code: ErrorCode) -> None:
        if code in _OF_COORDINATORS:
            code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        self._results.setdefault(place.producer_id, {}).setdefault(place.topic, {})[place.partition] = code

    def _expect(self, place: Place) -> None:
        """Reserve the place of a pending result in the response. It is REQUEST_TIMED_OUT until the result is known."""
        self._note(place, ErrorCode.REQUEST_TIMED_OUT)
        self._undecided += 1

    def _decide(self, place: Place, code: ErrorCode) -> None:
        self._note(place, code)
        self._undecided -= 1
        # What is decided while others are still being written does not end the request.
        if not self._undecided and not self._is_writing:
            self._stop_waiting()
            self.become_ready()

    def _time_out(self) -> None:
        self._undecided -= sum([wait.settle is not None for wait in self._waits])
        # The group coordinator has a limit of its own for its commits, and answers after it.
        self._stop_waiting()
        if not self._undecided:
            self.become_ready()

    def answer(self) -> Given[WriteTxnMarkersResponse]:
        """Return the response if all results are known; otherwise return this pending answer."""
        self._is_writing = False
        if not self._undecided:
            self._stop_waiting()
            return self.response()
        timeout_ms = self._broker.config.server.request_timeout_ms
        self._deadline = self._broker.deadlines.add(timeout_ms / 1000, self._time_out)
        return self

    def response(self) -> WriteTxnMarkersResponse:
        return WriteTxnMarkersResponse(
            markers=[
                WritableTxnMarkerResult(
                    producer_id=producer_id,
                    topics=[
                        WritableTxnMarkerTopicResult(name=name, partitions=_partition_results(codes))
                        for name, codes in topics.items()
                    ],
                )
                for producer_id, topics in self._results.items()
            ]
        )

    # ------------------------------------------------------------------ the end of the wait

    def _stop_waiting(self) -> None:
        if self._deadline is not None:
            self._broker.deadlines.cancel(self._deadline)
            self._deadline = None
        waits, self._waits = self._waits, []
        for wait in waits:
            wait.give_up()

    def abandon(self) -> None:
        self._stop_waiting()
        of_groups, self._of_groups = self._of_groups, []
        for answer in of_groups:
            answer.on_ready = None
            answer.abandon()


def _partition_results(codes: dict[int, ErrorCode]) -> list[WritableTxnMarkerPartitionResult]:
    return [WritableTxnMarkerPartitionResult(partition_index=index, error_code=code) for index, code in codes.items()]
