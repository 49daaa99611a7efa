"""Answers to fetches keep few files open: at the limit they become shorter, and none is empty that need not be."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, cast

import trio

from ottla.replication.log.descriptors import LIMIT_MIN, Descriptors
from ottla.replication.log.storage import FileRegion
from ottla.replication.log.tests.logs import TOPIC_ID, batch
from ottla.server.api.fetch.partition_reader import BYTES_WITHOUT_FILES
from ottla.server.api.fetch.waiting import WaitingFetch
from ottla.server.api.handlers.fetch import fetch
from ottla.server.dispatch.context import RequestContext
from ottla.server.environment import Environment
from ottla.server.tests.api.test_follower_fetch import VERSION, Leader, told
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData

PARTITIONS = 40


class Shop(Leader):
    """A broker with few descriptors and records in all of its partitions."""

    def __init__(self, value: bytes = b"value") -> None:
        super().__init__(PARTITIONS)
        self.budget = Descriptors(LIMIT_MIN)
        self.environment = Environment(descriptors=self.budget)
        self.is_in_cluster = False
        for partition in self.partitions:
            for _ in range(2):
                partition.append_as_leader(batch(1, value=value), required_acks=1, now_ms=self.time_ms)
            partition.high_watermark = 2

    def consume(
        self,
        *,
        min_bytes: int = 1,
        max_wait_ms: int = 500,
        partitions: int = PARTITIONS,
        offset: int = 0,
        version: int = VERSION,
        isolation_level: int = 0,
    ) -> Any:
        asked = [
            FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=1 << 20)
            for index in range(partitions)
        ]
        request = FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=min_bytes,
            max_bytes=50 << 20,
            session_epoch=-1,
            isolation_level=isolation_level,
            topics=[FetchTopic(topic="t", topic_id=TOPIC_ID, partitions=asked)],
        )
        return fetch(request, RequestContext(cast(Any, self), api_version=version, now_ms=self.time_ms))


def records_of(answer: Any) -> list[Any]:
    return [each.records for each in told(answer).values() if each.records]


async def test_many_unread_answers_keep_no_more_files_open_than_they_may() -> None:
    shop = Shop()
    unread = [records_of(shop.consume()) for _ in range(50)]
    assert len(shop.budget.regions) == shop.budget.regions_max
    regions = [[each for each in records if isinstance(each, FileRegion)] for records in unread]
    assert [len(each) for each in regions[:4]] == [16, 8, 4, 2]
    assert sum(map(len, regions)) == shop.budget.regions_max
    assert all(unread)  # everybody gets something
    unread.clear()
    regions.clear()
    assert shop.budget.regions_left == shop.budget.regions_max
    assert len(records_of(shop.consume())) == 16


async def test_without_files_one_partition_is_read_into_memory() -> None:
    shop = Shop(value=bytes(40_000))
    held = [shop.consume() for _ in range(20)]
    (records,) = records_of(shop.consume(min_bytes=1 << 20))
    assert isinstance(records, bytes)
    assert 40_000 < len(records) <= BYTES_WITHOUT_FILES
    assert held


async def test_without_files_the_first_batch_comes_whole() -> None:
    shop = Shop(value=bytes(200_000))
    held = [shop.consume() for _ in range(20)]
    (records,) = records_of(shop.consume())
    assert isinstance(records, bytes)
    assert len(records) > 200_000
    assert held


async def test_without_files_clients_of_old_get_what_they_understand() -> None:
    shop = Shop()
    usual = told(await _awaited(shop.consume(version=3, partitions=1)))[0].records
    held = [shop.consume() for _ in range(20)]
    short = told(await _awaited(shop.consume(version=3)))
    assert bytes(cast(Any, short[0].records)) == bytes(cast(Any, usual)) != b""
    assert not any(each.records for index, each in short.items() if index)
    assert held


async def _awaited(answer: Any) -> Any:
    return await answer if isinstance(answer, Coroutine) else answer


async def test_a_fetch_that_waits_keeps_no_file_open() -> None:
    shop = Shop()
    waiting = shop.consume(min_bytes=1 << 20, partitions=3)
    assert isinstance(waiting, WaitingFetch)
    assert not shop.budget.regions
    for _ in range(2):
        shop.partitions[1].append_as_leader(batch(1), required_acks=1, now_ms=shop.time_ms)
        shop.partitions[1].high_watermark += 1
        for watcher in list(shop.partitions[1].watchers):
            watcher()
        assert not waiting.is_ready
        assert not shop.budget.regions
    waiting.become_ready()
    answer = told(waiting.response())
    assert {index: _count(data) for index, data in answer.items()} == {0: 2, 1: 4, 2: 2}


async def test_what_is_found_while_waiting_ends_the_wait_when_it_is_enough() -> None:
    shop = Shop()
    size = len(batch(1))
    waiting = shop.consume(min_bytes=7 * size, partitions=3)
    assert isinstance(waiting, WaitingFetch)
    shop.partitions[2].append_as_leader(batch(1), required_acks=1, now_ms=shop.time_ms)
    shop.partitions[2].high_watermark = 3
    for watcher in list(shop.partitions[2].watchers):
        watcher()
    assert waiting.is_ready
    await trio.lowlevel.checkpoint()
    assert {index: _count(data) for index, data in told(waiting.response()).items()} == {0: 2, 1: 2, 2: 3}


def _count(data: PartitionData) -> int:
    return len(cast(Any, data.records)) // len(batch(1))
