"""One system call fails in the middle of an operation of the log: refused records are absent, and all others stay."""

from __future__ import annotations

import errno
from collections.abc import Callable
from contextlib import suppress

import pytest

from ottla.replication.log.batch_checks import AppendOrigin
from ottla.replication.log.partition_log import PartitionLog
from ottla.replication.log.recovery import LoadOptions
from ottla.replication.log.storage import LogDirectory
from ottla.replication.log.tests.failing_calls import FailingCalls, run_every_case
from ottla.replication.log.tests.logs import (
    NOW_MS,
    append,
    batch,
    idempotent,
    load,
    marker,
    new_log,
    offsets,
    read_batches,
    segment_bases,
)
from ottla.server.testing.memory.storage import MemoryStorage
from ottla.wire.control_batches import ControlType
from ottla.wire.errors import KafkaError

Fails = Callable[[str, str], bool]


def storage_of(log: PartitionLog) -> MemoryStorage:
    storage = log.log_directory.storage
    assert isinstance(storage, MemoryStorage)
    return storage


def fail(log: PartitionLog, number: int, fails: Fails) -> None:
    """Let every call that `fails` says end with this error."""
    storage_of(log).fail = lambda operation, path: OSError(number, "failed") if fails(operation, path) else None


def heal(log: PartitionLog) -> None:
    storage_of(log).fail = None


def restarted(log: PartitionLog, *, clean: bool) -> PartitionLog:
    """The log after a restart; an orderly one closes it first."""
    if clean:
        log.flush()
        log.close()
    return load(log, clean=clean)


def index_cannot_be_opened(operation: str, path: str) -> bool:
    return operation in ("open", "size", "read") and path.endswith("index")


@pytest.mark.parametrize("clean", [True, False])
def test_an_append_needs_no_index_that_cannot_be_opened(clean: bool) -> None:
    """The ends of the indexes are known since the start, and new entries wait in memory."""
    log = new_log(index_interval_bytes=100)
    append(log, *(batch(1, value=b"x" * 200) for _ in range(4)))
    log = restarted(log, clean=True)
    fail(log, errno.EMFILE, index_cannot_be_opened)
    for number in range(3):
        assert append(log, batch(2, value=b"x" * 200)) == [4 + number]
    heal(log)
    assert append(log, batch(2), batch(3)) == [7, 8]
    assert offsets(read_batches(log)) == [*range(9)]
    again = restarted(log, clean=clean)
    assert [offsets(read_batches(again, start)) for start in range(9)] == [[*range(start, 9)] for start in range(9)]


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENOSPC])
@pytest.mark.parametrize("kind", [".log", ".index", ".timeindex", ".txnindex", ".snapshot"])
def test_a_roll_that_fails_leaves_no_segment(kind: str, number: int, clean: bool) -> None:
    log = new_log(segment_bytes=500)
    append(log, idempotent(0, value=b"x" * 150), idempotent(1, value=b"x" * 100))
    new = f"{2:020d}{kind}"
    # What is to be undone can be: names are taken back without room or descriptors.
    fail(log, number, lambda operation, path: path.endswith(new) and (operation != "remove" or kind == ".txnindex"))
    with pytest.raises(KafkaError):
        append(log, idempotent(2, value=b"x" * 300))
    heal(log)
    assert segment_bases(log) == [0]
    assert log.log_directory.is_online
    assert append(log, idempotent(2), idempotent(3, value=b"x" * 300)) == [2, 3]
    assert segment_bases(log) == [0, 3]  # the smaller batch had room in the old segment
    again = restarted(log, clean=clean)
    assert offsets(read_batches(again)) == [0, 1, 2, 3]
    assert append(again, idempotent(4)) == [4]


@pytest.mark.parametrize("clean", [True, False])
def test_an_abort_that_cannot_be_indexed_is_indexed_later(clean: bool) -> None:
    log = new_log()
    append(log, idempotent(0, is_transactional=True))
    fail(log, errno.ENOSPC, lambda operation, path: path.endswith(".txnindex"))
    ends = marker(ControlType.ABORT)
    log.append_as_leader(ends, leader_epoch=0, now_ms=NOW_MS, origin=AppendOrigin.COORDINATOR)
    assert [each.first_offset for each in log.aborted_transactions(0, 2).transactions] == [0]
    with pytest.raises(KafkaError):
        log.flush()
    assert log.recovery_point == 0
    heal(log)
    log.flush()
    assert log.recovery_point == 2
    assert [each.first_offset for each in restarted(log, clean=clean).aborted_transactions(0, 2).transactions] == [0]


def test_a_truncation_that_cannot_read_what_producers_were_changes_nothing() -> None:
    log = new_log(segment_bytes=500)
    append(log, *(idempotent(sequence, value=b"x" * 150) for sequence in range(6)), epoch=1)
    log = restarted(log, clean=True)
    epochs, bases, before = log._epochs.entries, segment_bases(log), read_batches(log)
    fail(log, errno.EMFILE, lambda operation, path: operation == "read" and path.endswith(".log"))
    with pytest.raises(KafkaError):
        log.truncate_to(3, now_ms=NOW_MS)
    heal(log)
    assert (log._epochs.entries, segment_bases(log), read_batches(log)) == (epochs, bases, before)
    assert append(log, idempotent(6), epoch=1) == [6]
    log.truncate_to(3, now_ms=NOW_MS)
    assert append(log, idempotent(3), epoch=2) == [3]


def test_epochs_that_cannot_be_written_are_written_the_next_time() -> None:
    log = new_log()
    append(log, batch(1), epoch=5)
    fail(log, errno.EMFILE, lambda operation, path: "leader-epoch-checkpoint" in path)
    with pytest.raises(KafkaError):
        log.flush()
    assert log.recovery_point == 0 and log.epochs_are_dirty and log.log_directory.is_online
    heal(log)
    log.flush()
    assert not log.epochs_are_dirty
    assert load(log, clean=False).latest_leader_epoch == 5


def test_a_sync_that_fails_takes_the_directory_offline_whatever_it_says() -> None:
    log = new_log()
    append(log, batch(1))
    fail(log, errno.ENOSPC, lambda operation, path: operation == "sync" and path.endswith(".log"))
    with pytest.raises(KafkaError):
        log.flush()
    assert not log.log_directory.is_online


def refuse(calls: FailingCalls, log: PartitionLog, operation: Callable[[], object]) -> None:
    storage_of(log).fail = calls
    with suppress(KafkaError):
        operation()
    storage_of(log).fail = None


def check_goes_on(log: PartitionLog, *, kept: list[int]) -> None:
    """Each of the restarts that may follow finds what must be there, once; offline directories may not go on."""
    if log.log_directory.is_online:
        assert set(kept) <= set(offsets(read_batches(log)))
        before = offsets(read_batches(log))
        first = append(log, batch(9), epoch=3)
        assert first == [log.log_end_offset - 1] and first[0] not in before
        kept = [*before, *first]
    for clean in (False, True):
        copy = storage_of(log).copy()
        if clean and log.log_directory.is_online:
            log.flush()
            log.close()
            copy = storage_of(log).copy()
        elif clean:
            continue
        options = LoadOptions(
            log_start_offset=log.log_start_offset,
            recovery_point=log.recovery_point,
            had_clean_shutdown=clean,
            now_ms=NOW_MS,
        )
        again = PartitionLog.load(LogDirectory(log.log_directory.path, copy), "topic-0", log.config, options)
        found = offsets(read_batches(again))
        assert found == sorted(set(found)) and set(kept) <= set(found)
        assert not log.log_directory.is_online or found == kept
        assert append(again, batch(9), epoch=4) == [again.log_end_offset - 1]


def filled() -> PartitionLog:
    log = new_log(segment_bytes=500, retention_bytes=400, index_interval_bytes=100)
    append(log, *(idempotent(sequence, value=b"x" * 100) for sequence in range(8)), epoch=1)
    log.flush()
    return log


def test_any_call_of_a_truncation_may_fail() -> None:
    def case(calls: FailingCalls) -> None:
        log = filled()
        refuse(calls, log, lambda: log.truncate_to(3, now_ms=NOW_MS))
        check_goes_on(log, kept=[0, 1, 2])

    assert run_every_case(case) > 20


def test_any_call_of_a_new_beginning_may_fail() -> None:
    def case(calls: FailingCalls) -> None:
        log = filled()
        refuse(calls, log, lambda: log.truncate_fully_and_start_at(6, now_ms=NOW_MS))
        check_goes_on(log, kept=[])

    assert run_every_case(case) > 20


def test_any_call_of_retention_may_fail() -> None:
    def case(calls: FailingCalls) -> None:
        log = filled()
        refuse(calls, log, lambda: log.delete_old_segments(NOW_MS, 8))
        check_goes_on(log, kept=[6, 7])

    assert run_every_case(case) > 20


def test_a_log_that_takes_over_knows_the_producers_before_or_does_not_take_over() -> None:
    old = new_log()
    append(old, idempotent(0), idempotent(1))
    log = load(old, clean=False)
    fail(log, errno.ENOSPC, lambda operation, path: path.endswith(".snapshot") and operation != "remove")
    with pytest.raises(KafkaError):
        log.note_producers_of(old)
    heal(log)
    assert log.log_directory.is_online and not log._snapshots.offsets
    log.note_producers_of(old)
    assert log._snapshots.offsets == [2]
