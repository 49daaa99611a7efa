"""Fetches of very many partitions: others are served while they are worked on, and a change costs little while they wait."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing

from ottla.replication.log.batch_checks import AppendOrigin
from ottla.replication.log.tests.logs import batch, batches_of, contents, idempotent, marker
from ottla.replication.log.verification import NOT_REQUIRED
from ottla.server.api.fetch import down_conversion, partition_reader, reading, responses
from ottla.server.api.fetch.reading import Reading
from ottla.server.api.fetch.waiting import WaitingFetch
from ottla.server.api.handlers import fetch as fetch_handler
from ottla.server.environment import Environment
from ottla.server.tests.api.test_fetched_regions import PARTITIONS, Shop
from ottla.server.tests.api.test_follower_fetch import told
from ottla.wire.control_batches import ControlType
from ottla.wire.errors import ErrorCode


def small_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (fetch_handler, reading, responses, down_conversion):
        monkeypatch.setattr(module, "PARTITIONS_PER_SLICE", 10)


def append(shop: Shop, index: int) -> None:
    """One more record that consumers may read, of which all that wait are told."""
    partition = shop.partitions[index]
    partition.append_as_leader(batch(1), required_acks=1, now_ms=shop.time_ms)
    partition.high_watermark += 1
    for watcher in list(partition.watchers):
        watcher()


async def test_a_change_of_one_partition_costs_no_look_at_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred appends would look at ten thousand partitions each, for every fetch that waits."""
    shop = Shop()
    shop.environment = Environment()
    size = len(batch(1))
    waiting = shop.consume(min_bytes=2 * PARTITIONS * size + 5 * size)
    assert isinstance(waiting, WaitingFetch)
    looks: list[Reading] = []
    is_enough = Reading._is_enough
    monkeypatch.setattr(Reading, "_is_enough", lambda self: looks.append(self) or is_enough(self))
    for index in range(4):
        append(shop, index)
    assert not waiting.is_ready
    append(shop, 4)
    assert waiting.is_ready
    assert not looks
    waiting.abandon()


async def test_a_record_that_comes_behind_a_long_reading_ends_the_wait(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.abc.Clock
) -> None:
    """The reading gives way. It has passed by the partition then, and the wait has not begun."""
    small_turns(monkeypatch)
    shop = Shop()
    read_in_slices = Reading.read_in_slices

    async def read_and_be_overtaken(self: Reading) -> None:
        await read_in_slices(self)
        append(shop, 3)

    monkeypatch.setattr(Reading, "read_in_slices", read_and_be_overtaken)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(shop.deadlines.run)
        answer = await shop.consume(min_bytes=1, offset=2, max_wait_ms=60_000)
        assert [index for index, data in told(answer).items() if data.records] == [3]
        assert trio.current_time() < 1
        nursery.cancel_scope.cancel()


async def test_a_very_large_fetch_waits_in_its_connection(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.abc.Clock
) -> None:
    """So that its answer is put together with others served in between, and encoded in a thread."""
    small_turns(monkeypatch)
    shop = Shop()
    answers: list[Any] = []

    async def wait() -> None:
        answers.append(await shop.consume(min_bytes=1, offset=2, max_wait_ms=60_000))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(shop.deadlines.run)
        nursery.start_soon(wait)
        await trio.testing.wait_all_tasks_blocked()
        assert not answers
        append(shop, 7)
        append(shop, 3)
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    given = {index: data.records for index, data in told(answers[0]).items() if data.records}
    assert sorted(given) == [3, 7]
    assert all(contents(records)[61:] == bytes(batch(1))[61:] for records in given.values())
    assert not any(partition.watchers for partition in shop.partitions)


@pytest.mark.parametrize("isolation_level", [5, -1])
async def test_a_very_large_fetch_is_refused_in_slices(monkeypatch: pytest.MonkeyPatch, isolation_level: int) -> None:
    small_turns(monkeypatch)
    answer = await Shop().consume(version=12, isolation_level=isolation_level)
    (topic,) = answer.responses
    assert [each.error_code for each in topic.partitions] == [ErrorCode.UNKNOWN_SERVER_ERROR] * PARTITIONS


async def test_a_very_large_fetch_of_an_old_client_is_answered_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    small_turns(monkeypatch)
    pieces: list[int] = []
    add = responses.add_answers

    def noted(topics: list[Any], answers: Any) -> list[Any]:
        pieces.append(len(answers))
        return add(topics, answers)

    monkeypatch.setattr(responses, "add_answers", noted)
    answer = await Shop().consume(version=2)
    assert sum(len(topic.partitions) for topic in answer.responses) == sum(pieces) == PARTITIONS
    assert max(pieces) == 10


def abort(shop: Shop, index: int, count: int) -> None:
    """Transactions of one record that were aborted, which consumers may pass."""
    partition = shop.partitions[index]
    for number in range(count):
        records = idempotent(number, is_transactional=True)
        partition.append_as_leader(records, required_acks=1, now_ms=shop.time_ms, guard=NOT_REQUIRED)
        partition.append_as_leader(
            marker(ControlType.ABORT), required_acks=1, now_ms=shop.time_ms, origin=AppendOrigin.COORDINATOR
        )
    partition.high_watermark = partition.log_end_offset
    partition.log.on_high_watermark(partition.high_watermark)


async def test_an_answer_tells_of_no_more_aborted_transactions_than_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    """50 MB of records may belong to 350,000 of them, in one partition or in many."""
    monkeypatch.setattr(partition_reader, "ABORTED_MAX", 5)
    shop = Shop()
    for index in (0, 1, 3):
        abort(shop, index, 4)
    answer = told(shop.consume(isolation_level=1, partitions=4))
    assert [len(data.aborted_transactions or ()) for data in answer.values()] == [4, 1, 0, 0]
    # Nothing is aborted in the first records of the last one.
    assert [len(batches_of(contents(data.records))) for data in answer.values()] == [10, 4, 2, 2]
    answer = told(shop.consume(isolation_level=1, partitions=4, offset=2))
    assert [len(batches_of(contents(data.records))) for data in answer.values()] == [8, 2, 0, 0]
