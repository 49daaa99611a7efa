"""Brokers of a lab's Kafka, and what a test does to them: kill, stop, cut off, fill or break their disks.

A cut is between hosts. What a broker asks one that it is cut off from waits until the cut ends or its time is up, as a lost
packet does. Clients are in reach of all brokers.
"""

from __future__ import annotations

import errno
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING

from ottla.replication.log.storage import FileRegion
from ottla.server.testing.errors import LabError
from ottla.server.testing.memory.storage import MemoryFile

if TYPE_CHECKING:
    from ottla.server.testing.world.lab import Lab
    from ottla.server.testing.world.node import Node


class LabBroker:
    """A broker of a `Kafka`. `node_id`: its id."""

    def __init__(self, lab: Lab, node_id: int) -> None:
        self._lab, self.node_id = lab, node_id

    def __repr__(self) -> str:
        return f"broker {self.node_id}"

    @property
    def _node(self) -> Node:
        return self._lab.world.node(self.node_id)

    @property
    def address(self) -> str:
        """HOST:PORT; it stays the same when the broker is restarted."""
        return self._node.address

    @property
    def is_running(self) -> bool:
        """False after `kill` or `stop`, and after a broker has ended because its disks failed."""
        return self._node.is_running

    @property
    def leads(self) -> list[tuple[str, int]]:
        """Partitions that the broker leads, as (topic, partition); internal topics are left out."""
        return self._lab.loop.call_sync(self._leads)

    def _leads(self) -> list[tuple[str, int]]:
        broker = self._node.broker
        held = [] if broker is None else broker.replicas.partitions()
        return sorted((each.topic, each.index) for each in held if each.is_leader and not each.topic.startswith("__"))

    # ------------------------------------------------------------------ its process

    def kill(self) -> None:
        """End the broker as SIGKILL does. Its data stays, its session ends at once, and other brokers take over its partitions."""
        self._lab.call(self._lab.world.kill, self.node_id)

    def stop(self) -> None:
        """Stop the broker as SIGTERM does: other brokers take over its partitions, and its logs are flushed.

        Raises LabError if it is paused.
        """
        self._lab.call(self._change, partial(self._lab.world.stop, self.node_id))

    def start(self) -> None:
        """Start the broker with the data that it had; return when it serves clients, leads what it is to lead, and is in sync.

        As far as it can be: it is waited for neither where `shrink_isr` keeps it out, nor while its disk is full or its leader is
        down or out of reach, nor for long on a frozen clock. Raises LabError.
        """
        self._lab.call(self._change, self._node.start)

    async def _change(self, change: Callable[[], Awaitable[None]]) -> None:
        await change()
        await self._lab.world.until_settled(back=self.node_id)

    def restart(self) -> None:
        """Stop the broker as SIGTERM does, and `start` it again; one after the other makes a rolling restart."""
        self.stop()
        self.start()

    def pause(self) -> None:
        """Freeze the broker, as SIGSTOP does, until `resume` or `kill`: clients, other brokers and the coordination tree get no answer.

        In a cluster its session ends after 18 s, and other brokers take over its partitions.
        """
        self._lab.loop.call_sync(self._lab.world.pause, self.node_id)

    def resume(self) -> None:
        """End `pause`; return when the broker is in sync, as `start` does.

        Connections with waiting requests are closed, and their clients send them again.
        """
        self._lab.call(self._change, self._resume)

    async def _resume(self) -> None:
        self._lab.world.resume(self.node_id)

    # ------------------------------------------------------------------ its network

    def isolate(self, from_: int | Iterable[int] | None = None) -> None:
        """Let this broker and others not reach each other, until `heal`. Clients still reach it. Raises LabError.

        `from_`: ids of the others. None: all others and the coordination tree, so that the broker's session ends after 18 s
        and other brokers take over its partitions.
        """
        world = self._lab.world
        others = [from_] if isinstance(from_, int) else None if from_ is None else list(from_)
        self._lab.loop.call_sync(world.cut, self.node_id, others)

    def heal(self) -> None:
        """End all that `isolate` did to this broker; return when it is in sync, as `start` does."""
        self._lab.call(self._change, self._heal)

    async def _heal(self) -> None:
        self._lab.world.heal(self.node_id)

    def expire_session(self) -> None:
        """End the broker's session with the coordination tree: it loses its partitions. Return when it is in sync again.

        Raises LabError for a single broker, which has no session.
        """
        self._lab.call(self._lab.world.renew_session, self.node_id)

    # ------------------------------------------------------------------ its disk

    def fill_disk(self) -> None:
        """Make every write to the broker's disk fail with ENOSPC (disk full), until `free_disk`."""
        self._node.storage.space_left = 0

    def free_disk(self) -> None:
        """End `fill_disk` and `fail_disk`. If a log directory has failed meanwhile, the broker needs a `restart`."""
        self._node.storage.space_left, self._node.storage.fail = None, None

    def fail_disk(self) -> None:
        """Make every read and write of the broker's disk fail with EIO, until `free_disk`."""
        self._node.storage.fail = lambda operation, path: OSError(errno.EIO, "Input/output error", path)

    def corrupt(self, topic: str, partition: int, offset: int) -> None:
        """Change a byte of the batch that has `offset`, on this broker's disk, so that its checksum is wrong.

        Raises LabError if the broker has no such record.
        """
        self._lab.loop.call_sync(self._corrupt, topic, partition, offset)

    def _corrupt(self, topic: str, partition: int, offset: int) -> None:
        held = self._node.serving().replicas.partition(topic, partition)
        log = held.log if held is not None else None
        if log is None or not log.log_start_offset <= offset < log.log_end_offset:
            raise LabError(f"Broker {self.node_id} has no record {topic}-{partition} at offset {offset}.")
        region = log.read(offset, 1, upper_bound=log.log_end_offset, at_least_one_batch=True).region
        assert isinstance(region, FileRegion) and isinstance(region.file, MemoryFile)
        last = region.position + region.length - 1
        (byte,) = region.file.read_at(last, 1)
        self._lab.world.is_damaged = True
        self._node.storage.damage(region.file.path, last, bytes([byte ^ 0xFF]))
