"""Whole transactions at a broker, from FindCoordinator to the markers in the logs, over restarts and other mishaps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from trio.testing import MockClock as Clock

from ottla.groupcoord.runtime.answers import finished
from ottla.replication.cluster.metadata_cache import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC
from ottla.server.api.handlers.describe_transactions import describe_transactions, list_transactions
from ottla.server.api.handlers.find_coordinator import find_coordinator
from ottla.server.api.handlers.producer_ids import init_producer_id
from ottla.server.api.handlers.transactions import add_offsets_to_txn, add_partitions_to_txn, end_txn
from ottla.server.tests.administered import AdministeredBroker, opened
from ottla.server.tests.api.test_topic_handlers import creatable, create
from ottla.wire.control_batches import decode_end_txn_marker
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.messages.describe_transactions import DescribeTransactionsRequest, ListTransactionsRequest
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest
from ottla.wire.messages.producer_ids import InitProducerIdRequest
from ottla.wire.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    EndTxnRequest,
)
from ottla.wire.record_decoding import decode_records
from ottla.wire.records import iter_batches

ID = "tx"
SETTINGS = {"transaction.state.log.num.partitions": "3", "offsets.topic.num.partitions": "3"}
CONCURRENT = ErrorCode.CONCURRENT_TRANSACTIONS


async def broker_with_topic(tmp_path: Path) -> AdministeredBroker:
    broker = await opened(tmp_path, SETTINGS)
    await create(broker, creatable("t", 2))
    request = FindCoordinatorRequest(key_type=1, coordinator_keys=[ID])
    (found,) = (await finished(find_coordinator(request, broker.context(4)))).coordinators
    assert (found.error_code, found.node_id) == (0, 1)
    await trio.testing.wait_all_tasks_blocked()
    return broker


async def init(broker: AdministeredBroker, name: str | None = ID, **details: int) -> Any:
    request = InitProducerIdRequest(transactional_id=name, **({"transaction_timeout_ms": 60_000} | details))
    return await finished(init_producer_id(request, broker.context(5)))


async def add(broker: AdministeredBroker, producer: Any, places: dict[str, list[int]]) -> ErrorCode:
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=ID,
        v3_and_below_producer_id=producer.producer_id,
        v3_and_below_producer_epoch=producer.producer_epoch,
        v3_and_below_topics=[AddPartitionsToTxnTopic(name=name, partitions=each) for name, each in places.items()],
    )
    response = await finished(add_partitions_to_txn(request, broker.context(3)))
    codes = {
        each.partition_error_code
        for topic in response.results_by_topic_v3_and_below
        for each in topic.results_by_partition
    }
    return ErrorCode(codes.pop())


async def end(broker: AdministeredBroker, producer: Any, *, commit: bool = True, version: int = 5) -> Any:
    request = EndTxnRequest(
        transactional_id=ID,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        committed=commit,
    )
    return await finished(end_txn(request, broker.context(version)))


async def state(broker: AdministeredBroker) -> str:
    request = DescribeTransactionsRequest(transactional_ids=[ID])
    (found,) = (await finished(describe_transactions(request, broker.context(0)))).transaction_states
    assert found.error_code == 0
    return str(found.transaction_state)


def markers(broker: AdministeredBroker, topic: str, index: int) -> list[tuple[int, int, str]]:
    """The markers in a log: producer id, epoch, and how the transaction ended."""
    log = broker.partition(topic, index).log
    read = log.read(0, 1_000_000, upper_bound=log.log_end_offset, at_least_one_batch=True)
    data = read.region if isinstance(read.region, bytes) else read.region.read()
    found = []
    for header, start, _ in iter_batches(data):
        for record in decode_records(data, start):
            if header.is_control:
                marker = decode_end_txn_marker(record)
                found.append((header.producer_id, header.producer_epoch, marker.control_type.name))
    return found


@pytest.mark.parametrize(("commit", "word"), [(True, "COMMIT"), (False, "ABORT")])
async def test_a_transaction_leaves_a_marker_in_each_partition(tmp_path: Path, commit: bool, word: str) -> None:
    broker = await broker_with_topic(tmp_path)
    producer = await init(broker)
    assert await add(broker, producer, {"t": [0, 1]}) == 0
    after = await end(broker, producer, commit=commit)
    assert (after.error_code, after.producer_epoch) == (0, 1)
    assert await add(broker, after, {"t": [0]}) == CONCURRENT
    await trio.testing.wait_all_tasks_blocked()
    assert await state(broker) == ("CompleteCommit" if commit else "CompleteAbort")
    for index in (0, 1):
        assert markers(broker, "t", index) == [(producer.producer_id, 1, word)]
    assert await add(broker, after, {"t": [0]}) == 0


async def test_the_offsets_of_a_group_get_a_marker(tmp_path: Path) -> None:
    broker = await broker_with_topic(tmp_path)
    await finished(find_coordinator(FindCoordinatorRequest(coordinator_keys=["g"]), broker.context(4)))
    await trio.testing.wait_all_tasks_blocked()
    producer = await init(broker)
    request = AddOffsetsToTxnRequest(
        transactional_id=ID, producer_id=producer.producer_id, producer_epoch=producer.producer_epoch, group_id="g"
    )
    assert (await finished(add_offsets_to_txn(request, broker.context(3)))).error_code == 0
    assert (await end(broker, producer, version=4)).error_code == 0
    await trio.testing.wait_all_tasks_blocked()
    index = broker.groups.partition_for("g")
    assert markers(broker, GROUP_METADATA_TOPIC, index) == [(producer.producer_id, 0, "COMMIT")]
    assert await state(broker) == "CompleteCommit"


async def test_transactions_outlive_the_broker(tmp_path: Path) -> None:
    broker = await broker_with_topic(tmp_path)
    producer = await init(broker)
    assert await add(broker, producer, {"t": [1]}) == 0
    await broker.stop()
    again = await opened(tmp_path, SETTINGS)
    await trio.testing.wait_all_tasks_blocked()
    assert await state(again) == "Ongoing"
    listed = await finished(
        list_transactions(ListTransactionsRequest(state_filters=["Ongoing"], producer_id_filters=[]), again.context(0))
    )
    assert [each.transactional_id for each in listed.transaction_states] == [ID]
    assert (await end(again, producer)).error_code == 0
    await trio.testing.wait_all_tasks_blocked()
    assert markers(again, "t", 1) == [(producer.producer_id, 1, "COMMIT")]


async def test_what_was_decided_is_carried_out_by_the_next_broker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = await broker_with_topic(tmp_path)
    producer = await init(broker)
    assert await add(broker, producer, {"t": [0, 1]}) == 0
    partition_of = broker.replicas.partition

    def without_topic(topic: str, index: int) -> Any:
        return None if topic == "t" else partition_of(topic, index)

    # For as long as this broker lives nobody can write to the topic.
    monkeypatch.setattr(broker.replicas, "partition", without_topic)
    assert (await end(broker, producer)).error_code == 0
    await trio.testing.wait_all_tasks_blocked()
    assert await state(broker) == "PrepareCommit"
    await broker.stop()
    again = await opened(tmp_path, SETTINGS)
    await trio.testing.wait_all_tasks_blocked()
    assert await state(again) == "CompleteCommit"
    for index in (0, 1):
        assert markers(again, "t", index) == [(producer.producer_id, 1, "COMMIT")]


async def test_a_zombie_is_fenced_and_its_transaction_aborted(tmp_path: Path) -> None:
    broker = await broker_with_topic(tmp_path)
    zombie = await init(broker)
    assert await add(broker, zombie, {"t": [0]}) == 0
    assert (await init(broker)).error_code == CONCURRENT
    await trio.testing.wait_all_tasks_blocked()
    after = await init(broker)
    assert (after.producer_id, after.producer_epoch) == (zombie.producer_id, 2)
    assert markers(broker, "t", 0) == [(zombie.producer_id, 1, "ABORT")]
    assert (await end(broker, zombie)).error_code == ErrorCode.PRODUCER_FENCED


async def test_a_deleted_topic_does_not_keep_a_transaction_open(tmp_path: Path) -> None:
    broker = await broker_with_topic(tmp_path)
    await create(broker, creatable("doomed", 1))
    producer = await init(broker)
    assert await add(broker, producer, {"t": [0], "doomed": [0]}) == 0
    await broker.administration.delete_topics(["doomed"])
    await trio.testing.wait_all_tasks_blocked()
    assert (await end(broker, producer)).error_code == 0
    await trio.testing.wait_all_tasks_blocked()
    assert await state(broker) == "CompleteCommit"
    assert markers(broker, "t", 0) == [(producer.producer_id, 1, "COMMIT")]


async def test_a_log_that_takes_nothing_keeps_a_transaction_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = await broker_with_topic(tmp_path)
    producer = await init(broker)
    assert await add(broker, producer, {"t": [0]}) == 0
    log = broker.partition(TRANSACTION_STATE_TOPIC, broker.transactions.partition_for(ID))

    def refuse(*arguments: Any, **details: Any) -> None:
        raise KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)

    with monkeypatch.context() as patched:
        patched.setattr(type(log), "append_as_leader", refuse)
        assert (await end(broker, producer)).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert await state(broker) == "Ongoing"
    assert (await end(broker, producer)).error_code == 0


async def test_a_transaction_that_takes_too_long_is_aborted(
    tmp_path: Path, autojump_clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = await broker_with_topic(tmp_path)
    producer = await init(broker, transaction_timeout_ms=1)
    assert await add(broker, producer, {"t": [0]}) == 0
    await trio.sleep(30)
    # By the time of day it may have begun this very millisecond.
    while await state(broker) == "Ongoing":
        await trio.sleep(30)
    await trio.testing.wait_all_tasks_blocked()
    assert await state(broker) == "CompleteAbort"
    assert markers(broker, "t", 0) == [(producer.producer_id, 1, "ABORT")]


async def test_a_list_by_pattern(tmp_path: Path) -> None:
    broker = await broker_with_topic(tmp_path)
    for name in ("app-1", "app-2", "my-app-1", "app-" + "x" * 5_000):
        await init(broker, name)

    async def listed(pattern: str | None, *states: str) -> Any:
        request = ListTransactionsRequest(
            state_filters=list(states), producer_id_filters=[], transactional_id_pattern=pattern
        )
        response = await finished(list_transactions(request, broker.context(2)))
        assert response.error_code == 0
        return sorted(len(each.transactional_id) for each in response.transaction_states)

    assert await listed(None) == await listed("") == await listed(".*") == [5, 5, 8, 5_004]
    assert await listed("app-[12]") == [5, 5]
    # One of these takes so many steps that a thread takes them.
    assert await listed("(?:a|p|-|x)*") == [5_004]
    assert await listed("app-.*", "Ongoing") == []
    request = ListTransactionsRequest(state_filters=["Nowhere"], producer_id_filters=[], transactional_id_pattern="(")
    response = await finished(list_transactions(request, broker.context(2)))
    assert response.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert response.unknown_state_filters == response.transaction_states == []
