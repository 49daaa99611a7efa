"""The appends of one produce request, in the order of its partitions, and the wait for their commits.

    append_all: for each partition    check what comes before the batch -> check the batch -> append -> acknowledged?
                                      a batch whose check takes long, or that comes when the time is over: kept for later, as a copy
    append_deferred                   check, in a thread if that takes long -> append -> acknowledged?
    answer                            at once, or when all are committed or the time is over

Batches that cannot be appended now are deferred. They are appended in order before the connection's next request.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import trio

from ottla.replication.cluster.metadata_cache import INTERNAL_TOPICS, TRANSACTION_STATE_TOPIC
from ottla.replication.log.batch_checks import (
    DOUBTFUL,
    TooManyForTheLoop,
    check_produce_request_records,
    check_quickly,
    is_expensive,
    ordinary_header,
)
from ottla.replication.log.validator import InvalidRecords
from ottla.server.api.produce.refusals import WITHOUT_LOG_START, note_late_refusal, note_refusal
from ottla.server.api.produce.request_checks import (
    TOPIC_IDS_SINCE,
    check_producer_is_known,
    checked_in_thread,
    has_own_buffer,
    holds_transactional,
    named_topic,
    numbered_batch,
    tell_leaders,
    without_repetitions,
)
from ottla.server.dispatch.access import AclOperation, ResourceType, may, require
from ottla.server.dispatch.dispatch import CloseConnection
from ottla.server.network.inbox import belongs_to_one_frame
from ottla.server.ports import BrokerParts
from ottla.wire.answers import PendingAnswer
from ottla.wire.buffers import copied
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from ottla.wire.records import COMPRESSION_MASK, BatchHeader, batch_size
from ottla.wire.time_slice import SLICE_S

if TYPE_CHECKING:
    from ottla.replication.log.batch_checks import CheckedRecords
    from ottla.replication.log.verification import VerificationGuard
    from ottla.replication.partition.partition import Partition
    from ottla.replication.partition.retry_window import Place
    from ottla.server.api.produce.verification import Verification
    from ottla.server.dispatch.context import RequestContext

Answered = ProduceResponse | PendingAnswer[ProduceResponse] | None
ADMIN_CLIENT_ID = "__admin_client"
# The first version of Produce in which each partition must have exactly one batch.
ONE_BATCH_SINCE = 3
CURRENT_LEADER_SINCE = 10
NO_OFFSET = -1
MAY_COME_YET = "What is missing may come from the leader before this one"
_CODE_OF_TRANSACTIONS = (TRANSACTION_STATE_TOPIC,)
# Then a request gives way: a long one at once, a short one before its next compressed or doubtful batch.
TURN_S = 2.5 * SLICE_S


class _Uncommitted(NamedTuple):
    """Records appended in `leader_epoch` and ending before `next_offset`, whose acknowledgement is pending."""

    partition: Partition
    place: Place
    answer: PartitionProduceResponse
    next_offset: int
    leader_epoch: int
    header: BatchHeader | None
    """Header of a batch whose producer numbers its records."""

    @property
    def is_held(self) -> bool:
        """True if the log still contains the records; it may have lost them while another broker was the leader."""
        epoch, partition = self.leader_epoch, self.partition
        # A broker loses records only as a follower, and it leads again only under another epoch. So the same epoch
        # means that nothing was cut off.
        if partition.leader_epoch == epoch:
            return True
        # The log answers with the largest epoch at or below the one asked for. Another epoch in the answer means that
        # the log has no record of this one.
        known, end_offset = partition.log.end_offset_for_epoch(epoch)
        return known == epoch and end_offset >= self.next_offset


class _Deferred(NamedTuple):
    """Batch to append later: a thread must check it first, or the request has used up its time slice."""

    partition: Partition
    place: Place
    answer: PartitionProduceResponse
    records: memoryview
    is_long: bool
    """True if it has to be checked in a thread. Others only come when the request has used up its time."""


class Appending(PendingAnswer[ProduceResponse]):
    """Appends of one produce request, which wait until all records are committed."""

    __slots__ = (
        "_broker",
        "_checked",
        "_context",
        "_deadline",
        "_deferred",
        "_has_moved",
        "_refused",
        "_request",
        "_topics",
        "_turn_end",
        "_uncommitted",
        "_undecided",
        "_verification",
        "_version",
        "_waits",
    )

    def __init__(self, request: ProduceRequest, context: RequestContext[BrokerParts]) -> None:
        super().__init__()
        self._request, self._context = request, context
        # The fast path has looked at the one batch of this request.
        self._checked, context.checked_batch = context.checked_batch, None
        self._broker = context.broker
        self._refused = context.broker.replicas.retry_window
        self._version = context.api_version
        self._has_moved = False  # a partition of the request is led by another broker
        self._turn_end = time.monotonic() + TURN_S
        self._topics: list[TopicProduceResponse] = []
        self._verification: Verification | None = None  # of a request that is to write in transactions
        self._deferred: list[_Deferred] = []
        self._uncommitted: list[_Uncommitted] = []

    @property
    def has_deferred(self) -> bool:
        """True if some records will be appended later."""
        return bool(self._deferred)

    def release_records(self) -> None:
        """Release views of the receive buffer before waiting; topic and partition names stay for error responses."""
        for topic in self._request.topic_data:
            for data in topic.partition_data:
                data.records = None

    def append_all(self) -> None:
        """Append the batches that can be appended immediately; copy and defer the others."""
        append = self._append_or_refuse()
        for topic in without_repetitions(self._request.topic_data):
            self._answer_topic(topic, [append(topic, data) for data in topic.partition_data])

    def verify(self) -> bool:
        """Begin to verify transactions; return True if nothing is pending.

        False: the coordinator's answer is pending, and `append_in_slices` awaits it.
        """
        if not self._is_transactional():
            return True
        if self._broker.coordinators.lack_code(_CODE_OF_TRANSACTIONS):
            return False
        self._verification = self._new_verification()
        return self._verification.begin()

    def _is_transactional(self) -> bool:
        """True if the request has transactions to verify, and the client may use the request's transactional id."""
        transactional_id = self._request.transactional_id
        try:
            return (
                transactional_id is not None
                and holds_transactional(self._request)
                and self._may_use(transactional_id, quietly=True)
            )
        except KafkaError:
            return False

    def _may_use(self, transactional_id: str, *, quietly: bool) -> bool:
        return may(self._context, AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id, quietly=quietly)

    def _new_verification(self) -> Verification:
        # Here, because most producers have no transactions.
        from ottla.server.api.produce.verification import Verification

        return Verification(self._request, self._context)

    def _is_unverified(self, error: KafkaError) -> bool:
        if self._verification is None:
            return False
        from ottla.server.api.produce.verification import NotVerified

        return isinstance(error, NotVerified)

    def append_in_slices(self) -> Coroutine[Any, Any, Answered]:
        """Return a coroutine that appends in time slices, for many partitions or bytes or for unverified transactions.

        Its result is that of `answer`.
        """
        # The copies are made here and not in the coroutine: that begins to run when the shared receive buffer may hold
        # the bytes of another connection already.
        if not has_own_buffer(self._request):
            for topic in self._request.topic_data:
                for data in topic.partition_data:
                    data.records = None if data.records is None else copied(data.records)
        return self._append_in_slices()

    async def _append_in_slices(self) -> Answered:
        if self._verification is not None:
            await self._verification.finish()
        elif self._is_transactional():
            await self._broker.coordinators.ensure_code(_CODE_OF_TRANSACTIONS, self._broker.environment.run_in_thread)
            self._verification = self._new_verification()
            await self._verification.begin_in_slices()
        await self._append_pieces()
        self.release_records()
        return await self.append_deferred()

    async def _append_pieces(self) -> None:
        append = self._append_or_refuse()
        for topic in without_repetitions(self._request.topic_data):
            answers: list[PartitionProduceResponse] = []
            # The list is handed in while it is empty and fills up below, so the topics keep their order.
            self._answer_topic(topic, answers)
            for data in topic.partition_data:
                answers.append(append(topic, data))
                # The look at the clock comes after a partition, never inside one: an append is not divisible.
                await self._give_way()

    async def _give_way(self) -> None:
        """Yield to other tasks if the time slice is over."""
        if time.monotonic() > self._turn_end:
            await trio.lowlevel.checkpoint()
            self._turn_end = time.monotonic() + TURN_S

    def _append_or_refuse(self) -> Callable[[TopicProduceData, PartitionProduceData], PartitionProduceResponse]:
        request = self._request
        # This looks at the whole request before the first append, because Kafka refuses all of its partitions for one
        # such batch.
        try:
            transactional_id = request.transactional_id
            if holds_transactional(request) and (
                transactional_id is None or not self._may_use(transactional_id, quietly=False)
            ):
                raise KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
            if self._verification is not None and (refusal := self._verification.refusal()) is not None:
                raise refusal
        except KafkaError as error:
            return partial(self._refuse, error)
        return self._append

    def _answer_topic(self, topic: TopicProduceData, answers: list[PartitionProduceResponse]) -> None:
        self._topics.append(TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=answers))

    def _refuse(
        self, error: KafkaError, topic: TopicProduceData, data: PartitionProduceData
    ) -> PartitionProduceResponse:
        note_refusal(self._context, topic.name, data.index, error, None, None)
        # Kafka sends a text here only with these.
        is_told = error.code is ErrorCode.CORRUPT_MESSAGE or self._is_unverified(error)
        message = error.message if is_told else None
        return PartitionProduceResponse(
            index=data.index, error_code=error.code, base_offset=NO_OFFSET, error_message=message
        )

    def _append(self, topic: TopicProduceData, data: PartitionProduceData) -> PartitionProduceResponse:
        answer = PartitionProduceResponse(index=data.index, error_code=ErrorCode.NONE, base_offset=NO_OFFSET)
        place = topic.name, topic.topic_id, data.index
        records = data.records
        # Phase 1: the request and its partition. An ordinary header proves that there is one whole batch of magic 2, so
        # the checks of `_partition` that ask for that are skipped, unless the codec may be too new for the request.
        header = ordinary_header(records) if records is not None else None
        is_plain = header is not None and not header.attributes & COMPRESSION_MASK
        partition = None
        try:
            partition = self._partition(topic, data, is_plain=is_plain)
            self._guard(partition)  # before its batch is checked, as in Kafka
            # Old clients may send no batch. Kafka answers NONE to that, without an offset.
            if records is None or (self._version < ONE_BATCH_SINCE and not batch_size(records, 0, len(records))):
                return answer
        except KafkaError as error:
            self._refuse_batch(place, answer, error, partition, header or numbered_batch(records))
            return answer
        # Phase 2: the batch. Nothing is written before all checks are through.
        if partition.log.has_schema_checks:
            self._defer(partition, place, answer, records, is_long=True)
            return answer
        rules = partition.log.validation_rules()
        checked = self._verdict_of(partition, header)
        # What is compressed takes so long that the time of the request may be over.
        if checked is None and header is not None and (is_plain or time.monotonic() <= self._turn_end):
            checked = check_quickly(records, header, rules, now_ms=self._context.now_ms)
        # A batch that is not ordinary goes step by step. That goes to a thread if it takes long, and waits if the request
        # has used up its turn: many small batches would hold the event loop together.
        is_long = checked is DOUBTFUL or (checked is None and is_expensive(records, rules))
        if is_long or (checked is None and time.monotonic() > self._turn_end):
            self._defer(partition, place, answer, records, is_long=is_long)
        elif not self._append_to(partition, place, answer, records, header, checked):
            self._defer(partition, place, answer, records, is_long=True)
        return answer

    def _verdict_of(self, partition: Partition, header: BatchHeader | None) -> CheckedRecords | None:
        """Return the records that the fast path has checked; None if it checked none, or another batch or partition.

        Batches are compared by their headers, which have a checksum.
        """
        if self._checked is None:
            return None
        (looked_for, seen, checked), self._checked = self._checked, None
        return checked if looked_for is partition and seen == header else None

    def _guard(self, partition: Partition) -> VerificationGuard | None:
        return None if self._verification is None else self._verification.guard(partition)

    def _append_to(
        self,
        partition: Partition,
        place: Place,
        answer: PartitionProduceResponse,
        records: memoryview,
        header: BatchHeader | None,
        checked: CheckedRecords | None,
    ) -> bool:
        """Append a batch; record its result in `answer`. False: not done, because a thread must check it first."""
        header = header or numbered_batch(records)
        now_ms, acks = self._context.now_ms, self._request.acks
        try:
            # Right before the append: for a deferred batch the answer may have become another one. The dict is empty
            # nearly always, which keeps this check off the usual way.
            if partition.doubts_unknown_until_ms > now_ms:
                check_producer_is_known(partition, header)
            if self._refused.by_producer:
                self._check_none_is_missing(place, partition, header)
            guard = self._guard(partition)
            info = partition.append_as_leader(records, required_acks=acks, now_ms=now_ms, checked=checked, guard=guard)
        # The log found out, before it wrote anything, that the records need a look one by one.
        except TooManyForTheLoop:
            return False
        except KafkaError as error:
            self._refuse_batch(place, answer, error, partition, header)
            return True
        # The offsets are set even if the acknowledgement fails: Kafka tells them in that case, too.
        answer.base_offset = info.first_offset
        answer.log_append_time_ms = info.log_append_time_ms
        answer.log_start_offset = info.log_start_offset
        self._acknowledge(_Uncommitted(partition, place, answer, info.last_offset + 1, partition.leader_epoch, header))
        return True

    def _defer(
        self,
        partition: Partition,
        place: Place,
        answer: PartitionProduceResponse,
        records: memoryview,
        *,
        is_long: bool,
    ) -> None:
        # The shared receive buffer is filled again before this goes on. A buffer of one frame is not, and copying
        # its megabytes would hold the event loop.
        kept = records if belongs_to_one_frame(records.obj) else copied(records)
        self._deferred.append(_Deferred(partition, place, answer, kept, is_long))

    def _check_none_is_missing(self, place: Place, partition: Partition, batch: BatchHeader | None) -> None:
        """Raise KafkaError if an earlier batch of the producer was refused and must be resent first."""
        if batch is not None and batch.producer_id in self._refused.by_producer:
            code = self._refused.missing(place, batch, partition.log.producers.get(batch.producer_id))
            if code is not None:
                raise KafkaError(
                    code, f"A batch before sequence {batch.base_sequence} was refused and has not come again"
                )

    def _refuse_batch(
        self,
        place: Place,
        answer: PartitionProduceResponse,
        error: KafkaError,
        partition: Partition | None,
        batch: BatchHeader | None,
    ) -> None:
        """Record a refused batch's error in `answer`; if the producer will retry it, later batches must wait for it."""
        # Only producers that number their batches can leave a gap.
        numbered = batch if batch is not None and batch.producer_id >= 0 else None
        # librdkafka answers OUT_OF_ORDER_SEQUENCE_NUMBER with a new producer epoch and sends records again that are
        # written already. So it gets an error after which it only tries again, as long as the gap may close.
        is_gap = error.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        if is_gap and numbered is not None and self._may_come_yet(place, partition, numbered):
            error = KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, MAY_COME_YET)
        note_refusal(self._context, place[0], answer.index, error, partition, batch)
        self._fail(answer, error, partition)
        # A producer gives up a batch after any other error, so nothing has to wait for it.
        if numbered is not None and error.code.retriable:
            self._refused.note(place, numbered, error.code)

    def _may_come_yet(self, place: Place, partition: Partition | None, batch: BatchHeader) -> bool:
        """True if missing batches may still arrive (`RetryWindow.may_come_yet`); False in a cluster of one broker."""
        if (
            partition is None
            or batch is None
            or (len(partition.replicas) < 2 and len(self._broker.cluster.brokers) < 2)
        ):
            return False
        entry = partition.log.producers.get(batch.producer_id)
        epoch, start = partition.leader_epoch, partition.leader_epoch_start_offset
        return self._refused.may_come_yet(place, batch, entry, epoch, start, trio.current_time())

    def _partition(self, topic: TopicProduceData, data: PartitionProduceData, *, is_plain: bool) -> Partition:
        """Return the partition. Raises KafkaError if the request is invalid or the client may not write to it."""
        broker, request = self._broker, self._request
        # The order of these checks is Kafka's: it decides which error a client sees where two apply.
        name = topic.name if self._version < TOPIC_IDS_SINCE else named_topic(broker, topic)
        # Before it is said whether the topic exists. An attribute first: this is the hot path of an unsecured broker.
        if broker.authorizer is not None:
            require(self._context, AclOperation.WRITE, ResourceType.TOPIC, name)
        if broker.cluster.partition(name, data.index) is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        # An ordinary batch that is not compressed has passed this by its header.
        if not is_plain:
            check_produce_request_records(data.records, self._version)
        if request.acks not in (-1, 0, 1):
            raise KafkaError(ErrorCode.INVALID_REQUIRED_ACKS)
        # Kafka lets nobody write to internal topics but this client id.
        if name in INTERNAL_TOPICS and self._context.client_id != ADMIN_CLIENT_ID:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION)
        return broker.partition(name, data.index)

    def _acknowledge(self, appended: _Uncommitted) -> None:
        """Record whether the appended records are acknowledged, cannot be acknowledged (an error), or have to wait."""
        # Without an answer there is nothing to wait for.
        if self._request.acks == 0:
            return
        # Asked at once: without followers and forced flushes the append is committed already, and nobody has to watch
        # the partition.
        code = appended.partition.acknowledgement(appended.next_offset, self._request.acks)
        if code is None:
            self._uncommitted.append(appended)
        elif code:
            self._refuse_late(appended, code)

    # ------------------------------------------------------------------ what is waited for

    async def append_deferred(self) -> Answered:
        """Append the deferred batches, then return the response like `answer`."""
        # Turned round, so that `pop` takes them in the order of the request and keeps no reference.
        self._deferred.reverse()
        while self._deferred:  # each copy is given up as soon as it is written
            await self._append_deferred(self._deferred.pop())
        appended, self._uncommitted = self._uncommitted, []
        for each in appended:  # may be committed by now, or lost: nobody watched them meanwhile
            if each.is_held:
                self._acknowledge(each)
            else:
                self._refuse_late(each, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return self.answer()

    async def _append_deferred(self, deferred: _Deferred) -> None:
        partition, place, answer, records, is_long = deferred
        checked: CheckedRecords | KafkaError | None = None
        # A thread for each of many short batches would cost more than they do, and a wait for the loop each time.
        if is_long:
            checked = await checked_in_thread(partition.log, records, self._context.now_ms)
        else:
            await self._give_way()
        if partition.log.has_schema_checks and checked is not None and not isinstance(checked, KafkaError):
            checked = await self._with_known_schemas(partition, checked)
        if isinstance(checked, KafkaError):
            self._refuse_batch(place, answer, checked, partition, numbered_batch(records))
            return
        try:
            # Others had their turn, and the broker may be fenced by now.
            self._broker.partition(partition.topic, partition.index)
        except KafkaError as error:
            self._refuse_batch(place, answer, error, partition, numbered_batch(records))
            return
        if not self._append_to(partition, place, answer, records, None, checked):
            self._deferred.append(deferred._replace(is_long=True))

    async def _with_known_schemas(self, partition: Partition, checked: CheckedRecords) -> CheckedRecords | KafkaError:
        """Return `checked` if its records name registered schemas, else the KafkaError that refuses the batch."""
        bytes_max = partition.log.validation_rules().decompressed_bytes_max
        refusal = await self._broker.schema_ids.refusal(partition.topic, partition.log.config, checked, bytes_max)
        return refusal or checked

    def answer(self) -> Answered:
        """Return the response, None with acks=0; or this pending answer if records wait for their commit."""
        if not self._uncommitted:
            return self.response()
        # A producer that grants no time hears so at once. The records stay in the log.
        if self._request.timeout_ms <= 0:
            for each in self._uncommitted:
                self._refuse_late(each, ErrorCode.REQUEST_TIMED_OUT)
            return self.response()
        # Nobody knows how long followers take, and the records may be megabytes.
        self.release_records()
        waits = self._broker.replicas.produce_purgatory
        acks = self._request.acks
        self._undecided = len(self._uncommitted)
        self._waits = [
            waits.add(each.partition, each.next_offset, acks, partial(self._decide, each)) for each in self._uncommitted
        ]
        # One deadline for the whole request: it is due when the last partition is decided or the time is over.
        self._deadline = self._broker.deadlines.add(self._request.timeout_ms / 1000, self._time_out)
        return self

    def _decide(self, decided: _Uncommitted, code: ErrorCode) -> None:
        if code:
            self._refuse_late(decided, code)
        self._undecided -= 1
        if not self._undecided:
            self._broker.deadlines.cancel(self._deadline)
            self.become_ready()

    def _time_out(self) -> None:
        for wait, each in zip(self._waits, self._uncommitted, strict=True):
            # Those that were decided keep their answers; only the others have run out of time.
            if wait.settle is not None:
                wait.give_up()
                self._refuse_late(each, ErrorCode.REQUEST_TIMED_OUT)
        self.become_ready()

    def _refuse_late(self, appended: _Uncommitted, code: ErrorCode) -> None:
        """Record an error for appended records. As in Kafka the response still carries their offset."""
        appended.answer.error_code = code
        note_late_refusal(self._context, appended.partition, code, appended.next_offset, appended.header)
        # The producer sends this batch again. If the log has lost it by then, the batches behind it must not take its
        # place.
        header = appended.header
        if header is not None and header.producer_id >= 0 and code.retriable:
            self._refused.note_late(appended.place, header, code)
        if code is ErrorCode.NOT_LEADER_OR_FOLLOWER:
            self._has_moved = True

    def abandon(self) -> None:
        self._broker.deadlines.cancel(self._deadline)
        for wait in self._waits:
            wait.give_up()

    # ------------------------------------------------------------------ answers

    def response(self) -> ProduceResponse | None:
        if self._request.acks == 0:
            # A producer with acks=0 reads no answer. A connection that closes is the only way to tell it of an error.
            self._close_on_error()
            return None
        response = ProduceResponse(responses=self._topics)
        # Older clients cannot read these fields, and most answers have nothing to put there.
        if self._has_moved and self._version >= CURRENT_LEADER_SINCE:
            tell_leaders(self._broker, response, self._context.listener_name)
        return response

    def _close_on_error(self) -> None:
        for topic in self._topics:
            for answer in topic.partition_responses:
                if answer.error_code:
                    raise CloseConnection(f"acks=0 and error {answer.error_code!r} for {topic.name}-{answer.index}")

    def _fail(self, answer: PartitionProduceResponse, error: KafkaError, partition: Partition | None) -> None:
        answer.error_code = error.code
        if partition is not None:
            partition.traffic.produce_requests += 1
            partition.traffic.failed_produce_requests += error.code not in WITHOUT_LOG_START
        if error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER:
            self._has_moved = True
        if self._is_unverified(error):
            # The log has not been asked, so nothing of it is told.
            answer.error_message = error.message or None
            return
        if partition is not None and error.code not in WITHOUT_LOG_START:
            answer.log_start_offset = partition.log_start_offset
        if isinstance(error, InvalidRecords):
            answer.error_message = error.message
            answer.record_errors = [
                BatchIndexAndErrorMessage(batch_index=batch_index, batch_index_error_message=message)
                for batch_index, message in error.record_errors
            ]
