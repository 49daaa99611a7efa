"""Questions to transaction coordinators, whether partitions take part in a transaction, and their answers.

| what is answered                               | what who asked hears                                                     |
|------------------------------------------------|--------------------------------------------------------------------------|
| PRODUCER_FENCED                                | INVALID_PRODUCER_EPOCH, which producers expect of a partition            |
| TRANSACTION_ABORTABLE, for an older client     | INVALID_TXN_STATE                                                        |
| CLUSTER_AUTHORIZATION_FAILED for the request   | INVALID_TXN_STATE: it is between brokers, and clients know nothing of it |
| another error for the request                  | that error, for all partitions                                           |
| nothing about a partition                      | NETWORK_EXCEPTION                                                        |
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import Enum
from typing import TYPE_CHECKING, Protocol

from ottla.groupcoord.transactions.metadata import Producer
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.transactions import (
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)

if TYPE_CHECKING:
    import trio

    from ottla.wire.answers import Worked

TopicPartition = tuple[str, int]
Errors = Mapping[TopicPartition, ErrorCode]
"""Errors by partition, NONE included."""


class TransactionSupport(Enum):
    """Level of transaction support of a client, derived from the version of its request."""

    OLDEST = "its partitions are added before, and it does not know TRANSACTION_ABORTABLE"
    ABORTABLE = "its partitions are added before"
    EPOCH_BUMP = "its partitions are added with their first batch; each transaction has an epoch of its own"

    @classmethod
    def of_produce(cls, api_version: int) -> TransactionSupport:
        """Return the transaction support that a version of Produce implies."""
        return cls.EPOCH_BUMP if api_version >= 12 else cls.ABORTABLE if api_version >= 11 else cls.OLDEST

    @classmethod
    def of_offset_commit(cls, api_version: int) -> TransactionSupport:
        """Return the transaction support that a version of TxnOffsetCommit implies."""
        return cls.EPOCH_BUMP if api_version >= 5 else cls.ABORTABLE if api_version >= 4 else cls.OLDEST


class Question:
    """Question to a transaction coordinator: do these partitions take part in this transaction?"""

    __slots__ = ("errors", "is_abandoned", "partitions", "producer", "settled", "support")

    def __init__(self, producer: Producer, partitions: Collection[TopicPartition], support: TransactionSupport) -> None:
        self.producer, self.partitions, self.support = producer, partitions, support
        self.errors: Errors = {}
        self.settled: trio.Event | None = None
        self.is_abandoned = False

    @property
    def transactional_id(self) -> str:
        return self.producer.transactional_id

    @property
    def verify_only(self) -> bool:
        """True if the coordinator only checks the partitions; False if it adds missing ones to the transaction."""
        return self.support is not TransactionSupport.EPOCH_BUMP

    def transaction(self) -> AddPartitionsToTxnTransaction:
        """Return the question as an entry of an AddPartitionsToTxn request."""
        topics: dict[str, list[int]] = {}
        for topic, index in self.partitions:
            topics.setdefault(topic, []).append(index)
        return AddPartitionsToTxnTransaction(
            transactional_id=self.producer.transactional_id,
            producer_id=self.producer.producer_id,
            producer_epoch=self.producer.producer_epoch,
            verify_only=self.verify_only,
            topics=[AddPartitionsToTxnTopic(name=name, partitions=indexes) for name, indexes in topics.items()],
        )

    def all_are(self, code: ErrorCode) -> Errors:
        """Return an answer in which every partition has the error `code`."""
        return dict.fromkeys(self.partitions, self._told(code))

    def answer(self, response: AddPartitionsToTxnResponse) -> Errors:
        """Return each partition's error from another broker's AddPartitionsToTxn response."""
        if response.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
            return self.all_are(ErrorCode.INVALID_TXN_STATE)
        if response.error_code:
            return self.all_are(ErrorCode.of(response.error_code))
        # What is missing in the response was not verified.
        errors = dict.fromkeys(self.partitions, ErrorCode.NETWORK_EXCEPTION)
        for result in response.results_by_transaction:
            if result.transactional_id == self.transactional_id:
                for topic in result.topic_results:
                    for each in topic.results_by_partition:
                        errors[topic.name, each.partition_index] = self._told(ErrorCode.of(each.partition_error_code))
        return errors

    def heard(self, errors: Errors) -> Errors:
        """Return each partition's error from this broker's coordinator, converted for the client's version."""
        return {place: self._told(code) for place, code in errors.items()}

    def _told(self, code: ErrorCode) -> ErrorCode:
        if code is ErrorCode.PRODUCER_FENCED:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if code is ErrorCode.TRANSACTION_ABORTABLE and self.support is TransactionSupport.OLDEST:
            return ErrorCode.INVALID_TXN_STATE
        return code

    def settle(self, errors: Errors) -> None:
        """Store the answer, and wake the task that waits for it."""
        self.errors = errors
        if self.settled is not None:
            self.settled.set()


class Verifier(Protocol):
    """Interface of the verifier of transactions, which sends questions to transaction coordinators."""

    def ask(self, question: Question) -> Worked[Errors]:
        """Return the answer to a question; it is ready immediately if the coordinator on this broker knows it."""
