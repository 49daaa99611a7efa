"""The transaction coordinator: Kafka's requests about transactions, each sent to the shard of its transactional id.

Methods take the wire request and return the wire response, a `PendingAnswer` if a commit must be awaited, or a coroutine for
a very long request. Checks that need no transactional id come here, before the question
whether this broker is the coordinator at all, as in Kafka's TransactionCoordinator.

Markers: whenever records are in force the markers that the shard owes go to the `Markers` port, which calls `complete` when
all are written.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple, Protocol

from ottla.groupcoord.config import TransactionConfig
from ottla.groupcoord.runtime.answers import Caller, finished, gathered, then
from ottla.groupcoord.runtime.coordinator_runtime import Coordinator, Runtime, wall_clock_ms
from ottla.groupcoord.runtime.coordinator_shard import CoordinatorLog, ShardKind
from ottla.groupcoord.transactions.metadata import NO_PRODUCER_ID, Partitions, Producer, TopicPartition
from ottla.groupcoord.transactions.producer_ids import ProducerIdManager
from ottla.groupcoord.transactions.records import SUPERSEDING, decode_record, encode_records, partitions_by_topic
from ottla.groupcoord.transactions.shard import (
    CompleteTransaction,
    MarkersOwed,
    ProducerAnswer,
    Request,
    Tell,
    TransactionShard,
)
from ottla.groupcoord.transactions.transitions import AddPartitions, EndTransaction, InitProducerId, verify
from ottla.wire.answers import Given, PendingAnswer, Worked
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.happenings import Note, note_nothing
from ottla.wire.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)
from ottla.wire.messages.producer_ids import InitProducerIdRequest, InitProducerIdResponse
from ottla.wire.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
    EndTxnRequest,
    EndTxnResponse,
)
from ottla.wire.time_slice import TimeSlice

logger = logging.getLogger("ottla.groupcoord")

BATCH_VERSION = 4
"""Version from which AddPartitionsToTxn is about many transactions, and comes from brokers."""

EPOCH_BUMP_VERSION = 5
"""Version of EndTxn of clients that have an epoch for every transaction."""

SHARED_EPOCH, EPOCH_PER_TRANSACTION = 0, 2
"""Levels of transaction.version that the versions of a client's requests imply."""

ELEMENTS_PER_SLICE = 500

DESCRIBED_AS_NAMED = 10
"""Greatest number of ids that are described as often as they are named. In a longer request each id is described once: a few
bytes might request 100,000 partitions."""

OWN_PARTITIONS = (InitProducerId, CompleteTransaction)
"""Requests whose records name no partitions, so that many of them fit into one batch."""

Errors = Mapping[TopicPartition, ErrorCode]


class Verdict(NamedTuple):
    """Result of adding or verifying partitions: one error for all of them, or an error for each."""

    of_all: ErrorCode = ErrorCode.NONE
    of_each: Errors | None = None


class _Client(NamedTuple):
    """Version and rights of the client that sent a request."""

    api_version: int
    denied: Collection[str]
    refusal: ErrorCode


class Topics(Protocol):
    """Interface to the topics of the cluster."""

    def partition(self, topic: str, index: int) -> object | None:
        """Return the partition; None if it does not exist."""


class Markers(Protocol):
    """Interface to the sender of transaction markers to partition leaders."""

    def send(self, partition: int, owed: Sequence[MarkersOwed]) -> None:
        """Send markers. This broker leads `partition` of the transaction topic, which has the transactions."""

    def forget(self, partition: int) -> None:
        """Drop the markers of a transaction topic partition. Its next leader, maybe this broker, sends them."""


class TransactionCoordinator(Coordinator[Runtime[TransactionShard]]):
    """Coordinator of the transactional ids in this broker's partitions of the transaction topic."""

    def __init__(
        self,
        config: TransactionConfig,
        log: CoordinatorLog,
        topics: Topics,
        producer_ids: ProducerIdManager,
        markers: Markers,
        *,
        transaction_version: Callable[[], int],
        offsets_partition: Callable[[str], TopicPartition],
        tell: Tell,
        note: Note = note_nothing,
        wall_clock: Callable[[], int] = wall_clock_ms,
    ) -> None:
        """`transaction_version` returns the cluster's level of this feature.

        `offsets_partition` returns a group's offsets topic partition. `tell` logs producers' events at a limited rate.
        """
        self._config = config
        self._topics = topics
        self._producer_ids = producer_ids
        self._is_stocking = False
        self._markers = markers
        self._offsets_partition = offsets_partition
        kind = ShardKind(
            topic="the transaction topic",
            make=partial(
                TransactionShard,
                config,
                take_producer_id=self._take_producer_id,
                transaction_version=transaction_version,
                tell=tell,
                note=note,
            ),
            encode=encode_records,
            decode=decode_record,
            superseding=SUPERSEDING,
            # A pending id refuses changes, so every request is handled on committed state.
            may_overlap=lambda request: True,
            may_share_append=lambda request: type(request) in OWN_PARTITIONS,
            on_force=self._send_markers,
        )
        super().__init__(Runtime(kind, log, wall_clock_ms=wall_clock))

    def on_election(self, partition: int) -> None:
        self._markers.forget(partition)
        super().on_election(partition)

    def on_resignation(self, partition: int) -> None:
        self._markers.forget(partition)
        super().on_resignation(partition)

    async def on_topics_deleted(self, topics: Mapping[str, bytes]) -> None:
        """Do nothing: transactions keep partitions of deleted topics, and markers for such partitions are skipped."""

    # ------------------------------------------------------------------ producers

    def init_producer_id(
        self, request: InitProducerIdRequest, *, api_version: int
    ) -> Worked[Given[InitProducerIdResponse]]:
        """Handle InitProducerId of a producer with a transactional id."""
        transactional_id = request.transactional_id
        if not transactional_id:
            return _uninitialized(ErrorCode.INVALID_REQUEST)
        if not 0 < request.transaction_timeout_ms <= self._config.transaction_max_timeout_ms:
            return _uninitialized(ErrorCode.INVALID_TRANSACTION_TIMEOUT)
        if self._producer_ids.is_out:
            return self._initialize_when_stocked(transactional_id, request, api_version)
        return self._initialize(transactional_id, request, api_version)

    async def _initialize_when_stocked(
        self, transactional_id: str, request: InitProducerIdRequest, api_version: int
    ) -> Given[InitProducerIdResponse]:
        try:
            # Raises if another broker coordinates the id.
            self._runtime.led_partition(self.partition_for(transactional_id))
            await self._producer_ids.stock()
        except KafkaError as error:
            return _uninitialized(error.code)
        return self._initialize(transactional_id, request, api_version)

    def _initialize(
        self, transactional_id: str, request: InitProducerIdRequest, api_version: int
    ) -> Given[InitProducerIdResponse]:
        has_producer = request.producer_id != NO_PRODUCER_ID
        expected = (request.producer_id, request.producer_epoch) if has_producer else None
        answer = self._submit(InitProducerId(transactional_id, request.transaction_timeout_ms, expected))

        def finish(answer: ProducerAnswer) -> InitProducerIdResponse:
            return InitProducerIdResponse(
                error_code=_for_client(answer.error, is_fence_known=api_version >= 4),
                producer_id=answer.producer_id,
                producer_epoch=answer.producer_epoch,
            )

        return then(answer, finish)

    def _take_producer_id(self) -> int | None:
        """Return the next producer id. None if all are used: another block is then reserved in the background."""
        producer_id = self._producer_ids.take()
        if producer_id is None and not self._is_stocking:
            self._is_stocking = True
            self._runtime.spawn(self._stock)
        return producer_id

    async def _stock(self) -> None:
        try:
            await self._producer_ids.stock()
        except KafkaError as error:
            logger.warning("No producer ids for transactions: %s", error)
        finally:
            self._is_stocking = False

    # ------------------------------------------------------------------ partitions of a transaction

    def add_partitions(
        self,
        request: AddPartitionsToTxnRequest,
        *,
        api_version: int,
        denied: Collection[str] = (),
        refusal: ErrorCode = ErrorCode.NONE,
    ) -> Worked[Given[AddPartitionsToTxnResponse]]:
        """Handle AddPartitionsToTxn. Before version 4, request and response have the form for a single transaction.

        `denied`: topics that the client has no right to. `refusal`: error for all partitions, if the client may not use
        the transaction.
        """
        if api_version < BATCH_VERSION:
            transactions = [
                AddPartitionsToTxnTransaction(
                    transactional_id=request.v3_and_below_transactional_id,
                    producer_id=request.v3_and_below_producer_id,
                    producer_epoch=request.v3_and_below_producer_epoch,
                    topics=request.v3_and_below_topics,
                )
            ]
        else:
            transactions = request.transactions

        def finish(results: list[AddPartitionsToTxnResult]) -> AddPartitionsToTxnResponse:
            if api_version >= BATCH_VERSION:
                return AddPartitionsToTxnResponse(results_by_transaction=results)
            return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results[0].topic_results)

        if sum(map(_elements_of, transactions)) > ELEMENTS_PER_SLICE:
            return self._add_in_slices(transactions, _Client(api_version, denied, refusal), finish)
        client = _Client(api_version, denied, refusal)
        return gathered([self._add_one(each, client) for each in transactions], finish)

    async def _add_in_slices(
        self,
        transactions: Iterable[AddPartitionsToTxnTransaction],
        client: _Client,
        finish: Callable[[list[AddPartitionsToTxnResult]], AddPartitionsToTxnResponse],
    ) -> Given[AddPartitionsToTxnResponse]:
        time_slice = TimeSlice()
        submitted: deque[tuple[AddPartitionsToTxnTransaction, Given[Verdict]]] = deque()
        results = []
        try:
            for transaction in transactions:
                wanted = await self._existences_of(_partitions_of(transaction), time_slice, client.denied)
                submitted.append((transaction, self._add_checked(transaction, wanted, client)))
                await time_slice.yield_if_over()
            while submitted:
                transaction, answer = submitted.popleft()
                result, steps = _result_of(transaction, await finished(answer))
                for _ in steps:
                    if time_slice.is_over():
                        await time_slice.yield_if_over()
                results.append(result)
        finally:
            # The client may leave meanwhile. An answer that is neither taken nor abandoned is never collected.
            for _, left in submitted:
                if isinstance(left, PendingAnswer):
                    left.abandon()
        return finish(results)

    def _add_one(self, transaction: AddPartitionsToTxnTransaction, client: _Client) -> Given[AddPartitionsToTxnResult]:
        wanted = {each: self._existence_of(each, client.denied) for each in _partitions_of(transaction)}

        def finish(verdict: Verdict) -> AddPartitionsToTxnResult:
            result, steps = _result_of(transaction, verdict)
            for _ in steps:
                pass
            return result

        return then(self._add_checked(transaction, wanted, client), finish)

    def take_part(
        self, producer: Producer, partitions: Collection[TopicPartition], *, verify_only: bool
    ) -> Worked[Given[Errors]]:
        """Add or verify partitions on behalf of this broker; return the error of each partition."""
        if len(partitions) > ELEMENTS_PER_SLICE:
            return self._take_part_in_slices(producer, partitions, verify_only=verify_only)
        wanted = {each: self._existence_of(each) for each in partitions}
        return self._taken_part(producer, wanted, verify_only=verify_only)

    async def _take_part_in_slices(
        self, producer: Producer, partitions: Iterable[TopicPartition], *, verify_only: bool
    ) -> Given[Errors]:
        wanted = await self._existences_of(partitions, TimeSlice())
        return self._taken_part(producer, wanted, verify_only=verify_only)

    def _taken_part(self, producer: Producer, wanted: Errors, *, verify_only: bool) -> Given[Errors]:
        if any(wanted.values()):
            return _refused(wanted)
        if verify_only:
            return self._verified(producer, wanted)
        answer = self._add(producer, Partitions.of(wanted), EPOCH_PER_TRANSACTION)
        return then(answer, lambda answer: dict.fromkeys(wanted, answer.error))

    async def _existences_of(
        self, partitions: Iterable[TopicPartition], time_slice: TimeSlice, denied: Collection[str] = ()
    ) -> dict[TopicPartition, ErrorCode]:
        wanted: dict[TopicPartition, ErrorCode] = {}
        for each in partitions:
            wanted[each] = self._existence_of(each, denied)
            if time_slice.is_over():
                await time_slice.yield_if_over()
        return wanted

    def _existence_of(self, partition: TopicPartition, denied: Collection[str] = ()) -> ErrorCode:
        if partition[0] in denied:
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        if self._topics.partition(*partition) is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return ErrorCode.NONE

    def _add_checked(
        self,
        transaction: AddPartitionsToTxnTransaction,
        wanted: dict[TopicPartition, ErrorCode],
        client: _Client,
    ) -> Given[Verdict]:
        """Add all partitions or none, or verify them. `wanted`: the error of each partition so far, or NONE."""
        api_version = client.api_version
        if client.refusal:
            return Verdict(client.refusal)
        if any(wanted.values()):
            return Verdict(of_each=_refused(wanted))
        producer = Producer(transaction.transactional_id, transaction.producer_id, transaction.producer_epoch)
        if transaction.verify_only:
            return Verdict(of_each=self._verified(producer, wanted))
        version = EPOCH_PER_TRANSACTION if api_version >= BATCH_VERSION else SHARED_EPOCH
        answer = self._add(producer, _set_of(transaction), version)
        return then(answer, lambda answer: Verdict(_for_client(answer.error, is_fence_known=api_version >= 2)))

    def _verified(self, producer: Producer, wanted: Iterable[TopicPartition]) -> Errors:
        """Return NONE for each partition that is in the producer's transaction, and an error for each other one."""
        transactional_id, producer_id, producer_epoch = producer
        if not transactional_id:
            return dict.fromkeys(wanted, ErrorCode.INVALID_REQUEST)
        try:
            known = self._runtime.shard_of(transactional_id).known(transactional_id)
        except KafkaError as refusal:
            return dict.fromkeys(wanted, refusal.code)
        error = verify(known, producer_id, producer_epoch)
        if error or known is None:
            return dict.fromkeys(wanted, error)
        absent = ErrorCode.TRANSACTION_ABORTABLE
        return {each: ErrorCode.NONE if each in known.partitions else absent for each in wanted}

    def _add(self, producer: Producer, partitions: Partitions, transaction_version: int) -> Given[ProducerAnswer]:
        if not producer.transactional_id:
            return ProducerAnswer(ErrorCode.INVALID_REQUEST)
        return self._submit(AddPartitions(*producer, partitions, transaction_version))

    def add_offsets(self, request: AddOffsetsToTxnRequest, *, api_version: int) -> Given[AddOffsetsToTxnResponse]:
        """Handle AddOffsetsToTxn: add the offsets topic partition of a group to the transaction."""
        partitions = Partitions.of([self._offsets_partition(request.group_id)])
        producer = Producer(request.transactional_id, request.producer_id, request.producer_epoch)
        answer = self._add(producer, partitions, SHARED_EPOCH)

        def finish(answer: ProducerAnswer) -> AddOffsetsToTxnResponse:
            return AddOffsetsToTxnResponse(error_code=_for_client(answer.error, is_fence_known=api_version >= 2))

        return then(answer, finish)

    # ------------------------------------------------------------------ the end of a transaction

    def end_txn(self, request: EndTxnRequest, *, api_version: int) -> Given[EndTxnResponse]:
        """Handle EndTxn. The response is sent when the decision is committed; the markers are written later."""
        if not request.transactional_id:
            return EndTxnResponse(error_code=ErrorCode.INVALID_REQUEST)
        version = EPOCH_PER_TRANSACTION if api_version >= EPOCH_BUMP_VERSION else SHARED_EPOCH
        answer = self._submit(
            EndTransaction(
                request.transactional_id, request.producer_id, request.producer_epoch, request.committed, version
            )
        )

        def finish(answer: ProducerAnswer) -> EndTxnResponse:
            return EndTxnResponse(
                error_code=_for_client(answer.error, is_fence_known=api_version >= 2),
                producer_id=answer.producer_id,
                producer_epoch=answer.producer_epoch,
            )

        return then(answer, finish)

    def _send_markers(self, partition: int, shard: TransactionShard) -> None:
        owed = shard.take_owed()
        if owed:
            self._markers.send(partition, owed)

    def complete(self, owed: MarkersOwed) -> Given[ErrorCode]:
        """Complete a transaction after all its markers are written.

        INVALID_TXN_STATE: the transaction no longer waits for these markers. After other errors call this again later.
        """
        answer = self._submit(CompleteTransaction(owed.transactional_id, owed.producer_id, owed.producer_epoch))
        return then(answer, lambda answer: answer.error)

    # ------------------------------------------------------------------ administration

    def describe_transactions(self, request: DescribeTransactionsRequest) -> Worked[DescribeTransactionsResponse]:
        if len(request.transactional_ids) > DESCRIBED_AS_NAMED:
            return self._describe_in_slices(dict.fromkeys(request.transactional_ids))
        if len(request.transactional_ids) > 1:
            return self._describe_in_slices(request.transactional_ids)
        states = [self._describe(each) for each in request.transactional_ids]
        return DescribeTransactionsResponse(transaction_states=states)

    async def _describe_in_slices(self, transactional_ids: Iterable[str]) -> DescribeTransactionsResponse:
        time_slice = TimeSlice()
        states = []
        for each in transactional_ids:
            states.append(self._describe(each))
            await time_slice.yield_if_over()
        return DescribeTransactionsResponse(transaction_states=states)

    def _describe(self, transactional_id: str) -> TransactionState:
        try:
            self._runtime.check_running()
            if not transactional_id:
                raise KafkaError(ErrorCode.INVALID_REQUEST)
            known = self._runtime.shard_of(transactional_id).known(transactional_id)
        except KafkaError as error:
            return undescribed(transactional_id, error.code)
        if known is None:
            return undescribed(transactional_id, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
        topics = partitions_by_topic(known)
        return TransactionState(
            error_code=ErrorCode.NONE,
            transactional_id=transactional_id,
            transaction_state=known.state.state_name,
            transaction_timeout_ms=known.timeout_ms,
            transaction_start_time_ms=known.start_timestamp_ms,
            producer_id=known.producer_id,
            producer_epoch=known.producer_epoch,
            topics=[TopicData(topic=topic, partitions=indexes) for topic, indexes in topics.items()],
        )

    def shards(self) -> list[TransactionShard]:
        """Return all shards of this broker. Raises KafkaError while any of them is being loaded."""
        return self._runtime.led_shards()

    def timestamp_ms(self) -> int:
        """Return the wall-clock time in ms."""
        return self._runtime.timestamp_ms()

    def _submit(self, request: Request) -> Given[ProducerAnswer]:
        return self._runtime.submit(request.transactional_id, request, Caller(ProducerAnswer))


def _for_client(error: ErrorCode, *, is_fence_known: bool) -> ErrorCode:
    """Return the error that the client knows: clients without PRODUCER_FENCED get an older error."""
    if error is ErrorCode.PRODUCER_FENCED and not is_fence_known:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return error


def _refused(wanted: Errors) -> Errors:
    """Return `wanted` as a refusal: partitions without an error of their own get OPERATION_NOT_ATTEMPTED."""
    return {each: error or ErrorCode.OPERATION_NOT_ATTEMPTED for each, error in wanted.items()}


def _uninitialized(error: ErrorCode) -> InitProducerIdResponse:
    answer = ProducerAnswer(error)
    return InitProducerIdResponse(
        error_code=error, producer_id=answer.producer_id, producer_epoch=answer.producer_epoch
    )


def _elements_of(transaction: AddPartitionsToTxnTransaction) -> int:
    return 1 + len(transaction.topics) + sum([len(topic.partitions) for topic in transaction.topics])


def _partitions_of(transaction: AddPartitionsToTxnTransaction) -> Iterator[TopicPartition]:
    return ((topic.name, index) for topic in transaction.topics for index in topic.partitions)


def _set_of(transaction: AddPartitionsToTxnTransaction) -> Partitions:
    topics: dict[str, frozenset[int]] = {}
    for topic in transaction.topics:
        if topic.partitions:
            topics[topic.name] = topics.get(topic.name, frozenset()).union(topic.partitions)
    return Partitions(topics)


def _result_of(
    transaction: AddPartitionsToTxnTransaction, verdict: Verdict
) -> tuple[AddPartitionsToTxnResult, Iterator[None]]:
    """Return an empty result, and an iterator that adds one partition in each step.

    If all partitions have one error, a repeated partition is listed repeatedly; if each has its own, only once.
    """
    result = AddPartitionsToTxnResult(transactional_id=transaction.transactional_id, topic_results=[])
    if verdict.of_each is None:
        return result, _fill_alike(result.topic_results, transaction, verdict.of_all)
    return result, _fill(result.topic_results, verdict.of_each)


def _fill_alike(
    topics: list[AddPartitionsToTxnTopicResult], transaction: AddPartitionsToTxnTransaction, error: ErrorCode
) -> Iterator[None]:
    for topic in transaction.topics:
        results: list[AddPartitionsToTxnPartitionResult] = []
        topics.append(AddPartitionsToTxnTopicResult(name=topic.name, results_by_partition=results))
        for index in topic.partitions:
            results.append(AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=error))
            yield


def _fill(topics: list[AddPartitionsToTxnTopicResult], errors: Errors) -> Iterator[None]:
    of_topics: dict[str, list[AddPartitionsToTxnPartitionResult]] = {}
    for (name, index), error in errors.items():
        if name not in of_topics:
            of_topics[name] = []
            topics.append(AddPartitionsToTxnTopicResult(name=name, results_by_partition=of_topics[name]))
        of_topics[name].append(AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=error))
        yield


def undescribed(transactional_id: str, error: ErrorCode) -> TransactionState:
    """Return a transaction description that carries only an error."""
    return TransactionState(
        error_code=error,
        transactional_id=transactional_id,
        transaction_state="",
        transaction_timeout_ms=0,
        transaction_start_time_ms=0,
        producer_id=0,
        producer_epoch=0,
        topics=[],
    )
