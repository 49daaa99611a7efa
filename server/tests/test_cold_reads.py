"""The event loop waits for no disk: what is not in memory is read by threads, and the answers are the same."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any, cast

import pytest

from ottla.replication.log import storage
from ottla.replication.log.memory_storage import MemoryStorage
from ottla.replication.log.partition_log import PartitionLog
from ottla.replication.log.storage import FileRegion, NotCached, OsFile, only_cached
from ottla.replication.log.tests.logs import NOW_MS, TOPIC_ID, append, batch, load, log_directory, new_log
from ottla.replication.log.time_search import MAX_TIMESTAMP, TimestampedOffset, TimestampSearch
from ottla.replication.partition import Partition
from ottla.server.context import RequestContext
from ottla.server.handlers.fetch import fetch
from ottla.server.tests.test_follower_fetch import EPOCH, VERSION, Leader, told
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic

BATCHES = 1500
RECORDS = 3


class Archive(Leader):
    """A broker that was started anew: its records are on a disk, which notes the threads that wait for it."""

    def __init__(self, partitions: int = 1) -> None:
        self.memory = MemoryStorage()
        self.waits: list[int] = []
        super().__init__(partitions)
        self.member = None
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
        answer = await answer if hasattr(answer, "__await__") else answer
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
@pytest.mark.parametrize("max_bytes", [1, 300, 10_000, 40_000, 1 << 20])
async def test_a_fetch_from_a_cold_disk_is_answered_as_ever_and_waits_in_threads(version: int, max_bytes: int) -> None:
    end = BATCHES * RECORDS
    for offset in (0, 1, end // 3, end // 2 + 1, end - 1):
        warm, cold = Archive(), Archive()
        cold.memory.evict()
        expected = await warm.consume(offset, max_bytes, version)
        assert expected[0] or (version == 3 and max_bytes < 10_000)
        assert await cold.consume(offset, max_bytes, version) == expected
        assert cold.waits
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
