"""The log of one replica: appends, reads, idempotence across restarts, retention, both ends, flushing."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.replication.config import LogConfig
from ottla.replication.log import segment as segment_module
from ottla.replication.log.batch_checks import AppendOrigin
from ottla.replication.log.durable_log import write_epochs
from ottla.replication.log.names import PARTITION_METADATA
from ottla.replication.log.partition_log import PartitionLog
from ottla.replication.log.segment import DamagedIndexes, Segment
from ottla.replication.log.segment_snapshots import Survey
from ottla.replication.log.storage import FileRegion, OsStorage
from ottla.replication.log.tests.logs import (
    NAME,
    NOW_MS,
    ROOT,
    TOPIC_ID,
    append,
    batch,
    batches_of,
    contents,
    find,
    idempotent,
    load,
    log_directory,
    marker,
    new_log,
    offsets,
    read_batches,
    read_records,
    segment_bases,
)
from ottla.replication.log.time_search import MAX_TIMESTAMP
from ottla.server.testing.memory.storage import MemoryFile, MemoryStorage
from ottla.wire.control_batches import ControlType, EndTxnMarker, encode_end_txn_marker
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.record_encoding import encode_pairs
from ottla.wire.records import assign_offsets
from ottla.wire.tests.effort import examples


def storage_of(log: PartitionLog) -> MemoryStorage:
    storage = log.log_directory.storage
    assert isinstance(storage, MemoryStorage)
    return storage


def names(log: PartitionLog) -> list[str]:
    return sorted(storage_of(log).names(log.directory))


def refused(log: PartitionLog, records: memoryview, **options: Any) -> ErrorCode:
    end = log.log_end_offset
    with pytest.raises(KafkaError) as error:
        log.append_as_leader(records, leader_epoch=0, now_ms=NOW_MS, **options)
    assert log.log_end_offset == end
    return error.value.code


def rolled_log(segments: int = 4, *, each: int = 3, **config: Any) -> PartitionLog:
    """A log of full segments of three batches of about 300 bytes."""
    log = new_log(segment_bytes=1000, **config)
    for number in range(segments * each):
        append(log, batch(NOW_MS + number, value=b"x" * 220))
    return log


# --- appending and reading --------------------------------------------------------------------------------------------


def test_offsets_are_given_in_order_and_written_into_the_batches() -> None:
    log = new_log()
    assert append(log, batch(1, 2, 3), batch(4), batch(5, 6), epoch=5) == [0, 3, 4]
    headers = read_batches(log)
    assert [(each.base_offset, each.last_offset, each.partition_leader_epoch) for each in headers] == [
        (0, 2, 5), (3, 3, 5), (4, 5, 5),
    ]  # fmt: skip
    assert [record.offset for record in read_records(log)] == list(range(6))


def test_a_new_log_has_the_files_kafka_makes() -> None:
    log = new_log()
    assert names(log) == [
        "00000000000000000000.index",
        "00000000000000000000.log",
        "00000000000000000000.timeindex",
        "leader-epoch-checkpoint",
        "partition.metadata",
    ]
    assert load(log).topic_id == TOPIC_ID


def test_a_log_that_exists_is_not_made_again() -> None:
    log = new_log()
    with pytest.raises(FileExistsError):
        new_log(log.log_directory)
    assert load(log).topic_id == TOPIC_ID


def test_a_log_that_cannot_be_made_leaves_nothing() -> None:
    directory = log_directory()
    storage = directory.storage
    assert isinstance(storage, MemoryStorage)
    storage.space_left = 10
    with pytest.raises(OSError):
        new_log(directory)
    assert storage.names(ROOT) == []


@settings(max_examples=examples(40), deadline=None)
@given(
    sizes=st.lists(st.tuples(st.integers(1, 3), st.integers(0, 250)), max_size=30),
    segment_bytes=st.integers(900, 3000),
    restart=st.sampled_from(["no", "clean", "unclean"]),
    data=st.data(),
)
def test_every_read_is_a_slice_of_what_was_appended(
    sizes: list[tuple[int, int]], segment_bytes: int, restart: str, data: st.DataObject
) -> None:
    log = new_log(segment_bytes=segment_bytes, index_interval_bytes=400)
    for number, (count, size) in enumerate(sizes):
        append(log, batch(*range(number, number + count), value=b"x" * size))
    headers = read_batches(log, max_bytes=2**31)
    assert sum(header.records_count for header in headers) == log.log_end_offset
    if restart != "no":
        if restart == "clean":
            log.close()
        log = load(log, clean=restart == "clean")
    for _ in range(8):
        start = data.draw(st.integers(0, log.log_end_offset))
        bound = data.draw(st.sampled_from([header.base_offset for header in headers] + [log.log_end_offset]))
        max_bytes = data.draw(st.integers(1, 2500))
        expected = [each for each in headers if each.last_offset >= start and each.base_offset < bound]
        assert read_batches(log, start, upper_bound=bound, max_bytes=max_bytes) == (expected if start < bound else [])
        without = log.read(start, max_bytes, upper_bound=bound)
        assert len(without.region) <= max_bytes


def test_reading_outside_the_log_is_refused_and_at_its_end_is_empty() -> None:
    log = new_log()
    append(log, batch(1, 2))
    log.increase_log_start_offset(1)
    for offset in (0, 3):
        with pytest.raises(KafkaError) as error:
            log.read(offset, 100, upper_bound=2)
        assert error.value.code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert log.read(2, 100, upper_bound=2).region == b""


def test_a_first_batch_that_is_too_large_comes_only_if_asked_for() -> None:
    log = new_log()
    append(log, batch(1, value=b"x" * 500), batch(2))
    assert log.read(0, 100, upper_bound=2).region == b""
    assert log.read(0, 0, upper_bound=2).region == b""
    assert len(log.read(0, 0, upper_bound=2, at_least_one_batch=True).region) > 500


def test_nothing_at_or_beyond_the_upper_bound_is_read() -> None:
    log = rolled_log()
    for bound in range(log.log_end_offset + 1):
        assert offsets(read_batches(log, upper_bound=bound)) == list(range(bound))


def test_a_batch_larger_than_a_segment_is_refused() -> None:
    assert refused(new_log(segment_bytes=200), batch(1, value=b"x" * 300)) == ErrorCode.RECORD_LIST_TOO_LARGE


def test_a_new_segment_begins_when_the_old_one_is_full() -> None:
    log = rolled_log()
    assert segment_bases(log) == [0, 3, 6, 9]
    assert "00000000000000000003.snapshot" in names(log)
    assert offsets(read_batches(log)) == list(range(12))
    assert append(log, batch(NOW_MS)) == [12]


def test_an_append_says_whether_it_began_a_segment() -> None:
    log = new_log(segment_bytes=1000)
    rolled = []
    for _ in range(5):
        append(log, batch(NOW_MS, value=b"x" * 220))
        rolled.append(log.has_rolled)
        log.has_rolled = False
    assert rolled == [False, False, False, True, False]


def test_records_older_than_segment_ms_end_a_segment() -> None:
    log = new_log(segment_ms=1000)
    append(log, batch(NOW_MS), batch(NOW_MS + 1000), batch(NOW_MS + 1001), batch(NOW_MS))
    assert segment_bases(log) == [0, 2]


# --- idempotence ------------------------------------------------------------------------------------------------------


def test_a_batch_sent_again_is_answered_as_before_and_not_written() -> None:
    log = new_log()
    append(log, idempotent(0, 3), idempotent(3, 2))
    info = log.append_as_leader(idempotent(0, 3), leader_epoch=0, now_ms=NOW_MS)
    assert (info.duplicate, info.first_offset, info.last_offset, info.log_append_time_ms) == (True, 0, 2, NOW_MS)
    assert log.log_end_offset == 5
    assert refused(log, idempotent(6)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


@pytest.mark.parametrize("restart", ["clean", "unclean", "unclean without snapshots"])
def test_sequences_survive_a_restart(restart: str) -> None:
    log = new_log(segment_bytes=300)
    for sequence in range(0, 20, 2):
        append(log, idempotent(sequence, 2))
    assert len(log.segments) > 2
    if restart == "clean":
        log.close()
    for name in names(log):
        if restart.endswith("snapshots") and name.endswith(".snapshot"):
            storage_of(log).remove(f"{log.directory}/{name}")
    log = load(log, clean=restart == "clean")
    assert log.append_as_leader(idempotent(18, 2), leader_epoch=0, now_ms=NOW_MS).duplicate
    assert refused(log, idempotent(16, 1)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert append(log, idempotent(20, 2)) == [20]


def test_a_snapshot_is_loaded_even_if_the_log_before_it_is_gone() -> None:
    log = new_log()
    append(log, idempotent(0, 3))
    log.increase_log_start_offset(3)
    log.close()
    log = load(log)
    assert log.append_as_leader(idempotent(0, 3), leader_epoch=0, now_ms=NOW_MS).duplicate


def test_idle_producers_are_forgotten() -> None:
    log = new_log()
    append(log, idempotent(0))
    assert sum(log.remove_expired_producers(NOW_MS + 999, 1000)) == 0
    assert sum(log.remove_expired_producers(NOW_MS + 1000, 1000)) == 1
    assert append(log, idempotent(77)) == [1]


def test_aborted_transactions_are_listed_across_segments() -> None:
    log = new_log(segment_bytes=600)
    for number in range(6):
        append(log, idempotent(2 * number, 2, producer_id=1, is_transactional=True))
        kind = ControlType.ABORT if number % 2 else ControlType.COMMIT
        log.append_as_leader(
            marker(kind, producer_id=1), leader_epoch=0, now_ms=NOW_MS, origin=AppendOrigin.COORDINATOR
        )
        append(log, batch(NOW_MS, value=b"x" * 100))
    assert len(log.segments) > 3
    expected = [(4 * number, 4 * number + 2) for number in (1, 3, 5)]
    for reloaded in (log, load(log, clean=False, recovery_point=0)):
        found = reloaded.aborted_transactions(0, log.log_end_offset).transactions
        assert [(each.first_offset, each.last_offset) for each in found] == expected
        assert reloaded.aborted_transactions(7, 12).transactions == []
        assert reloaded.aborted_transactions(6, 13).transactions == found[:2]
    assert log.first_unstable_offset == 0  # nobody has told about replication
    log.on_high_watermark(log.log_end_offset)
    assert log.first_unstable_offset is None


def test_a_client_may_not_write_markers() -> None:
    assert refused(new_log(), marker()) == ErrorCode.INVALID_RECORD


@pytest.mark.parametrize(
    ("config", "is_as_it_is"),
    [
        ({}, True),
        ({"cleanup_policy": ("compact",)}, True),
        ({"compression_type": "gzip"}, False),
        ({"message_timestamp_type": "LogAppendTime"}, False),
    ],
)
@pytest.mark.parametrize(
    "records",
    [
        encode_pairs([(b"key", b"value"), (b"gone", None)], NOW_MS),
        encode_end_txn_marker(
            EndTxnMarker(ControlType.COMMIT, 4), timestamp_ms=NOW_MS, producer_id=7, producer_epoch=2
        ),
    ],
)
def test_the_broker_s_own_batches_are_appended_as_after_all_checks(
    config: dict[str, Any], is_as_it_is: bool, records: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, checked = new_log(**config), new_log(**config)
    thorough: list[PartitionLog] = []
    check = PartitionLog.check_thoroughly
    monkeypatch.setattr(
        PartitionLog, "check_thoroughly", lambda log, *given, **more: thorough.append(log) or check(log, *given, **more)
    )
    verdict = check(checked, memoryview(bytearray(records)), now_ms=NOW_MS, origin=AppendOrigin.COORDINATOR)
    arguments: dict[str, Any] = {"leader_epoch": 3, "now_ms": NOW_MS, "origin": AppendOrigin.COORDINATOR}
    info = own.append_as_leader(memoryview(bytearray(records)), **arguments)
    assert info == checked.append_as_leader(memoryview(bytearray(records)), checked=verdict, **arguments)
    assert contents(own.read(0, 1000, upper_bound=9).region) == contents(checked.read(0, 1000, upper_bound=9).region)
    assert thorough == ([] if is_as_it_is else [own])


def test_an_own_batch_that_is_too_large_is_refused() -> None:
    log = new_log(max_message_bytes=70)
    records = memoryview(bytearray(encode_pairs([(b"key", b"value")] * 5, NOW_MS)))
    assert refused(log, records, origin=AppendOrigin.COORDINATOR) == ErrorCode.MESSAGE_TOO_LARGE


def test_a_batch_that_was_refused_is_as_it_was() -> None:
    log = new_log()
    append(log, idempotent(0, producer_id=1))
    storage_of(log).space_left = 0
    for records in (batch(NOW_MS), idempotent(1, producer_id=1)):
        before = bytes(records)
        assert refused(log, records) == ErrorCode.KAFKA_STORAGE_ERROR
        assert bytes(records) == before


# --- followers --------------------------------------------------------------------------------------------------------


def test_a_follower_takes_batches_as_they_are() -> None:
    leader = new_log()
    append(leader, batch(1, 2), idempotent(0, 2))
    append(leader, batch(3), epoch=4)
    data = contents(leader.read(0, 10_000, upper_bound=5).region)
    follower = new_log()
    info = follower.append_as_follower(memoryview(data), now_ms=NOW_MS)
    assert (info.first_offset, info.last_offset) == (0, 4)
    assert contents(follower.read(0, 10_000, upper_bound=5).region) == data
    assert follower.end_offset_for_epoch(0) == (0, 4)
    assert follower.latest_leader_epoch == 4
    assert [each.last_sequence for each in follower.producers.values()] == [1]


@pytest.mark.parametrize("problem", ["repeated", "damaged", "cut"])
def test_a_follower_refuses_what_does_not_fit(problem: str) -> None:
    leader = new_log()
    append(leader, batch(1, 2), batch(3))
    data = bytearray(contents(leader.read(0, 10_000, upper_bound=3).region))
    follower = new_log()
    if problem == "repeated":
        follower.append_as_follower(memoryview(bytes(data)), now_ms=NOW_MS)
    elif problem == "damaged":
        data[-1] ^= 1
    end = follower.log_end_offset
    if problem == "cut":
        follower.append_as_follower(memoryview(data)[:-1], now_ms=NOW_MS)
        assert follower.log_end_offset == 2
    else:
        with pytest.raises(KafkaError):
            follower.append_as_follower(memoryview(data), now_ms=NOW_MS)
        assert follower.log_end_offset == end


def test_gaps_that_compaction_left_are_read_over() -> None:
    log = new_log(segment_bytes=600, cleanup_policy=("compact",))
    for offset in (3, 10, 11, 30, 50):
        records = batch(NOW_MS, value=b"x" * 200)
        assign_offsets(records, 0, offset, 0)
        log.append_as_follower(records, now_ms=NOW_MS)
    assert segment_bases(log) == [0, 11, 31]  # there is no gap between segments
    for start in range(51):
        assert offsets(read_batches(log, start)) == [offset for offset in (3, 10, 11, 30, 50) if offset >= start]
    for bound in (11, 12, 31, 51):
        found = read_batches(load(log, clean=False), upper_bound=bound)
        assert offsets(found) == [offset for offset in (3, 10, 11, 30, 50) if offset < bound]


# --- the ends of the log ----------------------------------------------------------------------------------------------


def test_truncating_takes_records_segments_epochs_and_producers_back() -> None:
    log = new_log(segment_bytes=600)
    for number in range(12):
        append(log, idempotent(number, value=b"x" * 120), epoch=number // 4)
    bases = segment_bases(log)
    assert log.truncate_to(5, now_ms=NOW_MS)
    assert log.log_end_offset == 5
    assert offsets(read_batches(log)) == list(range(5))
    assert segment_bases(log) == [base for base in bases if base <= 5]
    assert log.latest_leader_epoch == 1
    assert append(log, idempotent(5), epoch=1) == [5]
    assert refused(log, idempotent(12)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert not log.truncate_to(6, now_ms=NOW_MS)
    again = load(log, clean=False)
    assert offsets(read_batches(again)) == list(range(6))


@settings(max_examples=examples(25), deadline=None)
@given(counts=st.lists(st.integers(1, 4), min_size=1, max_size=15), data=st.data())
def test_truncating_anywhere_leaves_whole_batches_below(counts: list[int], data: st.DataObject) -> None:
    log = new_log(segment_bytes=400, index_interval_bytes=100)
    for count in counts:
        append(log, batch(*range(count)))
    headers = read_batches(log)
    target = data.draw(st.integers(0, log.log_end_offset))
    log.truncate_to(target, now_ms=NOW_MS)
    kept = [header for header in headers if header.last_offset < target]
    assert read_batches(log, upper_bound=kept[-1].next_offset if kept else 0) == kept
    log.close()
    assert load(log).log_end_offset == (kept[-1].next_offset if kept else segment_bases(log)[-1])


def test_starting_over_somewhere_else() -> None:
    log = rolled_log()
    log.truncate_fully_and_start_at(1000, now_ms=NOW_MS)
    assert (log.log_start_offset, log.log_end_offset, segment_bases(log)) == (1000, 1000, [1000])
    assert append(log, batch(1)) == [1000]
    assert log.end_offset_for_epoch(0) == (0, 1001)
    assert [name for name in names(log) if not name.endswith(".deleted")] == [
        "00000000000000001000.index",
        "00000000000000001000.log",
        "00000000000000001000.timeindex",
        "leader-epoch-checkpoint",
        "partition.metadata",
    ]


def test_the_log_start_moves_up_only() -> None:
    log = rolled_log()
    assert log.increase_log_start_offset(5)
    assert not log.increase_log_start_offset(4)
    assert log.log_start_offset == 5
    assert log.delete_old_segments(NOW_MS, log.log_end_offset) == 1
    assert segment_bases(log) == [3, 6, 9]
    assert offsets(read_batches(log)) == list(range(5, 12))


def test_the_leader_epoch_of_offsets_and_where_epochs_end() -> None:
    log = new_log()
    append(log, batch(1, 2), epoch=1)
    append(log, batch(3), epoch=3)
    log.assign_epoch(4, log.log_end_offset)
    assert [log.epoch_for_offset(offset) for offset in range(4)] == [1, 1, 3, 4]
    assert [log.end_offset_for_epoch(epoch) for epoch in range(6)] == [
        (0, 0), (1, 2), (1, 2), (3, 3), (4, 3), (-1, -1),
    ]  # fmt: skip
    log.close()
    assert load(log).end_offset_for_epoch(1) == (1, 2)


# --- retention --------------------------------------------------------------------------------------------------------


def test_segments_beyond_the_retention_size_go_and_their_files_later() -> None:
    log = rolled_log(retention_bytes=1800, retention_ms=-1, file_delete_delay_ms=500)
    assert log.size_in_bytes > 3 * 900
    assert log.delete_old_segments(NOW_MS, log.log_end_offset) == 1
    assert (log.log_start_offset, segment_bases(log)) == (3, [3, 6, 9])
    assert "00000000000000000000.log.deleted" in names(log)
    due = log.log_directory.removals_due(NOW_MS + 500)
    assert log.log_directory.removals_due(NOW_MS + 10**9) == []
    for path in due:
        storage_of(log).remove(path)
    assert not [name for name in names(log) if name.endswith(".deleted")]


def test_retention_by_size_keeps_at_least_the_size() -> None:
    log = rolled_log(retention_bytes=10**6, retention_ms=-1)
    assert log.delete_old_segments(NOW_MS, log.log_end_offset) == 0


def test_segments_whose_records_are_all_too_old_go() -> None:
    log = rolled_log(retention_ms=1000)
    assert log.delete_old_segments(NOW_MS + 1000 + 5, log.log_end_offset) == 1
    assert log.log_start_offset == 3
    assert log.delete_old_segments(NOW_MS + 1000 + 6, log.log_end_offset) == 1


def test_an_active_segment_that_is_too_old_makes_room_for_an_empty_one() -> None:
    log = rolled_log(retention_ms=1000)
    assert log.delete_old_segments(NOW_MS + 10**6, log.log_end_offset) == 4
    assert (log.log_start_offset, log.log_end_offset, segment_bases(log)) == (12, 12, [12])
    assert append(log, batch(NOW_MS)) == [12]


def test_nothing_above_the_high_watermark_is_deleted() -> None:
    log = rolled_log(retention_ms=1000)
    assert log.delete_old_segments(NOW_MS + 10**6, 8) == 2
    assert log.log_start_offset == 6


def test_records_without_time_age_with_their_file() -> None:
    clock_ms = [5000]
    log = new_log(log_directory(MemoryStorage(lambda: clock_ms[0])), retention_ms=1000)
    append(log, batch(-1))
    assert log.delete_old_segments(6000, 1) == 0
    assert log.delete_old_segments(6001, 1) == 1


def test_compacted_logs_lose_only_what_is_below_their_start() -> None:
    log = rolled_log(cleanup_policy=("compact",), retention_ms=1, retention_bytes=1)
    assert log.delete_old_segments(NOW_MS + 10**6, log.log_end_offset) == 0
    log.increase_log_start_offset(6)
    assert log.delete_old_segments(NOW_MS + 10**6, log.log_end_offset) == 2


def test_retention_goes_on_after_a_restart() -> None:
    log = rolled_log(retention_ms=1000)
    log.close()
    log = load(log)
    assert log.delete_old_segments(NOW_MS + 1005, log.log_end_offset) == 1


# --- timestamps -------------------------------------------------------------------------------------------------------


def test_the_first_record_at_or_after_a_timestamp_is_found_inside_batches() -> None:
    log = new_log(segment_bytes=600, index_interval_bytes=100)
    for start in (100, 50, 200, 120, 300):
        append(log, batch(start, start + 5, start + 2, value=b"x" * 50))
    records = read_records(log)
    for wanted in range(40, 320):
        expected = next((record for record in records if record.timestamp >= wanted), None)
        found = find(log, wanted)
        assert (found and found[:2]) == (expected and (expected.timestamp, expected.offset))
    assert find(log, MAX_TIMESTAMP) == (305, 13, 0)


def test_records_below_the_log_start_are_not_found_by_timestamp() -> None:
    log = new_log(segment_bytes=300)
    append(log, batch(500, 100), batch(100, 200), batch(600))
    log.increase_log_start_offset(1)
    assert find(log, 300) == (600, 4, 0)


def test_an_empty_log_has_no_timestamps() -> None:
    log = new_log()
    assert find(log, 0) is None
    assert find(log, MAX_TIMESTAMP) is None


def test_a_reader_finds_its_place_soon_whatever_the_index_interval_of_the_topic(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = new_log(index_interval_bytes=2**31 - 1)
    for _ in range(2000):
        append(log, batch(NOW_MS, value=b"x" * 100))
    log.roll(NOW_MS)
    log.flush()
    log.close()
    log = load(log)
    read_bytes = 0
    original = MemoryFile.read_at

    def counting(file: MemoryFile, position: int, length: int) -> bytes:
        nonlocal read_bytes
        data = original(file, position, length)
        read_bytes += len(data)
        return data

    monkeypatch.setattr(MemoryFile, "read_at", counting)
    assert offsets(batches_of(contents(log.read(1999, 1000, upper_bound=2000).region))) == [1999]
    assert log.size_in_bytes > 300_000 and read_bytes < 100_000


def test_on_the_event_loop_no_large_segment_is_read_for_its_times(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment_module, "REPAIR_AT_ONCE_BYTES", 1000)
    log = new_log(retention_ms=1)
    for _ in range(20):
        append(log, batch(-1, value=b"x" * 100))
    log.roll(NOW_MS)
    log.flush()
    log.close()
    log = load(log)
    damaged: list[Segment] = []
    log.enter_service(lambda _, segment: damaged.append(segment))
    with pytest.raises(DamagedIndexes):
        log.delete_old_segments(NOW_MS, log.log_end_offset)
    assert damaged == [log.segments[0]]
    survey = Survey(log, damaged)
    survey.run()
    assert survey.finish() and log.segments[0].max_timestamp == -1
    assert log.delete_old_segments(NOW_MS, log.log_end_offset) == 1


# --- durability -------------------------------------------------------------------------------------------------------


def test_flushing_moves_the_recovery_point() -> None:
    log = rolled_log()
    job = log.prepare_flush(include_active=False)
    assert job is not None and job.offset == 9
    append(log, batch(NOW_MS))
    job.run()
    log.finish_flush(job)
    assert log.recovery_point == 9
    log.flush()
    assert log.recovery_point == 13
    assert log.prepare_flush() is None


def test_a_flush_of_a_log_with_many_segments_has_few_files_open(tmp_path: Path) -> None:
    log = new_log(log_directory(OsStorage(), str(tmp_path), open_files_max=4), segment_bytes=200)
    for _ in range(30):
        append(log, batch(NOW_MS, value=b"x" * 100))
    log.release_files()
    before = len(os.listdir("/dev/fd"))
    points = []
    while (job := log.prepare_flush()) is not None:
        assert len(os.listdir("/dev/fd")) - before <= len(job) + 4 <= 18
        job.run()
        is_over = log.finish_flush(job)
        points.append(log.recovery_point)
    assert is_over and points[-1] == log.log_end_offset == 30
    assert points == sorted(set(points))  # each flush goes on where the one before it ended


def test_indexes_of_all_segments_are_on_the_disk_after_a_flush_in_parts() -> None:
    log = new_log(segment_bytes=200)
    for _ in range(9):
        append(log, batch(NOW_MS, value=b"x" * 100))
    synced = set()
    storage_of(log).fail = lambda operation, path: synced.add(path) if operation == "sync" else None
    log.flush()
    assert all(
        segment.path(kind) in synced for segment in log.segments[:-1] for kind in (".log", ".index", ".timeindex")
    )


def test_a_flush_that_was_overtaken_by_truncation_claims_no_more_than_there_is() -> None:
    log = new_log()
    append(log, batch(1), batch(2))
    job = log.prepare_flush()
    assert job is not None
    log.truncate_to(1, now_ms=NOW_MS)
    append(log, batch(3), epoch=1)
    job.run()
    assert not log.finish_flush(job)  # what it synced at offset 1 is not what is there now
    assert log.recovery_point == 0
    log.flush()
    assert log.recovery_point == 2


def test_leader_epochs_are_never_written_by_two_at_once() -> None:
    log = new_log()
    storage = log.log_directory.storage
    assert isinstance(storage, MemoryStorage)
    log.assign_epoch(5, 0)
    written: list[str] = []

    def write_too(operation: str, path: str) -> None:
        if operation == "write" and "leader-epoch-checkpoint" in path:
            written.append(path)
            log.assign_epoch(6, 0)
            write_epochs(storage, [log.epochs_to_write()])  # as the checkpoint writer does while a flush is at it

    storage.fail = write_too
    log.epochs_to_write().write(storage)
    assert len(written) == 1
    assert log.epochs_are_dirty  # so that the next one to write does it


def test_an_older_snapshot_of_leader_epochs_replaces_no_newer_one() -> None:
    log = new_log()
    log.assign_epoch(5, 0)
    older = log.epochs_to_write()
    log.assign_epoch(6, 0)
    newer = log.epochs_to_write()
    storage = log.log_directory.storage
    newer.write(storage)
    older.write(storage)
    write_epochs(storage, [older])  # as the checkpoint writer does, which took its snapshot before the flush did
    assert not log.epochs_are_dirty
    assert storage.read(newer.path) == newer.data


@pytest.mark.parametrize(("config", "expected"), [({}, False), ({"flush_messages": 1}, True), ({"flush_ms": 5}, True)])
def test_appends_say_whether_they_wait_for_the_disk(config: dict[str, int], expected: bool) -> None:
    log = new_log(**config)
    assert log.append_as_leader(batch(1), leader_epoch=0, now_ms=NOW_MS).flush_due is expected


def test_a_full_disk_refuses_appends_and_the_log_goes_on_afterwards() -> None:
    log = new_log()
    append(log, idempotent(0))
    storage = storage_of(log)
    for space in (0, 1, 60):
        storage.space_left = space
        assert refused(log, idempotent(1, value=b"x" * 100)) == ErrorCode.KAFKA_STORAGE_ERROR
    storage.space_left = None
    assert log.log_directory.is_online
    assert append(log, idempotent(1)) == [1]
    assert offsets(read_batches(load(log, clean=False))) == [0, 1]


def test_a_disk_that_is_full_when_a_segment_begins_refuses_the_append() -> None:
    log = rolled_log(1)
    storage = storage_of(log)
    storage.fail = lambda operation, path: OSError(errno.ENOSPC, "full") if path.endswith(".index") else None
    assert refused(log, batch(NOW_MS, value=b"x" * 220)) == ErrorCode.KAFKA_STORAGE_ERROR
    storage.fail = None
    assert append(log, batch(NOW_MS, value=b"x" * 220)) == [3]
    assert segment_bases(log) == [0, 3]
    assert offsets(read_batches(load(log, clean=False))) == [0, 1, 2, 3]


@pytest.mark.parametrize("undo_fails", [False, True])
def test_a_broken_disk_takes_the_directory_offline(undo_fails: bool) -> None:
    log = new_log()
    append(log, batch(1))
    number = errno.ENOSPC if undo_fails else errno.EIO
    failing = ("append", "truncate") if undo_fails else ("append",)
    storage_of(log).fail = lambda operation, path: OSError(number, "broken") if operation in failing else None
    for _ in range(2):
        assert refused(log, batch(2)) == ErrorCode.KAFKA_STORAGE_ERROR
        assert not undo_fails or log.log_directory.failure is not None
    if not undo_fails:
        assert not log.log_directory.is_online


def test_a_read_error_takes_the_directory_offline() -> None:
    log = new_log()
    append(log, batch(1))
    append(log, batch(1))
    log.close()
    log = load(log)
    storage_of(log).fail = lambda operation, path: OSError(errno.EIO, "broken") if operation == "read" else None
    with pytest.raises(KafkaError) as error:
        log.read(1, 100, upper_bound=2, at_least_one_batch=True)  # where a segment begins is known without a read
    assert error.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert not log.log_directory.is_online


@pytest.mark.parametrize(("number", "is_online"), [(errno.EIO, False), (errno.EMFILE, True)])
def test_a_read_error_on_the_way_to_the_socket_takes_the_directory_offline(number: int, is_online: bool) -> None:
    log = new_log()
    append(log, batch(1))
    region = log.read(0, 100, upper_bound=1, at_least_one_batch=True).region
    assert isinstance(region, FileRegion)
    region.fail(OSError(number, "read past the log"))
    assert log.log_directory.is_online is is_online


def test_closing_writes_what_a_clean_start_needs() -> None:
    log = new_log(index_interval_bytes=100)
    append(log, batch(1, value=b"x" * 200), batch(2, value=b"x" * 200), batch(3))
    log.close()
    assert len(storage_of(log).read(f"{log.directory}/00000000000000000000.index")) == 16
    assert storage_of(log).read(f"{log.directory}/leader-epoch-checkpoint") == b"0\n1\n0 0\n"
    again = load(log)
    assert again.log_end_offset == again.recovery_point == 3
    assert append(log, batch(4)) == [3]  # closing only lets go of files


def test_a_log_without_producers_needs_no_snapshot_at_the_end() -> None:
    log = new_log()
    append(log, batch(1))
    log.close()
    assert not [name for name in names(log) if name.endswith(".snapshot")]


def test_a_renamed_directory_takes_everything_along() -> None:
    log = rolled_log(2)
    append(log, idempotent(0))
    log.rename_directory("gone-0.0123-delete")
    assert storage_of(log).names(ROOT) == ["gone-0.0123-delete"]
    assert offsets(read_batches(log)) == list(range(7))
    log.close()
    assert not storage_of(log).exists(f"{ROOT}/{NAME}")


def test_settings_change_while_the_log_is_in_use() -> None:
    log = new_log()
    append(log, batch(1, value=b"x" * 500))
    log.config = LogConfig(max_message_bytes=100, flush_messages=1)
    assert refused(log, batch(1, value=b"x" * 500)) == ErrorCode.MESSAGE_TOO_LARGE
    assert log.is_flush_required


def test_a_topic_id_that_was_missing_is_written_down() -> None:
    directory = log_directory()
    log = PartitionLog.create(directory, "topic", 0, LogConfig(), topic_id=None, now_ms=NOW_MS)
    log = load(log)
    assert log.topic_id is None
    log.assign_topic_id(TOPIC_ID)
    assert load(log).topic_id == TOPIC_ID


def test_few_open_files_are_enough() -> None:
    directory = log_directory(open_files_max=1)
    log = new_log(directory, segment_bytes=600)
    append(log, *(batch(NOW_MS, value=b"x" * 220) for _ in range(20)))
    assert len(log.segments) == 10
    for _ in range(2):
        assert offsets(read_batches(log)) == list(range(20))
    assert len(directory.files) == 1


LONGEST = 249
OTHER_ID = bytes(range(16))


def test_logs_whose_long_names_begin_alike_are_made_side_by_side() -> None:
    storage = MemoryStorage()
    directory = log_directory(storage)
    logs: list[PartitionLog] = []

    def make(name: str) -> None:
        logs.append(PartitionLog.create(directory, name, 0, LogConfig(), topic_id=None, now_ms=NOW_MS))

    def another_thread_comes_between(operation: str, path: str) -> None:
        if operation == "rename":
            storage.fail = None
            make("x" * (LONGEST - 1) + "b")

    storage.fail = another_thread_comes_between
    make("x" * (LONGEST - 1) + "a")
    assert len(logs) == 2
    for log in logs:
        append(log, batch(1))
        assert offsets(read_batches(load(log, clean=False))) == [0]


@pytest.mark.parametrize("is_late", [False, True], ids=["made with its id", "got its id later"])
@pytest.mark.parametrize("seed", range(20))
def test_a_log_that_was_flushed_knows_its_topic_after_a_power_cut(seed: int, is_late: bool) -> None:
    storage = MemoryStorage()
    log = new_log(log_directory(storage))
    append(log, batch())
    log.flush()
    if is_late:
        log.assign_topic_id(OTHER_ID)
        append(log, batch())
        log.flush()
    storage.sync_directory("/")
    storage.crash(Random(seed))
    assert load(log, clean=False).topic_id == (OTHER_ID if is_late else TOPIC_ID)


def test_a_topic_id_that_comes_while_a_flush_is_under_way_is_synced_by_the_next() -> None:
    storage = MemoryStorage()
    log = new_log(log_directory(storage))
    append(log, batch())
    job = log.prepare_flush()
    assert job is not None
    log.assign_topic_id(OTHER_ID)
    job.run()
    log.finish_flush(job)
    append(log, batch())
    synced: list[str] = []
    storage.fail = lambda operation, path: synced.append(path) if operation == "sync" else None
    log.flush()
    assert any(PARTITION_METADATA in path for path in synced)


def test_what_is_left_of_a_failed_creation_is_removed_soon() -> None:
    storage = MemoryStorage()
    directory = log_directory(storage)

    def fail(operation: str, path: str) -> OSError | None:
        return OSError(errno.EMFILE, "Too many open files") if operation in ("open", "names") else None

    storage.fail = fail
    for _ in range(2):
        with pytest.raises(OSError, match="Too many"):
            PartitionLog.create(directory, "t", 0, LogConfig(), topic_id=None, now_ms=NOW_MS)
    storage.fail = None
    left = [f"{ROOT}/{name}" for name in storage.names(ROOT)]
    assert len(left) == 2
    assert sorted(directory.removals_due(NOW_MS)) == sorted(left)
