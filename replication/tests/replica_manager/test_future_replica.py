"""A future replica step by step: what is acknowledged meanwhile, and how far two logs agree."""

import contextlib
import errno

import pytest

from ottla.replication.log.log_reader import LogRead
from ottla.replication.log.partition_log import PartitionLog
from ottla.replication.log.storage import LogDirectory
from ottla.replication.log.tests.logs import NOW_MS, batch, log_directory, new_log
from ottla.replication.partition.partition import Partition
from ottla.replication.replica_manager.future_replica import FutureReplica, common_end
from ottla.server.testing.memory.storage import MemoryStorage
from ottla.wire.errors import KafkaError

NODE = 1


def test_nothing_counts_that_a_power_cut_after_the_change_would_take() -> None:
    storage = MemoryStorage()
    log = new_log(log_directory(storage, "/a"), flush_messages=1)
    partition = Partition("topic", 0, log, local_id=NODE)
    partition.make_leader(leader_epoch=0, partition_epoch=0, replicas=(NODE,), isr=(NODE,))

    def append_and_flush() -> int:
        partition.append_as_leader(batch(), required_acks=-1, now_ms=NOW_MS)
        partition.log.flush()
        partition.on_flushed()
        return partition.high_watermark

    assert append_and_flush() == 1
    target = log_directory(storage, "/b")
    future = FutureReplica.create_log(log, target, "topic-0.0-future", now_ms=NOW_MS)
    move = FutureReplica(partition, target, future, lambda: NOW_MS)
    job = move.next_job()
    assert job is not None
    assert append_and_flush() == 1  # the future log has not got it
    job.run()
    move.finish_job()
    assert (append_and_flush(), future.recovery_point) == (1, 1)
    assert move.next_job() is None
    move.take_over("topic-0.1-delete")
    assert (partition.log, partition.log_end_offset) == (future, 3)
    assert append_and_flush() == 1  # the old log's name may still come back
    move.let_acknowledge()
    assert partition.high_watermark == 4


def copied(partition: Partition, target: LogDirectory) -> FutureReplica:
    """All that there is so far."""
    future = FutureReplica.create_log(partition.log, target, "topic-0.0-future", now_ms=NOW_MS)
    move = FutureReplica(partition, target, future, lambda: NOW_MS)
    while (job := move.next_job()) is not None:
        job.run()
        move.finish_job()
    return move


def of_small_segments(flushes: list[Partition]) -> Partition:
    """Two of these batches fill a segment."""
    log = new_log(log_directory(MemoryStorage(), "/a"), segment_bytes=400)
    partition = Partition("topic", 0, log, local_id=NODE, request_flush=flushes.append)
    partition.make_leader(leader_epoch=0, partition_epoch=0, replicas=(NODE,), isr=(NODE,))
    return partition


def fill(partition: Partition, count: int) -> None:
    for _ in range(count):
        partition.append_as_leader(batch(NOW_MS, value=b"x" * 120), required_acks=-1, now_ms=NOW_MS)


def test_a_segment_that_the_event_loop_has_finished_is_synced_by_a_thread() -> None:
    flushes: list[Partition] = []
    partition = of_small_segments(flushes)
    fill(partition, 2)
    target, calls = log_directory(MemoryStorage(), "/b"), list[str]()
    move = copied(partition, target)
    fill(partition, 1)
    flushes.clear()
    assert move.next_job() is None
    storage = target.storage
    assert isinstance(storage, MemoryStorage)
    storage.fail = lambda operation, path: calls.append(operation)
    move.take_over("topic-0.1-delete")
    assert len(partition.log.segments) == 2 and "append" in calls and "sync" not in calls
    assert flushes == [partition]


def test_a_finished_segment_that_could_not_be_synced_is_synced_with_the_next_piece() -> None:
    partition = of_small_segments([])
    target = log_directory(MemoryStorage(), "/b")
    storage = target.storage
    assert isinstance(storage, MemoryStorage)
    move = copied(partition, target)
    fill(partition, 5)

    def fail(operation: str, path: str) -> OSError | None:
        return OSError(errno.ENOSPC, path) if operation == "sync" else None

    storage.fail = fail
    for is_refused in (False, True):  # the second of these pieces finishes a segment
        job = move.next_job()
        assert job is not None
        with pytest.raises((OSError, KafkaError)) if is_refused else contextlib.nullcontext():
            job.run()
    storage.fail = None
    move._append_in_thread(LogRead(b"", 4), 0, NOW_MS)  # nothing new
    assert move.log.recovery_point == 2


def with_epochs(*epochs: int) -> PartitionLog:
    """A log of one record in each of these leader epochs."""
    log = new_log()
    for epoch in epochs:
        log.append_as_leader(batch(), leader_epoch=epoch, now_ms=NOW_MS)
    return log


def test_leader_epochs_tell_how_far_two_logs_agree() -> None:
    current = with_epochs(0, 0, 2, 2, 5)
    assert common_end(current, with_epochs(0, 0, 2), 0) == 3
    assert common_end(current, with_epochs(0, 0, 2, 2, 5), 0) == 5
    assert common_end(current, with_epochs(0, 0, 2, 2, 2, 2), 0) == 4
    assert common_end(current, with_epochs(0, 0, 1, 1, 1), 0) == 2
    assert common_end(current, with_epochs(0, 0, 0, 6, 6), 0) == 2
    assert common_end(current, with_epochs(), 0) == 0
    assert common_end(with_epochs(), with_epochs(0, 0), 0) == 0
