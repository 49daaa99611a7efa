"""The port `CommitVerifier` of the group coordinator: verifies transactions that commit offsets in this broker's partitions."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Protocol

from ottla.groupcoord.transactions.producer import Producer
from ottla.replication.cluster.metadata_cache import GROUP_METADATA_TOPIC
from ottla.replication.log.verification import NOT_REQUIRED
from ottla.server.coordinators.transaction_questions import Errors, Question, TransactionSupport
from ottla.server.ports import HasEnvironment, HasPartitions, HasSettings, HasTransactionVerifier
from ottla.wire.answers import Worked
from ottla.wire.errors import KafkaError

if TYPE_CHECKING:
    from ottla.replication.log.verification import VerificationGuard

NO_SEQUENCE = -1  # the records are the coordinator's


class Port(HasPartitions, HasSettings, HasEnvironment, HasTransactionVerifier, Protocol):
    """Parts of the broker that this module uses."""


class OffsetsTopicVerifier:
    """Verifier of transactions that commit offsets in this broker's partitions."""

    def __init__(self, broker: Port) -> None:
        self._broker = broker

    def verify(
        self, partition: int, transactional_id: str, producer_id: int, producer_epoch: int, *, api_version: int
    ) -> Worked[VerificationGuard | None]:
        """The guard for the append; raises KafkaError, also when awaited."""
        support = TransactionSupport.of_offset_commit(api_version)
        bumps = support is TransactionSupport.EPOCH_BUMP
        if not bumps and not self._is_enabled:
            return NOT_REQUIRED
        log = self._broker.partition(GROUP_METADATA_TOPIC, partition).leading_log()
        guard = log.producer_state().start_verification(
            producer_id, NO_SEQUENCE, producer_epoch, supports_epoch_bump=bumps, now_ms=self._broker.now_ms()
        )
        if guard is None:
            return None if self._is_enabled else NOT_REQUIRED  # the transaction is open here
        producer = Producer(transactional_id, producer_id, producer_epoch)
        question = Question(producer, [(GROUP_METADATA_TOPIC, partition)], support)
        answer: Worked[Errors] = self._broker.transaction_verifier.ask(question)
        if isinstance(answer, Coroutine):
            return self._wait(answer, guard)
        return self._verified(answer, guard)

    @property
    def _is_enabled(self) -> bool:
        return self._broker.config.replication.transaction_partition_verification_enable

    async def _wait(self, answer: Coroutine[Any, Any, Errors], guard: VerificationGuard) -> VerificationGuard:
        return self._verified(await answer, guard)

    def _verified(self, errors: Errors, guard: VerificationGuard) -> VerificationGuard:
        for code in errors.values():
            if code:
                raise KafkaError(code)
        return guard if self._is_enabled else NOT_REQUIRED
