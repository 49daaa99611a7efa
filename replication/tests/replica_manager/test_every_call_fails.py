"""The replica manager with each system call of each of its works failing once: nothing acknowledged is lost, it lives on.

Every partition asks for flushes, so that whatever was acknowledged has to survive a power cut, too. After each work with a
failed call the broker goes on (the same work again, records to all partitions), ends in one of three ways, and starts on
what it left.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from functools import partial
from random import Random
from typing import NamedTuple

import pytest
import trio
from trio.testing import MockClock

from ottla.replication.config import LogConfig
from ottla.replication.log.faults import Fault as Kind
from ottla.replication.log.faults import classify
from ottla.replication.log.removal import look_at_times, warm
from ottla.replication.log.tests.failing_calls import Case, FailingCalls, run_every_case
from ottla.replication.log.tests.faulty_world import IRREPARABLE
from ottla.replication.log.tests.logs import batch, read_records
from ottla.replication.partition.partition import Partition
from ottla.replication.replica_manager.directories import LogDirectoryProblem
from ottla.replication.tests.disks import Disk, Hosted
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.tests.effort import thorough_or_quick

DIRECTORIES = ("/a", "/b")
FLUSHED = LogConfig(segment_bytes=600, index_interval_bytes=100, flush_messages=1, file_delete_delay_ms=1000)
COMPACTED = replace(FLUSHED, cleanup_policy=("compact",), min_cleanable_dirty_ratio=0.01)
BRIEF = replace(FLUSHED, retention_bytes=0)
AWHILE_S = 5  # by then files have been removed, but no periodic work has been done
Partitions = dict[tuple[str, int], Hosted]


class Sent(NamedTuple):
    """A record on its way to the disk."""

    partition: Partition
    offset: int
    value: bytes


class Broker:
    """One broker after the other on the same disks, and what was acknowledged."""

    def __init__(self, calls: FailingCalls) -> None:
        self.calls = calls
        self.disk = Disk(DIRECTORIES)
        for directory in DIRECTORIES:
            self.disk.storage.make_directory(directory)
        self.disk.storage.sync_directory("/")
        self.hosted: Partitions = {}
        self.acknowledged: dict[tuple[str, int], dict[int, bytes]] = {}
        self.refused: set[bytes] = set()
        self._count = 0
        self.manager = self.disk.manager(log_dirs=DIRECTORIES, log_cleaner_backoff_ms=10**9)
        self._running = trio.CancelScope()

    # --- its life -----------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        self.manager = self.disk.manager(log_dirs=DIRECTORIES, log_cleaner_backoff_ms=10**9)
        await self.manager.open()
        await self.manager.load(self.hosted.values(), cluster_id="cluster")

    async def end(self, manner: int) -> None:
        """In order, by SIGKILL, or by a power cut."""
        if manner == 0:
            await self.manager.shutdown()
        for held in self.manager.directories.all:
            held.release()
        self.disk.storage.kill()
        if manner == 2:
            self.disk.storage.crash(Random(len(self.calls.made)))

    async def host(self, *hosted: Hosted) -> None:
        for each in hosted:
            self.hosted[each.topic, each.index] = each
            self.acknowledged[each.topic, each.index] = {}
        await self.manager.create_partitions(hosted)

    @property
    def is_whole(self) -> bool:
        return all(directory.is_online for directory in self.manager.log_directories)

    def partition(self, topic: str, index: int) -> Partition:
        partition = self.manager.partition(topic, index)
        assert partition is not None, f"{topic}-{index} is not there"
        return partition

    # --- records ------------------------------------------------------------------------------------------------------

    async def produce(self, count: int = 1) -> None:
        """To every partition, to all at the same time; what the broker acknowledges is noted."""
        for _ in range(count):
            for sent in [self._append(key) for key in list(self.hosted)]:
                if sent is not None:
                    await self._await_acknowledgement(sent)

    def _append(self, key: tuple[str, int]) -> Sent | None:
        self._count += 1
        value = b"record %d" % self._count
        partition = self.manager.partition(*key)
        if partition is None:
            assert self.calls.failed, f"{key} is not there"
            return None
        try:
            append = partition.append_as_leader(
                batch(self.disk.now_ms(), value=value), required_acks=-1, now_ms=self.disk.now_ms()
            )
        except KafkaError as error:
            assert error.code == ErrorCode.KAFKA_STORAGE_ERROR, error
            if partition.log.log_directory.is_online:
                self.refused.add(value)
            return None
        return Sent(partition, append.first_offset, value)

    async def _await_acknowledgement(self, sent: Sent) -> None:
        partition = sent.partition
        code = await self.manager.wait_committed(partition, sent.offset + 1, timeout_s=5)
        if code == ErrorCode.NONE:
            self.acknowledged[partition.topic, partition.index][sent.offset] = sent.value
        else:
            is_held_up = code == ErrorCode.REQUEST_TIMED_OUT and self.calls.failed  # it may be there or not
            assert is_held_up or code == ErrorCode.KAFKA_STORAGE_ERROR, code

    def check(self) -> None:
        """Each acknowledged record is there, once, at its offset."""
        for key, acknowledged in self.acknowledged.items():
            partition = self.manager.partition(*key)
            if partition is None and not acknowledged:
                continue
            if partition is None or not partition.log.log_directory.is_online:
                assert not self.is_whole, f"{key} is not there"
                continue
            records = read_records(partition.log)
            offsets = [record.offset for record in records]
            assert offsets == sorted(set(offsets)), f"{key}: {offsets}"
            values = {record.offset: record.value for record in records}
            for offset, value in acknowledged.items():
                if offset >= partition.log_start_offset and self.hosted[key].config is not COMPACTED:
                    assert values.get(offset) == value, f"{key}: {values.get(offset)!r} at {offset}, not {value!r}"
                elif offset in values:
                    assert values[offset] == value, f"{key}: {values[offset]!r} at {offset}, not {value!r}"
            if acknowledged and self.hosted[key].config is COMPACTED:
                latest = max(acknowledged)
                assert values.get(latest) == acknowledged[latest], f"{key} lost its last value at {latest}"
            assert not self.refused.intersection(values.values()), "what was refused is there"


Work = Callable[[Broker], Awaitable[None]]


class Scene(NamedTuple):
    """A work of the broker. `is_start`: the broker is not there yet."""

    work: Work
    is_start: bool = False
    is_end: bool = False


async def flush(broker: Broker) -> None:
    await broker.produce(2)


async def create(broker: Broker) -> None:
    await broker.host(Hosted("new", 0, config=FLUSHED), Hosted("new", 1, config=FLUSHED))


async def delete(broker: Broker) -> None:
    broker.hosted.pop(("topic", 1), None)
    broker.acknowledged.pop(("topic", 1), None)
    await broker.manager.delete_partitions([("topic", 1)])
    await trio.sleep(AWHILE_S)


async def delete_topic(broker: Broker) -> None:
    """With a log line, for which times are read from the disk."""
    broker.disk.storage.evict()
    for index in (1, 2):
        broker.hosted.pop(("topic", index), None)
        broker.acknowledged.pop(("topic", index), None)
    await broker.manager.delete_partitions([("topic", 1), ("topic", 2)], deleted_topics={"topic"})
    await trio.sleep(AWHILE_S)


async def delete_records(broker: Broker) -> None:
    """As DeleteRecords asks, with a log line; retention then removes the segments."""
    broker.disk.storage.evict()
    partition, removals = broker.partition("topic", 2), broker.manager.removals
    offset = partition.high_watermark
    for each in [each for each in broker.acknowledged.get(("topic", 2), ()) if each < offset]:
        del broker.acknowledged["topic", 2][each]
    start = partition.log_start_offset
    await warm(partial(look_at_times, partition.log, start, offset), broker.disk.run_in_thread)
    with removals.run(broker.disk.now_ms(), is_frequent=True) as run:
        removal = run.removal()
        partition.delete_records(offset, removal)
        run.note_log("topic", 2, removal, "User:ann")
    await broker.manager.housekeeping.apply_retention()
    await broker.manager.housekeeping.checkpoint_all()
    await trio.sleep(AWHILE_S)


async def delete_and_create(broker: Broker) -> None:
    """A topic of the same name, which begins anew."""
    await delete(broker)
    await broker.host(Hosted("topic", 1, b"another topic id", config=FLUSHED))
    assert broker.partition("topic", 1).log_end_offset == 0


async def checkpoint(broker: Broker) -> None:
    await broker.manager.housekeeping.checkpoint_all()


async def retain(broker: Broker) -> None:
    broker.disk.storage.evict()
    await broker.manager.housekeeping.apply_retention()
    await trio.sleep(AWHILE_S)


async def compact(broker: Broker) -> None:
    await broker.manager.housekeeping.compact()
    if not broker.calls.failed:
        assert broker.partition("compacted", 0).log.first_dirty_offset > 3


async def move(broker: Broker) -> None:
    """A partition goes to the other directory, and back when this is done again."""
    manager, partition = broker.manager, broker.partition("topic", 0)
    (target,) = (each for each in manager.log_directories if each is not partition.log.log_directory)
    await manager.moves.move(partition, target)
    await trio.sleep(AWHILE_S)
    await broker.produce()
    await trio.sleep(AWHILE_S)


async def start(broker: Broker) -> None:
    await broker.start()


async def shut_down(broker: Broker) -> None:
    await broker.manager.shutdown()


SCENES = {
    "flush": Scene(flush),
    "create": Scene(create),
    "delete": Scene(delete),
    "delete topic": Scene(delete_topic),
    "delete records": Scene(delete_records),
    "delete and create": Scene(delete_and_create),
    "checkpoint": Scene(checkpoint),
    "retention": Scene(retain),
    "compact": Scene(compact),
    "move": Scene(move),
    "start": Scene(start, is_start=True),
    "shut down": Scene(shut_down, is_end=True),
}


async def bring_up(broker: Broker) -> None:
    await broker.start()
    await broker.host(*(Hosted("topic", index, config=FLUSHED) for index in range(3)))
    await broker.host(Hosted("compacted", config=COMPACTED), Hosted("brief", config=BRIEF))


async def scene(broker: Broker, chosen: Scene, manner: int, *, is_done_again: bool) -> None:
    storage = broker.disk.storage
    await bring_up(broker)
    async with trio.open_nursery() as nursery:
        await nursery.start(broker.manager.run)
        await broker.produce(9)
        if not chosen.is_start:
            await perform(broker, chosen.work)
            if not chosen.is_end:
                if is_done_again:
                    await again(broker, chosen.work)
                await broker.produce(2)
                broker.check()
        nursery.cancel_scope.cancel()
    if chosen.is_end:
        manner = max(manner, 1)
    await broker.end(manner)
    if chosen.is_start:
        await perform(broker, chosen.work)
        await broker.end(max(1, manner))
    assert storage.fail is None
    try:
        await broker.start()
    except LogDirectoryProblem as problem:
        assert chosen.work is move and manner == 2, problem
        await after_a_failed_move(broker, problem)
    assert broker.is_whole
    broker.check()
    async with trio.open_nursery() as nursery:
        await nursery.start(broker.manager.run)
        await broker.produce()
        nursery.cancel_scope.cancel()
    broker.check()
    await broker.end(0)


async def again(broker: Broker, work: Work) -> None:
    """The same without a fault: it works, unless a directory is offline, which may stand in the way."""
    try:
        await work(broker)
    except KafkaError as error:
        assert not broker.is_whole and error.code == ErrorCode.KAFKA_STORAGE_ERROR, error


async def perform(broker: Broker, work: Work) -> None:
    """Do a work, a call of which fails. Nothing but the disk may be what ends it, and errors that pass end no directory."""
    calls = broker.calls
    broker.disk.storage.fail = calls
    try:
        await work(broker)
    except (OSError, LogDirectoryProblem) as error:
        assert calls.failed, error
    except KafkaError as error:
        assert calls.failed and error.code == ErrorCode.KAFKA_STORAGE_ERROR, error
    finally:
        broker.disk.storage.fail = None
    is_passing = all(classify(OSError(fault.errno, "")) is not Kind.BROKEN for fault in calls.faults)
    if (
        calls.failed
        and is_passing
        and work is not start
        and not IRREPARABLE.intersection(call.operation for call in calls.failed)
    ):
        assert broker.is_whole, [str(each.failure) for each in broker.manager.log_directories]


async def after_a_failed_move(broker: Broker, problem: LogDirectoryProblem) -> None:
    """Remove the replica from the directory that it left, as the broker tells its operator.

    That directory failed before the new name of the replica was certain there.
    """
    [call] = broker.calls.failed
    assert call.operation == "sync_directory" and call.path in DIRECTORIES, call
    assert "remove it from the one that failed" in str(problem)
    for held in broker.manager.directories.all:
        held.release()
    broker.disk.storage.remove_tree(f"{call.path}/topic-0")
    await broker.start()


def make_case(chosen: Scene) -> Case:
    def case(calls: FailingCalls) -> None:
        seed = sum(fault.number * 7 + fault.errno + int(fault.share * 2) for fault in calls.faults)

        async def main() -> None:
            await scene(Broker(calls), chosen, seed % 3, is_done_again=seed % 2 == 0)

        trio.run(main, clock=MockClock(autojump_threshold=0))

    return case


ERRNOS = (errno.EMFILE, errno.ENOSPC, errno.EIO)
EVERY = thorough_or_quick(11, 61)  # of these cases, as each starts a broker twice


def cases() -> Iterator[tuple[str, Case]]:
    for name, chosen in SCENES.items():
        yield name, make_case(chosen)


@pytest.mark.parametrize("every", [pytest.param(1, marks=pytest.mark.long, id="all"), pytest.param(EVERY, id="some")])
@pytest.mark.parametrize(("name", "case"), [pytest.param(*each, id=each[0]) for each in cases()])
def test_every_call_fails_once(name: str, case: Case, every: int, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)
    assert run_every_case(case, ERRNOS, lasting=True, every=every) > 60 // every
