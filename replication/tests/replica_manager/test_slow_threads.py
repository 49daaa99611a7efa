"""A thread that is slow while the folder of its log gets another log: what it writes must not get into that one."""

from __future__ import annotations

import errno
from collections.abc import Callable
from functools import partial

import pytest
import trio
from trio.testing import MockClock

from ottla.replication.log.checkpoints import decode_offsets
from ottla.replication.log.names import LOG_START_OFFSET_CHECKPOINT
from ottla.replication.replica_manager.manager import ReplicaManager
from ottla.replication.tests.disks import Disk, Hosted, partition_of, produce
from ottla.replication.tests.held_threads import Held

OTHER_ID = bytes(range(1, 17))
NAME = ("topic", 0)
EPOCHS = "/logs/topic-0/leader-epoch-checkpoint"


@pytest.fixture
def disk() -> Disk:
    return Disk()


def refuse_to_rename(disk: Disk, is_wanted: Callable[[], bool]) -> None:
    """The disk has no room for another name of the deleted log: its successor gets the old one by another way."""

    def on_call(operation: str, path: str) -> OSError | None:
        refuses = operation == "rename" and path == "/logs/topic-0" and is_wanted()
        return OSError(errno.ENOSPC, "No space left on device", path) if refuses else None

    disk.storage.fail = on_call


async def make_again(manager: ReplicaManager) -> None:
    await manager.delete_partitions([NAME])
    await manager.create_partitions([Hosted(topic_id=OTHER_ID)])


def led_often(manager: ReplicaManager) -> None:
    """Records of several leader epochs, which the file does not tell of yet."""
    partition = partition_of(manager)
    for epoch in (3, 5, 8):
        partition.make_leader(leader_epoch=epoch, partition_epoch=epoch, replicas=(1,), isr=(1,), now_ms=Disk.now_ms())
        produce(partition)
    assert partition.log.epochs_are_dirty


async def test_leader_epochs_of_a_deleted_log_are_not_written_into_the_new_one(
    disk: Disk, autojump_clock: MockClock
) -> None:
    async with disk.broker(Hosted()) as manager, trio.open_nursery() as nursery:
        led_often(manager)
        checkpoints = manager._checkpoint_writer
        held = Held(checkpoints, lambda _, arguments: bool(arguments) and isinstance(arguments[-1], list))
        (directory,) = manager.directories.all
        nursery.start_soon(checkpoints.write_epochs, directory)
        await held.has_arrived.wait()
        await make_again(manager)
        before = disk.storage.read(EPOCHS)
        held.may_go_on.set()
        await held.is_over.wait()
        assert disk.storage.read(EPOCHS) == before
        assert EPOCHS + ".tmp" not in disk.storage.files()


async def test_a_deleted_log_that_could_not_be_renamed_writes_nothing_into_the_new_one(
    disk: Disk, autojump_clock: MockClock
) -> None:
    """`LogCreation` puts aside what is left of it."""
    async with disk.broker(Hosted()) as manager, trio.open_nursery() as nursery:
        led_often(manager)
        held = Held(manager._flusher)
        partition = partition_of(manager)
        nursery.start_soon(partial(manager._flusher.flush, [partition], include_active=True))
        await held.has_arrived.wait()
        refusals = iter([True, True])
        refuse_to_rename(disk, lambda: next(refusals, False))
        await make_again(manager)
        assert next(refusals, None) is None
        assert any(name.endswith("-stray") for name in disk.names())
        before = disk.storage.read(EPOCHS)
        held.may_go_on.set()
        await held.is_over.wait()
        assert disk.storage.read(EPOCHS) == before
        assert partition.log.directory not in ("/logs/topic-0", partition_of(manager).log.directory)


async def test_a_flush_of_a_deleted_log_writes_no_leader_epochs_into_the_new_one(
    disk: Disk, autojump_clock: MockClock
) -> None:
    async with disk.broker(Hosted()) as manager, trio.open_nursery() as nursery:
        led_often(manager)
        held = Held(manager._flusher)
        nursery.start_soon(partial(manager._flusher.flush, [partition_of(manager)], include_active=True))
        await held.has_arrived.wait()
        await make_again(manager)
        before = disk.storage.read(EPOCHS)
        held.may_go_on.set()
        await held.is_over.wait()
        assert disk.storage.read(EPOCHS) == before


async def test_a_new_log_waits_for_a_checkpoint_that_is_about_to_tell_of_the_old_one(
    disk: Disk, autojump_clock: MockClock
) -> None:
    """After a kill, a new log would begin at the old one's start offset, and its records below it would be lost."""
    async with disk.broker(Hosted(), clean=False) as manager, trio.open_nursery() as nursery:
        produce(partition_of(manager), 7)
        partition_of(manager).delete_records(5)
        checkpoints = manager._checkpoint_writer
        held = Held(checkpoints)
        (directory,) = manager.directories.all
        assert not directory.mentions([NAME])
        nursery.start_soon(checkpoints.write, directory, LOG_START_OFFSET_CHECKPOINT)
        await held.has_arrived.wait()
        nursery.start_soon(manager.delete_partitions, [NAME])
        await trio.sleep(1)
        nursery.start_soon(manager.create_partitions, [Hosted(topic_id=OTHER_ID)])
        # On this clock an hour has passed when nobody has anything to do but to wait for the thread.
        await trio.sleep(3600)
        assert manager.partition(*NAME) is None
        held.may_go_on.set()
        with trio.fail_after(3600):
            while manager.partition(*NAME) is None:
                await trio.sleep(1)
        assert decode_offsets(disk.storage.read(f"/logs/{LOG_START_OFFSET_CHECKPOINT}")) == {}


async def test_a_new_log_waits_until_one_that_was_made_in_vain_is_removed(
    disk: Disk, autojump_clock: MockClock
) -> None:
    """A thread removes a folder by its path."""
    async with disk.broker() as manager, trio.open_nursery() as nursery:
        await manager.prepare_logs([Hosted()])
        held = Held(manager._creation, lambda function, _: function.__name__ == "_discard_some")
        nursery.start_soon(manager.discard_prepared, [Hosted()])
        await held.has_arrived.wait()
        nursery.start_soon(manager.create_partitions, [Hosted("another"), Hosted(topic_id=OTHER_ID)])
        await trio.sleep(3600)
        held.may_go_on.set()
        with trio.fail_after(3600):
            while manager.partition(*NAME) is None:
                await trio.sleep(1)
        await held.is_over.wait()
        log = partition_of(manager).log
        assert disk.storage.exists(log.segments[0].log_file.path)
        assert [name for name in disk.names() if name.startswith("topic")] == ["topic-0"]
