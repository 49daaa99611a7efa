"""Verification of transactions: asks coordinators whether partitions take part, before anything is written in one (KIP-890).

Clients up to transaction version 1 have added the partition at the coordinator before; it only has to confirm that. Later
ones leave it to the leader of the partition, which adds it with the same request.

A coordinator on this broker is asked by a call, and answers at once where its log commits at once. Another broker gets
AddPartitionsToTxn: one request is under way to each, and takes up all questions that wait by then, but only one of each
transactional id, because that is the key of the results. Who asks waits no longer than request.timeout.ms.

What the answers mean is in `transaction_questions.py`. Where no coordinator is known each partition is
COORDINATOR_NOT_AVAILABLE; where it does not answer in time, NETWORK_EXCEPTION.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

import trio

from ottla.groupcoord.runtime.answers import finished
from ottla.groupcoord.transactions.metadata import Producer
from ottla.replication.cluster.metadata_cache import GROUP_METADATA_TOPIC, NO_LEADER, TRANSACTION_STATE_TOPIC
from ottla.replication.cluster.peers import PeerUnavailable
from ottla.replication.log.verification import NOT_REQUIRED
from ottla.server.coordinators.transaction_questions import Errors, Question, TransactionSupport
from ottla.server.ports import BrokerParts
from ottla.wire.answers import Given, PendingAnswer, Worked
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.messages.transactions import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse

if TYPE_CHECKING:
    from ottla.replication.cluster.peers import Peer
    from ottla.replication.log.verification import VerificationGuard

logger = logging.getLogger("ottla.transactions")

VERSION = 5
"""The first in which a coordinator says TRANSACTION_ABORTABLE. Brokers of Kafka 3.9 have it."""
PARTITIONS_PER_REQUEST = 1_000


class TransactionVerifier:
    """Verifier of transactions: it sends questions to their coordinators, on this broker or others."""

    def __init__(self, broker: BrokerParts) -> None:
        self._broker = broker
        self._queues: dict[int, _CoordinatorQueue] = {}
        self._nursery: trio.Nursery | None = None

    def start_in(self, nursery: trio.Nursery) -> None:
        """Start the tasks that send questions to other brokers, in `nursery`."""
        self._nursery = nursery

    def ask(self, question: Question) -> Worked[Errors]:
        """Return the answer to a question; it is ready immediately if the coordinator on this broker knows it."""
        coordinator = self._coordinator_of(question.transactional_id)
        if coordinator is None:
            return question.all_are(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if coordinator != self._broker.node_id:
            return self._ask_peer(coordinator, question)
        transactions = self._broker.transactions
        answer = transactions.take_part(question.producer, question.partitions, verify_only=question.verify_only)
        if isinstance(answer, PendingAnswer | Coroutine):
            return self._wait_for_own(answer, question)
        return question.heard(answer)

    def _coordinator_of(self, transactional_id: str) -> int | None:
        cluster = self._broker.cluster
        state = cluster.partition(TRANSACTION_STATE_TOPIC, self._broker.transactions.partition_for(transactional_id))
        if state is None or state.leader == NO_LEADER:
            return None
        return state.leader if state.leader == self._broker.node_id or state.leader in cluster.brokers else None

    async def _wait_for_own(self, answer: Worked[Given[Errors]], question: Question) -> Errors:
        with trio.move_on_after(self._timeout_s()):
            return question.heard(await finished(answer))
        return question.all_are(ErrorCode.NETWORK_EXCEPTION)

    async def _ask_peer(self, coordinator: int, question: Question) -> Errors:
        queue = self._queues.get(coordinator)
        if queue is None:
            assert self._nursery is not None
            queue = self._queues[coordinator] = _CoordinatorQueue(coordinator)
            self._nursery.start_soon(self._work_off, queue)
        question.settled = trio.Event()
        queue.add(question)
        try:
            with trio.move_on_after(self._timeout_s()):
                await question.settled.wait()
                return question.errors
            return question.all_are(ErrorCode.NETWORK_EXCEPTION)
        finally:
            # A client that has left must not have partitions added that get no records.
            question.is_abandoned = True

    def _timeout_s(self) -> float:
        return self._broker.config.server.request_timeout_ms / 1000

    async def _work_off(self, queue: _CoordinatorQueue) -> None:
        try:
            while questions := await queue.next_questions():
                request = AddPartitionsToTxnRequest(transactions=[each.transaction() for each in questions])
                try:
                    response = await self._ask(queue, request)
                except PeerUnavailable:
                    # It may come back at another address.
                    await queue.aclose()
                    response = None
                except Exception:  # one bad request must not end the questions of everybody
                    logger.exception("bug: verification of transactions by broker %d", queue.coordinator)
                    response = None
                for each in questions:
                    each.settle(
                        each.all_are(ErrorCode.NETWORK_EXCEPTION) if response is None else each.answer(response)
                    )
        finally:
            await queue.aclose()

    async def _ask(self, queue: _CoordinatorQueue, request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnResponse:
        if queue.peer is None:
            purpose = f"broker-{self._broker.node_id}-transaction-verifier"
            queue.peer = self._broker.member.peer(queue.coordinator, purpose=purpose)
        response: AddPartitionsToTxnResponse = await queue.peer.ask(request, VERSION, timeout_s=self._timeout_s())
        return response


class _CoordinatorQueue:
    """Queue of questions to the coordinator on one other broker."""

    def __init__(self, coordinator: int) -> None:
        self.coordinator = coordinator
        self.peer: Peer | None = None
        self._waiting: deque[Question] = deque()
        self._wake = trio.Event()

    def add(self, question: Question) -> None:
        self._waiting.append(question)
        self._wake.set()

    async def next_questions(self) -> list[Question]:
        """Wait for questions; return as many as fit into one request."""
        while True:
            taken: dict[str, Question] = {}
            later: list[Question] = []
            room = PARTITIONS_PER_REQUEST
            while self._waiting and room > 0:
                question = self._waiting.popleft()
                if question.is_abandoned:
                    continue
                transactional_id = question.transactional_id
                if transactional_id in taken:
                    later.append(question)
                    continue
                taken[transactional_id] = question
                room -= len(question.partitions)
            self._waiting.extendleft(reversed(later))
            if taken:
                return list(taken.values())
            self._wake = trio.Event()
            await self._wake.wait()

    async def aclose(self) -> None:
        peer, self.peer = self.peer, None
        if peer is not None:
            await peer.aclose()


NO_SEQUENCE = -1  # the records are the coordinator's


class OffsetsTopicVerifier:
    """Verifier of transactions that commit offsets in this broker's partitions."""

    def __init__(self, broker: BrokerParts) -> None:
        self._broker = broker

    def verify(
        self, partition: int, transactional_id: str, producer_id: int, producer_epoch: int, *, api_version: int
    ) -> Worked[VerificationGuard | None]:
        """Verify a transaction that commits offsets in a partition; return the guard to append with.

        The guard is None if none is needed. Raises KafkaError, either here or when the result is awaited.
        """
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
