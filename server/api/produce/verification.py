"""The transactions of one produce request, as their coordinator knows them (KIP-890).

A producer's first batch in a transaction and partition needs the coordinator's word
(`server/coordinators/transaction_verification.py`), and comes to the log with the guard of that question (`replication/log/verification.py`). A transaction that is open in all partitions of
the request needs nothing. Partitions that will be refused anyway are not asked about.

A client of transaction version 2 sends no AddPartitionsToTxn before. Its next transaction may begin while the markers of
the one before are still being written: CONCURRENT_TRANSACTIONS. Then the question is asked again after
add.partitions.to.txn.retry.backoff.ms, for up to add.partitions.to.txn.retry.backoff.max.ms, which is cheaper than a
request that comes again. Errors of coordinators that an older client does not expect here become NOT_ENOUGH_REPLICAS, after
which it tries again without looking for another leader.
"""

from __future__ import annotations

from collections.abc import Coroutine, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import trio

from ottla.groupcoord.transactions.metadata import Producer
from ottla.replication.cluster.metadata_cache import INTERNAL_TOPICS
from ottla.replication.log.batch_checks import check_produce_request_records
from ottla.replication.log.verification import NOT_REQUIRED
from ottla.server.api.produce.request_checks import TOPIC_IDS_SINCE, is_transactional, named_topic, without_repetitions
from ottla.server.coordinators.transaction_questions import Errors, Question, TransactionSupport
from ottla.server.dispatch.access import AclOperation, ResourceType, may
from ottla.server.ports import BrokerParts
from ottla.wire.answers import Worked
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.records import RECORDS_OFFSET, BatchHeader, unpack_header
from ottla.wire.time_slice import TimeSlice

if TYPE_CHECKING:
    from ottla.replication.log.verification import VerificationGuard
    from ottla.replication.partition.partition import Partition
    from ottla.server.dispatch.context import RequestContext
    from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

_OF_COORDINATORS = frozenset(
    {
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)


class NotVerified(KafkaError):
    """Raised if a batch is not appended because its transaction is not verified; the text goes to the client."""


class _Asked(NamedTuple):
    """Batch whose transaction is not open in its partition, so that the transaction coordinator must verify it."""

    partition: Partition
    place: tuple[str, int]
    guard: VerificationGuard


class Verification:
    """Verification of one request's transactions.

    Call `begin`; if it returns False, call `finish`; then call `guard` for each partition.
    """

    __slots__ = (
        "_asked",
        "_broker",
        "_context",
        "_errors",
        "_failure",
        "_pending",
        "_producers",
        "_request",
        "_retry_until",
        "_support",
        "_version",
    )

    def __init__(self, request: ProduceRequest, context: RequestContext[BrokerParts]) -> None:
        self._request, self._context = request, context
        self._broker = context.broker
        self._version = context.api_version
        self._support = TransactionSupport.of_produce(self._version)
        self._retry_until: float | None = None  # since the first answer that may become another one
        self._producers: set[tuple[int, int]] = set()
        self._asked: dict[Partition, _Asked] = {}
        self._errors: dict[Partition, tuple[ErrorCode, str | None]] = {}
        self._pending: Coroutine[Any, Any, Errors] | None = None
        self._failure: KafkaError | None = None

    # ------------------------------------------------------------------ what is known in the end

    def refusal(self) -> KafkaError | None:
        """Return the error for the whole request; None if the partitions may be appended to."""
        if self._failure is not None:
            return self._failure
        if len(self._producers) > 1:
            text = "Transactional records contained more than one producer ID"
            return NotVerified(ErrorCode.INVALID_PRODUCER_ID_MAPPING, text)
        return None

    def guard(self, partition: Partition) -> VerificationGuard | None:
        """Return the guard for this append; None if none is needed. Raises NotVerified if the append is refused."""
        error = self._errors.get(partition)
        if error is not None:
            raise NotVerified(*error)
        if not self._is_enabled:
            return NOT_REQUIRED
        asked = self._asked.get(partition)
        return None if asked is None else asked.guard

    # ------------------------------------------------------------------ asking

    def begin(self) -> bool:
        """Ask the coordinator to verify transactions not known to be open. False: call `finish` to wait or retry."""
        for _ in self._look_at_all():
            pass
        return self._ask()

    async def begin_in_slices(self) -> None:
        """Verify the transactions of a long request in time slices, and wait for the answer."""
        time_slice = TimeSlice()
        for _ in self._look_at_all():
            await time_slice.yield_if_over()
        if not self._ask():
            await self.finish()

    async def finish(self) -> None:
        """Wait for the coordinator's answer; ask again while the producer's previous transaction is being completed."""
        while True:
            pending, self._pending = self._pending, None
            if pending is not None and self._take_up(await pending):
                return
            if pending is None:
                await trio.sleep(self._broker.config.transactions.add_partitions_to_txn_retry_backoff_ms / 1000)
                # What was open before is open no more, or has another leader: so everything is looked at again.
                if self.begin():
                    return

    def _ask(self) -> bool:
        if not self._asked or self.refusal() is not None:
            return True
        [(producer_id, producer_epoch)] = self._producers
        places = [each.place for each in self._asked.values()]
        transactional_id = self._request.transactional_id
        assert transactional_id is not None
        question = Question(Producer(transactional_id, producer_id, producer_epoch), places, self._support)
        answer: Worked[Errors] = self._broker.transaction_verifier.ask(question)
        if isinstance(answer, Coroutine):
            self._pending = answer
            return False
        return self._take_up(answer)

    def _take_up(self, errors: Errors) -> bool:
        """Record the coordinator's answer. False: the coordinator must be asked again."""
        bumps = self._support is TransactionSupport.EPOCH_BUMP
        if bumps and ErrorCode.CONCURRENT_TRANSACTIONS in errors.values() and self._may_ask_again():
            return False
        for asked in self._asked.values():
            code = errors[asked.place]
            if code:
                self._errors[asked.partition] = self._told(code)
        return True

    def _may_ask_again(self) -> bool:
        now = trio.current_time()
        if self._retry_until is None:
            self._retry_until = now + self._patience_ms() / 1000
        return now < self._retry_until

    def _told(self, code: ErrorCode) -> tuple[ErrorCode, str | None]:
        """Return the error code that the producer gets for the coordinator's `code`, and an error message or None."""
        if code is ErrorCode.INVALID_TXN_STATE:
            return (code, "Partition was not added to the transaction")
        is_to_be_retried = (
            code is ErrorCode.CONCURRENT_TRANSACTIONS and self._support is not TransactionSupport.EPOCH_BUMP
        )
        if code in _OF_COORDINATORS or is_to_be_retried:
            text = f"Unable to verify the partition has been added to the transaction. Underlying error: {code.name}"
            return (ErrorCode.NOT_ENOUGH_REPLICAS, text)
        return (code, None)

    # ------------------------------------------------------------------ what has to be asked about

    @property
    def _is_enabled(self) -> bool:
        return self._broker.config.replication.transaction_partition_verification_enable

    def _patience_ms(self) -> int:
        config = self._broker.config
        return min(config.transactions.add_partitions_to_txn_retry_backoff_max_ms, config.server.request_timeout_ms)

    def _look_at_all(self) -> Iterator[None]:
        self._producers.clear()
        self._asked.clear()
        self._errors.clear()
        self._failure = None
        # Kafka asks even then; but nothing of such a request is appended.
        if self._request.acks not in (-1, 0, 1):
            return
        for topic in without_repetitions(self._request.topic_data):
            for data in topic.partition_data:
                self._look_at(topic, data)
                yield

    def _look_at(self, topic: TopicProduceData, data: PartitionProduceData) -> None:
        broker = self._broker
        try:
            name = topic.name if self._version < TOPIC_IDS_SINCE else named_topic(broker, topic)
            # Quietly: the append, which is refused for it, says so.
            if not may(self._context, AclOperation.WRITE, ResourceType.TOPIC, name, quietly=True):
                return
            if broker.cluster.partition(name, data.index) is None or name in INTERNAL_TOPICS:
                return
            header = _transactional_header(data.records)
            if header is None:
                return
            check_produce_request_records(data.records, self._version)
            self._producers.add((header.producer_id, header.producer_epoch))
            partition = broker.partition(name, data.index)
            log = partition.leading_log()
        except KafkaError as error:
            # Kafka fails over such a batch, and with it all partitions. For any other reason this append alone is refused.
            if error.code is ErrorCode.UNKNOWN_SERVER_ERROR:
                self._failure = error
            return
        bumps = self._support is TransactionSupport.EPOCH_BUMP
        if not bumps and not self._is_enabled:
            return
        try:
            guard = log.producer_state().start_verification(
                header.producer_id,
                header.base_sequence,
                header.producer_epoch,
                supports_epoch_bump=bumps,
                now_ms=broker.now_ms(),
            )
        except KafkaError as error:
            self._errors[partition] = (error.code, None)
            return
        if guard is not None:
            self._asked[partition] = _Asked(partition, (name, data.index), guard)


def _transactional_header(records: memoryview | None) -> BatchHeader | None:
    """Return the header of the first batch if it belongs to a transaction, else None."""
    if records is None or len(records) < RECORDS_OFFSET or not is_transactional(records):
        return None
    header = BatchHeader._make(unpack_header(records))
    return header if header.producer_id >= 0 else None
