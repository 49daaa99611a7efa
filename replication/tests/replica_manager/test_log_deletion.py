"""What happens to a deleted log until a thread has renamed it, and the event loop knows."""

from __future__ import annotations

import errno
from collections import Counter
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from ottla.replication.log.tests.logs import read_batches
from ottla.replication.replica_manager.log_lifecycle import RENAMED_AT_ONCE
from ottla.replication.replica_manager.manager import ReplicaManager
from ottla.replication.tests.disks import Disk, Hosted, partition_of, produce
from ottla.wire.errors import ErrorCode, KafkaError


@pytest.fixture
def disk() -> Disk:
    return Disk()


def rename_slowly(manager: ReplicaManager) -> None:
    """A rename takes a second; after another one the event loop hears of it."""
    run_in_thread = manager._deletion._run_in_thread

    async def slow(*arguments: Any) -> Any:
        await trio.sleep(1)
        result = await run_in_thread(*arguments)
        await trio.sleep(1)
        return result

    manager._deletion._run_in_thread = slow


async def test_threads_rename_what_is_deleted_a_few_at_a_time(
    disk: Disk, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """A rename waits for the disk, and for others who change the same log directory."""
    jobs: list[int] = []
    fails = True

    def on_call(operation: str, path: str) -> OSError | None:
        if operation != "rename" or not path.startswith("/logs/topic-"):
            return None
        jobs.append(disk.jobs if disk.is_in_thread else 0)
        return OSError(errno.ENOSPC, "No space left on device", path) if fails else None

    async with disk.broker(*(Hosted(index=index) for index in range(120))) as manager:
        await trio.sleep(5)
        disk.storage.fail = on_call
        await manager.delete_partitions([("topic", index) for index in range(120)])
        assert len([record for record in caplog.records if "cannot be deleted yet" in record.message]) == 1
        fails = False
        await trio.sleep(70)
        assert len(jobs) == 240 and 0 not in jobs
        assert sorted(Counter(jobs).values()) == [
            20,
            20,
            RENAMED_AT_ONCE,
            RENAMED_AT_ONCE,
            RENAMED_AT_ONCE,
            RENAMED_AT_ONCE,
        ]
        assert all(name.endswith("-delete") for name in disk.names() if name.startswith("topic"))


@pytest.mark.parametrize("begun_after_s", [0.1, 0.9, 1.5])
async def test_a_topic_that_is_made_again_waits_until_the_old_name_is_free(
    disk: Disk, autojump_clock: MockClock, begun_after_s: float
) -> None:
    async with disk.broker(Hosted()) as manager:
        produce(partition_of(manager))
        rename_slowly(manager)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(manager.delete_partitions, [("topic", 0)])
            await trio.sleep(begun_after_s)
            await manager.create_partitions([Hosted(topic_id=bytes(16))])
            assert partition_of(manager).log_end_offset == 0
            produce(partition_of(manager))
        await trio.sleep(200)
        assert len(read_batches(partition_of(manager).log)) == 1
        assert [name for name in disk.names() if name.startswith("topic")] == ["topic-0"]


async def test_what_still_uses_a_deleted_log_gets_an_error_and_its_directory_stays_online(
    disk: Disk, autojump_clock: MockClock
) -> None:
    """Its old path is gone before the event loop knows the new one."""
    async with disk.broker(Hosted()) as manager:
        partition = partition_of(manager)
        produce(partition)
        log = partition.log
        rename_slowly(manager)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(manager.delete_partitions, [("topic", 0)])
            await trio.sleep(1.5)
            assert "topic-0" not in disk.names() and log.directory == "/logs/topic-0"
            log.release_files()
            manager._repairer.request(log, log.segments[0])
            uses = [
                lambda: log.read(0, 1000, upper_bound=1),
                lambda: log.prepare_flush(),
                lambda: log.aborted_transactions(0, 1),
                lambda: log.truncate_to(0, now_ms=0),
                lambda: log.close(),
            ]
            for use in uses:
                with pytest.raises(KafkaError) as refusal:
                    use()
                assert refusal.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        await trio.sleep(5)
        assert manager.log_directories[0].is_online
        assert log.directory.endswith("-delete")


async def test_a_deletion_that_is_cancelled_while_a_thread_renames_is_finished(
    disk: Disk, autojump_clock: MockClock
) -> None:
    async with disk.broker(Hosted()) as manager:
        rename_slowly(manager)
        with trio.move_on_after(1.5):
            await manager.delete_partitions([("topic", 0)])
        assert [name.endswith("-delete") for name in disk.names() if name.startswith("topic")] == [True]
        await trio.sleep(200)
        assert not [name for name in disk.names() if name.startswith("topic")]
        assert manager.log_directories[0].is_online
