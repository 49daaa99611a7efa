"""Who is in sync, and what that does to the high watermark: joining, leaving, proposals on their way."""

from __future__ import annotations

import pytest

from ottla.replication.log.tests.logs import NOW_MS, batch, new_log
from ottla.replication.partition.followers import INELIGIBLE_MS, Followers
from ottla.replication.partition.partition import Partition
from ottla.wire.errors import ErrorCode, KafkaError

LEADER, A, B = 1, 2, 3
LAG_MS = 1_000


def leader(isr: tuple[int, ...] = (LEADER, A), **config: int) -> Partition:
    """A partition that broker 1 leads in epoch 5, with two followers and two records."""
    partition = Partition("topic", 0, new_log(**config), local_id=LEADER, lag_ms=LAG_MS, is_eligible=is_eligible)
    replicas = (LEADER, A, B)
    partition.make_leader(leader_epoch=5, partition_epoch=0, replicas=replicas, isr=isr, now_ms=NOW_MS)
    produce(partition)
    produce(partition)
    return partition


def is_eligible(broker: int, broker_epoch: int) -> bool:
    return broker_epoch != STALE_EPOCH


STALE_EPOCH = 3


def produce(partition: Partition, acks: int = -1) -> int:
    """One record; the offset after it."""
    return partition.append_as_leader(batch(NOW_MS), required_acks=acks, now_ms=NOW_MS).last_offset + 1


def fetch(partition: Partition, broker: int, offset: int, *, after_ms: int = 0, broker_epoch: int = 7) -> None:
    partition.on_follower_fetch(broker, offset, 0, broker_epoch=broker_epoch, now_ms=NOW_MS + after_ms)


def followers(partition: Partition) -> Followers:
    assert partition.followers is not None
    return partition.followers


def test_the_high_watermark_waits_for_everybody_in_sync() -> None:
    partition = leader()
    assert partition.high_watermark == 0
    assert partition.acknowledgement(2, -1) is None
    assert partition.acknowledgement(2, 1) is ErrorCode.NONE
    fetch(partition, A, 1)
    assert partition.high_watermark == 1
    fetch(partition, A, 2)
    assert partition.high_watermark == 2
    assert partition.acknowledgement(2, -1) is ErrorCode.NONE


def test_a_late_fetch_of_an_earlier_incarnation_says_nothing() -> None:
    partition = leader()
    fetch(partition, A, 0, broker_epoch=9)  # it came back, and without its log
    fetch(partition, A, 2, broker_epoch=7)
    assert (partition.high_watermark, followers(partition).broker_epoch(A)) == (0, 9)
    fetch(partition, B, 0, broker_epoch=9)
    fetch(partition, B, 2, broker_epoch=7)
    assert partition.joining_isr(B) == (LEADER, A, B)  # 0 is not below the high watermark
    assert followers(partition).broker_epoch(B) == 9
    fetch(partition, A, 2, broker_epoch=-1)  # who does not say is believed
    assert partition.high_watermark == 2


def test_a_follower_out_of_sync_holds_nothing_back_unless_it_is_about_to_join() -> None:
    partition = leader()
    fetch(partition, B, 0)  # behind, and never caught up
    fetch(partition, A, 2)
    assert partition.high_watermark == 2
    fetch(partition, B, 2)  # caught up from now on, so the watermark waits for it although it is not in the ISR yet
    produce(partition)
    fetch(partition, A, 3)
    assert partition.high_watermark == 2
    fetch(partition, B, 3)
    assert partition.high_watermark == 3


def test_nobody_waits_for_one_that_may_not_join() -> None:
    partition = leader()
    fetch(partition, B, 2, broker_epoch=STALE_EPOCH)
    produce(partition)
    fetch(partition, A, 3)
    assert partition.high_watermark == 3
    assert partition.joining_isr(B) is None


def test_a_follower_joins_once_it_reached_the_high_watermark_and_the_epoch() -> None:
    partition = leader()
    fetch(partition, A, 2)
    fetch(partition, B, 1)
    assert partition.joining_isr(B) is None
    fetch(partition, B, 2)
    assert partition.joining_isr(B) == (LEADER, A, B)
    assert partition.joining_isr(A) is None
    partition.make_leader(leader_epoch=6, partition_epoch=1, replicas=(LEADER, A, B), isr=(LEADER, A), now_ms=NOW_MS)
    produce(partition)
    fetch(partition, B, 1)
    assert partition.joining_isr(B) is None  # its log may end within an older epoch


def test_a_proposed_member_counts_before_the_controller_has_answered() -> None:
    partition = leader()
    fetch(partition, A, 2)
    fetch(partition, B, 2)
    followers(partition).propose((LEADER, A, B))
    assert followers(partition).maximal_isr == (LEADER, A, B)
    assert partition.isr == (LEADER, A)
    fetch(partition, B, 2, broker_epoch=STALE_EPOCH)
    produce(partition)
    fetch(partition, A, 3)
    assert partition.high_watermark == 2
    assert partition.settle_isr((LEADER, A, B), leader_epoch=5, partition_epoch=1)
    assert partition.isr == (LEADER, A, B) == followers(partition).maximal_isr
    assert partition.high_watermark == 2
    fetch(partition, B, 3)
    assert partition.high_watermark == 3


def test_who_leaves_counts_until_the_controller_has_agreed() -> None:
    partition = leader()
    isr = partition.shrunk_isr(NOW_MS + LAG_MS)
    assert isr is None
    isr = partition.shrunk_isr(NOW_MS + LAG_MS + 1)
    assert isr == (LEADER,)
    followers(partition).propose(isr)
    assert followers(partition).maximal_isr == (LEADER, A)
    assert partition.shrunk_isr(NOW_MS + LAG_MS + 1) is None  # one proposal at a time
    produce(partition)
    assert partition.high_watermark == 0
    assert partition.settle_isr(isr, leader_epoch=5, partition_epoch=1)
    assert partition.high_watermark == 3


def test_a_refused_proposal_leaves_everything_as_it_was() -> None:
    partition = leader()
    fetch(partition, A, 2)
    fetch(partition, B, 2)
    followers(partition).propose((LEADER, A, B))
    followers(partition).withdraw()
    assert followers(partition).maximal_isr == (LEADER, A)
    assert partition.joining_isr(B) == (LEADER, A, B)


def test_nobody_waits_for_one_whom_the_controller_does_not_let_join() -> None:
    partition = leader()
    fetch(partition, A, 2)
    fetch(partition, B, 2)
    followers(partition).propose((LEADER, A, B))
    produce(partition)
    fetch(partition, A, 3)
    assert partition.high_watermark == 2
    followers(partition).withdraw(are_ineligible=True)
    partition.reconsider()
    assert partition.high_watermark == 3
    fetch(partition, B, 3)
    assert partition.joining_isr(B) is None
    fetch(partition, B, 3, after_ms=INELIGIBLE_MS)
    assert partition.joining_isr(B) == (LEADER, A, B)


def test_a_new_life_of_a_broker_may_join_at_once() -> None:
    partition = leader()
    fetch(partition, B, 2)
    followers(partition).propose((LEADER, A, B))
    followers(partition).withdraw(are_ineligible=True)
    fetch(partition, B, 2, broker_epoch=8)
    assert partition.joining_isr(B) == (LEADER, A, B)


def test_what_waits_only_for_one_that_is_gone_is_committed() -> None:
    gone: set[int] = set()
    partition = leader()
    followers(partition)._is_eligible = lambda broker, broker_epoch: broker not in gone
    fetch(partition, A, 2)
    fetch(partition, B, 2)
    produce(partition)
    fetch(partition, A, 3)
    assert partition.high_watermark == 2, "B is about to join"
    gone.add(B)
    partition.reconsider()
    assert partition.high_watermark == 3


def test_one_that_was_about_to_join_is_waited_for_no_longer_than_a_laggard() -> None:
    partition = leader()
    fetch(partition, A, 2)
    fetch(partition, B, 2)
    produce(partition)
    fetch(partition, A, 3)
    assert partition.shrunk_isr(NOW_MS + LAG_MS + 1) is None
    partition.reconsider()
    assert partition.high_watermark == 3


@pytest.mark.parametrize(("leader_epoch", "partition_epoch"), [(4, 9), (6, 9), (5, -1)])
def test_an_answer_to_another_leader_is_ignored(leader_epoch: int, partition_epoch: int) -> None:
    partition = leader()
    assert not partition.settle_isr((LEADER,), leader_epoch=leader_epoch, partition_epoch=partition_epoch)
    assert partition.isr == (LEADER, A)


def test_a_new_decision_of_the_controller_ends_a_proposal() -> None:
    partition = leader()
    followers(partition).propose((LEADER,))
    partition.make_leader(leader_epoch=5, partition_epoch=1, replicas=(LEADER, A, B), isr=(LEADER, A), now_ms=NOW_MS)
    assert followers(partition).proposed is None


def test_one_that_keeps_pace_with_steady_traffic_stays_in_sync() -> None:
    partition = leader()
    for step in range(1, 10):
        fetch(partition, A, step, after_ms=step * LAG_MS // 2)  # always what was the end at its fetch before
        produce(partition)
    assert partition.shrunk_isr(NOW_MS + 5 * LAG_MS) is None
    assert partition.shrunk_isr(NOW_MS + 6 * LAG_MS) == (LEADER,)


def test_one_that_holds_the_whole_log_is_in_sync_however_long_ago_it_fetched() -> None:
    partition = leader()
    fetch(partition, A, 2)
    assert partition.shrunk_isr(NOW_MS + 100 * LAG_MS) is None


def test_a_reelected_leader_gives_its_followers_time_and_remembers_them() -> None:
    partition = leader()
    fetch(partition, A, 2)
    later = NOW_MS + 10 * LAG_MS
    partition.make_leader(leader_epoch=6, partition_epoch=1, replicas=(LEADER, A, B), isr=(LEADER, A), now_ms=later)
    produce(partition)
    assert partition.high_watermark == 2
    assert partition.shrunk_isr(later + LAG_MS) is None
    assert partition.shrunk_isr(later + LAG_MS + 1) == (LEADER,)


def test_a_new_leader_counts_on_nobody_it_has_not_heard() -> None:
    partition = leader()
    fetch(partition, A, 2)
    partition.make_follower(leader_id=A, leader_epoch=6, partition_epoch=1, replicas=(LEADER, A, B))
    assert partition.followers is None
    partition.make_leader(leader_epoch=7, partition_epoch=2, replicas=(LEADER, A, B), isr=(LEADER, A), now_ms=NOW_MS)
    produce(partition)
    assert partition.high_watermark == 2
    assert followers(partition).by_id[A].log_end_offset == -1


def test_below_min_isr_nothing_is_committed_until_enough_have_joined() -> None:
    partition = leader(isr=(LEADER,), min_insync_replicas=1)
    assert partition.high_watermark == 2
    partition = Partition("topic", 0, new_log(min_insync_replicas=2), local_id=LEADER, lag_ms=LAG_MS)
    partition.make_leader(leader_epoch=5, partition_epoch=0, replicas=(LEADER, A), isr=(LEADER,), now_ms=NOW_MS)
    produce(partition, acks=1)
    with pytest.raises(KafkaError) as refused:
        produce(partition)
    assert refused.value.code is ErrorCode.NOT_ENOUGH_REPLICAS
    fetch(partition, A, 1)
    assert partition.high_watermark == 0
    isr = partition.joining_isr(A)
    assert isr == (LEADER, A)
    followers(partition).propose(isr)
    partition.settle_isr(isr, leader_epoch=5, partition_epoch=1)
    assert partition.high_watermark == 1


def test_only_replicas_follow() -> None:
    partition = leader()
    with pytest.raises(KafkaError) as refused:
        fetch(partition, 9, 0)
    assert refused.value.code is ErrorCode.UNKNOWN_LEADER_EPOCH
    partition.make_follower(leader_id=A, leader_epoch=6, partition_epoch=1, replicas=(LEADER, A, B))
    with pytest.raises(KafkaError) as refused:
        fetch(partition, A, 0)
    assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_records_are_deleted_everywhere_once_all_live_replicas_say_so() -> None:
    partition = leader()
    fetch(partition, A, 2)
    partition.delete_records(2)
    everywhere = followers(partition).common_start(partition.log_start_offset, lambda broker: broker != B)
    assert everywhere == 0
    partition.on_follower_fetch(A, 2, 2, now_ms=NOW_MS)
    assert followers(partition).common_start(2, lambda broker: broker != B) == 2
    assert followers(partition).common_start(2, lambda broker: True) == -1
