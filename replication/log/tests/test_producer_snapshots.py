"""Snapshots of many producers: a roll only remembers them, a flush writes them in its thread."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from ottla.replication.log import producer_snapshots as snapshots_module
from ottla.replication.log import producers as producers_module
from ottla.replication.log.partition_log import PartitionLog
from ottla.replication.log.producers import decode_snapshot
from ottla.replication.log.tests.logs import NOW_MS, ROOT, append, idempotent, load, new_log
from ottla.server.testing.memory.storage import MemoryStorage

DAY_MS = 86_400_000


@pytest.fixture
def encoded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many producers were encoded, one entry for each snapshot."""
    counts: list[int] = []
    original = producers_module.encode_producers

    def counting(producers: Any) -> bytes:
        counts.append(len(producers))
        return original(producers)

    monkeypatch.setattr(producers_module, "encode_producers", counting)
    monkeypatch.setattr(snapshots_module, "encode_producers", counting)
    monkeypatch.setattr(snapshots_module, "PRODUCERS_AT_ONCE", 2)
    return counts


def log_with_producers(count: int = 5, **config: Any) -> PartitionLog:
    log = new_log(**config)
    for producer_id in range(count):
        append(log, idempotent(0, producer_id=producer_id))
    return log


def log_with_producers_in(former: PartitionLog, first_id: int = 0) -> PartitionLog:
    """A log that is made where another one was."""
    log = new_log(former.log_directory)
    for producer_id in range(first_id, first_id + 5):
        append(log, idempotent(0, producer_id=producer_id))
    return log


def snapshots_of(log: PartitionLog) -> list[str]:
    return sorted(name for name in log.log_directory.storage.names(log.directory) if ".snapshot" in name)


def sequences_in(log: PartitionLog, name: str) -> dict[int, int]:
    data = log.log_directory.storage.read(f"{log.directory}/{name}")
    return {each.producer_id: each.last_sequence for each in decode_snapshot(data, now_ms=NOW_MS, expiration_ms=DAY_MS)}


@pytest.mark.parametrize("moves", ["before it begins", "after it ends"])
def test_a_slow_flush_leaves_the_snapshot_of_the_log_that_has_the_folder_now(encoded: list[int], moves: str) -> None:
    """A log was deleted and made again while a thread was to write a snapshot of the old one."""
    old = log_with_producers()
    old.roll(NOW_MS)
    job = old.prepare_flush(include_active=False)
    assert job is not None
    directory = old.directory
    if moves == "after it ends":
        job.run()
    old.rename_directory("topic-0.0123-delete")
    new = log_with_producers_in(old, 100)
    new.roll(NOW_MS)
    of_new = new.prepare_flush(include_active=False)
    assert of_new is not None and new.directory == directory
    of_new.run()
    if moves == "before it begins":
        job.run()
    old.finish_flush(job)
    new.finish_flush(of_new)
    assert snapshots_of(new) == [f"{5:020d}.snapshot"]
    assert sequences_in(new, f"{5:020d}.snapshot") == dict.fromkeys(range(100, 105), 0)


def test_a_snapshot_that_is_not_wanted_any_more_takes_no_file_of_another_log_with_it(encoded: list[int]) -> None:
    old = log_with_producers()
    old.roll(NOW_MS)
    job = old.prepare_flush(include_active=False)
    assert job is not None
    append(old, idempotent(1, producer_id=1))
    old.roll(NOW_MS)  # the next snapshot takes its place
    old.rename_directory("topic-0.0123-delete")
    new = log_with_producers_in(old)
    new.roll(NOW_MS)
    of_new = new.prepare_flush(include_active=False)
    assert of_new is not None
    of_new.run()
    job.run()
    old.finish_flush(job)
    new.finish_flush(of_new)
    assert snapshots_of(new) == [f"{5:020d}.snapshot"]


def test_a_roll_with_many_producers_encodes_none_and_the_flush_writes_them_as_they_were(encoded: list[int]) -> None:
    log = log_with_producers()
    log.roll(NOW_MS)
    assert encoded == [] and snapshots_of(log) == []
    append(log, idempotent(1, producer_id=3), idempotent(2, producer_id=3), idempotent(0, producer_id=99))
    job = log.prepare_flush(include_active=False)
    assert job is not None
    append(log, idempotent(1, producer_id=4))
    job.run()
    append(log, idempotent(2, producer_id=4))
    log.finish_flush(job)
    assert encoded == [5]
    (name,) = snapshots_of(log)
    assert name == "00000000000000000005.snapshot"
    assert sequences_in(log, name) == dict.fromkeys(range(5), 0)
    assert log.producers[3].last_sequence == log.producers[4].last_sequence == 2
    assert log.prepare_flush(include_active=False) is None


def test_few_producers_are_written_at_once(encoded: list[int]) -> None:
    log = log_with_producers(2)
    log.roll(NOW_MS)
    assert snapshots_of(log) == ["00000000000000000002.snapshot"]


def test_a_kill_before_the_flush_leaves_nothing_that_counts(encoded: list[int]) -> None:
    log = log_with_producers()
    log.roll(NOW_MS)
    append(log, idempotent(1, producer_id=3))
    job = log.prepare_flush(include_active=False)
    assert job is not None
    job.run()
    restarted = load(log, clean=False, recovery_point=0)
    assert {each.producer_id: each.last_sequence for each in restarted.producers.values()} == {
        0: 0, 1: 0, 2: 0, 3: 1, 4: 0,
    }  # fmt: skip
    assert not [name for name in snapshots_of(restarted) if name.endswith(".deleted")]


def test_a_snapshot_of_what_was_cut_off_meanwhile_does_not_count(encoded: list[int]) -> None:
    log = log_with_producers()
    log.roll(NOW_MS)
    append(log, idempotent(1, producer_id=3))
    job = log.prepare_flush(include_active=False)
    assert job is not None
    log.truncate_to(3, now_ms=NOW_MS)
    job.run()
    log.finish_flush(job)
    assert snapshots_of(log) == []
    append(log, idempotent(0, producer_id=50), idempotent(0, producer_id=51))
    log.roll(NOW_MS)
    log.flush()
    (name,) = snapshots_of(log)
    assert set(sequences_in(log, name)) == {0, 1, 2, 50, 51}


def test_the_next_roll_takes_the_place_of_a_snapshot_that_nobody_wrote(encoded: list[int]) -> None:
    log = log_with_producers()
    log.roll(NOW_MS)
    append(log, idempotent(1, producer_id=3))
    log.roll(NOW_MS)
    log.flush()
    assert snapshots_of(log) == ["00000000000000000006.snapshot"]
    assert log._producers is not None and not log._producers._holds


def test_a_shutdown_writes_the_producers_as_they_are(encoded: list[int]) -> None:
    log = log_with_producers()
    log.roll(NOW_MS)
    append(log, idempotent(1, producer_id=3))
    log.close()
    assert "00000000000000000006.snapshot" in snapshots_of(log)
    assert load(log).producers[3].last_sequence == 1


def test_producers_expire_a_piece_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producers_module, "EXPIRED_PER_PIECE", 2)
    log = log_with_producers(5)
    steps = log.remove_expired_producers(NOW_MS + 1000, 1000)
    assert next(steps) == 2
    log.append_as_leader(idempotent(0, producer_id=70), leader_epoch=0, now_ms=NOW_MS)
    assert list(steps) == [2, 1]
    assert set(log.producers) == {70}


@pytest.mark.parametrize("producers", [2, 5])  # few are written at once, many by the flush
@pytest.mark.parametrize("seed", range(10))
def test_producers_outlive_a_power_cut_when_the_segments_before_a_flush_are_gone(
    encoded: list[int], producers: int, seed: int
) -> None:
    log = log_with_producers(producers, retention_ms=1)
    log.roll(NOW_MS)
    log.flush()
    assert log.delete_old_segments(NOW_MS + 1000, log.log_end_offset) == 1
    storage = log.log_directory.storage
    assert isinstance(storage, MemoryStorage)
    for directory in ("/", ROOT, log.directory):
        storage.sync_directory(directory)
    storage.crash(Random(seed))
    assert set(load(log, clean=False).producers) == set(range(producers))
