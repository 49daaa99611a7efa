"""Transactions in the console, and the producers of a partition."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import trio

from ottla.server.admin.console import transactions_view
from ottla.server.admin.console.requests import ask as ask_handler
from ottla.server.broker import Broker
from ottla.server.tests.console_client import ask, make_topic, running, write, write_open
from ottla.wire.messages.producer_ids import InitProducerIdRequest
from ottla.wire.messages.transactions import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic, EndTxnRequest
from ottla.wire.records import Record

LATE_MS = 1_000_000  # more than transaction.max.timeout.ms
HANGING_ID = (1 << 62) + 1


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    more = {"transaction_state_log_num_partitions": "2", "transaction_partition_verification_enable": "false"}
    async with running(tmp_path, **more) as broker:
        await broker.ensure_internal_topic("__transaction_state")
        yield broker


async def transactions(broker: Broker, parameters: str = "") -> Any:
    return (await ask(broker, f"/api/transactions?{parameters}")).json


async def begun(broker: Broker, transactional_id: str, *partitions: int) -> tuple[int, int]:
    """A producer that has an open transaction in these partitions of topic t, if any; its id and epoch."""
    asked = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000)
    with trio.fail_after(60):
        # Its coordinator loads its partition first.
        while (told := await ask_handler(broker, asked, 4)).error_code:
            await trio.sleep(0.01)
    if partitions:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=transactional_id,
            v3_and_below_producer_id=told.producer_id,
            v3_and_below_producer_epoch=told.producer_epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name="t", partitions=list(partitions))],
        )
        added = await ask_handler(broker, request, 3)
        assert [each.partition_error_code for each in added.results_by_topic_v3_and_below[0].results_by_partition] == [
            0
        ] * len(partitions)
    return told.producer_id, told.producer_epoch


async def test_without_transactions_there_are_none(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        assert await transactions(broker) == {"transactions": [], "next": None}
        assert "__transaction_state" not in broker.cluster.topics


async def test_an_id_has_its_state_its_producer_and_its_partitions(broker: Broker) -> None:
    await make_topic(broker, "t", 3)
    producer_id, epoch = await begun(broker, "orders <b>", 2, 0)
    await begun(broker, "idle")
    idle, ongoing = (await transactions(broker))["transactions"]
    assert (idle["id"], idle["state"], idle["since"], idle["partitions"]) == ("idle", "Empty", None, [])
    assert (ongoing["id"], ongoing["state"], ongoing["isLate"]) == ("orders <b>", "Ongoing", False)
    assert (ongoing["producerId"], ongoing["producerEpoch"]) == (str(producer_id), epoch)
    assert (ongoing["partitions"], ongoing["partitionCount"]) == ([["t", [0, 2]]], 2)
    assert abs(ongoing["since"] - broker.now_ms()) < 600_000
    assert (idle["ageMs"], ongoing["ageMs"] >= 0) == (None, True)
    ended = EndTxnRequest(transactional_id="orders <b>", producer_id=producer_id, producer_epoch=epoch, committed=True)
    assert (await ask_handler(broker, ended, 4)).error_code == 0
    with trio.fail_after(60):
        while (await transactions(broker, "contains=ORDERS"))["transactions"][0]["state"] != "CompleteCommit":
            await trio.sleep(0.01)


async def test_ids_come_in_pages(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transactions_view, "IDS_PER_PAGE", 2)
    for name in ("b", "a", "c", "other"):
        await begun(broker, f"id-{name}")
    first = await transactions(broker, "contains=id")
    assert ([each["id"] for each in first["transactions"]], first["next"]) == (["id-a", "id-b"], "id-b")
    second = await transactions(broker, f"after={first['next']}")
    assert [each["id"] for each in second["transactions"]] == ["id-c", "id-other"]


async def test_a_transaction_that_no_coordinator_will_end_hangs(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    await make_topic(broker, "t", 1)
    known, epoch = await begun(broker, "known", 0)
    elsewhere, _ = await begun(broker, "in another transaction")
    write_open(broker, "t", known, age_ms=LATE_MS, epoch=epoch)
    write_open(broker, "t", elsewhere, age_ms=2 * LATE_MS)
    write_open(broker, "t", HANGING_ID, age_ms=3 * LATE_MS)
    write_open(broker, "t", HANGING_ID + 1, age_ms=0)
    write(broker, "t", [Record(0, 1, None, b"v")], producer_id=7, producer_epoch=3, base_sequence=5)
    told = (await ask(broker, "/api/producers?topic=t&partition=0")).json
    assert (told["count"], told["isSure"]) == (5, True)
    by_id = {each["producerId"]: each for each in told["producers"]}
    assert {each for each, one in by_id.items() if one["isOpenTooLong"]} == {
        str(known),
        str(elsewhere),
        str(HANGING_ID),
    }
    assert {each for each, one in by_id.items() if one["isHanging"]} == {str(elsewhere), str(HANGING_ID)}
    assert (by_id["7"]["openSinceOffset"], by_id["7"]["lastSequence"], by_id["7"]["producerEpoch"]) == (None, 5, 3)
    assert by_id[str(known)]["openSinceOffset"] == 0
    [partition] = (await ask(broker, "/api/topic?name=t")).json["partitions"]
    assert (partition["lastStable"], partition["highWatermark"]) == (0, 5)
    # What is open longest comes first, and of many only so many are shown.
    assert told["producers"][-1]["producerId"] == "7"
    monkeypatch.setattr(transactions_view, "PRODUCERS_SHOWN_MAX", 2)
    few = (await ask(broker, "/api/producers?topic=t&partition=0")).json
    assert (few["count"], [each["producerId"] for each in few["producers"]]) == (5, [str(HANGING_ID), str(elsewhere)])


async def test_what_is_not_here_has_no_producers(broker: Broker) -> None:
    await make_topic(broker, "t", 1)
    told = {}
    for parameters in ("topic=none&partition=0", "topic=t&partition=9", "topic=t&partition=-1", "topic=t", ""):
        told[parameters] = (await ask(broker, f"/api/producers?{parameters}")).status
    assert list(told.values()) == [404, 404, 400, 400, 400]
