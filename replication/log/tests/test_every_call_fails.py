"""Every operation of a log with each of its system calls failing once, in every way, and what comes after.

Each case brings up a log, fails one call of one operation, does the same again without a fault, goes on with a smaller
append and another log, and restarts: killed, after a power cut, and in order. `faulty_world.py` says what must hold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest

from ottla.replication.log.batch_checks import AppendOrigin
from ottla.replication.log.partition_log import PartitionLog
from ottla.replication.log.removal import Removal
from ottla.replication.log.tests.failing_calls import (
    Case,
    FailingCalls,
    run_case,
    run_every_case,
    single_faults,
)
from ottla.replication.log.tests.faulty_world import NOW_MS, ROOT, Batch, World, attempt, suppress_storage_error, told
from ottla.replication.log.tests.logs import find
from ottla.replication.log.time_search import MAX_TIMESTAMP
from ottla.wire.compression import Compression
from ottla.wire.control_batches import ControlType
from ottla.wire.tests.effort import thorough_or_quick


class Operation(NamedTuple):
    """`prepare` is done without faults, then `run` with them. `run` can be done again.

    `is_judged`: the log itself decides whether an error takes the directory offline.
    """

    run: Callable[[World], object]
    prepare: Callable[[World], object] = lambda world: None
    config: Mapping[str, Any] = MappingProxyType({})
    is_judged: bool = True


def some_records(world: World, count: int = 4) -> None:
    for _ in range(count):
        world.append(world.batch(2))


def some_segments(world: World) -> None:
    some_records(world, 14)
    assert len(world.log.segments) > 2


def some_transactions(world: World) -> None:
    for number, kind in enumerate((ControlType.COMMIT, ControlType.ABORT, ControlType.ABORT, ControlType.COMMIT)):
        world.append(data_of(world, 9 + number % 2, 2 * (number // 2), is_transactional=True, count=2))
        some_records(world, 2)
        world.append(world.marker(kind, producer_id=9 + number % 2), AppendOrigin.COORDINATOR)
    world.append(data_of(world, 11, 0))
    world.append(data_of(world, 7, 0, is_transactional=True))


def data_of(world: World, producer_id: int, sequence: int, count: int = 1, **options: Any) -> Batch:
    return world.batch(count, producer_id=producer_id, producer_epoch=0, base_sequence=sequence, **options)


def plain(world: World) -> None:
    world.resend("plain", lambda: world.batch(3))


def large(world: World) -> None:
    world.resend("large", lambda: world.batch(1, padding=500))


def compressed(world: World) -> None:
    world.resend("compressed", lambda: world.batch(5, compression=Compression.GZIP))


def idempotent(world: World) -> None:
    entry = world.log.producers.get(11)
    sequence = 0 if entry is None else entry.last_sequence + 1
    world.resend("idempotent", lambda: data_of(world, 11, sequence, count=2))


def transactional(world: World) -> None:
    entry = world.log.producers.get(12)
    sequence = 0 if entry is None else entry.last_sequence + 1
    world.resend("transactional", lambda: data_of(world, 12, sequence, is_transactional=True))


def commit(world: World) -> None:
    world.resend("commit", lambda: world.marker(ControlType.COMMIT), AppendOrigin.COORDINATOR)


def abort(world: World) -> None:
    world.resend("abort", lambda: world.marker(ControlType.ABORT), AppendOrigin.COORDINATOR)


def follow(world: World, padding: int = 0) -> None:
    """Several batches of several leaders and producers, with the end of a transaction among them."""
    start = world.log.log_end_offset
    world.follow(
        [
            world.batch(2, base_offset=start, leader_epoch=3),
            data_of(world, 13, 0, base_offset=start + 2, leader_epoch=4, is_transactional=True),
            world.marker(ControlType.ABORT, producer_id=13, base_offset=start + 3, leader_epoch=4),
            world.batch(1, base_offset=start + 4, leader_epoch=5, padding=padding),
        ]
        if 13 not in world.log.producers
        else [world.batch(2, base_offset=start, leader_epoch=5)]
    )
    world.leader_epoch = 5


def follow_with_gaps(world: World) -> None:
    """Batches of a leader whose log was compacted."""
    world.ledger.has_gaps = True
    start = world.log.log_end_offset
    world.follow(
        [world.batch(1, base_offset=start + 3, leader_epoch=3), world.batch(1, base_offset=start + 9, leader_epoch=3)]
    )


def flush_while_cut(world: World) -> None:
    """The log is cut and goes on while a thread syncs what it was before."""
    job = world.log.prepare_flush()
    world.truncate(4)
    world.append(world.batch(1))
    if job is not None:
        try:
            job.run()
        except OSError as error:
            raise world.log.storage_error(error) from error
        world.log.finish_flush(job)
    world.recovery_point = world.log.recovery_point


def retain(world: World) -> None:
    world.ledger.make_optional(lambda offset: offset < world.log.segments[-1].base_offset)
    world.log.delete_old_segments(NOW_MS, world.log.log_end_offset, removal=Removal())


def retain_nothing(world: World) -> None:
    world.ledger.make_optional(lambda offset: True)
    world.log.delete_old_segments(NOW_MS + 10**9, world.log.log_end_offset, removal=Removal())


def delete_records(world: World) -> None:
    end = world.log.segments[1].base_offset + 1 if len(world.log.segments) > 1 else world.log.log_start_offset
    world.ledger.make_optional(lambda offset: offset < end)
    world.log.increase_log_start_offset(end)
    world.log.delete_old_segments(NOW_MS, world.log.log_end_offset)


def truncate_fully(world: World) -> None:
    world.ledger.make_optional(lambda offset: True)
    world.recovery_point = 0
    world.log.truncate_fully_and_start_at(50, now_ms=NOW_MS)


def close(world: World) -> None:
    world.flush()
    world.log.close()


def rename(world: World) -> None:
    name = "topic-0.0123456789abcdef0123456789abcdef-delete"
    world.log.rename_directory(name if world.log.directory.endswith("/topic-0") else "topic-0")


def write_epochs(world: World) -> None:
    world.log.assign_epoch(9, world.log.log_end_offset)
    world.leader_epoch = 9
    if world.log.epochs_are_dirty:
        try:
            world.log.epochs_to_write().write(world.storage)
        except OSError as error:
            raise world.directory.judge(error, world.log.name) from error


def look_around(world: World) -> None:
    """All that readers ask for."""
    log = world.log
    for offset in (log.log_start_offset, log.log_start_offset + 5, log.log_end_offset - 1):
        read = log.read(max(offset, log.log_start_offset), 300, upper_bound=log.log_end_offset, at_least_one_batch=True)
        assert read.region
    find(log, NOW_MS - 50_000 + 100)
    find(log, MAX_TIMESTAMP)
    log.aborted_transactions(log.log_start_offset, log.log_end_offset)


def left_in_order(world: World) -> None:
    some_transactions(world)
    close(world)


def damaged(kind: str, data: bytes) -> Callable[[World], None]:
    """Files of one kind were changed after the broker had left in order."""

    def prepare(world: World) -> None:
        left_in_order(world)
        for segment in world.log.segments:
            if world.storage.exists(segment.path(kind)):
                world.storage.write(segment.path(kind), data)

    return prepare


def torn(world: World) -> None:
    """Half a batch at the end, and the recovery point in the midst."""
    some_transactions(world)
    world.flush()
    some_records(world, 3)
    world.storage.open(world.log.segments[-1].path(".log")).append(world.batch(3).data[:70])


def half_compacted(suffix: str) -> Callable[[World], None]:
    """The cleaner was stopped when its new segment was written, or when it was about to take its place."""

    def prepare(world: World) -> None:
        left_in_order(world)
        segment = world.log.segments[0]
        for kind in (".log", ".index", ".timeindex", ".txnindex"):
            if world.storage.exists(segment.path(kind)):
                world.storage.write(segment.path(kind) + suffix, world.storage.read(segment.path(kind)), sync=True)
        world.storage.sync_directory(world.log.directory)

    return prepare


def lost_files(world: World) -> None:
    """All that is left ends below the log start offset."""
    some_records(world, 3)
    close(world)
    world.log.log_start_offset = 20
    world.ledger.make_optional(lambda offset: True)


def reload(world: World) -> None:
    world.reload(clean=True)


def recover(world: World) -> None:
    world.reload(clean=False)


def create(world: World) -> None:
    """Another log is made, and deleted when it is there."""
    if world.storage.exists(f"{ROOT}/new-0/partition.metadata"):
        world.storage.remove_tree(f"{ROOT}/new-0")
    PartitionLog.create(world.directory, "new", 0, world.config, topic_id=bytes(16), now_ms=NOW_MS)
    assert sorted(world.storage.copy().names(f"{ROOT}/new-0")) == [
        "00000000000000000000.index",
        "00000000000000000000.log",
        "00000000000000000000.timeindex",
        "leader-epoch-checkpoint",
        "partition.metadata",
    ]
    fail, world.storage.fail = world.storage.fail, None
    world.storage.remove_tree(f"{ROOT}/new-0")
    world.storage.fail = fail


def compact(world: World) -> None:
    world.compact()
    if world.storage.fail is None and world.directory.is_online:
        assert world.log.first_dirty_offset > 10, "the cleaner has given up"


COMPACTED = {"cleanup_policy": ("compact",), "min_cleanable_dirty_ratio": 0.01, "delete_retention_ms": 0}


def flushed_segments(world: World) -> None:
    some_segments(world)
    world.append(data_of(world, 11, 0))
    aborted = world.append(data_of(world, 9, 0, is_transactional=True))
    world.append(world.marker(ControlType.ABORT, producer_id=9), AppendOrigin.COORDINATOR)
    world.ledger.make_optional(lambda offset: offset >= aborted)
    world.log.roll(NOW_MS)
    some_records(world, 2)
    world.flush()


OPERATIONS: dict[str, Operation] = {
    "append": Operation(plain, some_records),
    "append to an empty log": Operation(plain),
    "append compressed": Operation(compressed, some_records),
    "append of a new producer": Operation(idempotent, some_records),
    "append of a known producer": Operation(idempotent, some_transactions),
    "append to a transaction": Operation(transactional, some_transactions),
    "append a commit": Operation(commit, some_transactions),
    "append an abort": Operation(abort, some_transactions),
    "append, and roll": Operation(large, some_segments),
    "append of a producer, and roll": Operation(idempotent, some_transactions, {"segment_bytes": 820}),
    "append an abort, and roll": Operation(abort, some_transactions, {"segment_bytes": 820}),
    "append as follower": Operation(follow, some_records, {"segment_bytes": 5000}),
    "append as follower, and roll": Operation(lambda world: follow(world, 200), some_segments),
    "append as follower, with gaps": Operation(follow_with_gaps, some_records),
    "roll": Operation(lambda world: world.log.roll(NOW_MS), some_records),
    "roll with producers": Operation(lambda world: world.log.roll(NOW_MS), some_transactions),
    "flush": Operation(World.flush, some_records),
    "flush several segments": Operation(World.flush, some_transactions),
    "flush while the log is cut": Operation(flush_while_cut, some_segments),
    "truncate": Operation(lambda world: world.truncate(6), some_records),
    "truncate to an earlier segment": Operation(lambda world: world.truncate(6), some_segments),
    "truncate with producers": Operation(lambda world: world.truncate(6), some_transactions),
    "truncate fully": Operation(truncate_fully, some_transactions),
    "retention": Operation(retain, some_segments, {"retention_bytes": 0}),
    "retention of everything": Operation(retain_nothing, some_transactions, {"retention_ms": 1}),
    "delete records": Operation(delete_records, some_segments),
    "close": Operation(close, some_transactions),
    "rename": Operation(rename, some_segments),
    "write epochs": Operation(write_epochs, some_records),
    "save indexes": Operation(lambda world: world.log.save_indexes(), some_segments),
    "read": Operation(look_around, some_transactions),
    "load": Operation(reload, left_in_order, is_judged=False),
    "load and rebuild indexes": Operation(reload, damaged(".index", b"odd"), is_judged=False),
    "load without a good snapshot": Operation(reload, damaged(".snapshot", b"odd"), is_judged=False),
    "load what is left": Operation(reload, lost_files, is_judged=False),
    "load after a kill": Operation(recover, some_transactions, is_judged=False),
    "load after a torn write": Operation(recover, torn, is_judged=False),
    "load after an unfinished compaction": Operation(recover, half_compacted(".cleaned"), is_judged=False),
    "load after an unfinished swap": Operation(recover, half_compacted(".swap"), is_judged=False),
    "load with files to be deleted": Operation(recover, half_compacted(".deleted"), is_judged=False),
    "create": Operation(create, is_judged=False),
    "compact": Operation(compact, flushed_segments, COMPACTED),
}
KINDS = ("large cache", "small cache", "restarted")
# What opens all files itself is alike however the log was left.
KINDS_OF = {"load": KINDS[:2], "compact": KINDS[1:2], "create": KINDS[1:2]}


def make_case(operation: Operation, kind: str) -> Case:
    def case(calls: FailingCalls) -> None:
        seed = sum(fault.number * 7 + fault.errno + int(fault.share * 2) for fault in calls.faults)
        world = World(calls, open_files_max=1 if kind == "small cache" else 64, **operation.config)
        operation.prepare(world)
        if kind == "restarted":
            world.restart()
        world.evict()
        succeeded = attempt(world, lambda: operation.run(world), is_judged=operation.is_judged)
        if seed % 2 or not world.is_loaded:
            with told("when it was done twice" if succeeded else "when it was done again"):
                if world.directory.is_online or not world.is_loaded:
                    operation.run(world)
                else:
                    with suppress_storage_error():
                        operation.run(world)
        with told("afterwards"):
            world.go_on()
        world.check_everything(seed)

    return case


def cases() -> Iterator[tuple[str, str, Case]]:
    for name, operation in OPERATIONS.items():
        for kind in KINDS_OF.get(name.partition(" ")[0], KINDS):
            yield name, kind, make_case(operation, kind)


EVERY = thorough_or_quick(7, 61)  # of all ways to fail, to stay within a minute


@pytest.mark.thorough
@pytest.mark.parametrize("every", [pytest.param(1, marks=pytest.mark.long, id="all"), pytest.param(EVERY, id="some")])
@pytest.mark.parametrize(("name", "kind", "case"), [pytest.param(*each, id=" - ".join(each[:2])) for each in cases()])
def test_every_call_fails_once(name: str, kind: str, case: Case, every: int) -> None:
    run_every_case(case, lasting=True, every=every)


@pytest.mark.thorough
def test_that_is_thousands_of_cases() -> None:
    assert sum(sum(1 for _ in single_faults(run_case(case).made, lasting=True)) for _, _, case in cases()) >= 10_000
