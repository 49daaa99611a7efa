"""A replica by itself: what it takes over from a leader, what it drops, and who hears of that."""

from ottla.replication.log.partition_log import PartitionLog
from ottla.replication.log.tests.logs import NOW_MS, append, batch, new_log
from ottla.replication.partition.local_replica import LocalReplica


def replica(log: PartitionLog | None = None, *, high_watermark: int = 0) -> LocalReplica:
    return LocalReplica("topic", 0, new_log() if log is None else log, high_watermark=high_watermark)


def follow(replica: LocalReplica, base_offset: int, count: int, *, committed: int = 0, start: int = 0) -> None:
    """Append a batch as the leader sends it."""
    replica.append_as_follower(
        batch(*[NOW_MS] * count, base_offset=base_offset, leader_epoch=replica.leader_epoch),
        leader_high_watermark=committed,
        leader_log_start_offset=start,
        now_ms=NOW_MS,
    )


def test_the_high_watermark_of_the_checkpoint_is_kept_within_the_log() -> None:
    log = new_log()
    append(log, batch(1, 2, 3))
    log.increase_log_start_offset(1)
    assert [replica(log, high_watermark=each).high_watermark for each in (0, 2, 9)] == [1, 2, 3]


def test_what_the_leader_says_counts_as_far_as_the_log_goes() -> None:
    behind = replica()
    follow(behind, 0, 2, committed=9, start=7)
    assert (behind.log_start_offset, behind.high_watermark, behind.log_end_offset) == (2, 2, 2)
    follow(behind, 2, 3, committed=4)
    assert (behind.log_start_offset, behind.high_watermark, behind.log_end_offset) == (2, 4, 5)
    behind.take_over(3, 0)  # an older answer takes nothing back
    assert (behind.log_start_offset, behind.high_watermark, behind.log_end_offset) == (2, 4, 5)


def test_a_cut_takes_the_high_watermark_along_only_where_its_records_go() -> None:
    parted = replica()
    follow(parted, 0, 2)
    follow(parted, 2, 2, committed=2)
    parted.truncate_to(2, now_ms=NOW_MS)
    assert (parted.high_watermark, parted.log_end_offset) == (2, 2)
    parted.truncate_to(0, now_ms=NOW_MS)
    assert (parted.high_watermark, parted.log_end_offset) == (0, 0)
    parted.restart_at(8, now_ms=NOW_MS)
    assert (parted.log_start_offset, parted.high_watermark, parted.log_end_offset) == (8, 8, 8)


def test_a_log_that_begins_in_the_middle_of_a_batch_gets_the_whole_batch() -> None:
    emptied = replica()
    emptied.restart_at(3, now_ms=NOW_MS)
    follow(emptied, 0, 5, committed=5, start=3)
    assert (emptied.log_start_offset, emptied.high_watermark, emptied.log_end_offset) == (3, 5, 5)
    assert emptied.log.segments[0].base_offset == 0


def test_watchers_hear_of_all_that_a_follower_does() -> None:
    watched = replica()
    calls: list[tuple[int, int]] = []
    watched.watchers.add(lambda: calls.append((watched.high_watermark, watched.log_end_offset)))
    follow(watched, 0, 2)
    follow(watched, 2, 2)
    watched.take_over(4, 0)
    watched.truncate_to(2, now_ms=NOW_MS)
    watched.truncate_to(2, now_ms=NOW_MS)  # there is nothing to drop any more
    watched.restart_at(7, now_ms=NOW_MS)
    assert calls == [(0, 2), (0, 4), (4, 4), (2, 2), (7, 7)]
