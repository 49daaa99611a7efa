"""Producers at a cut: read in a thread before it, the same as read at once."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.replication.log import segment_snapshots as truncation_module
from ottla.replication.log.batch_checks import AppendOrigin
from ottla.replication.log.partition_log import PartitionLog
from ottla.replication.log.tests.logs import NOW_MS, append, batch, idempotent, marker, new_log
from ottla.server.testing.memory.storage import MemoryFile, MemoryStorage
from ottla.wire.control_batches import ControlType
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.tests.effort import examples


def state_of(log: PartitionLog) -> object:
    return {
        entry.producer_id: (entry.epoch, entry.batches, entry.current_txn_first_offset, entry.coordinator_epoch)
        for entry in log.producers.values()
    }, log.first_unstable_offset


def fill(log: PartitionLog, steps: list[str]) -> None:
    sequence = 0
    is_open = False
    for step in steps:
        if step == "data":
            append(log, idempotent(sequence, 2))
            sequence += 2
        elif step == "transaction":
            append(log, idempotent(0, 2, producer_id=9, epoch=log.log_end_offset, is_transactional=True))
            is_open = True
        elif step == "abort" and is_open:
            abort = marker(ControlType.ABORT, producer_id=9, epoch=log.producers[9].epoch)
            log.append_as_leader(abort, leader_epoch=0, now_ms=NOW_MS, origin=AppendOrigin.COORDINATOR)
            is_open = False
        elif step == "roll":
            log.roll(NOW_MS)
        else:
            append(log, batch(NOW_MS, NOW_MS))


@settings(max_examples=examples(60), deadline=None)
@given(
    steps=st.lists(st.sampled_from(["data", "data", "other", "roll", "transaction", "abort"]), min_size=1, max_size=20),
    cut=st.integers(0, 40),
)
def test_the_producers_at_a_cut_are_the_same_read_by_a_thread_or_at_once(steps: list[str], cut: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(truncation_module, "READ_AT_ONCE_BYTES", -1)
        prepared, plain = new_log(), new_log()
        for log in (prepared, plain):
            fill(log, steps)
        truncation = prepared.prepare_truncation(cut, now_ms=NOW_MS)
        assert (truncation is not None) == (bool(plain.producers) and cut < plain.log_end_offset)
        if truncation is not None:
            truncation.run()
        prepared.truncate_to(cut, now_ms=NOW_MS, truncation=truncation)
        plain.truncate_to(cut, now_ms=NOW_MS)
        assert state_of(prepared) == state_of(plain)
        assert prepared.log_end_offset == plain.log_end_offset


def test_a_thread_that_reads_a_damaged_snapshot_leaves_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """The event loop may be about to write it anew, or another log may have the folder."""
    monkeypatch.setattr(truncation_module, "READ_AT_ONCE_BYTES", -1)
    log = new_log()
    fill(log, ["data", "roll", "data", "roll", "data"])
    storage, path = log.log_directory.storage, f"{log.directory}/{4:020d}.snapshot"
    whole = storage.read(path)
    truncation = log.prepare_truncation(5, now_ms=NOW_MS)
    assert truncation is not None
    storage.write(path, whole[:-1])
    truncation.run()
    assert storage.read(path) == whole[:-1]
    log.truncate_to(5, now_ms=NOW_MS, truncation=truncation)
    assert log.producers[7].batches[-1].last_offset == 3


def test_a_prepared_cut_reads_no_batches_on_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    log = new_log()
    for sequence in range(2000):
        append(log, idempotent(sequence, value=b"x" * 300))
    truncation = log.prepare_truncation(1999, now_ms=NOW_MS)
    assert truncation is not None
    truncation.run()
    read: list[int] = []
    original = MemoryFile.read_at

    def read_at(file: MemoryFile, position: int, length: int) -> bytes:
        data = original(file, position, length)
        read.append(len(data))
        return data

    monkeypatch.setattr(MemoryFile, "read_at", read_at)
    assert log.truncate_to(1999, now_ms=NOW_MS, truncation=truncation)
    assert sum(read) < 32 * 1024
    assert log.producers[7].last_sequence == 1998
    append(log, idempotent(1999))


def test_little_is_read_at_once() -> None:
    log = new_log()
    append(log, idempotent(0), idempotent(1))
    assert log.prepare_truncation(1, now_ms=NOW_MS) is None
    without_producers = new_log()
    append(without_producers, *(batch(NOW_MS, value=b"x" * 1000) for _ in range(1000)))
    assert without_producers.prepare_truncation(1, now_ms=NOW_MS) is None


def test_a_log_that_has_changed_does_not_believe_what_a_thread_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(truncation_module, "READ_AT_ONCE_BYTES", -1)
    log = new_log()
    append(log, idempotent(0), idempotent(1), idempotent(2))
    truncation = log.prepare_truncation(2, now_ms=NOW_MS)
    assert truncation is not None
    truncation.run()
    log.truncate_to(1, now_ms=NOW_MS)
    append(log, idempotent(0, epoch=4), idempotent(1, epoch=4))
    assert not truncation.is_current
    log.truncate_to(2, now_ms=NOW_MS, truncation=truncation)
    assert (log.producers[7].epoch, log.producers[7].last_sequence) == (4, 0)


def test_nothing_is_cut_when_the_disk_fails_the_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(truncation_module, "READ_AT_ONCE_BYTES", -1)
    log = new_log()
    append(log, idempotent(0), idempotent(1))
    truncation = log.prepare_truncation(1, now_ms=NOW_MS)
    assert truncation is not None
    storage = log.log_directory.storage
    assert isinstance(storage, MemoryStorage)
    storage.fail = lambda operation, path: OSError(5, "broken") if operation in ("read", "open") else None
    truncation.run()
    storage.fail = None
    with pytest.raises(KafkaError) as caught:
        log.truncate_to(1, now_ms=NOW_MS, truncation=truncation)
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert log.log_end_offset == 2
