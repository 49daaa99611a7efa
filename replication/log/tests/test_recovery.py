"""Coming back from anything: torn and flipped tails, missing and foreign files, half-done replacements."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from ottla.replication.log.batch_checks import AppendOrigin
from ottla.replication.log.batch_scan import scan_batches
from ottla.replication.log.partition_log import PartitionLog
from ottla.replication.log.producer_snapshots import RETRIES_MS
from ottla.replication.log.segment import Segment
from ottla.replication.log.storage import LogDirectory
from ottla.replication.log.tests.logs import (
    NOW_MS,
    append,
    batch,
    contents,
    idempotent,
    load,
    log_directory,
    new_log,
    offsets,
    read_batches,
    read_records,
    segment_bases,
)
from ottla.server.testing.memory.storage import MemoryStorage
from ottla.wire.control_batches import ControlType, EndTxnMarker, encode_end_txn_marker
from ottla.wire.errors import KafkaError
from ottla.wire.records import BatchHeader, Compression
from ottla.wire.tests.effort import examples


def storage_of(log: PartitionLog) -> MemoryStorage:
    storage = log.log_directory.storage
    assert isinstance(storage, MemoryStorage)
    return storage


def names(log: PartitionLog) -> list[str]:
    return sorted(storage_of(log).names(log.directory))


def path(log: PartitionLog, name: str) -> str:
    return f"{log.directory}/{name}"


def filled_log(count: int = 12, **config: Any) -> PartitionLog:
    """Segments of about three batches of two records each."""
    log = new_log(**{"segment_bytes": 600, "index_interval_bytes": 200, **config})
    for number in range(count):
        append(log, idempotent(2 * number, 2, value=b"x" * 50), epoch=number // 5)
    return log


def places(log: PartitionLog) -> list[tuple[BatchHeader, Segment, int, int]]:
    """Every batch with where its bytes are."""
    return [
        (header, segment, position, position + header.size_in_bytes)
        for segment in log.segments
        for header, position in scan_batches(segment.log_file.open(), 0, segment.size)
    ]


# --- fuzz -------------------------------------------------------------------------------------------------------------


def cut(data: bytearray, at: int, random: Random) -> None:
    del data[at:]


def flip(data: bytearray, at: int, random: Random) -> None:
    data[at] ^= 1 << random.randrange(8)


def scribble(data: bytearray, at: int, random: Random) -> None:
    data[at : at + 40] = random.randbytes(len(data[at : at + 40]))


def zero(data: bytearray, at: int, random: Random) -> None:
    data[at:] = bytes(len(data) - at)


def insert(data: bytearray, at: int, random: Random) -> None:
    data[at:at] = random.randbytes(random.randrange(1, 80))


def _without_epoch(header: BatchHeader) -> BatchHeader:
    return header._replace(partition_leader_epoch=0)


DAMAGES: list[Callable[[bytearray, int, Random], None]] = [cut, flip, scribble, zero, insert]


@settings(max_examples=examples(60), deadline=None)
@given(damage=st.sampled_from(DAMAGES), seed=st.integers(0, 2**32), data=st.data())
def test_everything_before_the_damage_is_served_and_nothing_damaged(
    damage: Callable[[bytearray, int, Random], None], seed: int, data: st.DataObject
) -> None:
    log = filled_log()
    expected = places(log)
    recovery_point = data.draw(st.integers(0, log.log_end_offset))
    # Below the recovery point the disk is trusted; its segment and the ones after it are read again.
    first = max(index for index, segment in enumerate(log.segments) if segment.base_offset <= recovery_point)
    victim = data.draw(st.sampled_from(list(log.segments[first:])))
    at = data.draw(st.integers(0, victim.size - 1))
    log.close()
    damaged = victim.log_file.path
    content = bytearray(storage_of(log).read(damaged))
    damage(content, at, Random(seed))
    storage_of(log).write(damaged, bytes(content), sync=True)
    again = load(log, clean=False, recovery_point=recovery_point)
    intact = [header for header, segment, _, end in expected if (segment.base_offset, end) <= (victim.base_offset, at)]
    found = read_batches(again)  # checks every checksum
    assert found[: len(intact)] == intact
    # Nothing is made up. Only two things can be damaged without anybody's noticing: the leader epoch of a batch, and the
    # offset of the very last one, which may follow a gap.
    assume(not found or found[-1].base_offset <= expected[-1][0].base_offset)
    assert [_without_epoch(header) for header, *_ in expected][: len(found)] == list(map(_without_epoch, found))
    assert again.log_end_offset == (found[-1].next_offset if found else 0)
    assert len(read_records(again)) == again.log_end_offset
    # The log goes on where it ends: epochs, producers and indexes fit.
    assert again.latest_leader_epoch == (found[-1].partition_leader_epoch if found else -1)
    if found:
        assert append(again, idempotent(again.log_end_offset, 2), epoch=9) == [again.log_end_offset - 2]
    for header in found:
        assert again.read(header.base_offset, 1, upper_bound=2**62, at_least_one_batch=True).region
    again.close()
    assert read_batches(load(again)) == read_batches(again)


@settings(max_examples=examples(60), deadline=None)
@given(
    steps=st.lists(st.sampled_from(["append", "append", "append", "flush", "roll", "delete"]), max_size=25),
    seed=st.integers(0, 2**32),
)
def test_what_was_flushed_survives_a_power_cut(steps: list[str], seed: int) -> None:
    directory = log_directory()
    storage = directory.storage
    assert isinstance(storage, MemoryStorage)
    log = new_log(directory, segment_bytes=700, index_interval_bytes=200)
    storage.sync_directory("/")
    storage.sync_directory("/logs")
    appended = []
    for step in steps:
        if step == "append":
            append(log, idempotent(log.log_end_offset, 2, value=b"x" * 100))
            appended.append(log.log_end_offset - 2)
        elif step == "flush":
            log.flush()
        elif step == "roll":
            log.roll(NOW_MS)
        elif step == "delete":
            log.increase_log_start_offset(log.recovery_point)
            log.delete_old_segments(NOW_MS, log.recovery_point)
    durable, start = log.recovery_point, log.log_start_offset
    storage.crash(Random(seed))
    if not storage.exists("/logs/topic-0"):
        assert durable == 0
        return
    again = load(log, clean=False, recovery_point=durable, log_start_offset=start)
    assert again.log_end_offset >= durable
    found = offsets(read_batches(again, again.log_start_offset))
    assert found == [offset for offset in appended if again.log_start_offset <= offset < again.log_end_offset]
    assert again.log_start_offset == start
    if again.log_end_offset:
        assert append(again, idempotent(again.log_end_offset, 2)) == [again.log_end_offset - 2]


@settings(max_examples=examples(30), deadline=None)
@given(seed=st.integers(0, 2**32))
def test_a_disk_that_fills_up_and_empties_loses_nothing_that_was_acknowledged(seed: int) -> None:
    random = Random(seed)
    log = new_log(segment_bytes=700, index_interval_bytes=200)
    storage = storage_of(log)
    acknowledged = []
    for _ in range(30):
        storage.space_left = random.choice([None, random.randrange(400)])
        try:
            info = log.append_as_leader(
                batch(NOW_MS, value=random.randbytes(random.randrange(200))), leader_epoch=0, now_ms=NOW_MS
            )
            acknowledged.append(info.first_offset)
        except KafkaError:
            assert log.log_directory.is_online
    storage.space_left = None
    assert offsets(read_batches(log)) == acknowledged == list(range(len(acknowledged)))
    assert offsets(read_batches(load(log, clean=False, recovery_point=0))) == acknowledged


# --- single cases -----------------------------------------------------------------------------------------------------


def test_segments_after_the_damage_are_given_up() -> None:
    log = filled_log()
    bases = segment_bases(log)
    storage_of(log).damage(log.segments[1].log_file.path, 70, b"\xff")
    again = load(log, clean=False, recovery_point=0)
    assert segment_bases(again) == bases[:2]
    assert again.log_end_offset == bases[1]
    assert not [name for name in names(log) if name.endswith(".log") and int(name[:20]) > bases[1]]
    assert append(again, idempotent(bases[1], 2)) == [bases[1]]


def test_records_after_a_gap_are_given_up() -> None:
    log = filled_log()
    bases = segment_bases(log)
    log.segments[1].log_file.open().truncate(181)
    again = load(log, clean=False, recovery_point=0)
    assert segment_bases(again) == bases[:2]
    assert offsets(read_batches(again)) == [0, 2, 4, 6]


def log_with_gaps(*base_offsets: int, **config: Any) -> PartitionLog:
    """The log of a follower whose leader has a compacted log."""
    log = new_log(**{"segment_bytes": 600, **config})
    for base_offset in base_offsets:
        log.append_as_follower(batch(1, value=b"x" * 100, base_offset=base_offset, leader_epoch=3), now_ms=NOW_MS)
    return log


@pytest.mark.parametrize("policy", ["delete", "compact"])
def test_gaps_are_no_damage_whatever_the_policy_is_now(policy: str) -> None:
    log = log_with_gaps(*(copied := [0, 1, 2, 7, 8, 9, 20, 30, 31, 32, 50]), cleanup_policy=(policy,))
    assert len(segment_bases(log)) > 2
    for known in (True, False):
        again = load(log, clean=False, recovery_point=0, is_recovery_point_known=known)
        assert offsets(read_batches(again)) == copied


@pytest.mark.parametrize("policy", ["delete", "compact"])
def test_gaps_between_files_are_no_damage_where_there_are_others_within(policy: str) -> None:
    log = log_with_gaps(*(copied := [0, 1, 2, 7, 8, 9, 20, 30, 31, 32, 50]), cleanup_policy=(policy,))
    storage = storage_of(log)
    assert segment_bases(log) == [0, 3, 10, 32]
    for ours, theirs in ((3, 7), (10, 20)):  # another broker lets segments begin with their first batch
        storage.rename(path(log, f"{ours:020d}.log"), path(log, f"{theirs:020d}.log"))
    again = load(log, clean=False, recovery_point=0)
    assert offsets(read_batches(again)) == copied


@pytest.mark.parametrize("policy", ["delete", "compact"])
def test_gaps_in_what_was_compacted_are_no_damage_though_the_recovery_point_is_below_them(policy: str) -> None:
    # Kafka compacts up to a recovery point that it writes down once a minute.
    log = log_with_gaps(*(copied := [0, 1, 2, 7, 8, 9, 10, 11]), cleanup_policy=(policy,))
    assert segment_bases(log) == [0, 3, 10]
    storage_of(log).rename(path(log, f"{3:020d}.log"), path(log, f"{7:020d}.log"))
    again = load(log, clean=False, recovery_point=0, first_dirty_offset=10)
    assert offsets(read_batches(again)) == copied


def test_gaps_beyond_what_was_compacted_are_damage() -> None:
    log = filled_log()
    bases = segment_bases(log)
    log.segments[1].log_file.open().truncate(181)
    again = load(log, clean=False, recovery_point=0, first_dirty_offset=bases[1])
    assert segment_bases(again) == bases[:2]


def test_without_a_recovery_point_no_gap_is_damage() -> None:
    log = filled_log()
    log.segments[1].log_file.open().truncate(181)
    again = load(log, clean=False, recovery_point=0, is_recovery_point_known=False)
    assert offsets(read_batches(again)) == [0, 2, 4, 6, 12, 14, 16, 18, 20, 22]


@pytest.mark.parametrize("number", [2, 7])  # within a segment, and the last one of it
def test_an_offset_that_is_too_high_ends_the_log(number: int) -> None:
    log = filled_log()
    header, segment, position, _ = places(log)[number]
    storage_of(log).damage(segment.log_file.path, position, (header.base_offset + 2**20).to_bytes(8, "big"))
    again = load(log, clean=False, recovery_point=0)
    assert again.log_end_offset == 2 * number
    assert len(read_batches(again)) == number


def test_a_segment_that_was_never_used_does_not_end_the_log() -> None:
    log = new_log()
    append(log, *(batch(1) for _ in range(6)))
    # A roll that failed, and whose undoing was lost with the power.
    storage_of(log).write(path(log, f"{3:020d}.log"), b"")
    for clean in (True, False):
        log.close()
        again = load(log, clean=clean, recovery_point=5)
        assert again.log_end_offset == 6 and segment_bases(again) == [0]
        storage_of(log).write(path(log, f"{3:020d}.log"), b"")


def test_segments_below_the_recovery_point_are_not_read() -> None:
    log = filled_log()
    log.flush()
    log.close()
    reads: list[str] = []
    storage_of(log).fail = lambda operation, path: reads.append(path) if operation == "read" else None
    again = load(log, clean=False, now_ms=NOW_MS + RETRIES_MS + 1)  # no producer tries again what it sent
    assert again.log_end_offset == log.log_end_offset
    old = {segment.log_file.path for segment in log.segments[:-1]}
    assert not old & set(reads)


def test_a_clean_start_reads_no_records() -> None:
    log = filled_log()
    log.close()
    lengths: list[int] = []
    storage = storage_of(log)
    storage.fail = lambda operation, path: lengths.append(1) if operation == "read" else None
    load(log)
    assert len(lengths) < 16


@pytest.mark.parametrize("suffix", [".index", ".timeindex", ".txnindex"])
def test_an_index_without_its_log_is_removed(suffix: str) -> None:
    log = filled_log()
    log.close()
    storage_of(log).write(path(log, f"{77:020d}{suffix}"), b"x" * 34)
    assert f"{77:020d}{suffix}" not in names(load(log))


@pytest.mark.parametrize("clean", [True, False])
def test_a_log_without_its_index_gets_one(clean: bool) -> None:
    log = filled_log()
    log.flush()
    log.close()
    good = {name: storage_of(log).read(path(log, name)) for name in names(log)}
    for name in names(log):
        if name.endswith((".index", ".timeindex")):
            storage_of(log).remove(path(log, name))
    again = load(log, clean=clean)
    again.close()
    assert {name: storage_of(log).read(path(log, name)) for name in names(log)} == good


def test_files_on_their_way_out_are_removed() -> None:
    log = filled_log()
    log.close()
    before = names(log)
    for name in (
        f"{0:020d}.log.deleted",
        f"{4:020d}.snapshot.deleted",
        f"{0:020d}.log.cleaned",
        f"{0:020d}.index.cleaned",
    ):
        storage_of(log).write(path(log, name), b"whatever")
    assert names(load(log)) == before


def replacement(log: PartitionLog, first: int, last: int, suffix: str) -> list[int]:
    """Files that replace segments [first, last] by one with the first batch of each; the offsets kept."""
    storage = storage_of(log)
    segments = log.segments[first : last + 1]
    new = Segment.create(log.log_directory.files, log.directory, segments[0].base_offset, created_ms=0, suffix=suffix)
    kept = []
    for segment in segments:
        header, _ = next(scan_batches(segment.log_file.open(), 0, segment.size))
        new.append(segment.log_file.open().read_at(0, header.size_in_bytes), [header], log.config)
        kept.append(header.base_offset)
    new.close()
    assert storage.exists(new.log_file.path)
    return kept


def test_a_replacement_that_was_finished_takes_its_place() -> None:
    log = filled_log()
    log.flush()
    log.close()
    bases = segment_bases(log)
    others = [header.base_offset for header, segment, *_ in places(log) if segment not in log.segments[1:3]]
    kept = replacement(log, 1, 2, ".swap")
    again = load(log, clean=False)
    assert segment_bases(again) == [base for base in bases if base != bases[2]]
    assert offsets(read_batches(again)) == sorted(others + kept)
    assert not [name for name in names(log) if name.endswith(".swap")]


def test_a_replacement_that_was_not_finished_is_forgotten() -> None:
    log = filled_log()
    log.close()
    expected = offsets(read_batches(log))
    replacement(log, 1, 2, ".cleaned")
    again = load(log)
    assert offsets(read_batches(again)) == expected
    assert not [name for name in names(log) if name.endswith(".cleaned")]


def test_half_of_a_split_is_forgotten() -> None:
    log = filled_log()
    log.close()
    expected = offsets(read_batches(log))
    replacement(log, 2, 2, ".swap")
    replacement(log, 1, 1, ".cleaned")
    assert offsets(read_batches(load(log))) == expected


def test_a_log_that_ends_below_its_start_begins_anew_there() -> None:
    log = filled_log()
    log.close()
    again = load(log, log_start_offset=1000)
    assert (again.log_start_offset, again.log_end_offset, segment_bases(again)) == (1000, 1000, [1000])
    assert append(again, batch(1)) == [1000]
    assert offsets(read_batches(load(again, clean=False))) == [1000]


def test_an_empty_directory_becomes_an_empty_log() -> None:
    log = filled_log()
    for name in names(log):
        storage_of(log).remove(path(log, name))
    again = load(log, log_start_offset=5)
    assert (again.log_start_offset, again.log_end_offset, again.topic_id) == (5, 5, None)


def test_the_log_start_offset_of_the_checkpoint_counts() -> None:
    log = filled_log()
    log.close()
    again = load(log, log_start_offset=7)
    assert again.log_start_offset == 7
    assert read_batches(again)[0].base_offset == 6
    assert again.end_offset_for_epoch(0) == (0, 10)


@pytest.mark.parametrize("data", [b"garbage", b"0\n5\n1 1\n", b""])
def test_leader_epochs_are_found_in_the_batches_if_the_file_is_damaged(data: bytes) -> None:
    log = filled_log()
    log.close()
    storage_of(log).write(path(log, "leader-epoch-checkpoint"), data)
    again = load(log, clean=False, recovery_point=0)
    assert [again.end_offset_for_epoch(epoch) for epoch in range(3)] == [(0, 10), (1, 20), (2, 24)]


def test_epochs_of_records_that_were_lost_are_forgotten() -> None:
    log = filled_log()
    log.close()
    storage_of(log).damage(log.segments[-1].log_file.path, 70, b"\xff\xff")
    again = load(log, clean=False, recovery_point=0)
    assert again.end_offset_for_epoch(again.latest_leader_epoch)[1] == again.log_end_offset


def test_records_that_come_back_although_they_were_cut_off_have_their_own_epoch() -> None:
    """The power goes after a follower has cut its log and followed another leader: of the log's file nothing was synced."""
    log = new_log()
    append(log, batch(NOW_MS), batch(NOW_MS))
    append(log, batch(NOW_MS), batch(NOW_MS), epoch=1)
    log.flush()
    storage, file = storage_of(log), log.segments[-1].log_file.path
    before = storage.read(file)
    log.truncate_to(2, now_ms=NOW_MS)
    append(log, *[batch(NOW_MS) for _ in range(4)], epoch=2)
    log.epochs_to_write().write(storage)
    storage.write(file, before)
    again = load(log, clean=False, recovery_point=0)
    assert (again.log_end_offset, again.latest_leader_epoch) == (4, 1)
    assert [again.end_offset_for_epoch(epoch) for epoch in range(2)] == [(0, 2), (1, 4)]


def test_damaged_partition_metadata_counts_as_missing() -> None:
    log = filled_log()
    log.close()
    storage_of(log).write(path(log, "partition.metadata"), b"\0\0\0")
    assert load(log).topic_id is None


def test_a_damaged_snapshot_is_replaced_by_the_log() -> None:
    log = filled_log()
    log.close()
    for name in names(log):
        if name.endswith(".snapshot"):
            storage_of(log).damage(path(log, name), 7, b"\xff")
    again = load(log)
    assert append(again, idempotent(log.log_end_offset, 2), epoch=5) == [log.log_end_offset]


def test_a_damaged_snapshot_is_written_anew_by_the_next_stop() -> None:
    log = new_log()
    append(log, *[idempotent(sequence) for sequence in range(4)])
    log.close()
    for name in names(log):
        if name.endswith(".snapshot"):
            storage_of(log).damage(path(log, name), 7, b"\xff")
    again = load(log)
    again.close()
    third = load(again)
    assert third.append_as_leader(idempotent(3), leader_epoch=0, now_ms=NOW_MS).duplicate


@pytest.mark.parametrize("segment_bytes", [200, 2_000, 100_000])
@pytest.mark.parametrize("is_clean", [True, False])
def test_all_that_a_producer_may_send_again_is_known_after_a_restart(segment_bytes: int, is_clean: bool) -> None:
    log = new_log(segment_bytes=segment_bytes)
    for sequence in range(0, 60, 2):
        append(log, idempotent(sequence, 2), idempotent(sequence, 2, producer_id=8), batch(1))
    log.close()
    again = load(log, clean=is_clean, recovery_point=log.log_end_offset)
    for _ in range(2):
        for sequence in range(50, 60, 2):
            info = again.append_as_leader(idempotent(sequence, 2), leader_epoch=0, now_ms=NOW_MS)
            assert (info.duplicate, info.first_offset) == (True, sequence // 2 * 5)
        again.truncate_to(again.log_end_offset - 1, now_ms=NOW_MS)


def test_retries_are_known_as_far_as_the_log_can_be_read() -> None:
    log = new_log(segment_bytes=3 << 20)
    append(log, *[idempotent(sequence, value=b"x" * (200 << 10)) for sequence in range(4)])
    log.close()
    again = load(log)
    assert again.append_as_leader(idempotent(3), leader_epoch=0, now_ms=NOW_MS).duplicate
    assert append(again, idempotent(4)) == [4]


def test_snapshots_beyond_the_recovered_end_are_not_believed() -> None:
    log = filled_log()
    log.close()
    storage_of(log).damage(log.segments[-1].log_file.path, 70, b"\xff\xff")
    again = load(log, clean=False, recovery_point=0)
    assert again.log_end_offset < log.log_end_offset
    assert append(again, idempotent(again.log_end_offset, 2), epoch=5) == [again.log_end_offset - 2]


def test_an_open_transaction_is_still_open() -> None:
    log = new_log()
    append(log, batch(1), idempotent(0, is_transactional=True))
    log.close()
    for clean in (True, False):
        assert load(log, clean=clean, recovery_point=0).first_unstable_offset == 1


def test_an_aborted_transaction_is_found_again_without_its_index() -> None:
    log = new_log()
    append(log, batch(1), idempotent(0, 2, is_transactional=True))
    abort = encode_end_txn_marker(
        EndTxnMarker(ControlType.ABORT, 3), timestamp_ms=NOW_MS, producer_id=7, producer_epoch=0
    )
    log.append_as_leader(memoryview(bytearray(abort)), leader_epoch=0, now_ms=NOW_MS, origin=AppendOrigin.COORDINATOR)
    expected = log.aborted_transactions(0, 100).transactions
    assert [each[:3] for each in expected] == [(7, 1, 3)]
    log.close()
    storage_of(log).remove(path(log, f"{0:020d}.txnindex"))
    assert load(log, clean=False, recovery_point=0).aborted_transactions(0, 100).transactions == expected


@pytest.mark.parametrize("compression", list(Compression))
def test_compressed_batches_are_recovered_unread(compression: Compression) -> None:
    log = new_log()
    append(log, *(batch(*range(20), compression=compression) for _ in range(5)))
    again = load(log, clean=False, recovery_point=0)
    whole = contents(log.read(0, 10**6, upper_bound=100).region)
    assert contents(again.read(0, 10**6, upper_bound=100).region) == whole


def test_a_batch_larger_than_a_piece_of_reading_is_recovered(monkeypatch: pytest.MonkeyPatch) -> None:
    from ottla.replication.log import batch_scan

    monkeypatch.setattr(batch_scan, "READ_BYTES", 100)
    log = filled_log()
    append(log, batch(1, value=b"x" * 400), epoch=9)
    again = load(log, clean=False, recovery_point=0)
    assert read_batches(again) == read_batches(log)


def test_a_log_marked_for_deletion_can_be_loaded_under_its_name() -> None:
    log = filled_log()
    log.close()
    log.rename_directory("topic-0.00112233445566778899aabbccddeeff-delete")
    again = load(log)
    assert (again.topic, again.partition) == ("topic", 0)


def test_loading_leaves_files_alone_that_are_none_of_its_business() -> None:
    log = filled_log()
    log.close()
    storage_of(log).write(path(log, "notes.txt"), b"mine")
    load(log, clean=False)
    assert "notes.txt" in names(log)


def test_another_directory_object_is_all_it_takes() -> None:
    log = filled_log()
    log.close()
    assert load(log).log_directory is not log.log_directory
    assert isinstance(load(log).log_directory, LogDirectory)


def test_a_rotten_first_batch_keeps_no_log_from_being_loaded() -> None:
    storage = MemoryStorage()
    log = new_log(log_directory(storage))
    for _ in range(200):
        append(log, batch(NOW_MS))
    log.close()
    storage.damage(log.segments[-1].log_file.path, 8, b"\x7f\xff\xff\xff")
    log = load(log)
    assert log.log_end_offset == 200
    with pytest.raises(KafkaError):
        append(log, batch(NOW_MS))


def test_after_a_start_an_append_does_not_wait_for_the_disk() -> None:
    storage = MemoryStorage()
    log = new_log(log_directory(storage))
    for _ in range(100):
        append(log, batch(NOW_MS, value=bytes(1000)))
    log.close()
    storage.evict()
    log = load(log)
    waits: list[str] = []
    storage.on_wait = waits.append
    append(log, batch(NOW_MS + 1))
    assert waits == []
    assert log.log_end_offset == 101
