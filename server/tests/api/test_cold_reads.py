"""The event loop waits for no disk: what is not in memory is read by threads, and the answers are the same."""

from __future__ import annotations

import os
import threading
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, cast

import pytest
import trio

from ottla.replication.log import storage
from ottla.replication.log.partition_log import PartitionLog
from ottla.replication.log.storage import FileRegion, NotCached, OsFile, may_wait, only_cached
from ottla.replication.log.tests.logs import NOW_MS, TOPIC_ID, append, batch, load, log_directory, new_log
from ottla.replication.log.time_search import MAX_TIMESTAMP, TimestampedOffset, TimestampSearch
from ottla.replication.partition.partition import Partition
from ottla.server.api.fetch.reading import TRIES_MAX, each_warmed
from ottla.server.api.fetch.waiting import WaitingFetch
from ottla.server.api.handlers.fetch import fetch
from ottla.server.dispatch.context import RequestContext
from ottla.server.testing.memory.storage import MemoryFile, MemoryStorage
from ottla.server.tests.api.test_follower_fetch import EPOCH, VERSION, Leader, told
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.tests.effort import first

BATCHES = 1500
RECORDS = 3


class Archive(Leader):
    """A broker that was started anew: its records are on a disk, which notes the threads that wait for it."""

    def __init__(self, partitions: int = 1) -> None:
        self.memory = MemoryStorage()
        self.waits: list[int] = []
        super().__init__(partitions)
        self.is_in_cluster = False
        self.memory.on_wait = lambda path: self.waits.append(threading.get_ident())

    def led(self, index: int) -> Partition:
        log = new_log(log_directory(self.memory, f"/{index}"), segment_bytes=64 * 1024, index_interval_bytes=8192)
        for number in range(BATCHES):
            append(log, batch(*(NOW_MS + number,) * RECORDS, value=bytes(30)))
        log.close()
        log = load(log)
        log.enter_service(lambda log, segment: None)
        partition = Partition("t", index, log, local_id=1)
        partition.make_leader(leader_epoch=EPOCH, partition_epoch=0, replicas=(1,), isr=(1,), now_ms=self.time_ms)
        partition.high_watermark = log.log_end_offset
        return partition

    async def ask(
        self,
        offsets: dict[int, int],
        session: tuple[int, int],
        *,
        max_bytes: int = 1000,
        max_wait_ms: int = 0,
        min_bytes: int = 1,
    ) -> Any:
        """The answer, or what waits for it."""
        asked = [
            FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=max_bytes)
            for index, offset in offsets.items()
        ]
        session_id, epoch = session
        request = FetchRequest(
            max_wait_ms=max_wait_ms, min_bytes=min_bytes, max_bytes=50 << 20, session_id=session_id, session_epoch=epoch,
            isolation_level=0, topics=[FetchTopic(topic="t", topic_id=TOPIC_ID, partitions=asked)] if asked else [],
        )  # fmt: skip
        answer: Any = fetch(request, RequestContext(cast(Any, self), api_version=VERSION, now_ms=self.time_ms))
        return await answer if isinstance(answer, Coroutine) else answer

    async def consume(self, offset: int, max_bytes: int, version: int, partitions: int = 1) -> list[Any]:
        asked = [
            FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=max_bytes)
            for index in range(partitions)
        ]
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=1,
            max_bytes=50 << 20,
            session_epoch=-1,
            isolation_level=0,
            topics=[FetchTopic(topic="t", topic_id=TOPIC_ID, partitions=asked)],
        )
        answer: Any = fetch(request, RequestContext(cast(Any, self), api_version=version, now_ms=self.time_ms))
        answer = await answer if isinstance(answer, Coroutine) else answer
        self.waits, waits = [], self.waits  # what the client reads is no matter
        records = [
            bytes(each.records.read() if isinstance(each.records, FileRegion) else each.records)
            for each in told(answer).values()
        ]
        self.waits = waits
        return records

    def log(self) -> PartitionLog:
        return cast(PartitionLog, self.partitions[0].log)


@pytest.mark.parametrize("version", [VERSION, 3])
@pytest.mark.parametrize("max_bytes", first(1, [10_000, 1, 300, 40_000, 1 << 20]))
async def test_a_fetch_from_a_cold_disk_is_answered_as_ever_and_waits_in_threads(version: int, max_bytes: int) -> None:
    end = BATCHES * RECORDS
    for offset in (0, 1, end // 3, end // 2 + 1, end - 1):
        warm, cold = Archive(), Archive()
        cold.memory.evict()
        expected = await warm.consume(offset, max_bytes, version)
        assert expected[0] or (version == 3 and max_bytes < 10_000)
        assert await cold.consume(offset, max_bytes, version) == expected
        assert cold.waits or not offset  # where a segment begins is known without a read
        assert threading.get_ident() not in cold.waits
        assert not warm.waits


async def test_cold_partitions_share_a_fetch_in_their_order() -> None:
    warm, cold = Archive(3), Archive(3)
    cold.memory.evict()
    expected = await warm.consume(100, 5000, VERSION, partitions=3)
    assert all(expected)
    assert await cold.consume(100, 5000, VERSION, partitions=3) == expected
    assert threading.get_ident() not in cold.waits


async def test_a_disk_whose_pages_are_taken_away_at_once_is_waited_for() -> None:
    warm, cold = Archive(), Archive()

    def take_away(path: str) -> None:
        cold.waits.append(threading.get_ident())
        cold.memory.evict()

    cold.memory.on_wait = take_away
    cold.memory.evict()
    assert await cold.consume(1000, 10_000, VERSION) == await warm.consume(1000, 10_000, VERSION)
    assert cold.waits.count(threading.get_ident()) < len(cold.waits)


@pytest.mark.parametrize("timestamp", [0, NOW_MS + 1, NOW_MS + BATCHES // 2, NOW_MS + BATCHES, MAX_TIMESTAMP])
async def test_a_search_for_a_time_waits_for_the_disk_in_threads(timestamp: int) -> None:
    warm, cold = Archive(), Archive()
    cold.memory.evict()

    def search(archive: Archive) -> TimestampedOffset | None:
        search = TimestampSearch(archive.log(), timestamp)
        while not search.advance():
            thread = threading.Thread(target=search.run)
            thread.start()
            thread.join()
        return search.found

    assert search(cold) == search(warm)
    assert cold.waits
    assert threading.get_ident() not in cold.waits


async def test_a_cold_disk_that_fails_takes_its_directory_offline() -> None:
    archive = Archive()
    archive.memory.evict()
    archive.memory.fail = lambda operation, path: OSError(5, "Input/output error") if operation == "read" else None
    assert await archive.consume(1000, 10_000, VERSION) == [b""]
    assert archive.log().log_directory.failure is not None


async def test_a_cold_answer_keeps_no_file_open_after_it_has_gone() -> None:
    archive = Archive(2)
    session_id = (await archive.ask({0: 0, 1: 0}, (0, 0))).session_id
    archive.memory.evict()
    answer = await archive.ask({0: 1000, 1: 1000}, (session_id, 1))
    regions = archive.environment.descriptors.regions
    assert all(each.records for each in told(answer).values()) and len(regions) == 2
    del answer
    assert not regions


async def test_what_comes_while_the_disk_is_waited_for_is_read(nursery: trio.Nursery) -> None:
    archive = Archive(6)
    nursery.start_soon(archive.deadlines.run)
    end = archive.log().log_end_offset
    session_id = (await archive.ask(dict.fromkeys(range(6), end), (0, 0), max_bytes=1 << 20)).session_id
    for epoch in (1, 2, 3):  # all are idle then
        await archive.ask({}, (session_id, epoch))

    def produce() -> None:
        archive.memory.on_wait = lambda path: None
        partition = archive.partitions[3]
        for _ in range(50):
            partition.append_as_leader(batch(NOW_MS, value=bytes(1000)), required_acks=1, now_ms=archive.time_ms)
        partition.high_watermark = partition.log.log_end_offset
        partition.notify_watchers()

    archive.memory.on_wait = lambda path: trio.from_thread.run_sync(produce)
    archive.memory.evict()
    cold = archive.log().segments[-1].base_offset + RECORDS
    with trio.fail_after(60):
        answer = await archive.ask({0: cold}, (session_id, 4), min_bytes=20_000, max_wait_ms=600_000)
    assert {index for index, each in told(answer).items() if each.records} == {0, 3}


async def test_an_answer_after_a_wait_passes_over_what_is_cold() -> None:
    archive = Archive()
    partition = archive.partitions[0]
    partition.high_watermark = 3000
    reading = await archive.ask({0: 3000}, (0, -1), max_wait_ms=600_000)
    assert isinstance(reading, WaitingFetch)
    archive.memory.evict()
    archive.waits.clear()
    partition.high_watermark = partition.log.log_end_offset
    partition.notify_watchers()
    assert reading.is_ready
    (nothing,) = told(reading.response()).values()
    assert (nothing.error_code, nothing.records, nothing.high_watermark) == (0, b"", partition.high_watermark)
    assert archive.waits == []
    (records,) = told(await archive.ask({0: 3000}, (0, -1))).values()
    assert records.records
    assert threading.get_ident() not in archive.waits


def test_indexes_that_cannot_be_read_yet_leave_no_file_open() -> None:
    archive = Archive()
    log = archive.log()

    def open_files() -> int:
        return sum(each.file is not None for each in log.log_directory.files._ring)

    before = open_files()
    archive.memory.evict()
    for segment in log.segments[:-1]:
        with pytest.raises(NotCached), only_cached:
            segment.locate(segment.base_offset + 5)
        segment.release_files()
    assert open_files() <= before


async def test_elements_that_need_many_reads_make_no_others_wait_on_the_loop() -> None:
    waits: list[tuple[int, int]] = []

    class Page(MemoryFile):
        def __init__(self, number: int, cold_reads: int) -> None:
            self.number, self.cold_reads = number, cold_reads

        def read_at(self, position: int, length: int) -> bytes:
            if self.cold_reads:
                if not may_wait():
                    raise NotCached(self, position, length)
                self.cold_reads -= 1
                waits.append((self.number, threading.get_ident()))
            return b""

    pages = [Page(0, TRIES_MAX + 5), *[Page(number, 1) for number in range(1, 50)]]
    await each_warmed(pages, lambda page: cast(None, page.read_at(0, 1)))
    on_loop = {number for number, thread in waits if thread == threading.get_ident()}
    assert on_loop == {0}
    assert {number for number, _ in waits} == set(range(50))


async def test_a_search_for_a_time_reads_no_segment_that_it_does_not_need() -> None:
    archive = Archive()
    last = archive.log().segments[-1]
    archive.memory.damage(last.log_file.path, last.size - 100, bytes(100))
    archive.memory.evict()
    search = TimestampSearch(archive.log(), NOW_MS + 5)
    while not search.advance():
        await trio.to_thread.run_sync(search.run)
    assert search.found == TimestampedOffset(NOW_MS + 5, 5 * RECORDS, 0)


# --- real files -------------------------------------------------------------------------------------------------------


def _file(path: Path, size: int) -> OsFile:
    path.write_bytes(os.urandom(size))
    return OsFile(str(path))


def test_only_cached_reads_of_real_files_give_what_there_is(tmp_path: Path) -> None:
    file = _file(tmp_path / "file", 10_000)
    for position, length in ((0, 10_000), (9_000, 5_000), (10_000, 10), (5, 7)):
        expected = file.read_at(position, length)
        with only_cached:
            assert file.read_at(position, length) == expected


def test_what_was_evicted_is_there_after_warming(tmp_path: Path) -> None:
    file = _file(tmp_path / "file", 1 << 20)
    expected = file.read_at(500_000, 8192)
    os.fsync(file.fileno())
    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    try:
        with only_cached:
            assert file.read_at(500_000, 8192) == expected  # a file system that keeps everything in memory
    except NotCached as cold:
        cold.warm()
        with only_cached:
            assert file.read_at(500_000, 8192) == expected


def test_a_read_that_the_system_refuses_or_cuts_short_is_not_cached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = _file(tmp_path / "file", 10_000)

    def refuse(*_: object) -> int:
        raise BlockingIOError

    for preadv in (refuse, lambda *_: 100):
        monkeypatch.setattr(os, "preadv", preadv)
        monkeypatch.setattr(storage, "RWF_NOWAIT", 8)
        with pytest.raises(NotCached), only_cached:
            file.read_at(0, 8192)
        assert len(file.read_at(0, 8192)) == 8192


def test_a_file_system_that_cannot_tell_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = _file(tmp_path / "file", 10_000)

    def refuse(*_: object) -> int:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(os, "preadv", refuse)
    with only_cached:
        assert len(file.read_at(0, 8192)) == 8192
