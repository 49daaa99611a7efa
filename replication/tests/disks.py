"""What the tests of the replica manager share: a storage that outlives brokers, and partitions to keep on it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import trio

from ottla.replication.cluster.metadata_cache import PartitionState
from ottla.replication.config import LogConfig, ReplicationConfig
from ottla.replication.log.tests.logs import batch
from ottla.replication.partition.partition import Partition
from ottla.replication.replica_manager.manager import ReplicaManager
from ottla.server.testing.memory.storage import MemoryStorage

NODE = 1
TOPIC_ID = bytes(range(16))
LEADS = PartitionState(NODE, 0, (NODE,), (NODE,))


@dataclass(frozen=True)
class Hosted:
    """What the controller asks this broker to keep."""

    topic: str = "topic"
    index: int = 0
    topic_id: bytes = TOPIC_ID
    state: PartitionState = LEADS
    config: LogConfig = field(default_factory=LogConfig)


class LedReplicas(ReplicaManager):
    """Leads and follows at once as its `Hosted` say, in place of a controller that says so later."""

    async def load(self, hosted: Iterable[Any], *, cluster_id: str) -> None:
        wanted = list(hosted)
        await super().load(wanted, cluster_id=cluster_id)
        self._take_roles(wanted)

    async def create_partitions(self, hosted: Sequence[Any]) -> None:
        try:
            await super().create_partitions(hosted)
        finally:  # some may have been made before a failure
            self._take_roles(hosted)

    def _take_roles(self, hosted: Iterable[Any]) -> None:
        for each in hosted:
            partition = self.partition(each.topic, each.index)
            if partition is None or not isinstance(each, Hosted):  # what is no Hosted comes from the code under test
                continue
            state = each.state
            epochs = {"leader_epoch": state.leader_epoch, "partition_epoch": state.partition_epoch}
            if state.leader == self.node_id:
                partition.make_leader(replicas=state.replicas, isr=state.isr, now_ms=self._clock_ms(), **epochs)
            else:
                partition.make_follower(leader_id=state.leader, replicas=state.replicas, **epochs)


class Disk:
    """A storage that outlives brokers; threads are imagined, and counted in `jobs`."""

    def __init__(self, volumes: Sequence[str] = ()) -> None:
        self.storage = MemoryStorage(self.now_ms, volumes)
        self.jobs = 0
        self.thread_delay_s = 0.0
        self.is_in_thread = False

    @staticmethod
    def now_ms() -> int:
        return int(trio.current_time() * 1000)

    async def run_in_thread(self, function: Callable[..., Any], *args: Any) -> Any:
        self.jobs += 1
        await trio.sleep(self.thread_delay_s)
        self.is_in_thread = True
        try:
            return function(*args)
        finally:
            self.is_in_thread = False

    def manager(self, *, log_dirs: tuple[str, ...] = ("/logs",), **config: Any) -> ReplicaManager:
        return LedReplicas(
            log_dirs,
            node_id=NODE,
            config=ReplicationConfig(**config),
            storage=self.storage,
            clock_ms=self.now_ms,
            run_in_thread=self.run_in_thread,
        )

    @asynccontextmanager
    async def broker(self, *hosted: Hosted, clean: bool = True, **options: Any) -> AsyncIterator[ReplicaManager]:
        """A manager that is open, loaded and running; left in order unless `clean` is false."""
        manager = self.manager(**options)
        await manager.open()
        await manager.load(hosted, cluster_id="cluster")
        async with trio.open_nursery() as nursery:
            await nursery.start(manager.run)
            yield manager
            nursery.cancel_scope.cancel()
        if clean:
            await manager.shutdown()
        else:
            for held in manager.directories.all:
                held.release()

    def names(self, path: str = "/logs") -> list[str]:
        return sorted(self.storage.names(path))


def partition_of(manager: ReplicaManager, topic: str = "topic", index: int = 0) -> Partition:
    partition = manager.partition(topic, index)
    assert partition is not None
    return partition


def produce(partition: Partition, count: int = 1, *, value: bytes = b"value") -> int:
    records = batch(*(Disk.now_ms(),) * count, value=value)
    return partition.append_as_leader(records, required_acks=-1, now_ms=Disk.now_ms()).last_offset + 1
