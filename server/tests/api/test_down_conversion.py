"""Fetches of old clients: who converts the records, how much is given, and what changes meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from ottla.replication.log.tests.logs import NOW_MS, append, batch
from ottla.server.api.fetch import down_conversion
from ottla.server.api.fetch.waiting import WaitingFetch
from ottla.server.tests.api.test_follower_fetch import Leader
from ottla.wire.compression import Compression
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.fetch import FetchResponse, PartitionData
from ottla.wire.record_decoding import decode_records
from ottla.wire.records import iter_batches

CONSUMER = -1
OLD = 3


class Old:
    """A client of old, and the broker that it asks; all is committed."""

    def __init__(self, partitions: int = 1) -> None:
        self.leader = Leader(partitions)
        for each in self.leader.partitions:
            each.make_leader(leader_epoch=3, partition_epoch=1, replicas=(1,), isr=(1,))

    def append(self, *batches: memoryview, index: int = 0) -> None:
        partition = self.leader.partitions[index]
        append(partition.log, *batches, epoch=3)
        partition.reconsider()

    def ask(self, offsets: dict[int, int], *, version: int = OLD, **options: Any) -> Any:
        return self.leader.ask(
            offsets, broker=CONSUMER, version=version, leader_epoch=-1, **{"max_wait_ms": 0, **options}
        )


def partitions_of(response: FetchResponse) -> list[PartitionData]:
    return [each for topic in response.responses for each in topic.partitions]


def offsets_in(message_set: Any) -> list[int]:
    found = []
    for header, start, end in iter_batches(message_set):
        assert header.magic < 2
        found += [record.offset for record in decode_records(message_set[start:end])]
    return found


@pytest.fixture
def converters(monkeypatch: pytest.MonkeyPatch) -> set[int]:
    """The threads that convert batches."""
    threads: set[int] = set()
    original = down_conversion.down_convert

    def converting(*arguments: Any, **options: Any) -> bytes:
        threads.add(threading.get_ident())
        return original(*arguments, **options)

    monkeypatch.setattr(down_conversion, "down_convert", converting)
    return threads


def test_a_few_records_are_converted_at_once(converters: set[int]) -> None:
    old = Old()
    old.append(batch(1, 2, 3))
    (data,) = partitions_of(old.ask({0: 1}))
    assert offsets_in(data.records) == [1, 2]
    assert converters == {threading.get_ident()}


@pytest.mark.parametrize(
    "records",
    [
        lambda: batch(*range(3000), value=b""),
        lambda: batch(*range(10), value=b"x" * 3000),
        lambda: batch(*range(10), compression=Compression.GZIP),
    ],
    ids=["many", "large", "compressed"],
)
async def test_many_large_or_compressed_records_are_converted_in_a_thread(
    converters: set[int], records: Callable[[], memoryview]
) -> None:
    old = Old(2)
    for index in (0, 1):
        old.append(records(), index=index)
    count = old.leader.partitions[0].log_end_offset
    answers = partitions_of(await old.ask({0: 0, 1: 0}))
    assert [offsets_in(each.records) for each in answers] == [list(range(count))] * 2
    assert converters and threading.get_ident() not in converters


async def test_records_that_end_a_wait_are_converted_in_a_thread(converters: set[int], nursery: trio.Nursery) -> None:
    old = Old()
    answers: list[FetchResponse] = []

    async def ask() -> None:
        answers.append(await old.ask({0: 0}, max_wait_ms=10_000))

    nursery.start_soon(ask)
    await wait_all_tasks_blocked()
    assert not answers
    old.append(batch(1, 2, 3, compression=Compression.GZIP))
    while not answers:
        await trio.testing.wait_all_tasks_blocked(0.001)
    (data,) = partitions_of(answers[0])
    assert offsets_in(data.records) == [0, 1, 2]
    assert threading.get_ident() not in converters
    assert not old.leader.partitions[0].watchers


async def test_a_wait_that_is_given_up_leaves_nothing_behind() -> None:
    old = Old()
    with trio.CancelScope() as scope:
        scope.cancel()
        await old.ask({0: 0}, max_wait_ms=10_000)
    assert not old.leader.partitions[0].watchers
    assert not old.leader.deadlines._by_tick


@pytest.mark.thorough
async def test_no_more_than_a_megabyte_is_given_but_always_a_batch() -> None:
    old = Old(2)
    for index in (0, 1):
        old.append(*(batch(*range(20_000), value=b"") for _ in range(4)), index=index)  # 34 bytes become of 8
    answers = partitions_of(await old.ask({0: 0, 1: 0}, partition_max_bytes=1 << 30))
    for data in answers:
        assert len(data.records or b"") <= down_conversion.PARTITION_BYTES_MAX
        assert offsets_in(data.records) == list(range(20_000))
    old.append(batch(*range(60_000), value=b""))
    (data,) = partitions_of(await old.ask({0: 80_000}))
    assert offsets_in(data.records) == list(range(80_000, 140_000))


async def test_the_first_batch_that_is_read_is_given_and_the_others_as_there_is_room() -> None:
    old = Old(2)
    old.leader.config.replication = type(old.leader.config.replication)(fetch_max_bytes=1024 * 1024)
    for index in (0, 1):
        old.append(batch(*range(25_000), value=b""), index=index)
    first, second = partitions_of(await old.ask({0: 0, 1: 0}))
    assert offsets_in(first.records) == list(range(25_000))
    assert second.records == b"" and second.error_code == 0


async def test_records_that_are_cut_off_meanwhile_are_not_given_out() -> None:
    old = Old()
    old.append(batch(*range(3000)))
    asking = old.ask({0: 0})
    old.leader.partitions[0].log.truncate_to(0, now_ms=NOW_MS)
    (data,) = partitions_of(await asking)
    assert (data.error_code, data.records) == (0, b"")


async def test_zstd_is_told_to_clients_too_old_for_it() -> None:
    old = Old()
    old.append(batch(*range(3000)), batch(1, compression=Compression.ZSTD))
    (data,) = partitions_of(await old.ask({0: 0}))
    assert offsets_in(data.records) == list(range(3000))
    (data,) = partitions_of(await old.ask({0: 3000}))
    assert (data.error_code, data.records) == (ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, None)


async def test_a_disk_that_fails_the_conversion_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    old = Old()
    old.append(batch(*range(3000)))
    asking = old.ask({0: 0}, version=2)
    storage: Any = old.leader.partitions[0].log.log_directory.storage
    storage.fail = lambda operation, path: OSError(5, "broken") if operation == "read" else None
    (data,) = partitions_of(await asking)
    assert data.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert not old.leader.partitions[0].log.log_directory.is_online


async def test_newer_clients_get_regions() -> None:
    old = Old()
    old.append(batch(*range(3000)))
    answer = old.ask({0: 0}, version=4)
    assert isinstance(answer, FetchResponse)
    assert isinstance(old.ask({0: 3000}, version=4, max_wait_ms=500), WaitingFetch)
