"""Batches of transactions are appended when their coordinator knows the partition: from InitProducerId to the marker."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from inspect import isawaitable
from pathlib import Path
from typing import Any

import pytest
import trio

from ottla.groupcoord.runtime.answers import finished
from ottla.replication.cluster.metadata_cache import TRANSACTION_STATE_TOPIC
from ottla.replication.log.batch_checks import AppendOrigin
from ottla.replication.log.tests.logs import NOW_MS, idempotent, marker
from ottla.server.api.handlers.produce import produce
from ottla.server.api.handlers.producer_ids import init_producer_id
from ottla.server.api.handlers.transactions import add_partitions_to_txn, end_txn
from ottla.server.api.produce import appending
from ottla.server.coordinators.transaction_questions import Errors, Question, TransactionSupport
from ottla.server.tests.administered import AdministeredBroker, opened
from ottla.server.tests.api.test_topic_handlers import creatable, create
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.messages.producer_ids import InitProducerIdRequest
from ottla.wire.messages.transactions import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic, EndTxnRequest

# The last version of Produce of a client of each kind.
OLDEST, ABORTABLE, EPOCH_BUMP = 10, 11, 12
PRODUCER = 7


def data(
    index: int = 0, sequence: int = 0, *, producer_id: int = PRODUCER, epoch: int = 0, **options: Any
) -> PartitionProduceData:
    options = {"is_transactional": True} | options
    records = idempotent(sequence, producer_id=producer_id, epoch=epoch, **options)
    return PartitionProduceData(index=index, records=records)


def asked(
    broker: AdministeredBroker,
    *partitions: PartitionProduceData,
    version: int = EPOCH_BUMP,
    topic: str = "t",
    transactional_id: str | None = "tx",
    acks: int = -1,
) -> Any:
    request = ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=1000,
        topic_data=[TopicProduceData(name=topic, partition_data=list(partitions))],
    )
    return produce(request, broker.context(version))


def told(response: Any) -> list[ErrorCode]:
    return [ErrorCode(each.error_code) for topic in response.responses for each in topic.partition_responses]


async def sent(broker: AdministeredBroker, *partitions: PartitionProduceData, **options: Any) -> list[ErrorCode]:
    answer = asked(broker, *partitions, **options)
    if isawaitable(answer):
        answer = await answer
    return told(await finished(answer))


class Scripted:
    """Takes the place of the verifier, and gives these answers in turn; the last one again and again."""

    def __init__(self, *codes: ErrorCode, wait: bool = False) -> None:
        self.codes = list(codes)
        self.questions: list[Question] = []
        self.wait = wait
        self.meanwhile: Callable[[], None] = lambda: None

    def ask(self, question: Question) -> Any:
        self.questions.append(question)
        code = self.codes.pop(0) if len(self.codes) > 1 else self.codes[0]
        return self._later(question, code) if self.wait else self._errors(question, code)

    async def _later(self, question: Question, code: ErrorCode) -> Errors:
        await trio.lowlevel.checkpoint()
        self.meanwhile()
        return self._errors(question, code)

    def _errors(self, question: Question, code: ErrorCode) -> Mapping[tuple[str, int], ErrorCode]:
        return dict.fromkeys(question.partitions, code)


async def with_topic(
    tmp_path: Path, scripted: Scripted | None = None, settings: dict[str, str] | None = None
) -> AdministeredBroker:
    broker = await opened(tmp_path, settings)
    await create(broker, creatable("t", 3))
    broker.coordinators.load_code()  # as if a partition of transactions had been led
    if scripted is not None:
        broker.transaction_verifier = scripted  # type: ignore[assignment]
    return broker


def abort(broker: AdministeredBroker, index: int = 0, epoch: int = 0) -> None:
    broker.partition("t", index).append_as_leader(
        marker(producer_id=PRODUCER, epoch=epoch),
        required_acks=-1,
        now_ms=NOW_MS,
        origin=AppendOrigin.COORDINATOR,
    )


# --- with a coordinator -----------------------------------------------------------------------------------------------


async def with_coordinator(tmp_path: Path) -> AdministeredBroker:
    settings = {
        "transaction.state.log.num.partitions": "1",
        # However long the markers of the last transaction take on a busy machine.
        "add.partitions.to.txn.retry.backoff.max.ms": "60000",
    }
    broker = await with_topic(tmp_path, settings=settings)
    await broker.ensure_internal_topic(TRANSACTION_STATE_TOPIC)
    await trio.testing.wait_all_tasks_blocked()  # its coordinator has loaded it
    return broker


async def initialized(broker: AdministeredBroker) -> tuple[int, int]:
    request = InitProducerIdRequest(transactional_id="tx", transaction_timeout_ms=60_000)
    answer: Any = init_producer_id(request, broker.context(5))
    response: Any = await finished(answer)
    assert response.error_code == ErrorCode.NONE
    return response.producer_id, response.producer_epoch


async def end(broker: AdministeredBroker, producer_id: int, epoch: int, *, version: int = 5) -> tuple[int, int]:
    request = EndTxnRequest(transactional_id="tx", producer_id=producer_id, producer_epoch=epoch, committed=True)
    answer: Any = end_txn(request, broker.context(version))
    response: Any = await finished(answer)
    assert response.error_code == ErrorCode.NONE
    return response.producer_id, response.producer_epoch


async def test_the_first_batch_adds_its_partition_to_the_transaction(tmp_path: Path) -> None:
    broker = await with_coordinator(tmp_path)
    producer_id, epoch = await initialized(broker)
    for _ in range(3):  # transactions, each of which begins as soon as the one before it was told to end
        first, second = (data(index, producer_id=producer_id, epoch=epoch) for index in (0, 2))
        assert await sent(broker, first, second) == [ErrorCode.NONE] * 2
        assert await sent(broker, data(0, 1, producer_id=producer_id, epoch=epoch)) == [ErrorCode.NONE]
        producer_id, epoch = await end(broker, producer_id, epoch)
    await trio.testing.wait_all_tasks_blocked()
    partitions = [broker.partition("t", index) for index in range(3)]
    assert [each.log_end_offset for each in partitions] == [9, 0, 6]
    assert [each.last_stable_offset for each in partitions] == [9, 0, 6]


@pytest.mark.parametrize("version", [OLDEST, ABORTABLE])
async def test_older_clients_have_to_add_their_partitions_before(tmp_path: Path, version: int) -> None:
    broker = await with_coordinator(tmp_path)
    producer_id, epoch = await initialized(broker)
    first = data(0, producer_id=producer_id, epoch=epoch)
    refused = ErrorCode.INVALID_TXN_STATE if version == OLDEST else ErrorCode.TRANSACTION_ABORTABLE
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="tx",
        v3_and_below_producer_id=producer_id,
        v3_and_below_producer_epoch=epoch,
        v3_and_below_topics=[AddPartitionsToTxnTopic(name="t", partitions=[1])],
    )
    await finished(add_partitions_to_txn(request, broker.context(3)))
    assert await sent(broker, first, version=version) == [refused]
    assert await sent(broker, data(1, producer_id=producer_id, epoch=epoch), version=version) == [ErrorCode.NONE]
    request.v3_and_below_topics[0].partitions = [0]
    await finished(add_partitions_to_txn(request, broker.context(3)))
    assert await sent(broker, first, version=version) == [ErrorCode.NONE]


async def test_a_producer_that_was_replaced_writes_nothing(tmp_path: Path) -> None:
    broker = await with_coordinator(tmp_path)
    producer_id, epoch = await initialized(broker)
    await initialized(broker)
    late = data(producer_id=producer_id, epoch=epoch)
    assert await sent(broker, late) == [ErrorCode.INVALID_PRODUCER_EPOCH]
    assert await sent(broker, data(producer_id=producer_id + 1)) == [ErrorCode.INVALID_PRODUCER_ID_MAPPING]
    assert await sent(broker, late, transactional_id="") == [ErrorCode.INVALID_REQUEST]
    assert broker.partition("t", 0).log_end_offset == 0


async def test_without_a_coordinator_the_producer_is_to_try_again(tmp_path: Path) -> None:
    broker = await with_topic(tmp_path)
    response: Any = asked(broker, data())
    [answer] = response.responses[0].partition_responses
    assert (answer.error_code, answer.base_offset, answer.log_start_offset) == (ErrorCode.NOT_ENOUGH_REPLICAS, -1, -1)
    assert answer.error_message.endswith("COORDINATOR_NOT_AVAILABLE")


# --- what coordinators answer -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "version", "expected", "text"),
    [
        (ErrorCode.NOT_COORDINATOR, OLDEST, ErrorCode.NOT_ENOUGH_REPLICAS, "NOT_COORDINATOR"),
        (
            ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
            EPOCH_BUMP,
            ErrorCode.NOT_ENOUGH_REPLICAS,
            "COORDINATOR_LOAD_IN_PROGRESS",
        ),
        (ErrorCode.NETWORK_EXCEPTION, EPOCH_BUMP, ErrorCode.NOT_ENOUGH_REPLICAS, "NETWORK_EXCEPTION"),
        (ErrorCode.CONCURRENT_TRANSACTIONS, ABORTABLE, ErrorCode.NOT_ENOUGH_REPLICAS, "CONCURRENT_TRANSACTIONS"),
        (
            ErrorCode.INVALID_TXN_STATE,
            OLDEST,
            ErrorCode.INVALID_TXN_STATE,
            "Partition was not added to the transaction",
        ),
        (ErrorCode.TRANSACTION_ABORTABLE, ABORTABLE, ErrorCode.TRANSACTION_ABORTABLE, None),
        (ErrorCode.INVALID_PRODUCER_EPOCH, ABORTABLE, ErrorCode.INVALID_PRODUCER_EPOCH, None),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, ABORTABLE, ErrorCode.INVALID_PRODUCER_ID_MAPPING, None),
    ],
)
async def test_errors_of_coordinators_are_told_in_words_that_producers_know(
    tmp_path: Path, code: ErrorCode, version: int, expected: ErrorCode, text: str | None
) -> None:
    broker = await with_topic(tmp_path, Scripted(code))
    response: Any = asked(broker, data(), version=version)
    [answer] = response.responses[0].partition_responses
    assert answer.error_code == expected
    assert answer.error_message is None if text is None else answer.error_message.endswith(text)
    assert broker.partition("t", 0).log_end_offset == 0


@pytest.mark.parametrize(
    ("version", "support"),
    [
        (9, TransactionSupport.OLDEST),
        (OLDEST, TransactionSupport.OLDEST),
        (ABORTABLE, TransactionSupport.ABORTABLE),
        (EPOCH_BUMP, TransactionSupport.EPOCH_BUMP),
    ],
)
async def test_the_version_says_what_the_client_knows(
    tmp_path: Path, version: int, support: TransactionSupport
) -> None:
    verifier = Scripted(ErrorCode.NONE)
    broker = await with_topic(tmp_path, verifier)
    assert await sent(broker, data(), version=version) == [ErrorCode.NONE]
    [question] = verifier.questions
    assert question.support is support
    assert question.verify_only == (support is not TransactionSupport.EPOCH_BUMP)


async def test_partitions_are_refused_each_for_itself(tmp_path: Path) -> None:
    verifier = Scripted(ErrorCode.NONE)
    broker = await with_topic(tmp_path, verifier)
    assert await sent(broker, data(0, epoch=1)) == [ErrorCode.NONE]
    broker.partition("t", 1).make_follower(leader_id=2, leader_epoch=9, partition_epoch=9, replicas=(1, 2))
    verifier.codes = [ErrorCode.NOT_COORDINATOR]
    codes = await sent(broker, *(data(index, 1 if index == 0 else 0, epoch=1) for index in range(4)))
    assert codes == [
        ErrorCode.NONE,  # its transaction is open
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert [each.partitions for each in verifier.questions] == [[("t", 0)], [("t", 2)]]
    assert await sent(broker, data(0, 0, epoch=0)) == [ErrorCode.INVALID_PRODUCER_EPOCH]
    assert len(verifier.questions) == 2


async def test_an_open_transaction_asks_nobody(tmp_path: Path) -> None:
    verifier = Scripted(ErrorCode.NONE)
    broker = await with_topic(tmp_path, verifier)
    for sequence in range(5):
        assert await sent(broker, data(0, sequence)) == [ErrorCode.NONE]
    assert len(verifier.questions) == 1
    abort(broker)
    assert await sent(broker, data(0, 5)) == [ErrorCode.NONE]
    assert len(verifier.questions) == 2


@pytest.mark.parametrize("options", [{"acks": 2}, {"topic": TRANSACTION_STATE_TOPIC}, {"topic": "nowhere"}])
async def test_what_is_refused_anyway_asks_nobody(tmp_path: Path, options: dict[str, Any]) -> None:
    verifier = Scripted(ErrorCode.NONE)
    broker = await with_topic(tmp_path, verifier)
    await broker.ensure_internal_topic(TRANSACTION_STATE_TOPIC)
    assert await sent(broker, data(), **options) != [ErrorCode.NONE]
    assert await sent(broker, data(producer_id=-1, epoch=-1), **options) != [ErrorCode.NONE]
    assert verifier.questions == []


async def test_records_outside_of_transactions_ask_nobody(tmp_path: Path) -> None:
    verifier = Scripted(ErrorCode.NONE)
    broker = await with_topic(tmp_path, verifier)
    assert await sent(broker, data(is_transactional=False)) == [ErrorCode.NONE]
    assert verifier.questions == []


async def test_a_request_has_transactions_of_one_producer_only(tmp_path: Path) -> None:
    verifier = Scripted(ErrorCode.NONE)
    broker = await with_topic(tmp_path, verifier)
    mapping = ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert await sent(broker, data(0), data(1, producer_id=8), data(9)) == [mapping] * 3
    assert await sent(broker, data(0), data(1, epoch=1)) == [mapping] * 2
    assert verifier.questions == []


def damaged(at: int, patch: bytes, index: int = 1) -> PartitionProduceData:
    records = bytearray(data().records or b"")
    records[at : at + len(patch)] = patch
    return PartitionProduceData(index=index, records=memoryview(records))


@pytest.mark.parametrize(("at", "patch"), [(16, b"\x71"), (8, b"\0\0\0\1")], ids=["magic", "size"])
async def test_a_corrupt_batch_behind_a_transactional_one_is_refused_for_itself(
    tmp_path: Path, at: int, patch: bytes
) -> None:
    """As by Kafka, which validates each partition's records by itself."""
    broker = await with_topic(tmp_path, Scripted(ErrorCode.NONE))
    codes = await sent(broker, data(), damaged(at, patch), data(2))
    assert codes == [ErrorCode.NONE, ErrorCode.CORRUPT_MESSAGE, ErrorCode.NONE]


async def test_a_size_beyond_31_bits_fails_the_whole_request(tmp_path: Path) -> None:
    """In Kafka it becomes negative, and an exception that is none of the protocol's."""
    broker = await with_topic(tmp_path, Scripted(ErrorCode.NONE))
    assert await sent(broker, data(), damaged(8, b"\x7f\xff\xff\xff"), data(2)) == [ErrorCode.UNKNOWN_SERVER_ERROR] * 3
    assert broker.partition("t", 0).log.log_end_offset == 0


async def test_a_transactional_batch_needs_a_transactional_id(tmp_path: Path) -> None:
    broker = await with_topic(tmp_path, Scripted(ErrorCode.NONE))
    refused = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert await sent(broker, data(), transactional_id=None) == [refused]


# --- while the coordinator is asked -----------------------------------------------------------------------------------


async def test_an_answer_that_takes_time_is_awaited(tmp_path: Path) -> None:
    broker = await with_topic(tmp_path, Scripted(ErrorCode.NONE, wait=True))
    [first, second] = data(0), data(1)
    kept = bytearray(second.records or b"")
    second.records = memoryview(kept)
    answer = asked(broker, first, second)
    # Meanwhile the receive buffer serves other connections.
    kept[:] = bytes(len(kept))
    assert told(await answer) == [ErrorCode.NONE] * 2
    assert [broker.partition("t", index).log_end_offset for index in range(3)] == [1, 1, 0]


async def test_a_marker_that_comes_meanwhile_makes_the_answer_worthless(tmp_path: Path) -> None:
    verifier = Scripted(ErrorCode.NONE, wait=True)
    broker = await with_topic(tmp_path, verifier)
    verifier.meanwhile = lambda: abort(broker)
    assert await sent(broker, data(), version=ABORTABLE) == [ErrorCode.INVALID_TXN_STATE]
    assert broker.partition("t", 0).last_stable_offset == 1
    verifier.meanwhile = lambda: None
    assert await sent(broker, data(), version=ABORTABLE) == [ErrorCode.NONE]


async def test_a_leader_that_is_replaced_meanwhile_appends_nothing(tmp_path: Path) -> None:
    verifier = Scripted(ErrorCode.NONE, wait=True)
    broker = await with_topic(tmp_path, verifier)
    partition = broker.partition("t", 0)
    verifier.meanwhile = lambda: (
        partition.make_follower(leader_id=2, leader_epoch=9, partition_epoch=9, replicas=(1, 2)) and None
    )
    assert await sent(broker, data()) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]


@pytest.mark.parametrize("wait", [False, True])
async def test_a_transaction_that_is_ending_is_asked_about_again(
    tmp_path: Path, autojump_clock: trio.testing.MockClock, wait: bool
) -> None:
    ending = ErrorCode.CONCURRENT_TRANSACTIONS
    verifier = Scripted(ending, ending, ErrorCode.NONE, wait=wait)
    broker = await with_topic(tmp_path, verifier)
    before = trio.current_time()
    assert await sent(broker, data()) == [ErrorCode.NONE]
    assert len(verifier.questions) == 3
    assert trio.current_time() - before == pytest.approx(0.04)


async def test_in_the_end_the_producer_hears_that_a_transaction_is_ending(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    verifier = Scripted(ErrorCode.CONCURRENT_TRANSACTIONS)
    settings = {"add.partitions.to.txn.retry.backoff.ms": "30", "add.partitions.to.txn.retry.backoff.max.ms": "70"}
    broker = await with_topic(tmp_path, verifier, settings)
    assert await sent(broker, data()) == [ErrorCode.CONCURRENT_TRANSACTIONS]
    assert len(verifier.questions) == 4  # after 0, 30, 60 and 90 ms
    assert await sent(broker, data(), version=ABORTABLE) == [ErrorCode.NOT_ENOUGH_REPLICAS]
    assert len(verifier.questions) == 5


async def test_a_batch_behind_one_that_could_not_be_verified_waits_for_it(tmp_path: Path) -> None:
    verifier = Scripted(ErrorCode.NOT_COORDINATOR, ErrorCode.NONE)
    broker = await with_topic(tmp_path, verifier)
    refused = [ErrorCode.NOT_ENOUGH_REPLICAS]
    assert await sent(broker, data(0, 0)) == refused
    assert await sent(broker, data(0, 1)) == refused
    assert [await sent(broker, data(0, sequence)) for sequence in (0, 1)] == [[ErrorCode.NONE]] * 2


async def test_a_request_of_many_partitions_is_verified_in_slices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ottla.server.api.handlers.produce.PARTITIONS_AT_ONCE", 2)
    for wait in (False, True):
        verifier = Scripted(ErrorCode.NONE, wait=wait)
        broker = await with_topic(tmp_path / str(wait), verifier)
        assert await sent(broker, data(0), data(1), data(2)) == [ErrorCode.NONE] * 3
        assert len(verifier.questions) == 1
        assert await sent(broker, data(0, 1), data(1, 1), data(2, 1)) == [ErrorCode.NONE] * 3
        assert len(verifier.questions) == 1


async def test_a_batch_that_is_checked_in_a_thread_is_verified_as_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(appending, "ordinary_header", lambda records: None)
    monkeypatch.setattr(appending, "is_expensive", lambda records, rules: True)
    monkeypatch.setattr(appending, "check_quickly", lambda *_, **__: None)
    verifier = Scripted(ErrorCode.NONE)
    broker = await with_topic(tmp_path, verifier)
    assert await sent(broker, data()) == [ErrorCode.NONE]
    verifier.codes = [ErrorCode.INVALID_TXN_STATE]
    abort(broker)
    assert await sent(broker, data(0, 1)) == [ErrorCode.INVALID_TXN_STATE]
    assert broker.partition("t", 0).log_end_offset == 2


# --- switched off -----------------------------------------------------------------------------------------------------


async def test_where_verification_is_off_only_new_clients_ask(tmp_path: Path) -> None:
    verifier = Scripted(ErrorCode.NONE)
    broker = await with_topic(tmp_path, verifier, {"transaction.partition.verification.enable": "false"})
    assert await sent(broker, data(0, 3), version=ABORTABLE) == [ErrorCode.NONE]
    assert verifier.questions == []
    assert await sent(broker, data(1, 3)) == [ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER]
    assert await sent(broker, data(1)) == [ErrorCode.NONE]
    assert len(verifier.questions) == 2
