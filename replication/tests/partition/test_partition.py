"""One partition: roles and fencing, what is committed and acknowledged, reading with its bounds, offset lookups."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from ottla.replication.config import LogConfig
from ottla.replication.log.batch_checks import AppendOrigin
from ottla.replication.log.log_reader import LogRead
from ottla.replication.log.producers import MarkerVersion
from ottla.replication.log.tests.logs import (
    NOW_MS,
    append,
    batch,
    batches_of,
    contents,
    idempotent,
    marker,
    new_log,
    offsets,
)
from ottla.replication.log.verification import NOT_REQUIRED
from ottla.replication.partition.partition import Partition
from ottla.replication.partition.reading import NOT_FOUND
from ottla.server.testing.memory.storage import MemoryStorage
from ottla.wire.control_batches import ControlType
from ottla.wire.errors import ErrorCode, KafkaError

LOCAL = 1


def leader(*, replicas: tuple[int, ...] = (LOCAL,), isr: tuple[int, ...] = (LOCAL,), **config: Any) -> Partition:
    """A partition this broker leads, and the flushes it has asked for in `flushes`."""
    partition = Partition("topic", 0, new_log(**config), local_id=LOCAL, request_flush=flushes.append)
    partition.make_leader(leader_epoch=3, partition_epoch=0, replicas=replicas, isr=isr)
    flushes.clear()
    return partition


flushes: list[Partition] = []


def produce(partition: Partition, records: memoryview | None = None, *, acks: int = -1, **options: Any) -> int:
    """Append; the offset after it."""
    records = batch(NOW_MS, NOW_MS + 1) if records is None else records
    options = {"guard": NOT_REQUIRED} | options
    return partition.append_as_leader(records, required_acks=acks, now_ms=NOW_MS, **options).last_offset + 1


def error_of(function: Any, *args: Any, **options: Any) -> ErrorCode:
    with pytest.raises(KafkaError) as error:
        function(*args, **options)
    return error.value.code


def read_offsets(partition: Partition, offset: int = 0, **options: Any) -> list[int]:
    return offsets(batches_of(contents(partition.read(offset, 100_000, **options).records)))


# --- roles ------------------------------------------------------------------------------------------------------------


def test_nobody_reads_or_writes_before_there_is_a_leader() -> None:
    partition = Partition("topic", 0, new_log(), local_id=LOCAL)
    assert error_of(produce, partition) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert error_of(partition.read, 0, 100) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert error_of(partition.list_offset, -1) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert error_of(partition.delete_records, 0) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert partition.acknowledgement(0, 1) == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_new_leader_notes_where_its_epoch_begins() -> None:
    log = new_log()
    append(log, batch(1, 2))
    partition = Partition("topic", 0, log, local_id=LOCAL)
    assert partition.make_leader(leader_epoch=4, partition_epoch=1, replicas=(LOCAL,), isr=(LOCAL,))
    assert (partition.leader_epoch_start_offset, partition.high_watermark) == (2, 2)
    assert log.end_offset_for_epoch(0) == (0, 2)
    assert not partition.make_leader(leader_epoch=4, partition_epoch=2, replicas=(LOCAL,), isr=(LOCAL,))


def test_who_was_told_its_epoch_once_more_after_a_crash_has_not_led_ever_since() -> None:
    """Another controller may not have seen the crash; of the records that it has cost, clients hear by a new epoch."""
    partition = leader()
    assert partition.has_begun_epoch
    again = Partition("topic", 0, partition.log, local_id=LOCAL)
    again.make_leader(leader_epoch=3, partition_epoch=0, replicas=(LOCAL,), isr=(LOCAL,))
    assert again.is_leader and not again.has_begun_epoch
    again.make_leader(leader_epoch=4, partition_epoch=1, replicas=(LOCAL,), isr=(LOCAL,))
    assert again.has_begun_epoch


def test_an_older_decision_is_ignored() -> None:
    partition = leader()
    partition.make_leader(leader_epoch=5, partition_epoch=7, replicas=(LOCAL,), isr=(LOCAL,))
    assert not partition.make_follower(leader_id=2, leader_epoch=4, partition_epoch=6, replicas=(LOCAL, 2))
    assert not partition.make_leader(leader_epoch=9, partition_epoch=6, replicas=(LOCAL,), isr=(LOCAL,))
    assert (partition.is_leader, partition.leader_epoch) == (True, 5)


def test_a_follower_refuses_what_only_the_leader_does() -> None:
    partition = leader()
    assert partition.make_follower(leader_id=2, leader_epoch=4, partition_epoch=1, replicas=(LOCAL, 2))
    assert not partition.is_leader
    assert error_of(produce, partition) == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_deleted_partition_is_unknown() -> None:
    partition = leader()
    end = produce(partition)
    partition.mark_deleted()
    assert error_of(produce, partition) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert partition.acknowledgement(end, -1) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize(
    ("epoch", "expected"), [(2, ErrorCode.FENCED_LEADER_EPOCH), (4, ErrorCode.UNKNOWN_LEADER_EPOCH)]
)
def test_requests_for_another_leaders_epoch_are_fenced(epoch: int, expected: ErrorCode) -> None:
    partition = leader()
    for ask in (
        lambda each: partition.read(0, 100, current_leader_epoch=each),
        lambda each: partition.list_offset(-1, current_leader_epoch=each),
        lambda each: partition.end_offset_for_epoch(3, current_leader_epoch=each),
    ):
        ask(-1)
        ask(3)
        assert error_of(ask, epoch) == expected
        assert error_of(ask, -2) == ErrorCode.FENCED_LEADER_EPOCH


def test_an_offline_directory_is_told_everywhere() -> None:
    partition = leader()
    end = produce(partition)
    partition.log.log_directory.take_offline(OSError("broken"))
    for ask in (lambda: produce(partition), lambda: partition.read(0, 1), lambda: partition.list_offset(-1)):
        assert error_of(ask) == ErrorCode.KAFKA_STORAGE_ERROR
    assert partition.acknowledgement(end, -1) == ErrorCode.KAFKA_STORAGE_ERROR


# --- committing -------------------------------------------------------------------------------------------------------


def test_alone_everything_is_committed_at_once() -> None:
    partition = leader()
    end = produce(partition)
    assert (partition.high_watermark, end) == (2, 2)
    assert partition.acknowledgement(end, -1) == partition.acknowledgement(end, 1) == ErrorCode.NONE
    assert partition.acknowledgement(3, -1) is partition.acknowledgement(3, 1) is None


def test_with_too_few_in_sync_replicas_nothing_is_taken_for_all_and_nothing_committed() -> None:
    partition = leader(replicas=(LOCAL, 2, 3), min_insync_replicas=2)
    assert partition.is_under_min_isr
    assert error_of(produce, partition) == ErrorCode.NOT_ENOUGH_REPLICAS
    end = produce(partition, acks=1)
    assert partition.acknowledgement(end, 1) == ErrorCode.NONE
    assert partition.acknowledgement(end, -1) is None
    assert partition.high_watermark == 0
    assert read_offsets(partition) == []


def test_no_more_replicas_are_asked_for_than_there_are() -> None:
    partition = leader(min_insync_replicas=2)
    assert partition.acknowledgement(produce(partition), -1) == ErrorCode.NONE


def test_an_isr_that_shrinks_during_the_wait_is_told() -> None:
    partition = leader()
    end = produce(partition)
    partition.make_leader(leader_epoch=3, partition_epoch=1, replicas=(LOCAL, 2), isr=(LOCAL,))
    partition.set_config(LogConfig(min_insync_replicas=2))
    assert partition.acknowledgement(end, -1) == ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND


@pytest.mark.parametrize("acks", [1, -1])
def test_where_flushes_are_forced_records_count_only_once_they_are_on_disk(acks: int) -> None:
    partition = leader(flush_messages=1)
    end = produce(partition, acks=acks)
    assert flushes == [partition]
    assert partition.acknowledgement(end, acks) is None
    assert (partition.high_watermark, read_offsets(partition)) == (0, [])
    partition.log.flush()
    partition.on_flushed()
    assert partition.acknowledgement(end, acks) == ErrorCode.NONE
    assert (partition.high_watermark, read_offsets(partition)) == (2, [0])


def test_turning_forced_flushes_on_and_off() -> None:
    partition = leader(flush_ms=10)
    produce(partition)
    partition.set_config(LogConfig())
    assert partition.high_watermark == 2
    partition.set_config(LogConfig(flush_ms=10))
    assert partition.high_watermark == 2  # never falls
    produce(partition)
    assert partition.high_watermark == 2 and flushes


def test_a_leader_that_finds_unflushed_records_asks_for_a_flush() -> None:
    log = new_log(flush_messages=1)
    append(log, batch(1))
    partition = Partition("topic", 0, log, local_id=LOCAL, request_flush=flushes.append)
    flushes.clear()
    partition.make_leader(leader_epoch=0, partition_epoch=0, replicas=(LOCAL,), isr=(LOCAL,))
    assert (flushes, partition.high_watermark) == ([partition], 0)


def test_a_rolled_segment_asks_for_a_flush_of_the_finished_one() -> None:
    partition = leader(segment_bytes=400)
    for _ in range(3):
        produce(partition, batch(NOW_MS, value=b"x" * 120))
    assert flushes == [partition]


@pytest.mark.parametrize("is_leader", [True, False])
def test_a_finished_segment_is_flushed_although_the_append_that_finished_it_fails(is_leader: bool) -> None:
    """Otherwise a power cut would take it until the next one is finished, and a restart would read it through."""
    partition = leader(segment_bytes=400)
    storage = partition.log.log_directory.storage
    assert isinstance(storage, MemoryStorage)

    def send() -> None:
        records = batch(NOW_MS, value=b"x" * 120)
        if is_leader:
            produce(partition, records)
        else:
            records[:8] = partition.log_end_offset.to_bytes(8, "big")
            partition.append_as_follower(records, leader_high_watermark=0, leader_log_start_offset=0, now_ms=NOW_MS)

    if not is_leader:
        partition.make_follower(leader_id=2, leader_epoch=3, partition_epoch=1, replicas=(LOCAL, 2))
    send()
    send()
    assert flushes == [] and len(partition.log.segments) == 1

    def fail(error: Exception) -> None:
        storage.fail = lambda operation, path: error if operation == "append" and path.endswith(".log") else None  # type: ignore[assignment, return-value]

    fail(RuntimeError("a bug"))
    with pytest.raises(RuntimeError):
        send()
    assert flushes == [partition] and len(partition.log.segments) == 2
    fail(OSError(errno.ENOSPC, "full"))
    assert error_of(send) == ErrorCode.KAFKA_STORAGE_ERROR
    assert flushes == [partition]  # nobody asks again
    storage.fail = None
    partition.log.flush(include_active=False)
    assert partition.log.recovery_point == partition.log_end_offset == 2
    send()
    assert flushes == [partition]


def test_a_duplicate_waits_like_its_original() -> None:
    partition = leader(flush_messages=1)
    end = produce(partition, idempotent(0, 2))
    assert produce(partition, idempotent(0, 2)) == end
    assert partition.acknowledgement(end, 1) is None
    traffic = partition.traffic
    assert (traffic.produce_requests, traffic.messages_in, traffic.bytes_in) == (2, 2, len(idempotent(0, 2)))


# --- watchers ---------------------------------------------------------------------------------------------------------


def test_watchers_are_called_after_every_change_and_may_leave() -> None:
    partition = leader()
    calls: list[tuple[int, int]] = []

    def once() -> None:
        partition.watchers.discard(once)
        calls.append((-1, -1))

    def always() -> None:
        calls.append((partition.high_watermark, partition.log_start_offset))

    partition.watchers.add(once)
    partition.watchers.add(always)
    produce(partition)
    partition.delete_records(1)
    partition.make_follower(leader_id=2, leader_epoch=4, partition_epoch=1, replicas=(2,))
    assert sorted(calls) == [(-1, -1), (2, 0), (2, 1), (2, 1)]


def test_watchers_hear_of_flushes_and_of_nothing_when_nothing_happened() -> None:
    partition = leader(flush_messages=1)
    produce(partition)
    calls: list[int] = []
    partition.watchers.add(lambda: calls.append(partition.high_watermark))
    partition.on_flushed()
    assert calls == []
    partition.log.flush()
    partition.on_flushed()
    assert calls == [2]
    produce(partition, idempotent(0))
    calls.clear()
    produce(partition, idempotent(0))
    assert calls == []


# --- reading ----------------------------------------------------------------------------------------------------------


def test_a_read_tells_the_offsets_around_it() -> None:
    partition = leader()
    produce(partition)
    partition.delete_records(1)
    read = partition.read(1, 1000)
    assert read[1:] == (2, 2, 1, 2, None, None, len(read.records), False)
    assert offsets(batches_of(contents(read.records))) == [0]
    assert partition.read(2, 1000).records == b""
    assert error_of(partition.read, 0, 10) == error_of(partition.read, 3, 10) == ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_read_tells_what_a_limit_holds_back() -> None:
    partition = leader()
    produce(partition)
    produce(partition)
    size = len(partition.read(0, 1000).records)
    for limit in (0, size // 2 - 1, size // 2, size - 1):
        read = partition.read(0, limit, at_least_one_batch=True)
        assert (len(read.records), read.bytes_available, read.is_behind) == (size // 2, size, False)
    assert partition.read(partition.high_watermark, 1000).bytes_available == 0


def test_a_limit_below_zero_fails_only_where_there_is_something_to_read() -> None:
    partition = leader()
    assert partition.read(0, -1).records == b""
    produce(partition)
    assert error_of(partition.read, 0, -1) == ErrorCode.UNKNOWN_SERVER_ERROR
    assert partition.read(partition.high_watermark, -1).records == b""


def test_nobody_follows() -> None:
    partition = leader()
    for epoch, expected in (
        (-1, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (3, ErrorCode.UNKNOWN_LEADER_EPOCH),
        (2, ErrorCode.FENCED_LEADER_EPOCH),
    ):
        assert error_of(partition.refuse_follower, epoch) == expected


def test_between_high_watermark_and_end_there_is_nothing_to_read() -> None:
    partition = leader(flush_messages=1)
    produce(partition)
    assert partition.read(1, 100).records == partition.read(2, 100).records == b""
    assert error_of(partition.read, 3, 100) == ErrorCode.OFFSET_OUT_OF_RANGE


def test_committed_readers_stop_at_open_transactions_and_learn_of_aborted_ones() -> None:
    partition = leader()
    produce(partition)
    produce(partition, idempotent(0, 2, is_transactional=True))
    produce(partition)
    assert (partition.high_watermark, partition.last_stable_offset) == (6, 2)
    assert read_offsets(partition) == [0, 2, 4]
    assert read_offsets(partition, read_committed=True) == [0]
    assert partition.read(0, 1000, read_committed=True).aborted_transactions == []
    produce(partition, marker(ControlType.ABORT), origin=AppendOrigin.COORDINATOR)
    assert partition.last_stable_offset == 7
    read = partition.read(0, 1000, read_committed=True)
    assert read.aborted_transactions is not None
    assert [each[:2] for each in read.aborted_transactions] == [(7, 2)]
    assert partition.read(0, 1000).aborted_transactions is None
    later = partition.read(7, 1000, read_committed=True)
    assert (later.records, later.aborted_transactions) == (b"", [])


def aborted(partition: Partition, count: int, producer_id: int = 7) -> None:
    """Transactions of one record that were aborted."""
    for number in range(count):
        produce(partition, idempotent(number, producer_id=producer_id, is_transactional=True))
        produce(partition, marker(ControlType.ABORT, producer_id=producer_id), origin=AppendOrigin.COORDINATOR)


def test_a_reader_of_very_many_aborted_transactions_gets_fewer_records() -> None:
    partition = leader()
    aborted(partition, 10)
    offset, known = 0, set()
    for _ in range(4):
        read = partition.read(offset, 10_000, read_committed=True, at_least_one_batch=True, aborted_max=3)
        # What there is does not depend on it, or a fetch would wait for more.
        assert read.bytes_available == partition.read(offset, 10_000).bytes_available
        found = [each.first_offset for each in read.aborted_transactions or ()]
        assert 0 < len(found) <= 3
        known.update(found)
        offset = batches_of(contents(read.records))[-1].next_offset
    assert (offset, known) == (20, set(range(0, 20, 2)))


def test_a_reader_gets_one_batch_although_very_many_aborted_transactions_reach_into_it() -> None:
    partition = leader()
    for producer_id in range(5):
        produce(partition, idempotent(0, producer_id=producer_id, is_transactional=True))
    produce(partition)
    for producer_id in range(5):
        produce(partition, marker(ControlType.ABORT, producer_id=producer_id), origin=AppendOrigin.COORDINATOR)
    read = partition.read(5, 10_000, read_committed=True, at_least_one_batch=True, aborted_max=3)
    assert len(read.aborted_transactions or ()) == 5 and len(batches_of(contents(read.records))) == 6
    # One that others in the same answer have left no room for comes with a later fetch.
    read = partition.read(5, 10_000, read_committed=True, aborted_max=3)
    assert (read.records, read.aborted_transactions) == (b"", []) and read.bytes_available > 0


def test_a_reader_passes_a_gap_before_which_very_many_transactions_were_aborted() -> None:
    partition = leader()
    for producer_id in range(5):
        produce(partition, idempotent(0, producer_id=producer_id, is_transactional=True))
    produce(partition)
    for producer_id in range(5):
        produce(partition, marker(ControlType.ABORT, producer_id=producer_id), origin=AppendOrigin.COORDINATOR)
    log = partition.log
    whole = log.read

    def compacted(offset: int, max_bytes: int, *, upper_bound: int, at_least_one_batch: bool = False) -> LogRead:
        """As if compaction had left nothing below offset 5."""
        if upper_bound <= 5:
            return LogRead(b"", offset)
        return whole(max(offset, 5), max_bytes, upper_bound=upper_bound, at_least_one_batch=at_least_one_batch)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(log), "read", lambda self, *args, **details: compacted(*args, **details))
        read = partition.read(0, 10_000, read_committed=True, at_least_one_batch=True, aborted_max=3)
    assert [each.base_offset for each in batches_of(contents(read.records))] == [5]
    assert [each.first_offset for each in read.aborted_transactions or ()] == [0, 1, 2, 3, 4]


def test_a_marker_is_checked_against_its_transaction_version() -> None:
    partition = leader()
    produce(partition, idempotent(0, is_transactional=True))
    arguments = {"origin": AppendOrigin.COORDINATOR, "transaction_version": MarkerVersion.TV_2}
    assert error_of(produce, partition, marker(), **arguments) == ErrorCode.INVALID_PRODUCER_EPOCH
    produce(partition, marker(epoch=1), **arguments)
    assert partition.last_stable_offset == 2


@pytest.mark.parametrize(
    ("offset", "epoch", "diverging"),
    [(2, 3, None), (0, 3, None), (4, 5, None), (3, 3, (3, 2)), (2, 4, (3, 2))],
)
def test_a_reader_that_has_seen_another_history_is_told_where_it_parts(
    offset: int, epoch: int, diverging: tuple[int, int] | None
) -> None:
    partition = leader()
    produce(partition)
    partition.make_leader(leader_epoch=5, partition_epoch=1, replicas=(LOCAL,), isr=(LOCAL,))
    produce(partition)
    read = partition.read(offset, 1000, last_fetched_epoch=epoch)
    assert read.diverging_epoch == diverging
    assert diverging is None or read.records == b""


def test_a_history_that_nobody_remembers_is_out_of_range() -> None:
    assert error_of(leader().read, 0, 10, last_fetched_epoch=9) == ErrorCode.OFFSET_OUT_OF_RANGE


# --- lookups ----------------------------------------------------------------------------------------------------------


def test_special_timestamps() -> None:
    partition = leader()
    produce(partition, batch(NOW_MS + 5, NOW_MS + 9, NOW_MS + 7))
    produce(partition, idempotent(0, is_transactional=True))
    partition.delete_records(1)
    assert partition.list_offset(-1) == (-1, 4, 3)
    assert partition.list_offset(-1, for_replica=True) == (-1, partition.log_end_offset, 3)
    assert partition.list_offset(-1, read_committed=True) == (-1, 3, 3)
    assert partition.list_offset(-2) == partition.list_offset(-4) == (-1, 1, 3)
    assert partition.list_offset(-3) == (NOW_MS + 9, 1, 3)
    assert partition.list_offset(-5) == partition.list_offset(-6) == NOT_FOUND
    assert error_of(partition.list_offset, -7) == ErrorCode.UNSUPPORTED_VERSION


def test_timestamps_are_looked_up_below_what_may_be_read() -> None:
    partition = leader()
    produce(partition, batch(NOW_MS + 1, NOW_MS + 2))
    produce(partition, idempotent(0, is_transactional=True))  # at NOW_MS
    produce(partition, batch(NOW_MS + 8))
    assert partition.list_offset(NOW_MS + 2) == (NOW_MS + 2, 1, 3)
    assert partition.list_offset(NOW_MS + 3) == (NOW_MS + 8, 3, 3)
    assert partition.list_offset(NOW_MS + 3, read_committed=True) == NOT_FOUND
    assert partition.list_offset(NOW_MS + 9) == NOT_FOUND


def test_a_new_leader_that_does_not_know_what_is_committed_says_so() -> None:
    log = new_log(min_insync_replicas=2)
    append(log, batch(NOW_MS))
    partition = Partition("topic", 0, log, local_id=LOCAL)
    partition.make_leader(leader_epoch=1, partition_epoch=1, replicas=(LOCAL, 2), isr=(LOCAL,))
    assert error_of(partition.list_offset, -1) == ErrorCode.OFFSET_NOT_AVAILABLE
    assert error_of(partition.list_offset, NOW_MS) == ErrorCode.OFFSET_NOT_AVAILABLE
    assert partition.list_offset(NOW_MS + 1) == NOT_FOUND
    assert partition.list_offset(-2).offset == 0


# --- deleting ---------------------------------------------------------------------------------------------------------


def test_records_are_deleted_up_to_the_high_watermark() -> None:
    partition = leader()
    produce(partition)
    produce(partition)
    assert partition.delete_records(3) == 3
    assert partition.delete_records(1) == 1
    assert partition.low_watermark(lambda broker: True) == 3
    assert partition.delete_records(-1) == 4
    assert (
        error_of(partition.delete_records, 5) == error_of(partition.delete_records, -2) == ErrorCode.OFFSET_OUT_OF_RANGE
    )


def test_records_of_a_compacted_topic_are_not_deleted() -> None:
    assert error_of(leader(cleanup_policy=("compact",)).delete_records, 0) == ErrorCode.POLICY_VIOLATION
    assert leader(cleanup_policy=("compact", "delete")).delete_records(0) == 0


def test_retention_moves_the_start_and_is_noticed() -> None:
    partition = leader(segment_bytes=400, retention_ms=1000)
    for _ in range(4):
        produce(partition, batch(NOW_MS, value=b"x" * 120))
    calls: list[int] = []
    partition.watchers.add(lambda: calls.append(partition.log_start_offset))
    assert partition.delete_old_segments(NOW_MS + 500) == 0
    assert partition.delete_old_segments(NOW_MS + 1001) == 2
    assert calls == [4]


def test_a_role_may_change_while_a_follower_still_lacks_the_batch_that_its_log_begins_in() -> None:
    partition = Partition("topic", 0, new_log(), local_id=LOCAL)
    partition.make_follower(leader_id=2, leader_epoch=1, partition_epoch=0, replicas=(LOCAL, 2))
    partition.restart_at(8, now_ms=NOW_MS)
    partition.log.truncate_fully_and_start_at(5, log_start_offset=8, now_ms=NOW_MS)  # and its append was refused
    assert partition.make_follower(leader_id=3, leader_epoch=2, partition_epoch=1, replicas=(LOCAL, 3))
    assert (partition.leader_epoch, partition.high_watermark, partition.log_end_offset) == (2, 8, 5)
