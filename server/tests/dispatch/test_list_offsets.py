"""ListOffsets by time: who reads the records, and that answers come in the order of the request."""

from __future__ import annotations

import threading
from typing import Any, cast

import pytest

from ottla.replication.log.tests.logs import append, batch, new_log
from ottla.replication.partition.partition import Partition
from ottla.server.api.handlers.list_offsets import SEARCHES_AT_ONCE, list_offsets
from ottla.server.dispatch.context import RequestContext
from ottla.server.testing.memory.storage import MemoryFile
from ottla.wire.compression import Compression
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)


class Led:
    """A broker that leads some partitions."""

    authorizer = None

    def __init__(self) -> None:
        self.partitions: dict[int, Partition] = {}

    def lead(self, index: int, *batches: memoryview) -> Partition:
        partition = self.partitions[index] = Partition("topic", index, new_log(), local_id=1)
        partition.make_leader(leader_epoch=3, partition_epoch=0, replicas=(1,), isr=(1,))
        append(partition.log, *batches, epoch=3)
        partition.reconsider()
        return partition

    def partition(self, topic: str, index: int) -> Partition:
        if index not in self.partitions:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return self.partitions[index]

    def ask(self, *asked: tuple[int, int]) -> Any:
        wishes = [ListOffsetsPartition(partition_index=index, timestamp=timestamp) for index, timestamp in asked]
        request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="topic", partitions=wishes)])
        return list_offsets(request, RequestContext(cast(Any, self), api_version=7))


def partitions_of(response: ListOffsetsResponse) -> list[ListOffsetsPartitionResponse]:
    (topic,) = response.topics
    return topic.partitions


def small() -> memoryview:
    return batch(100, 200)


def large() -> memoryview:
    return batch(*range(3000), value=b"x" * 50, compression=Compression.LZ4)


def test_a_few_small_look_ups_are_answered_at_once() -> None:
    led = Led()
    for index in range(SEARCHES_AT_ONCE):
        led.lead(index, small())
    answers = partitions_of(led.ask(*((index, 150) for index in range(SEARCHES_AT_ONCE))))
    assert [(each.timestamp, each.offset, each.leader_epoch) for each in answers] == [(200, 1, 3)] * SEARCHES_AT_ONCE


async def test_more_than_a_few_small_look_ups_are_not_all_made_in_one_turn() -> None:
    led = Led()
    count = SEARCHES_AT_ONCE + 1
    for index in range(count):
        led.lead(index, small())
    asking = led.ask(*((index, 150) for index in range(count)))
    assert not isinstance(asking, ListOffsetsResponse)
    assert [each.offset for each in partitions_of(await asking)] == [1] * count


async def test_many_look_ups_read_records_in_threads_and_answer_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    led = Led()
    for index in range(40):
        led.lead(index, *([large()] if index % 2 else [small()]))
    read: dict[int, int] = {}
    original = MemoryFile.read_at

    def read_at(file: MemoryFile, position: int, length: int) -> bytes:
        data = original(file, position, length)
        read[threading.get_ident()] = max(read.get(threading.get_ident(), 0), len(data))
        return data

    monkeypatch.setattr(MemoryFile, "read_at", read_at)
    asked = [(index, 150 if index % 3 else -3) for index in range(41)]
    answers = partitions_of(await led.ask(*asked))
    expected = []
    for index, timestamp in asked[:40]:
        if index % 2:
            expected.append((index, 0, 150 if timestamp > 0 else 2999, 150 if timestamp > 0 else 2999))
        else:
            expected.append((index, 0, 200, 1))
    assert [(each.partition_index, each.error_code, each.timestamp, each.offset) for each in answers] == [
        *expected,
        (40, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1),
    ]
    on_loop = read.pop(threading.get_ident())
    assert on_loop <= 8192 < max(read.values())


async def test_leadership_that_is_lost_during_a_search_is_told() -> None:
    led = Led()
    partition = led.lead(0, large())
    asking = led.ask((0, 150))
    partition.make_follower(leader_id=2, leader_epoch=4, partition_epoch=1, replicas=(1, 2))
    (answer,) = partitions_of(await asking)
    assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_a_log_that_has_moved_during_a_search_is_searched_anew() -> None:
    led = Led()
    partition = led.lead(0, large())
    asking = led.ask((0, 150))
    moved = new_log()
    append(moved, batch(*range(3000), value=b"x" * 50, compression=Compression.LZ4), epoch=3)
    partition.log = moved
    (answer,) = partitions_of(await asking)
    assert (answer.timestamp, answer.offset) == (150, 150)
