"""ShareFetch and ShareAcknowledge at a leader: what members get, what they wait for, what becomes of their sessions."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, cast

import pytest
import trio
import trio.testing

from ottla.groupcoord.share.coordinator.records import SharePartitionKey
from ottla.groupcoord.share.partition.acknowledging import ACCEPT, RELEASE, RENEW
from ottla.groupcoord.share.partition.acquiring import AcquireRequest, FetchedBatch
from ottla.groupcoord.share.partition.sessions import SESSION_PARTITIONS_MAX, SessionKey, TopicPartition
from ottla.groupcoord.share.partition.share_partition import SharePartition
from ottla.groupcoord.tests.steps import counted
from ottla.replication.log.batch_checks import AppendOrigin
from ottla.replication.log.storage import FileRegion, NotCached
from ottla.replication.log.tests.logs import NOW_MS, TOPIC_ID, batch, idempotent, marker
from ottla.replication.log.verification import NOT_REQUIRED
from ottla.server.api.handlers.share_fetch import FetchWork
from ottla.server.api.share import requests
from ottla.server.api.share.fetching import ShareFetching
from ottla.server.api.share.log_reading import ShareReader
from ottla.server.api.share.requests import BATCHES_PER_STEP, WhenReady
from ottla.server.api.share.share_partition_leader import WAITERS_AT_ONCE, SharePartitionLeader, locks_now_ms
from ottla.server.api.share.share_partition_manager import SHARES_AT_ONCE
from ottla.server.tests.share_market import EPOCH, Market, Member, acquired, told
from ottla.wire.answers import PendingAnswer
from ottla.wire.control_batches import ControlType
from ottla.wire.errors import ErrorCode
from ottla.wire.record_decoding import decode_records
from ottla.wire.records import iter_batches
from ottla.wire.tests.garbage import nothing_is_left_of

LOCK_S = 30


@pytest.fixture
async def market() -> AsyncIterator[Market]:
    async for market in in_market(1):
        yield market


async def finished(answer: Any) -> Any:
    if not isinstance(answer, PendingAnswer):
        return answer
    if not answer.is_ready:
        ready = trio.Event()
        answer.on_ready = ready.set
        await ready.wait()
    return answer.response()


def waiting(answer: Any) -> WhenReady[Any]:
    assert isinstance(answer, WhenReady) and not answer.is_ready
    return answer


def offsets(records: Any) -> list[int]:
    data = records.read() if isinstance(records, FileRegion) else bytes(records)
    return [record.offset for _, start, end in iter_batches(data) for record in decode_records(data[start:end])]


# ------------------------------------------------------------------ records


async def test_a_member_gets_the_batches_that_it_acquires_and_no_others(
    autojump_clock: trio.abc.Clock, market: Market
) -> None:
    market.produce(5, 5, 5)
    first = told(Member(market, "a").fetch(0, max_records=7))[0]
    assert [(each.first_offset, each.last_offset) for each in first.acquired_records] == [(0, 9)]
    assert offsets(first.records) == list(range(10))
    second = Member(market, "b").fetch(0)
    assert acquired(second) == [(10, 14, 1)]
    assert offsets(told(second)[0].records) == list(range(10, 15))
    assert second.acquisition_lock_timeout_ms == LOCK_S * 1000


async def test_groups_do_not_share_with_each_other(autojump_clock: trio.abc.Clock, market: Market) -> None:
    market.produce(5)
    assert acquired(Member(market, group="g").fetch(0)) == acquired(Member(market, group="h").fetch(0)) == [(0, 4, 1)]


async def test_a_record_limit_is_for_all_partitions_together(autojump_clock: trio.abc.Clock) -> None:
    market = Market(2)
    market.produce(5, 5, index=0)
    market.produce(5, 5, index=1)
    answer = Member(market).fetch(0, 1, max_records=7, share_acquire_mode=1)
    assert (acquired(answer, 0), acquired(answer, 1)) == ([(0, 6, 1)], [])
    answer = Member(market, "b").fetch(0, 1, max_records=7, share_acquire_mode=1)
    assert (acquired(answer, 0), acquired(answer, 1)) == ([(7, 9, 1)], [(0, 3, 1)])


async def test_each_partition_has_its_part_of_the_bytes(autojump_clock: trio.abc.Clock) -> None:
    market = Market(2)
    for index in (0, 1):
        market.produce(*[1] * 10, index=index)
    size = len(told(Member(market, "x", "h").fetch(0))[0].records) // 10
    answer = Member(market).fetch(0, 1, max_bytes=8 * size)
    assert (acquired(answer, 0), acquired(answer, 1)) == ([(0, 3, 1)], [(0, 3, 1)])


async def test_a_group_that_reads_committed_records_gets_nothing_else(
    autojump_clock: trio.abc.Clock, market: Market
) -> None:
    partition = market.partitions[0]
    market.produce(2)
    for kind in (ControlType.ABORT, ControlType.COMMIT):
        records = idempotent(0, 3, producer_id=10 + kind, is_transactional=True)
        partition.append_as_leader(records, required_acks=1, now_ms=NOW_MS, guard=NOT_REQUIRED)
    market.set(reads_committed=True)
    member = Member(market)
    assert acquired(member.fetch(0)) == [(0, 1, 1)]
    answer = waiting(member.fetch())
    for kind in (ControlType.ABORT, ControlType.COMMIT):
        partition.append_as_leader(
            marker(kind, producer_id=10 + kind), required_acks=1, now_ms=NOW_MS, origin=AppendOrigin.COORDINATOR
        )
    found = acquired(await finished(answer)) + acquired(await finished(member.fetch()))
    assert [offset for first, last, _ in found for offset in range(first, last + 1)] == [5, 6, 7, 8, 9]


async def test_the_log_drops_records_that_nobody_has_fetched(autojump_clock: trio.abc.Clock, market: Market) -> None:
    market.produce(5, 5, 5)
    member = Member(market)
    assert acquired(member.fetch(0, max_records=1)) == [(0, 4, 1)]
    market.partitions[0].delete_records(7)
    answer = member.fetch()
    assert acquired(answer) == [(7, 14, 1)]
    assert offsets(told(answer)[0].records) == list(range(5, 15))
    member.say((7, 14, ACCEPT))
    # What it holds of the records before may come to nothing, but only its lock says so.
    assert market.share().machine.start_offset == 7
    await trio.sleep(LOCK_S + 1)
    assert market.share().machine.start_offset == 15


async def test_a_hole_that_compaction_has_left_may_be_longer_than_there_are_locks(
    autojump_clock: trio.abc.Clock, market: Market
) -> None:
    far = 1_000_000
    market.partitions[0].log.append_as_follower(batch(NOW_MS, base_offset=far, leader_epoch=EPOCH), now_ms=NOW_MS)
    market.produce(1)
    member = Member(market)
    assert acquired(await finished(member.fetch(0))) == [(far, far, 1)]
    assert acquired(await finished(member.fetch())) == [(far + 1, far + 1, 1)]


# ------------------------------------------------------------------ waiting


async def test_a_fetch_waits_for_records(autojump_clock: trio.abc.Clock, market: Market) -> None:
    before = trio.current_time()
    answer = waiting(Member(market).fetch(0, max_wait_ms=60_000))
    market.produce(3)
    assert acquired(await finished(answer)) == [(0, 2, 1)]
    assert trio.current_time() - before < 1


async def test_of_many_that_wait_the_first_gets_the_records(autojump_clock: trio.abc.Clock, market: Market) -> None:
    answers = [waiting(Member(market, name).fetch(0)) for name in "abc"]
    market.produce(3)
    assert [answer.is_ready for answer in answers] == [True, False, False]
    market.produce(2)
    assert [answer.is_ready for answer in answers] == [True, True, False]
    assert [acquired(await finished(answer)) for answer in answers] == [[(0, 2, 1)], [(3, 4, 1)], []]


async def test_a_fetch_waits_for_what_others_hold(autojump_clock: trio.abc.Clock, market: Market) -> None:
    market.produce(3)
    holder = Member(market, "a")
    holder.fetch(0)
    answer = waiting(Member(market, "b").fetch(0, max_wait_ms=60_000))
    holder.say((1, 1, RELEASE))
    assert acquired(await finished(answer)) == [(1, 1, 2)]


async def test_a_lock_ends_and_another_gets_the_record(autojump_clock: trio.abc.Clock, market: Market) -> None:
    market.produce(3)
    before = trio.current_time()
    Member(market, "a").fetch(0)
    answer = await finished(Member(market, "b").fetch(0, max_wait_ms=90_000))
    assert acquired(answer) == [(0, 2, 2)]
    assert LOCK_S <= trio.current_time() - before < LOCK_S + 1


async def test_a_fetch_waits_for_as_many_bytes_as_it_asks_for(autojump_clock: trio.abc.Clock, market: Market) -> None:
    answer = waiting(Member(market).fetch(0, min_bytes=1000, max_wait_ms=60_000))
    market.produce(3)
    assert not answer.is_ready
    market.produce(100)
    assert acquired(await finished(answer)) == [(0, 102, 1)]


async def test_at_the_end_of_its_time_a_fetch_gets_what_there_is(
    autojump_clock: trio.abc.Clock, market: Market
) -> None:
    member = Member(market)
    answer = waiting(member.fetch(0, min_bytes=1000))
    market.produce(3)
    assert acquired(await finished(answer)) == [(0, 2, 1)]
    assert told(await finished(member.fetch())) == {}  # a session tells of news only


async def test_a_thread_reads_what_is_not_in_memory(market: Market, monkeypatch: pytest.MonkeyPatch) -> None:
    market.produce(3)
    segment_file = type(told(Member(market, "x", "h").fetch(0))[0].records.file)
    read_at = segment_file.read_at
    cold = [True]

    def read_slowly(self: Any, position: int, length: int) -> bytes:
        if cold and trio.lowlevel.in_trio_task():
            raise NotCached(self, position, length)
        cold.clear()
        return bytes(read_at(self, position, length))

    monkeypatch.setattr(segment_file, "read_at", read_slowly)
    assert acquired(await finished(waiting(Member(market).fetch(0, max_wait_ms=60_000)))) == [(0, 2, 1)]


async def test_news_that_come_while_many_have_their_turn_are_told_to_those_who_had_theirs(
    autojump_clock: trio.abc.Clock, market: Market
) -> None:
    wishes = {"max_wait_ms": 60_000, "min_bytes": 250}
    patient = [waiting(Member(market, f"p{number}").fetch(0, **wishes)) for number in range(WAITERS_AT_ONCE)]
    modest = waiting(Member(market, "m").fetch(0, max_wait_ms=60_000, max_records=1, share_acquire_mode=1))
    market.produce(1)  # not enough for the first ones, and the last one has its turn in a task
    market.produce(*[1] * 20)
    await trio.testing.wait_all_tasks_blocked()
    assert modest.is_ready and patient[0].is_ready
    assert acquired(modest.response()) == [(0, 0, 1)]
    assert not market.share().has_records()


# ------------------------------------------------------------------ what it costs


async def in_market(partitions: int) -> AsyncIterator[Market]:
    market = Market(partitions)
    async with trio.open_nursery() as nursery:
        await nursery.start(market.run)
        yield market
        nursery.cancel_scope.cancel()


@pytest.fixture
async def large() -> AsyncIterator[Market]:
    async for market in in_market(60):
        yield market


@pytest.mark.parametrize("wishes", [{"max_wait_ms": 0}, {"min_bytes": 0}])
async def test_a_fetch_that_does_not_wait_has_a_thread_read_for_the_next_one(
    large: Market, monkeypatch: pytest.MonkeyPatch, wishes: dict[str, int]
) -> None:
    for index in (0, 1):
        large.produce(3, index=index)
    is_warm = trio.Event()

    def cold_at_first(usual: Any) -> Any:
        def step(self: Any, partition: Any, *values: Any, **options: Any) -> Any:
            if partition is large.partitions[0] and not is_warm.is_set():
                cold = NotCached(cast(Any, None), 0, 1)
                monkeypatch.setattr(cold, "warm", lambda: trio.from_thread.run_sync(is_warm.set))
                raise cold
            return usual(self, partition, *values, **options)

        return step

    for name in ("available", "read"):
        monkeypatch.setattr(ShareReader, name, cold_at_first(getattr(ShareReader, name)))
    member = Member(large)
    first = member.fetch(0, 1, **wishes)
    # What is in memory is not held back by what is not.
    assert (acquired(first, 0), acquired(first, 1)) == ([], [(0, 2, 1)])
    with trio.fail_after(60):
        await is_warm.wait()
    second = await finished(member.fetch(0, 1, **wishes))
    assert acquired(second, 0) == [(0, 2, 1)]


async def test_news_of_one_partition_cost_one_look_however_many_are_waited_for(
    autojump_clock: trio.abc.Clock, large: Market
) -> None:
    waiting(Member(large).fetch(*range(60), max_wait_ms=60_000, min_bytes=1 << 20))
    for index in range(60):
        with counted((ShareReader, "available"), (ShareReader, "read")) as steps:
            large.produce(3, index=index)
        assert steps.all == {"available": 1}
    assert not large.share()._is_serving


async def test_a_fetch_reads_each_partition_once_and_gives_way_in_between(
    autojump_clock: trio.abc.Clock, large: Market, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ottla.server.api.share.fetching.COST_AT_ONCE", 10)
    monkeypatch.setattr("ottla.wire.time_slice.SLICE_S", 0)
    for index in range(60):
        large.produce(3, index=index)
    for wait_ms in (0, 60_000):
        await trio.lowlevel.checkpoint()
        group = "h" if wait_ms else "g"
        with counted((ShareReader, "available"), (ShareReader, "read"), (SharePartition, "acquire")) as steps:
            answer = told(await finished(waiting(Member(large, group=group).fetch(*range(60), max_wait_ms=wait_ms))))
        assert sum(bool(each.acquired_records) for each in answer.values()) > 30  # as many as may keep files open
        assert steps.all == {"available": 60, "read": 60, "acquire": 60}
        assert steps.most["available"] <= 11 and steps.most["read"] == steps.most["acquire"] == 1


async def test_what_comes_while_a_fetch_looks_at_many_partitions_is_not_missed(
    autojump_clock: trio.abc.Clock, large: Market, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ottla.server.api.share.fetching.COST_AT_ONCE", 10)
    for index in range(60):
        large.produce(1, index=index)
    answer = waiting(Member(large).fetch(*range(60), max_wait_ms=60_000, min_bytes=6000))
    large.produce(*[1] * 100, index=0)
    before = trio.current_time()
    assert len(acquired(await finished(answer))) > 0
    assert trio.current_time() - before < 1


async def test_a_deadline_that_passes_while_a_fetch_looks_at_many_partitions_ends_it_afterwards(
    autojump_clock: trio.abc.Clock, large: Market, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ottla.server.api.share.fetching.COST_AT_ONCE", 10)
    large.produce(1, index=50)
    answer = waiting(Member(large).fetch(*range(60), max_wait_ms=60_000, min_bytes=1 << 20))
    before = trio.current_time()
    assert acquired(await finished(answer), 50) == [(0, 0, 1)]
    assert 60 <= trio.current_time() - before < 61


@pytest.mark.parametrize("number", [-1, -(1 << 31)])
async def test_who_asks_for_fewer_records_than_none_waits_for_some_and_gets_none(
    autojump_clock: trio.abc.Clock, market: Market, number: int
) -> None:
    """A negative MaxRecords waits as in Kafka; 0 is answered at once, without partitions."""
    answer = waiting(Member(market).fetch(0, max_records=number, max_wait_ms=60_000))
    market.produce(3)
    first = await finished(answer)
    assert {index: each.error_code for index, each in told(first).items()} == {0: ErrorCode.NONE}
    assert acquired(first) == []
    member, before = Member(market, "b"), trio.current_time()
    late = await finished(waiting(member.fetch(0, max_records=number, max_wait_ms=60_000, min_bytes=1 << 20)))
    assert list(told(late)) == [0] and acquired(late) == []
    assert trio.current_time() - before >= 60
    assert told(Member(market, "c").fetch(0, max_records=0, max_wait_ms=60_000)) == {}
    assert acquired(member.fetch(0)) == [(0, 2, 1)]


async def test_an_append_lets_some_who_wait_try_and_a_task_the_others(
    autojump_clock: trio.abc.Clock, market: Market, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ottla.wire.time_slice.SLICE_S", 0)
    members = 10 * WAITERS_AT_ONCE
    answers = [
        waiting(Member(market, f"m{each}").fetch(0, max_wait_ms=60_000, min_bytes=500)) for each in range(members)
    ]
    await trio.lowlevel.checkpoint()
    with counted((ShareFetching, "try_now")) as steps:
        market.produce(3)
        assert steps.all["try_now"] == WAITERS_AT_ONCE
        await trio.testing.wait_all_tasks_blocked()
        assert steps.all["try_now"] == members and steps.most["try_now"] == WAITERS_AT_ONCE
        market.produce(1)
        market.produce(100)  # while the others have not had their turn
        await trio.testing.wait_all_tasks_blocked()
    assert [answer.is_ready for answer in answers].count(True) == 1


async def test_a_bug_in_a_task_of_a_fetch_ends_the_fetch(
    autojump_clock: trio.abc.Clock, large: Market, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("ottla.server.api.share.fetching.COST_AT_ONCE", 10)
    large.produce(1, index=50)
    with monkeypatch.context() as patch:
        patch.setattr(SharePartition, "acquire", lambda *_: 1 / 0)
        answer = told(await finished(waiting(Member(large).fetch(*range(60), max_wait_ms=60_000))))
    assert not any(each.acquired_records for each in answer.values())
    assert "bug: a share fetch" in caplog.text


async def test_nothing_is_left_of_a_fetch_that_has_waited(autojump_clock: trio.abc.Clock, market: Market) -> None:
    member = Member(market)
    member.fetch(0, max_wait_ms=0)
    for kind in (FetchWork, ShareFetching, WhenReady):
        with nothing_is_left_of(kind):
            answer = waiting(member.fetch())
            market.produce(1)
            answer.response()
            answer = waiting(member.fetch())
            answer.abandon()
            del answer
    assert not market.share()._waiters


# ------------------------------------------------------------------ acknowledging


async def test_records_are_acknowledged_with_the_next_fetch(autojump_clock: trio.abc.Clock, market: Market) -> None:
    market.produce(3, 3)
    member = Member(market)
    assert acquired(member.fetch(0, max_records=1)) == [(0, 2, 1)]
    answer = member.fetch(said={0: [(0, 2, ACCEPT)]})
    assert acquired(answer) == [(3, 5, 1)]
    assert told(answer)[0].acknowledge_error_code == ErrorCode.NONE
    assert market.share().machine.start_offset == 3
    answer = await finished(member.fetch(said={0: [(0, 9, ACCEPT)]}))
    assert told(answer)[0].acknowledge_error_code == ErrorCode.INVALID_REQUEST


async def test_an_answer_waits_until_its_acknowledgements_are_stored(
    autojump_clock: trio.abc.Clock, market: Market
) -> None:
    market.produce(3, 3)
    member = Member(market)
    member.fetch(0, max_records=1)
    market.coordinator.is_slow = True
    both = waiting(member.fetch(said={0: [(0, 0, ACCEPT)]}))
    alone = waiting(member.say((1, 1, ACCEPT)))
    market.coordinator.answer()
    assert both.is_ready and not alone.is_ready
    market.coordinator.answer()
    assert alone.is_ready
    assert told(alone.response())[0].error_code == ErrorCode.NONE
    assert market.share().machine.start_offset == 2


async def test_what_cannot_be_stored_is_refused(autojump_clock: trio.abc.Clock, market: Market) -> None:
    market.produce(3)
    member = Member(market)
    member.fetch(0)
    market.coordinator.error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert told(member.say((0, 2, ACCEPT)))[0].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    market.coordinator.error = ErrorCode.NONE
    assert told(member.say((0, 2, ACCEPT)))[0].error_code == ErrorCode.NONE


async def test_a_leader_that_is_fenced_begins_anew(autojump_clock: trio.abc.Clock, market: Market) -> None:
    market.produce(3)
    member = Member(market)
    member.fetch(0)
    market.coordinator.error = ErrorCode.FENCED_LEADER_EPOCH
    data = told(member.say((0, 2, ACCEPT)))[0]
    assert data.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (data.current_leader.leader_id, data.current_leader.leader_epoch) == (1, EPOCH)
    assert market.share() is None
    assert told(member.say((0, 2, ACCEPT)))[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    market.coordinator.error = ErrorCode.NONE
    assert acquired(member.fetch()) == [(0, 2, 1)]


async def test_very_many_acknowledgements_are_looked_at_some_at_a_time(
    autojump_clock: trio.abc.Clock, market: Market, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ottla.wire.time_slice.SLICE_S", 0)
    market.produce(2000)
    member = Member(market)
    member.fetch(0, max_records=2000)
    with counted((requests, "AcknowledgementBatch")) as steps:
        answer = await member.say(*[(offset, offset, 1 + offset % 3) for offset in range(2000)])
    assert told(await finished(answer))[0].error_code == ErrorCode.NONE
    assert steps.all == {"AcknowledgementBatch": 2000}
    assert steps.most["AcknowledgementBatch"] == BATCHES_PER_STEP


@pytest.mark.parametrize(
    "said",
    [
        [(1, 0, ACCEPT)],
        [(2, 2, ACCEPT), (0, 0, ACCEPT)],
        [(0, 0, [])],
        [(0, 2, [ACCEPT, ACCEPT])],
        [(0, 0, 5)],
        [(0, 0, -1)],
        [(0, 0, RENEW)],
    ],
)
async def test_acknowledgements_that_make_no_sense_are_refused(
    autojump_clock: trio.abc.Clock, market: Market, said: list[Any]
) -> None:
    market.produce(3)
    member = Member(market)
    member.fetch(0)
    assert told(member.say(*said))[0].error_code == ErrorCode.INVALID_REQUEST
    assert told(await finished(member.fetch(said={0: said})))[0].acknowledge_error_code == ErrorCode.INVALID_REQUEST


async def test_locks_are_renewed_by_requests_that_say_so(autojump_clock: trio.abc.Clock, market: Market) -> None:
    market.produce(3)
    member = Member(market)
    member.fetch(0)
    await trio.sleep(LOCK_S - 1)
    asks_for_nothing = {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": 0, "max_records": 0}
    refused = member.fetch(said={0: [(0, 1, RENEW)]}, is_renew_ack=True, epoch=1)
    assert refused.error_code == ErrorCode.INVALID_REQUEST
    answer = member.fetch(said={0: [(0, 1, RENEW)]}, is_renew_ack=True, **asks_for_nothing)
    assert told(answer)[0].acknowledge_error_code == ErrorCode.NONE
    other = await finished(Member(market, "b").fetch(0, max_wait_ms=10_000))
    assert acquired(other) == [(2, 2, 2)]
    assert told(member.say((0, 1, RENEW), is_renew_ack=True))[0].error_code == ErrorCode.NONE
    member.context.api_version = 1
    assert told(member.say((0, 1, RENEW)))[0].error_code == ErrorCode.INVALID_REQUEST


# ------------------------------------------------------------------ sessions


async def test_only_members_with_a_session_are_served(autojump_clock: trio.abc.Clock, market: Market) -> None:
    market.produce(3)
    member = Member(market)
    assert member.fetch(0, epoch=1).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
    assert member.fetch(epoch=-1).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
    assert member.say((0, 0, ACCEPT), epoch=1).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
    assert member.say((0, 0, ACCEPT), epoch=0).error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert member.fetch(said={0: [(0, 0, ACCEPT)]}, epoch=0).error_code == ErrorCode.INVALID_REQUEST
    member.fetch(0)
    assert member.fetch(epoch=2).error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert member.say((0, 0, ACCEPT), epoch=2).error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH
    for name in ("", "a" * 37):
        assert Member(market, name).fetch(0).error_code == ErrorCode.INVALID_REQUEST


async def test_a_session_ends_and_what_its_member_holds_is_free(autojump_clock: trio.abc.Clock, market: Market) -> None:
    market.produce(4)
    member = Member(market)
    member.fetch(0)
    answer = waiting(Member(market, "b").fetch(0, max_wait_ms=60_000))
    last = member.fetch(said={0: [(0, 1, ACCEPT)]}, epoch=-1)
    assert told(last)[0].acknowledge_error_code == ErrorCode.NONE
    assert acquired(await finished(answer)) == [(2, 3, 2)]
    assert member.fetch().error_code == ErrorCode.SHARE_SESSION_NOT_FOUND


async def test_a_connection_is_closed_and_what_its_member_holds_is_free(
    autojump_clock: trio.abc.Clock, market: Market
) -> None:
    market.produce(4)
    member = Member(market)
    member.fetch(0)
    member.context.close()
    assert market.share() is None, "nobody of the group is left"
    assert acquired(Member(market, "b").fetch(0)) == [(0, 3, 2)]


@pytest.mark.parametrize("is_first", [True, False])
@pytest.mark.parametrize("ends", ["goes", "begins anew", "goes on"])
async def test_a_fetch_that_waits_acquires_nothing_once_its_session_has_ended(
    autojump_clock: trio.abc.Clock, market: Market, *, is_first: bool, ends: str
) -> None:
    other = Member(market, "b")
    await finished(other.fetch(0, max_wait_ms=0))  # so that the share partition stays
    member, elsewhere = Member(market), Member(market)
    if not is_first:
        await finished(member.fetch(0, max_wait_ms=0))
    answer = waiting(member.fetch(*[0] * is_first, max_wait_ms=60_000))
    if ends == "goes":
        elsewhere.fetch(epoch=-1)
    elif ends == "begins anew":
        elsewhere.fetch(0, max_wait_ms=0)
    elif is_first:
        return  # its answer is given all the same
    else:
        elsewhere.fetch(epoch=2, max_wait_ms=0)
    market.produce(4)
    market.share().after()
    response = await finished(answer)
    assert response.error_code != ErrorCode.NONE or acquired(response) == []
    assert acquired(Member(market, "c").fetch(0, max_wait_ms=0)) == [(0, 3, 1)], "free, and never delivered"


async def test_a_member_that_begins_its_session_anew_keeps_what_it_holds(
    autojump_clock: trio.abc.Clock, market: Market
) -> None:
    market.produce(4, 4)
    member = Member(market)
    member.fetch(0, max_records=1)
    again = Member(market)  # on another connection
    assert acquired(again.fetch(0, max_records=1)) == [(4, 7, 1)]
    member.context.close()
    assert told(again.say((0, 7, ACCEPT)))[0].error_code == ErrorCode.NONE


async def test_too_many_sessions_are_refused_at_the_end_of_the_wait(autojump_clock: trio.abc.Clock) -> None:
    market = Market(group_share_max_share_sessions=1)
    async with trio.open_nursery() as nursery:
        await nursery.start(market.run)
        market.produce(1)
        Member(market, "a").fetch(0)
        answer = Member(market, "b").fetch(0, max_wait_ms=5_000)
        assert (await finished(answer)).error_code == ErrorCode.SHARE_SESSION_LIMIT_REACHED
        assert trio.current_time() >= 5
        nursery.cancel_scope.cancel()


async def test_nobody_looks_at_more_partitions_than_a_session_may_have(
    autojump_clock: trio.abc.Clock, market: Market, monkeypatch: pytest.MonkeyPatch
) -> None:
    market.produce(1)
    member = Member(market)
    member.fetch(0)
    too_many = range(SESSION_PARTITIONS_MAX + 1)
    with monkeypatch.context() as patch:
        patch.setattr(TopicPartition, "__new__", lambda *_: 1 / 0)
        answer = member.fetch(*too_many, epoch=0, max_wait_ms=0)
        assert member.fetch(*too_many, epoch=1).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
        assert member.fetch(forgotten=too_many, epoch=1).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
    assert (await finished(answer)).error_code == ErrorCode.SHARE_SESSION_LIMIT_REACHED
    assert market.share() is None, "nobody of the group is left"


async def test_a_session_tells_of_unknown_partitions_and_topics(autojump_clock: trio.abc.Clock, market: Market) -> None:
    market.produce(1)
    member = Member(market)
    answer = member.fetch(0, 7)
    assert {index: data.error_code for index, data in told(answer).items()} == {
        0: ErrorCode.NONE,
        7: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert told(await finished(member.fetch(forgotten=[7], max_wait_ms=0))) == {}
    answer = Member(market, "b").fetch(0, topic_id=b"?" * 16)
    assert told(answer)[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


async def test_a_session_that_began_before_its_topic_was_known_goes_on_when_it_is(
    autojump_clock: trio.abc.Clock, market: Market
) -> None:
    market.produce(1)
    known = market.cluster.topics["t"]
    market.cluster.remove_topic("t")
    member = Member(market)
    assert told(member.fetch(0))[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
    market.cluster.put_topic(known)
    assert acquired(await finished(member.fetch())) == [(0, 0, 1)]


# ------------------------------------------------------------------ leaders


async def test_a_fetch_hears_at_once_that_another_broker_leads(autojump_clock: trio.abc.Clock, market: Market) -> None:
    answer = waiting(Member(market).fetch(0, max_wait_ms=60_000))
    market.partitions[0].make_follower(leader_id=2, leader_epoch=EPOCH + 1, partition_epoch=1, replicas=(1, 2))
    response = await finished(answer)
    data = told(response)[0]
    assert data.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (data.current_leader.leader_id, data.current_leader.leader_epoch) == (2, EPOCH + 1)
    assert [(each.node_id, each.host, each.port) for each in response.node_endpoints] == [(2, "host2", 9092)]
    assert market.share() is None
    answer = Member(market).fetch(0)
    assert told(answer)[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_a_share_partition_that_cannot_be_loaded_is_an_error_at_the_end_of_the_wait(
    autojump_clock: trio.abc.Clock, market: Market
) -> None:
    market.coordinator.is_slow = True
    market.coordinator.error = ErrorCode.GROUP_ID_NOT_FOUND
    before = trio.current_time()
    answer = waiting(Member(market).fetch(0, max_wait_ms=1_000))
    market.coordinator.answer()
    assert told(await finished(answer))[0].error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert trio.current_time() - before >= 1
    assert market.share() is None


async def test_a_fetch_waits_until_the_share_partition_is_loaded(
    autojump_clock: trio.abc.Clock, market: Market
) -> None:
    market.produce(2)
    market.coordinator.is_slow = True
    answer = waiting(Member(market).fetch(0))
    market.coordinator.answer()
    assert acquired(await finished(answer)) == [(0, 1, 1)]


async def test_a_group_without_state_begins_where_it_asks_to(autojump_clock: trio.abc.Clock, market: Market) -> None:
    market.produce(3)
    market.coordinator.stored.clear()
    member = Member(market)
    assert acquired(await finished(member.fetch(0, max_wait_ms=10))) == []
    market.produce(1)
    assert acquired(member.fetch()) == [(3, 3, 1)]
    market.set("e", auto_offset_reset="earliest")
    assert acquired(Member(market, group="e").fetch(0)) == [(0, 3, 1)]
    # All records are of the beginning of time.
    market.set("d", auto_offset_reset="by_duration:PT1S")
    answer = await finished(Member(market, group="d").fetch(0))
    assert told(answer)[0].error_code == ErrorCode.OFFSET_NOT_AVAILABLE
    market.partitions[0].append_as_leader(batch(NOW_MS), required_acks=1, now_ms=NOW_MS)
    assert acquired(await finished(Member(market, group="d").fetch(0))) == [(4, 4, 1)]


async def test_topics_of_others_are_unknown_by_their_former_id(autojump_clock: trio.abc.Clock, market: Market) -> None:
    market.partitions[0].log.topic_id = TOPIC_ID
    assert told(Member(market).fetch(0, topic_id=TOPIC_ID[::-1]))[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


async def test_a_bug_ends_one_share_partition_and_no_append(
    autojump_clock: trio.abc.Clock, market: Market, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    answer = waiting(Member(market).fetch(0, max_wait_ms=60_000))
    with monkeypatch.context() as patch:
        patch.setattr(SharePartition, "acquire", lambda *_: 1 / 0)
        market.produce(3)
    assert told(await finished(answer))[0].error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert "bug: the share partition" in caplog.text
    assert acquired(Member(market).fetch(0)) == [(0, 2, 1)]


async def test_what_a_member_held_in_many_partitions_is_given_up_in_slices() -> None:
    market = Market(3 * SHARES_AT_ONCE)
    async with trio.open_nursery() as nursery:
        await nursery.start(market.run)
        member = Member(market)
        indexes = range(len(market.partitions))
        for index in indexes:
            market.produce(1, index=index)
            held = market.share_groups.lead(SharePartitionKey("g", TOPIC_ID, index), "t")
            held.machine.acquire(AcquireRequest("a", 1, 1), 0, [FetchedBatch(0, 0)], locks_now_ms())
        market.share_groups.sessions.begin(
            SessionKey("g", "a", member.context.principal),
            [TopicPartition("t", TOPIC_ID, index) for index in indexes],
            member.context,
        )
        market.share_groups.sessions.begin(SessionKey("g", "b", "User:b"), [], object())
        member.context.on_close(market.share_groups.sessions.disconnect)
        with counted((SharePartitionLeader, "after")) as steps:
            member.context.close()
            assert steps.most["after"] <= SHARES_AT_ONCE
            await trio.testing.wait_all_tasks_blocked()
        assert steps.all["after"] >= len(indexes)
        assert all(market.share(index).machine.next_fetch_offset() == 0 for index in indexes)
        market.share_groups.sessions.end(SessionKey("g", "b", "User:b"))
        await trio.testing.wait_all_tasks_blocked()
        assert not any(map(market.share, indexes)), "nobody of the group is left"
        nursery.cancel_scope.cancel()
