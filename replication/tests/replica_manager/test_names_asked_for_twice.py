"""Two tasks that make, discard or delete logs of one name: neither may take a folder that is the other's by then."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import MockClock

from ottla.replication.log.tests.logs import read_records
from ottla.replication.replica_manager.manager import ReplicaManager
from ottla.replication.tests.disks import TOPIC_ID, Disk, Hosted, partition_of, produce
from ottla.replication.tests.held_threads import Held

OTHER_ID = bytes(range(1, 17))
NAME = ("topic", 0)
LONG_S = 60  # of a clock that goes on when nobody has anything to do but to wait for a thread


@pytest.fixture
def disk() -> Disk:
    return Disk()


def makes_logs(function: Any, _: object) -> bool:
    return getattr(function, "__name__", "") == "_make_some"


async def until_hosted(manager: ReplicaManager, topic: str = "topic") -> None:
    with trio.fail_after(LONG_S):
        while manager.partition(topic, 0) is None:
            await trio.sleep(1)


async def serves_its_own_folder(disk: Disk, manager: ReplicaManager) -> None:
    """What is acknowledged now is in the one folder of that name, and there after a kill."""
    partition = partition_of(manager)
    assert partition.topic_id == TOPIC_ID
    produce(partition, 3)
    await trio.sleep(LONG_S)  # whoever removes anything has done so
    assert [name for name in disk.names() if name.startswith("topic")] == ["topic-0"]
    assert disk.storage.exists(partition.log.segments[0].log_file.path)
    partition.log.release_files()  # from here on it reads what has its name
    assert [each.offset for each in read_records(partition.log)] == list(range(partition.log_end_offset))


@pytest.mark.parametrize("after", [True, False])
async def test_a_creation_that_was_carried_out_late_keeps_its_log(
    disk: Disk, autojump_clock: MockClock, after: bool
) -> None:
    """The controller has written a topic, and its order to make the logs comes after the client's patience.

    The client asks again. Logs for the second topic are being prepared when the order comes, for the first one. The second
    topic is refused in the end, because its name is taken, and what was made for it is discarded.
    """
    async with disk.broker() as manager, trio.open_nursery() as nursery:
        second = Hosted(topic_id=OTHER_ID)
        held = Held(manager._creation, makes_logs, after=after)
        is_prepared = trio.Event()

        async def prepare_in_vain() -> None:
            await manager.prepare_logs([second])
            is_prepared.set()

        nursery.start_soon(prepare_in_vain)
        await held.has_arrived.wait()
        nursery.start_soon(manager.create_partitions, [Hosted()])
        await trio.sleep(LONG_S)  # the order goes as far as it can
        if manager.partition(*NAME) is not None:
            produce(partition_of(manager), 2)
        held.may_go_on.set()
        await is_prepared.wait()
        await manager.discard_prepared([second])
        await until_hosted(manager)
        await serves_its_own_folder(disk, manager)


async def test_what_is_discarded_is_the_log_of_that_topic_and_no_other(disk: Disk, autojump_clock: MockClock) -> None:
    async with disk.broker() as manager:
        assert not await manager.prepare_logs([Hosted()])
        await manager.discard_prepared([Hosted(topic_id=OTHER_ID)])
        assert disk.names().count("topic-0") == 1
        await manager.create_partitions([Hosted()])
        await serves_its_own_folder(disk, manager)


async def test_of_two_orders_for_one_name_one_makes_the_log(disk: Disk, autojump_clock: MockClock) -> None:
    async with disk.broker() as manager, trio.open_nursery() as nursery:
        held = Held(manager._creation, makes_logs, after=True)
        nursery.start_soon(manager.create_partitions, [Hosted("another"), Hosted()])
        await held.has_arrived.wait()
        nursery.start_soon(manager.create_partitions, [Hosted(), Hosted("third")])
        await trio.sleep(LONG_S)
        held.may_go_on.set()
        for topic in ("another", "third", "topic"):
            await until_hosted(manager, topic)
        await serves_its_own_folder(disk, manager)


async def test_a_topic_is_not_prepared_while_one_of_that_name_is_being_made(
    disk: Disk, autojump_clock: MockClock
) -> None:
    async with disk.broker() as manager, trio.open_nursery() as nursery:
        held = Held(manager._creation, makes_logs, after=True)
        nursery.start_soon(manager.create_partitions, [Hosted()])
        await held.has_arrived.wait()
        failures: dict[str, Any] = {}

        async def prepare() -> None:
            failures.update(await manager.prepare_logs([Hosted(topic_id=OTHER_ID)]))

        nursery.start_soon(prepare)
        await trio.sleep(LONG_S)
        held.may_go_on.set()
        await until_hosted(manager)
        await serves_its_own_folder(disk, manager)
        assert list(failures) == ["topic"]
        await manager.discard_prepared([Hosted(topic_id=OTHER_ID)])
        await serves_its_own_folder(disk, manager)
