"""What a log says of the records that leave it: how many, for which setting, and of which time."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from ottla.replication.log.partition_log import PartitionLog
from ottla.replication.log.removal import Removal, older, time_of_first, time_of_last
from ottla.replication.log.tests.logs import NOW_MS, append, batch, load, log_directory, new_log
from ottla.server.testing.memory.storage import MemoryStorage
from ottla.wire.records import NO_TIMESTAMP


def rolled_log(segments: int = 4, **config: Any) -> PartitionLog:
    """A log of full segments of three batches of about 300 bytes, a second apart."""
    log = new_log(segment_bytes=1000, **config)
    for number in range(segments * 3):
        append(log, batch(NOW_MS + number * 1000, value=b"x" * 220))
    return log


def told(removal: Removal) -> tuple[list[str], int, int, int]:
    return removal.causes, removal.records, removal.first_offset, removal.end_offset


def test_records_that_are_too_old_are_told_with_their_times() -> None:
    log, removal = rolled_log(retention_ms=1000), Removal()
    log.delete_old_segments(NOW_MS + 7000, log.log_end_offset, removal=removal)
    assert told(removal) == (["retention.ms=1000"], 6, 0, 6)
    assert (removal.oldest_ms, removal.newest_ms) == (NOW_MS, NOW_MS + 5000)
    assert (removal.segments, removal.has_gaps) == (2, False)


def test_records_that_are_too_many_are_told() -> None:
    log, removal = rolled_log(retention_ms=-1, retention_bytes=1800), Removal()
    log.delete_old_segments(NOW_MS, log.log_end_offset, removal=removal)
    assert told(removal) == (["retention.bytes=1800"], 3, 0, 3)


def test_both_settings_are_named_where_both_took_something() -> None:
    log, removal = rolled_log(retention_ms=1000, retention_bytes=1800), Removal()
    log.delete_old_segments(NOW_MS + 7000, log.log_end_offset, removal=removal)
    assert told(removal) == (["retention.bytes=1800", "retention.ms=1000"], 6, 0, 6)


def test_a_log_that_loses_everything_is_told_to_its_end() -> None:
    log, removal = rolled_log(retention_ms=1000), Removal()
    log.delete_old_segments(NOW_MS + 10**6, log.log_end_offset, removal=removal)
    assert told(removal) == (["retention.ms=1000"], 12, 0, 12)
    assert removal.newest_ms == NOW_MS + 11_000


@pytest.mark.parametrize("limit", [1, 2, 16])
def test_slices_of_one_run_add_up(limit: int) -> None:
    """The log start moves at once, so that the second slice finds the other segments below it."""
    log, removal = rolled_log(retention_ms=1000), Removal()
    while log.delete_old_segments(
        NOW_MS + 10**6, log.log_end_offset, limit=limit, is_enough=lambda: True, removal=removal
    ):
        pass
    assert told(removal) == (["retention.ms=1000"], 12, 0, 12)
    assert removal.segments == 4
    assert (removal.oldest_ms, removal.newest_ms) == (NOW_MS, NOW_MS + 11_000)


def test_records_below_the_log_start_are_not_told_a_second_time() -> None:
    log, removal = rolled_log(retention_ms=1000), Removal()
    log.increase_log_start_offset(4)
    log.delete_old_segments(NOW_MS + 7000, log.log_end_offset, removal=removal)
    assert told(removal) == (["retention.ms=1000"], 2, 4, 6)
    assert removal.segments == 2
    files_only = Removal()
    log.increase_log_start_offset(9)
    log.delete_old_segments(0, log.log_end_offset, removal=files_only)
    assert (files_only.records, files_only.segments) == (0, 1)


def test_times_are_known_after_a_restart() -> None:
    log = rolled_log(retention_ms=-1, retention_bytes=0)
    log.close()
    log, removal = load(log), Removal()
    log.delete_old_segments(NOW_MS, 9, removal=removal)
    assert (removal.records, removal.oldest_ms, removal.newest_ms) == (9, NOW_MS, NOW_MS + 8000)


def test_an_account_that_reads_no_times_has_those_in_memory() -> None:
    log, removal = rolled_log(retention_ms=1000), Removal(reads_times=False)
    log.delete_old_segments(NOW_MS + 7000, log.log_end_offset, removal=removal)
    assert (removal.records, removal.oldest_ms, removal.newest_ms) == (6, NO_TIMESTAMP, NOW_MS + 5000)


@pytest.mark.parametrize("end", range(1, 13))
def test_the_newest_time_is_found_wherever_the_range_ends(end: int) -> None:
    """Within a segment, whose largest time is that of a later record, and at its border."""
    log, removal = rolled_log(), Removal()
    removal.add("DeleteRecords", log, 0, end, is_compacted=False)
    assert (removal.oldest_ms, removal.newest_ms) == (NOW_MS, NOW_MS + (end - 1) * 1000)


def test_a_compacted_log_has_gaps() -> None:
    log, removal = rolled_log(cleanup_policy=("compact", "delete"), retention_ms=1000), Removal()
    log.delete_old_segments(NOW_MS + 7000, log.log_end_offset, removal=removal)
    assert removal.has_gaps


@pytest.mark.parametrize(
    ("one", "other", "found"),
    [(3, 5, 3), (5, 3, 3), (NO_TIMESTAMP, 5, 5), (5, -7, 5), (0, NO_TIMESTAMP, 0), (-7, -9, NO_TIMESTAMP)],
)
def test_the_older_of_two_times_is_the_one_that_is_known(one: int, other: int, found: int) -> None:
    assert older(one, other) == found


def test_records_without_times_have_none() -> None:
    log = new_log(log_directory(MemoryStorage(lambda: 5000)), retention_ms=1000)
    append(log, batch(-1))
    removal = Removal()
    assert log.delete_old_segments(6001, 1, removal=removal) == 1
    assert (removal.records, removal.oldest_ms, removal.newest_ms) == (1, NO_TIMESTAMP, NO_TIMESTAMP)


def test_the_oldest_record_of_a_batch_counts_and_not_only_its_newest() -> None:
    log = new_log()
    append(log, batch(NOW_MS, NOW_MS + 7), batch(NOW_MS + 9))
    assert [time_of_first(log, offset) for offset in range(3)] == [NOW_MS, NOW_MS, NOW_MS + 9]
    assert [time_of_last(log, end) for end in (1, 2, 3)] == [NOW_MS + 7, NOW_MS + 7, NOW_MS + 9]


def test_with_the_brokers_time_the_producers_times_do_not_count() -> None:
    log = new_log(message_timestamp_type="LogAppendTime")
    append(log, batch(5, 6), now_ms=NOW_MS)
    assert time_of_first(log, 0) == time_of_last(log, 2) == NOW_MS


def test_a_disk_that_cannot_be_read_keeps_no_records() -> None:
    """The files are renamed all the same; only the times are unknown."""
    log = rolled_log(retention_ms=-1, retention_bytes=0)
    log.release_files()
    storage = log.log_directory.storage
    assert isinstance(storage, MemoryStorage)

    def fail(operation: str, path: str) -> None:
        if operation == "read":
            raise OSError(errno.EIO, "no")

    storage.fail = fail
    removal = Removal()
    assert log.delete_old_segments(NOW_MS, 9, removal=removal) == 3
    assert (removal.records, removal.oldest_ms) == (9, NO_TIMESTAMP)
