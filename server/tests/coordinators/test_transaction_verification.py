"""Questions about transactions reach the coordinator's broker: one request at a time, and each gets its own answer."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Iterable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import trio

from ottla.groupcoord.transactions.metadata import Producer
from ottla.replication.cluster.peers import PeerUnavailable
from ottla.server.coordinators import transaction_verification
from ottla.server.coordinators.transaction_questions import Errors, Question, TopicPartition, TransactionSupport
from ottla.server.coordinators.transaction_verification import TransactionVerifier
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.transactions import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
)

HERE, THERE = 1, 2
T0, T1, U0 = ("t", 0), ("t", 1), ("u", 0)


def result(transactional_id: str, errors: Errors) -> AddPartitionsToTxnResult:
    return AddPartitionsToTxnResult(
        transactional_id=transactional_id,
        topic_results=[
            AddPartitionsToTxnTopicResult(
                name=topic,
                results_by_partition=[
                    AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=code)
                ],
            )
            for (topic, index), code in errors.items()
        ],
    )


class Coordinator:
    """A broker that others ask: it keeps the requests, and answers each when it may."""

    def __init__(self) -> None:
        self.requests: list[AddPartitionsToTxnRequest] = []
        self.told: list[tuple[Producer, bool]] = []  # by a call, and whether it was only a question
        self.may_answer = trio.Event()
        self.may_answer.set()
        self.code = ErrorCode.NONE
        self.errors: dict[tuple[str, int], ErrorCode] = {}
        self.failure: Exception | None = None
        self.connections = 0
        self.closed = 0

    async def ask(self, request: AddPartitionsToTxnRequest, version: int, *, timeout_s: float) -> Any:
        assert version == 5
        self.requests.append(request)
        with trio.move_on_after(timeout_s) as scope:
            await self.may_answer.wait()
        if scope.cancelled_caught:
            raise PeerUnavailable("no answer")
        if self.failure is not None:
            raise self.failure
        return self.response(request)

    def response(self, request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnResponse:
        if self.code:
            return AddPartitionsToTxnResponse(error_code=self.code)
        results = []
        for each in request.transactions:
            places = [(topic.name, index) for topic in each.topics for index in topic.partitions]
            results.append(result(each.transactional_id, self.errors_of(places)))
        return AddPartitionsToTxnResponse(results_by_transaction=results)

    def errors_of(self, places: Iterable[TopicPartition]) -> Errors:
        return {place: self.errors.get(place, self.code) for place in places}

    async def aclose(self) -> None:
        self.closed += 1

    def asked(self) -> list[list[str]]:
        return [[each.transactional_id for each in request.transactions] for request in self.requests]


class Broker:
    """What a verifier sees of a broker whose transactional ids are coordinated elsewhere, or by itself."""

    node_id = HERE

    def __init__(self, leader: int | None = THERE) -> None:
        self.coordinator = Coordinator()
        self.leader = leader
        self.config: Any = SimpleNamespace(server=SimpleNamespace(request_timeout_ms=30_000))
        self.cluster: Any = SimpleNamespace(partition=self._partition, brokers={HERE: None, THERE: None})
        self.member: Any = self
        self.transactions: Any = SimpleNamespace(partition_for=len, take_part=self._take_part)

    def _partition(self, topic: str, index: int) -> Any:
        assert topic == "__transaction_state"
        return None if self.leader is None else SimpleNamespace(leader=self.leader)

    def peer(self, broker_id: int, *, purpose: str) -> Coordinator:
        assert broker_id == THERE
        self.coordinator.connections += 1
        return self.coordinator

    def _take_part(self, producer: Producer, partitions: Collection[TopicPartition], *, verify_only: bool) -> Errors:
        self.coordinator.told.append((producer, verify_only))
        return self.coordinator.errors_of(partitions)


def question(
    transactional_id: str = "tx",
    *partitions: tuple[str, int],
    support: TransactionSupport = TransactionSupport.EPOCH_BUMP,
) -> Question:
    return Question(Producer(transactional_id, 7, 3), partitions or (T0,), support)


@asynccontextmanager
async def running(broker: Any) -> AsyncIterator[tuple[TransactionVerifier, trio.Nursery]]:
    async with trio.open_nursery() as nursery:
        verifier = TransactionVerifier(broker)
        verifier.start_in(nursery)
        yield verifier, nursery
        nursery.cancel_scope.cancel()


async def answered(verifier: TransactionVerifier, asked: Question) -> Errors:
    answer: Any = verifier.ask(asked)
    return answer if isinstance(answer, dict) else await answer


def test_the_own_coordinator_is_asked_by_a_call() -> None:
    broker: Any = Broker(HERE)
    broker.coordinator.errors = {T1: ErrorCode.TRANSACTION_ABORTABLE}
    errors = TransactionVerifier(broker).ask(question("tx", T0, T1, U0))
    assert errors == {T0: ErrorCode.NONE, T1: ErrorCode.TRANSACTION_ABORTABLE, U0: ErrorCode.NONE}
    assert broker.coordinator.told == [(Producer("tx", 7, 3), False)]


@pytest.mark.parametrize("leader", [None, -1, 5])
def test_without_a_coordinator_that_can_be_reached_nothing_is_verified(leader: int | None) -> None:
    broker: Any = Broker(leader)
    assert TransactionVerifier(broker).ask(question()) == {T0: ErrorCode.COORDINATOR_NOT_AVAILABLE}


@pytest.mark.parametrize(
    ("support", "code", "expected"),
    [
        (TransactionSupport.OLDEST, ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH),
        (TransactionSupport.EPOCH_BUMP, ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH),
        (TransactionSupport.OLDEST, ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.INVALID_TXN_STATE),
        (TransactionSupport.ABORTABLE, ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.TRANSACTION_ABORTABLE),
        (TransactionSupport.OLDEST, ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.CONCURRENT_TRANSACTIONS),
    ],
)
async def test_errors_are_told_in_words_that_the_client_knows(
    support: TransactionSupport, code: ErrorCode, expected: ErrorCode
) -> None:
    for leader in (HERE, THERE):
        broker = Broker(leader)
        broker.coordinator.errors = {T0: code}
        async with running(broker) as (verifier, _):
            assert await answered(verifier, question(support=support)) == {T0: expected}
        asked = [each.transactions[0].verify_only for each in broker.coordinator.requests]
        asked += [verify_only for _, verify_only in broker.coordinator.told]
        assert asked == [support is not TransactionSupport.EPOCH_BUMP]


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
async def test_an_error_of_the_whole_request_is_that_of_every_partition(code: ErrorCode, expected: ErrorCode) -> None:
    broker = Broker()
    broker.coordinator.code = code
    async with running(broker) as (verifier, _):
        assert await answered(verifier, question("tx", T0, U0)) == {T0: expected, U0: expected}


async def test_what_a_response_does_not_name_is_not_verified(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Broker()
    incomplete = AddPartitionsToTxnResponse(
        results_by_transaction=[result("other", {T1: ErrorCode.NONE}), result("tx", {T0: ErrorCode.NONE})]
    )
    monkeypatch.setattr(broker.coordinator, "response", lambda request: incomplete)
    async with running(broker) as (verifier, _):
        errors = await answered(verifier, question("tx", T0, T1))
    assert errors == {T0: ErrorCode.NONE, T1: ErrorCode.NETWORK_EXCEPTION}


async def test_one_request_is_under_way_and_the_next_takes_up_what_waits() -> None:
    broker = Broker()
    broker.coordinator.may_answer = trio.Event()
    broker.coordinator.errors = {U0: ErrorCode.INVALID_PRODUCER_ID_MAPPING}
    answers: dict[str, Errors] = {}

    async def ask(name: str, asked: Question) -> None:
        answers[name] = await answered(verifier, asked)

    async with running(broker) as (verifier, nursery):
        async with trio.open_nursery() as askers:
            for name, asked in {
                "first": question("a"),
                "second": question("b", U0),
                "third": question("c", T0, U0),
                "again": question("b", T1),
            }.items():
                askers.start_soon(ask, name, asked)
                await trio.testing.wait_all_tasks_blocked()
            assert broker.coordinator.asked() == [["a"]]
            broker.coordinator.may_answer.set()
        assert nursery.child_tasks
    # A transactional id stands in a request once, because results are told apart by it.
    assert broker.coordinator.asked() == [["a"], ["b", "c"], ["b"]]
    mapping = ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert answers == {
        "first": {T0: ErrorCode.NONE},
        "second": {U0: mapping},
        "third": {T0: ErrorCode.NONE, U0: mapping},
        "again": {T1: ErrorCode.NONE},
    }
    assert broker.coordinator.connections == broker.coordinator.closed == 1


async def test_a_request_does_not_grow_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction_verification, "PARTITIONS_PER_REQUEST", 3)
    broker = Broker()
    broker.coordinator.may_answer = trio.Event()
    async with running(broker) as (verifier, _), trio.open_nursery() as askers:
        for name in "abcd":
            askers.start_soon(answered, verifier, question(name, T0, T1))
            await trio.testing.wait_all_tasks_blocked()
        broker.coordinator.may_answer.set()
    assert broker.coordinator.asked() == [["a"], ["b", "c"], ["d"]]


async def test_who_has_left_is_not_asked_for() -> None:
    broker = Broker()
    broker.coordinator.may_answer = trio.Event()
    async with running(broker) as (verifier, _), trio.open_nursery() as askers:
        askers.start_soon(answered, verifier, question("a"))
        await trio.testing.wait_all_tasks_blocked()
        async with trio.open_nursery() as leaving:
            leaving.start_soon(answered, verifier, question("b"))
            await trio.testing.wait_all_tasks_blocked()
            leaving.cancel_scope.cancel()
        askers.start_soon(answered, verifier, question("c"))
        await trio.testing.wait_all_tasks_blocked()
        broker.coordinator.may_answer.set()
    assert broker.coordinator.asked() == [["a"], ["c"]]


@pytest.mark.parametrize(("failure", "connections"), [(PeerUnavailable("gone"), 2), (ValueError("a bug"), 1)])
async def test_a_coordinator_that_does_not_answer_verifies_nothing(
    failure: Exception, connections: int, caplog: pytest.LogCaptureFixture
) -> None:
    broker = Broker()
    broker.coordinator.failure = failure
    async with running(broker) as (verifier, _):
        assert await answered(verifier, question()) == {T0: ErrorCode.NETWORK_EXCEPTION}
        broker.coordinator.failure = None
        assert await answered(verifier, question()) == {T0: ErrorCode.NONE}
        assert broker.coordinator.connections == connections
    assert ("bug" in caplog.text) == isinstance(failure, ValueError)


async def test_nobody_waits_longer_than_a_request_may_take(autojump_clock: trio.testing.MockClock) -> None:
    broker = Broker()
    broker.coordinator.may_answer = trio.Event()
    async with running(broker) as (verifier, _):
        before = trio.current_time()
        assert await answered(verifier, question()) == {T0: ErrorCode.NETWORK_EXCEPTION}
        assert trio.current_time() - before == pytest.approx(30)
        broker.coordinator.may_answer.set()
        assert await answered(verifier, question()) == {T0: ErrorCode.NONE}
