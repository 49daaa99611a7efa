"""Whatever is asked for logs of two names at a time, with threads that take any time: who serves, serves from its own folder."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from ottla.replication.config import LogConfig
from ottla.replication.log.checkpoints import decode_partition_metadata
from ottla.replication.log.tests.logs import read_records
from ottla.replication.replica_manager.manager import ReplicaManager
from ottla.replication.tests.disks import Disk, Hosted, produce
from ottla.wire.errors import KafkaError

TOPICS = ("one", "two")
SEEDS = 6
COMPACTED = LogConfig(cleanup_policy=("compact",), segment_bytes=400, min_cleanable_dirty_ratio=0.01)


class SlowDisk(Disk):
    """Each thread takes a while before it begins, and a while after it is done until the loop hears of it."""

    def __init__(self, random: Random) -> None:
        super().__init__()
        self._random = random

    async def run_in_thread(self, function: Callable[..., Any], *args: Any) -> Any:
        await trio.sleep(self._random.random() ** 4 * 20)
        try:
            return await super().run_in_thread(function, *args)
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(self._random.random() ** 4 * 20)


class Asking:
    """The controller, whose orders come one after the other; clients that create topics; an administrator who moves replicas."""

    def __init__(self, manager: ReplicaManager, random: Random) -> None:
        self._manager = manager
        self._random = random
        self._orders = trio.Lock()
        self._ids = iter(range(1, 1000))
        self.acknowledged: dict[bytes, int] = {}

    def _hosted(self) -> Hosted:
        name = self._random.choice(TOPICS)
        return Hosted(
            name, topic_id=next(self._ids).to_bytes(16, "big"), config=self._random.choice((COMPACTED, LogConfig()))
        )

    async def _pause(self) -> None:
        await trio.sleep(self._random.random() ** 3 * 60)

    async def create_in_vain(self) -> None:
        """A client whose topic is refused in the end."""
        hosted = self._hosted()
        await self._manager.prepare_logs([hosted])
        await self._pause()
        await self._manager.discard_prepared([hosted])

    async def create(self) -> None:
        """A topic that the controller has written, prepared or not."""
        hosted = self._hosted()
        if self._random.random() < 0.5:
            await self._manager.prepare_logs([hosted])
        async with self._orders:
            await self._manager.create_partitions([hosted])
        await self._manager.discard_prepared([hosted])

    async def delete(self) -> None:
        async with self._orders:
            await self._manager.delete_partitions([(self._random.choice(TOPICS), 0)])

    async def move(self) -> None:
        partition = self._manager.partition(self._random.choice(TOPICS), 0)
        if partition is not None:
            with suppress(KafkaError):  # it was deleted meanwhile
                await self._manager.moves.move(partition, self._random.choice(self._manager.log_directories))

    async def produce(self) -> None:
        for partition in self._manager.partitions():
            assert partition.topic_id is not None
            with suppress(KafkaError):
                self.acknowledged[partition.topic_id] = produce(partition, value=b"x" * 100)

    async def ask(self, nursery: trio.Nursery, count: int) -> None:
        kinds = (self.create, self.create_in_vain, self.delete, self.move, self.produce, self.produce)
        for _ in range(count):
            nursery.start_soon(self._random.choice(kinds))
            await trio.sleep(self._random.random() ** 2 * 8)


def plain_folders(disk: Disk) -> set[str]:
    paths = (f"{directory}/{name}" for directory in ("/a", "/b") for name in disk.names(directory))
    return {path for path in paths if path.endswith(tuple(f"/{topic}-0" for topic in TOPICS))}


@pytest.mark.parametrize("seed", range(SEEDS))
async def test_whoever_serves_a_name_has_a_folder_of_its_own(seed: int, autojump_clock: MockClock) -> None:
    random = Random(seed)
    disk = SlowDisk(random)
    async with disk.broker(log_dirs=("/a", "/b"), clean=False) as manager:
        asking = Asking(manager, random)
        async with trio.open_nursery() as nursery:
            await asking.ask(nursery, 60)
        await trio.sleep(1000)  # of a clock that goes on when nobody has anything to do
        found = set()
        for partition in manager.partitions():
            log, topic_id = partition.log, partition.topic_id
            assert topic_id is not None
            found.add(log.directory)
            assert decode_partition_metadata(disk.storage.read(f"{log.directory}/partition.metadata")) == topic_id
            log.release_files()  # from here on it reads what has its name
            assert log.log_end_offset == asking.acknowledged.get(topic_id, 0)
            offsets = [record.offset for record in read_records(log)]
            assert offsets[-1:] == ([log.log_end_offset - 1] if log.log_end_offset else [])
            if not log.config.is_compacted:
                assert offsets == list(range(log.log_end_offset))
        assert plain_folders(disk) == found
        assert not manager._prepared
        assert not len(manager._locks)
