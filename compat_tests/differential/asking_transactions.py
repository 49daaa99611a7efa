"""Questions about transactions, and what their coordinator has written down."""

from typing import Any, NamedTuple

from compat_tests.differential.asking_records import fetch, transactional_id
from compat_tests.differential.conversation import Talk, Topic

from ottla.groupcoord.java_hashing import absolute_string_hash
from ottla.groupcoord.transactions.records import TransactionLogValue
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.describe_transactions import DescribeTransactionsRequest
from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.wire.messages.producer_ids import InitProducerIdRequest
from ottla.wire.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
    EndTxnRequest,
)
from ottla.wire.record_decoding import decode_records
from ottla.wire.records import iter_batches
from ottla.wire.schema import ZERO_UUID

TIMEOUT_MS = 60_000
LOG = "__transaction_state"

Places = dict[str, list[int]]


class Producer(NamedTuple):
    """A producer as it knows itself."""

    name: str
    id: int
    epoch: int

    def at(self, *, epoch: int = 0, id: int = 0) -> "Producer":
        """One that differs by so much."""
        return self._replace(epoch=self.epoch + epoch, id=self.id + id)

    # --- what it asks

    def init(self, timeout_ms: int = TIMEOUT_MS, *, known: bool = True) -> InitProducerIdRequest:
        itself = {"producer_id": self.id, "producer_epoch": self.epoch} if known else {}
        return InitProducerIdRequest(transactional_id=self.name, transaction_timeout_ms=timeout_ms, **itself)

    def add(self, places: Places, *, verify_only: bool = False) -> AddPartitionsToTxnRequest:
        """For any version."""
        topics = [AddPartitionsToTxnTopic(name=name, partitions=indexes) for name, indexes in places.items()]
        transaction = AddPartitionsToTxnTransaction(
            transactional_id=self.name,
            producer_id=self.id,
            producer_epoch=self.epoch,
            verify_only=verify_only,
            topics=topics,
        )
        return AddPartitionsToTxnRequest(
            transactions=[transaction],
            v3_and_below_transactional_id=self.name,
            v3_and_below_producer_id=self.id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=topics,
        )

    def add_offsets(self, group: str) -> AddOffsetsToTxnRequest:
        return AddOffsetsToTxnRequest(
            transactional_id=self.name, producer_id=self.id, producer_epoch=self.epoch, group_id=group
        )

    def end(self, *, commit: bool) -> EndTxnRequest:
        return EndTxnRequest(
            transactional_id=self.name, producer_id=self.id, producer_epoch=self.epoch, committed=commit
        )


def new_producer(talk: Talk, **details: int) -> Producer:
    """A producer with a new transactional id."""
    name = transactional_id(talk)
    answer = talk.do(Producer(name, -1, -1).init(**details))
    assert answer.error_code == 0, answer
    return Producer(name, answer.producer_id, answer.producer_epoch)


def begin(talk: Talk, producer: Producer, places: Places, version: int = 3) -> None:
    """Partitions take part in its transaction, without a word in the transcript."""
    talk.until(producer.add(places), lambda answer: not _codes(answer), version)


def _codes(answer: Any) -> list[int]:
    topics = list(answer.results_by_topic_v3_and_below)
    for result in answer.results_by_transaction:
        topics += result.topic_results
    codes = [each.partition_error_code for topic in topics for each in topic.results_by_partition]
    return [code for code in codes if code]


def state_of(talk: Talk, name: str) -> Any:
    return talk.do(DescribeTransactionsRequest(transactional_ids=[name])).transaction_states[0]


def until_complete(talk: Talk, name: str) -> Producer:
    """Waits until the markers of its transaction are written. Returns the producer as the coordinator knows it."""
    request = DescribeTransactionsRequest(transactional_ids=[name])
    answer = talk.until(
        request, lambda answer: answer.transaction_states[0].transaction_state in ("CompleteCommit", "CompleteAbort")
    )
    (state,) = answer.transaction_states
    return Producer(name, state.producer_id, state.producer_epoch)


def describe(talk: Talk, *names: str, label: str = "describe") -> None:
    def in_order(answer: Any) -> None:
        for state in answer.transaction_states:
            state.topics.sort(key=lambda topic: topic.topic)
            for topic in state.topics:
                topic.partitions.sort()

    talk.ask(DescribeTransactionsRequest(transactional_ids=list(names)), label=label, arrange=in_order)


def by_partition(answer: Any) -> None:
    """Kafka leaves the order of partitions in AddPartitionsToTxn open."""
    for result in answer.results_by_transaction:
        _sort(result.topic_results)
    _sort(answer.results_by_topic_v3_and_below)
    answer.results_by_transaction.sort(key=lambda result: result.transactional_id)


def _sort(topics: list[Any]) -> None:
    topics.sort(key=lambda topic: topic.name)
    for topic in topics:
        topic.results_by_partition.sort(key=lambda each: each.partition_index)


def note_log(talk: Talk, name: str) -> None:
    """What stands in the coordinator's log about an id, record by record."""
    asked = MetadataRequest(topics=[MetadataRequestTopic(topic_id=ZERO_UUID, name=LOG)])
    found = talk.do(asked).topics[0]
    index = absolute_string_hash(name) % len(found.partitions)
    answer = talk.do(fetch(Topic(LOG, found.topic_id), partition=index))
    (partition,) = answer.responses[0].partitions
    assert partition.error_code == ErrorCode.NONE, partition
    data = bytes(partition.records)
    for _, start, _ in iter_batches(data):
        for record in decode_records(data, start):
            key, value = bytes(record.key or b""), record.value
            if key != b"\0\0" + len(name.encode()).to_bytes(2, "big") + name.encode():
                continue
            if value is None:
                talk.note("in the log", None)
                continue
            version = int.from_bytes(value[:2], "big")
            decoded = TransactionLogValue.decode(bytes(value), version, start=2)
            _arrange(decoded)
            talk.note(f"in the log, value version {version}", decoded, TransactionLogValue, version)


def _arrange(value: TransactionLogValue) -> None:
    for topic in value.transaction_partitions or []:
        topic.partition_ids.sort()
    if value.transaction_partitions:
        value.transaction_partitions.sort(key=lambda topic: topic.topic)
