"""Appending, waiting, loading and unloading, on virtual time."""

import logging
import time
from collections.abc import AsyncGenerator, Callable
from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest
import trio
import trio.lowlevel
import trio.testing

from ottla.groupcoord.classic.members import GroupMetadataRecord
from ottla.groupcoord.classic.rebalancing import ClassicGroup
from ottla.groupcoord.consumer.rebalancing import Rebalancing
from ottla.groupcoord.effects import TIMERS_PER_CALL
from ottla.groupcoord.java_hashing import absolute_string_hash
from ottla.groupcoord.offsets.manager import OffsetMetadataManager
from ottla.groupcoord.offsets.table import OffsetRecord
from ottla.groupcoord.runtime import loading
from ottla.groupcoord.runtime.answers import Caller, PendingReply, finished
from ottla.groupcoord.runtime.coordinator_runtime import FENCED_LOOK_S
from ottla.groupcoord.runtime.partition_runtime import LOAD_RETRY_MAX_S, PartitionRuntime
from ottla.groupcoord.shard import Shard
from ottla.groupcoord.tests.conversation import offset_record
from ottla.groupcoord.tests.fakes import FORMATS, PARTITION_COUNT, Coordination, FakeTopics
from ottla.groupcoord.tests.steps import counted
from ottla.wire import time_slice
from ottla.wire.control_batches import ControlType, EndTxnMarker, encode_end_txn_marker
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.messages.classic_group import HeartbeatRequest
from ottla.wire.messages.consumer_group import ConsumerGroupHeartbeatRequest
from ottla.wire.messages.groups import DeleteGroupsRequest, DescribeGroupsRequest
from ottla.wire.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
)
from ottla.wire.record_encoding import encode_batch
from ottla.wire.records import Record
from ottla.wire.tests.garbage import nothing_is_left_of
from ottla.wire.tests.turns import counted_turns
from ottla.wire.time_slice import SLICE_S

GROUP_PARTITION = absolute_string_hash("group") % PARTITION_COUNT


def committed(talk: Coordination, group: str = "group", *, require_stable: bool = False) -> Any:
    topics = [OffsetFetchRequestTopic(name="topic", partition_indexes=[0])]
    request = OffsetFetchRequest(group_id=group, topics=topics, require_stable=require_stable)
    return talk.groups.offsets.offset_fetch(request, api_version=7)


def offset_of(response: Any) -> int:
    return int(response.topics[0].partitions[0].committed_offset)


def error_of(response: Any) -> ErrorCode:
    return ErrorCode(response.topics[0].partitions[0].error_code)


async def collect(answers: dict[Any, Any], name: Any, answer: Any) -> None:
    answers[name] = await finished(answer)


# ---------------------------------------------------------------------- appends


async def test_commit_is_answered_at_once_where_the_log_commits_at_once(
    autojump_clock: trio.abc.Clock, nursery: trio.Nursery
) -> None:
    talk = Coordination()
    await talk.start(nursery)
    assert error_of(talk.commit(5)) is ErrorCode.NONE
    assert offset_of(committed(talk)) == 5


async def test_commit_is_answered_when_it_is_committed(autojump_clock: trio.abc.Clock, nursery: trio.Nursery) -> None:
    talk = Coordination()
    talk.log.commit_seconds = 2
    await talk.start(nursery)
    answer = talk.commit(5)
    assert offset_of(committed(talk)) == -1
    assert error_of(await finished(answer)) is ErrorCode.NONE
    assert trio.current_time() == pytest.approx(2, abs=0.01)
    assert offset_of(committed(talk)) == 5


async def test_what_others_wait_for_does_not_stand_behind_long_computations(
    autojump_clock: trio.abc.Clock, nursery: trio.Nursery
) -> None:
    async def call(function: Callable[[], Any]) -> Any:
        return await function()

    talk = Coordination()
    await talk.start(nursery)
    coordinator = talk.groups._runtime
    coordinator._run_in_thread = call
    for _ in range(10):
        nursery.start_soon(coordinator.compute, trio.sleep_forever)
    await trio.testing.wait_all_tasks_blocked()
    with trio.fail_after(1):
        await coordinator.run_in_thread(trio.lowlevel.checkpoint)


async def test_commits_that_wait_together_share_an_append(
    autojump_clock: trio.abc.Clock, nursery: trio.Nursery
) -> None:
    talk = Coordination()
    talk.log.commit_seconds = 2
    answers: dict[int, Any] = {}
    await talk.start(nursery)
    async with trio.open_nursery() as askers:
        for number in range(20):
            askers.start_soon(collect, answers, number, talk.commit(number))
    assert trio.current_time() == pytest.approx(4, abs=0.01)
    assert all(error_of(answer) is ErrorCode.NONE for answer in answers.values())
    assert offset_of(committed(talk)) == 19
    assert sum(map(len, talk.log.batches.values())) == 2


async def test_stable_offsets_wait_for_the_commits_before_them(
    autojump_clock: trio.abc.Clock, nursery: trio.Nursery
) -> None:
    talk = Coordination()
    talk.log.commit_seconds = 2
    await talk.start(nursery)
    nursery.start_soon(collect, {}, "commit", talk.commit(5))
    assert offset_of(await finished(committed(talk, require_stable=True))) == 5


async def test_heartbeats_do_not_wait_for_appends(autojump_clock: trio.abc.Clock, nursery: trio.Nursery) -> None:
    talk = Coordination()
    await talk.start(nursery)
    joined = await finished(talk.join())
    talk.log.commit_seconds = 2
    syncing = talk.sync(joined, assignment=b"all")
    request = HeartbeatRequest(group_id="group", generation_id=1, member_id=joined.member_id)
    assert talk.groups.classic.heartbeat(request).error_code == ErrorCode.NONE
    assert (await finished(syncing)).assignment == b"all"


async def test_refused_append_changes_nothing(autojump_clock: trio.abc.Clock, nursery: trio.Nursery) -> None:
    talk = Coordination()
    await talk.start(nursery)
    talk.commit(5)
    for refusal, told in (
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
    ):
        talk.log.refusal = refusal
        assert error_of(talk.commit(6)) is told
        assert (talk.join(group="new")).error_code == told
    talk.log.refusal = None
    assert offset_of(committed(talk)) == 5


async def test_refused_append_behind_a_slow_one_fails_alone(
    autojump_clock: trio.abc.Clock, nursery: trio.Nursery
) -> None:
    talk = Coordination()
    talk.log.commit_seconds = 2
    answers: dict[str, Any] = {}
    await talk.start(nursery)
    async with trio.open_nursery() as askers:
        askers.start_soon(collect, answers, "first", talk.commit(1))
        askers.start_soon(collect, answers, "second", talk.commit(2))
        await trio.sleep(1)
        talk.log.refusal = ErrorCode.NOT_ENOUGH_REPLICAS
    assert error_of(answers["first"]) is ErrorCode.NONE
    assert error_of(answers["second"]) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    talk.log.refusal = None
    assert error_of(await finished(talk.commit(3))) is ErrorCode.NONE


async def test_failed_commit_sends_everybody_away_and_loads_again(
    autojump_clock: trio.abc.Clock, nursery: trio.Nursery
) -> None:
    talk = Coordination()
    answers: dict[str, Any] = {}
    await talk.start(nursery)
    neighbour = next(name for name in map(str, range(99)) if talk.groups.partition_for(name) == GROUP_PARTITION)
    talk.commit(1)
    parked = talk.join(group=neighbour)
    talk.log.commit_seconds, talk.log.failure = 2, ErrorCode.REQUEST_TIMED_OUT
    async with trio.open_nursery() as askers:
        askers.start_soon(collect, answers, "parked", parked)
        askers.start_soon(collect, answers, "commit", talk.commit(2))
        askers.start_soon(collect, answers, "queued", talk.join())
    assert error_of(answers["commit"]) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert answers["parked"].error_code == answers["queued"].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    talk.log.commit_seconds, talk.log.failure = 0, None
    await trio.testing.wait_all_tasks_blocked()
    assert offset_of(committed(talk)) == 1
    assert error_of(talk.commit(3)) is ErrorCode.NONE


async def test_requests_are_handled_while_the_commit_of_another_is_waited_for(
    autojump_clock: trio.abc.Clock, nursery: trio.Nursery
) -> None:
    talk = Coordination(group_initial_rebalance_delay_ms=0)
    talk.log.commit_seconds = 2
    await talk.start(nursery)
    names = [f"group{number}" for number in range(30)]
    mine = [name for name in names if talk.groups.partition_for(name) == GROUP_PARTITION]
    assert len(mine) > 5
    joined = await answers_to(*[talk.join(group=name) for name in mine])
    assert trio.current_time() == pytest.approx(2, abs=0.1)
    synced = await answers_to(
        *[talk.sync(each, group=name, assignment=b"all") for name, each in zip(mine, joined, strict=True)]
    )
    assert trio.current_time() == pytest.approx(4, abs=0.1)
    assert {each.assignment for each in synced} == {b"all"}


async def test_an_answer_waits_for_what_it_rests_on(autojump_clock: trio.abc.Clock, nursery: trio.Nursery) -> None:
    talk = Coordination(group_initial_rebalance_delay_ms=0)
    await talk.start(nursery)
    joined = await finished(talk.join())
    talk.log.commit_seconds = 2
    leaders = talk.sync(joined, assignment=b"all")
    await trio.sleep(1)
    again = talk.sync(joined)  # the group is stable, but not yet in the log
    assert isinstance(again, PendingReply)
    assert [each.assignment for each in await answers_to(leaders, again)] == [b"all", b"all"]
    assert trio.current_time() == pytest.approx(2, abs=0.1)


async def test_a_failed_commit_refuses_every_answer_that_rests_on_it(
    autojump_clock: trio.abc.Clock, nursery: trio.Nursery
) -> None:
    talk = Coordination(group_initial_rebalance_delay_ms=0)
    await talk.start(nursery)
    joined = await finished(talk.join())
    talk.log.commit_seconds, talk.log.failure = 2, ErrorCode.REQUEST_TIMED_OUT
    asked = [talk.sync(joined, assignment=b"all"), talk.sync(joined), talk.commit(1), talk.commit(2), talk.commit(3)]
    sync, again, *commits = await answers_to(*asked)
    assert sync.error_code == again.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert {error_of(each) for each in commits} == {ErrorCode.COORDINATOR_NOT_AVAILABLE}
    assert not sync.assignment and not again.assignment


async def test_an_append_that_is_refused_takes_back_what_it_meant(
    autojump_clock: trio.abc.Clock, nursery: trio.Nursery
) -> None:
    talk = Coordination(group_initial_rebalance_delay_ms=0)
    await talk.start(nursery)
    joined = await finished(talk.join())
    talk.log.commit_seconds = 2
    commit = talk.commit(1, group=_namesake())
    talk.log.refusal = ErrorCode.NOT_ENOUGH_REPLICAS
    refused = talk.sync(joined, assignment=b"all")
    talk.log.refusal = None
    rejoined = talk.join(joined.member_id)
    commit, refused, rejoined = await answers_to(commit, refused, rejoined)
    assert error_of(commit) is ErrorCode.NONE
    assert refused.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert rejoined.generation_id == joined.generation_id + 1


async def test_a_group_is_deleted_with_the_offsets_that_were_on_their_way(
    autojump_clock: trio.abc.Clock, nursery: trio.Nursery
) -> None:
    talk = Coordination()
    talk.log.commit_seconds = 2
    await talk.start(nursery)
    first = talk.commit(1)
    second = talk.commit(2)  # shares no append with the first, which has been written
    delete = talk.groups.delete_groups(DeleteGroupsRequest(groups_names=["group"]))
    after = talk.commit(3)
    answers = await answers_to(first, second, delete, after)
    assert answers[2].results[0].error_code == ErrorCode.NONE
    assert [error_of(answers[each]) for each in (0, 1, 3)] == [ErrorCode.NONE] * 3
    assert offset_of(committed(talk)) == 3
    kinds = [
        type(record).__name__ if record.value is not None else "tombstone" for record in talk.log.records() if record
    ]
    assert kinds == ["OffsetRecord", "OffsetRecord", "tombstone", "tombstone", "OffsetRecord"]


async def test_an_offset_that_was_on_its_way_does_not_expire_with_the_one_before(
    autojump_clock: trio.abc.Clock, nursery: trio.Nursery
) -> None:
    talk = Coordination(offsets_retention_check_interval_ms=1000)
    await talk.start(nursery)
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="")
    topics = [OffsetCommitRequestTopic(name="topic", partitions=[partition])]
    outdated = OffsetCommitRequest(group_id="group", member_id="", retention_time_ms=0, topics=topics)
    await finished(talk.groups.offsets.offset_commit(outdated, api_version=2))
    talk.log.commit_seconds = 2
    await trio.sleep(0.5)
    assert error_of(await finished(talk.commit(2))) is ErrorCode.NONE
    await trio.sleep(10)
    assert offset_of(committed(talk)) == 2


# ---------------------------------------------------------------------- deadlines and parked callers


async def test_joins_wait_for_each_other(autojump_clock: trio.abc.Clock, nursery: trio.Nursery) -> None:
    talk = Coordination()
    answers: dict[int, Any] = {}
    await talk.start(nursery)
    async with trio.open_nursery() as askers:
        for number in range(3):
            askers.start_soon(collect, answers, number, talk.join())
    assert trio.current_time() == pytest.approx(6, abs=0.01)
    assert {answer.generation_id for answer in answers.values()} == {1}
    assert len(answers[0].members) == 3


async def test_what_is_due_at_once_needs_no_time(mock_clock: trio.testing.MockClock, nursery: trio.Nursery) -> None:
    mock_clock.jump(0.0006)  # rounded, this is a millisecond that has not come yet
    talk = Coordination(group_initial_rebalance_delay_ms=0)
    answers: dict[int, Any] = {}
    await talk.start(nursery)
    for number in range(50):  # whatever the task of the deadlines is at
        nursery.start_soon(collect, answers, number, talk.join(group=f"group-{number}"))
        await trio.lowlevel.checkpoint()
    await trio.testing.wait_all_tasks_blocked()
    assert len(answers) == 50


async def test_silent_members_are_dropped_in_time(autojump_clock: trio.abc.Clock, nursery: trio.Nursery) -> None:
    talk = Coordination()
    await talk.start(nursery)
    joined = await finished(talk.join())
    await trio.sleep(9.9)
    request = HeartbeatRequest(group_id="group", generation_id=1, member_id=joined.member_id)
    assert talk.groups.classic.heartbeat(request).error_code == ErrorCode.NONE
    await trio.sleep(10.1)
    assert talk.groups.classic.heartbeat(request).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    last = talk.log.records()[-1]
    assert isinstance(last, GroupMetadataRecord) and last.value is not None and last.value.members == []


def punctuality(talk: Coordination, monkeypatch: pytest.MonkeyPatch) -> trio.CancelScope:
    """Once this is cancelled nobody keeps deadlines, as on a machine whose event loop is late."""
    scope, keep_deadlines = trio.CancelScope(), talk.groups._runtime._keep_deadlines

    async def keep_deadlines_for_a_while() -> None:
        with scope:
            await keep_deadlines()
        await trio.sleep_forever()

    monkeypatch.setattr(talk.groups._runtime, "_keep_deadlines", keep_deadlines_for_a_while)
    return scope


@pytest.mark.parametrize("lateness_ms", [0, 1, 13])
async def test_request_after_a_deadline_is_judged_as_if_it_had_been_kept(
    lateness_ms: int, autojump_clock: trio.abc.Clock, monkeypatch: pytest.MonkeyPatch, nursery: trio.Nursery
) -> None:
    talk = Coordination(group_initial_rebalance_delay_ms=0)
    punctual = punctuality(talk, monkeypatch)
    await talk.start(nursery)
    joined = await finished(talk.join())
    await finished(talk.sync(joined, assignment=b"all"))
    punctual.cancel()
    request = HeartbeatRequest(group_id="group", generation_id=1, member_id=joined.member_id)
    await trio.sleep(9.999)
    delete = DeleteGroupsRequest(groups_names=["group"])
    assert (await finished(talk.groups.delete_groups(delete))).results[0].error_code == ErrorCode.NON_EMPTY_GROUP
    await trio.sleep(0.001 + lateness_ms / 1000)
    assert talk.groups.classic.heartbeat(request).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    described = talk.groups.classic.describe_groups(DescribeGroupsRequest(groups=["group"]), api_version=5)
    assert described.groups[0].group_state == "Empty"
    assert (await finished(talk.groups.delete_groups(delete))).results[0].error_code == ErrorCode.NONE


async def test_late_deletion_of_a_group_finds_its_session_over(
    autojump_clock: trio.abc.Clock, monkeypatch: pytest.MonkeyPatch, nursery: trio.Nursery
) -> None:
    talk = Coordination(group_initial_rebalance_delay_ms=0)
    punctual = punctuality(talk, monkeypatch)
    await talk.start(nursery)
    await finished(talk.join())
    punctual.cancel()
    talk.log.commit_seconds = 2  # so that the end of the session takes a while to be written
    await trio.sleep(10)
    delete = DeleteGroupsRequest(groups_names=["group"])
    assert (await finished(talk.groups.delete_groups(delete))).results[0].error_code == ErrorCode.NONE


async def test_queued_request_is_judged_by_when_it_came(
    autojump_clock: trio.abc.Clock, monkeypatch: pytest.MonkeyPatch, nursery: trio.Nursery
) -> None:
    talk = Coordination(group_initial_rebalance_delay_ms=0)
    punctual = punctuality(talk, monkeypatch)
    answers: dict[str, Any] = {}
    await talk.start(nursery)
    joined = await finished(talk.join())
    punctual.cancel()
    await trio.sleep(9)
    talk.log.commit_seconds = 1.5
    delete = DeleteGroupsRequest(groups_names=["group"])
    nursery.start_soon(collect, answers, "commit", talk.commit(5, group=_namesake()))
    await trio.sleep(0.5)
    nursery.start_soon(collect, answers, "before", talk.groups.delete_groups(delete))
    await trio.sleep(0.8)
    nursery.start_soon(collect, answers, "after", talk.groups.delete_groups(delete))
    heartbeat = HeartbeatRequest(group_id="group", generation_id=1, member_id=joined.member_id)
    assert talk.groups.classic.heartbeat(heartbeat).error_code == ErrorCode.UNKNOWN_MEMBER_ID  # passes by the queue
    await trio.sleep(10)
    assert answers["before"].results[0].error_code == ErrorCode.NON_EMPTY_GROUP
    assert answers["after"].results[0].error_code == ErrorCode.NONE


def _namesake() -> str:
    """Another group in the same partition."""
    names = (f"group{number}" for number in range(1000))
    return next(name for name in names if absolute_string_hash(name) % PARTITION_COUNT == GROUP_PARTITION)


async def test_many_deadlines_at_once_all_come_before_the_next_request(
    autojump_clock: trio.abc.Clock, monkeypatch: pytest.MonkeyPatch, nursery: trio.Nursery
) -> None:
    talk = Coordination(group_initial_rebalance_delay_ms=0)
    punctual = punctuality(talk, monkeypatch)
    names = [f"group{number}" for number in range(5 * TIMERS_PER_CALL)]
    await talk.start(nursery)
    for name in names:
        await finished(talk.join(group=name))
    punctual.cancel()
    await trio.sleep(10)
    response = await finished(talk.groups.delete_groups(DeleteGroupsRequest(groups_names=names[-1:])))
    assert response.results[0].error_code == ErrorCode.NONE


async def test_no_session_ends_while_nobody_can_reach_the_coordinator(
    autojump_clock: trio.abc.Clock, nursery: trio.Nursery
) -> None:
    talk = Coordination(group_initial_rebalance_delay_ms=0)
    await talk.start(nursery)
    joined = await finished(talk.join())
    await finished(talk.sync(joined, assignment=b"all"))
    request = HeartbeatRequest(group_id="group", generation_id=1, member_id=joined.member_id)
    talk.log.fenced = True
    await trio.sleep(60)
    talk.log.fenced = False
    await trio.sleep(9)
    assert talk.groups.classic.heartbeat(request).error_code == ErrorCode.NONE
    await trio.sleep(10.1)
    assert talk.groups.classic.heartbeat(request).error_code == ErrorCode.UNKNOWN_MEMBER_ID


async def test_cancelled_caller_leaves_nothing_behind(autojump_clock: trio.abc.Clock, nursery: trio.Nursery) -> None:
    talk = Coordination(group_initial_rebalance_delay_ms=0)
    await talk.start(nursery)
    first = await finished(talk.join())
    with trio.move_on_after(1):
        await finished(talk.join())  # waits for the first member, which does not know of it yet
    response = await finished(talk.join(first.member_id))
    assert [each.member_id for each in response.members] == [first.member_id]


async def test_caller_cancelled_in_line_is_not_handled(autojump_clock: trio.abc.Clock, nursery: trio.Nursery) -> None:
    talk = Coordination()
    talk.log.commit_seconds = 5
    await talk.start(nursery)
    nursery.start_soon(collect, {}, "commit", talk.commit(1))
    with trio.move_on_after(1):
        await finished(talk.groups.delete_groups(DeleteGroupsRequest(groups_names=["group"])))
    await trio.sleep(20)
    assert offset_of(committed(talk)) == 1


async def test_very_many_requests_in_line_do_not_share_one_turn(
    autojump_clock: trio.abc.Clock, nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    talk = Coordination()
    talk.log.commit_seconds = 5
    await talk.start(nursery)
    taken: list[int] = []
    original = PartitionRuntime._next_in_line

    async def counting(partition: Any, shard: Any) -> None:
        before = len(partition._queue)
        await original(partition, shard)
        taken.append(before - len(partition._queue))

    monkeypatch.setattr(PartitionRuntime, "_next_in_line", counting)
    stable = committed(talk, require_stable=True)  # nothing is under way, so it does not wait
    answers = [
        talk.commit(0),
        committed(talk, require_stable=True),
        *(talk.commit(number) for number in range(1, 1201)),
    ]
    answered = [await finished(each) for each in answers]
    assert offset_of(stable) == -1 and offset_of(answered[1]) == 0
    assert sum(taken) == 1201 and max(taken) == 1
    assert trio.current_time() == pytest.approx(5 + 5 + 5, abs=0.1)  # what stands in line shares appends, too
    assert offset_of(committed(talk)) == 1200


async def test_a_line_is_worked_off_many_at_a_time(autojump_clock: trio.abc.Clock, nursery: trio.Nursery) -> None:
    """Otherwise clients that ask again as soon as they are answered keep it for ever."""
    talk = Coordination()
    talk.log.commit_seconds = 5
    await talk.start(nursery)
    first, stable = talk.commit(0), committed(talk, require_stable=True)
    answers = [talk.commit(number) for number in range(1, 401)]
    await finished(stable)
    async with counted_turns() as turns:
        while talk.groups._runtime.led_partition(GROUP_PARTITION)._has_line:
            await trio.lowlevel.checkpoint()
        assert turns.count < 200
    assert {error_of(each) for each in await answers_to(first, *answers)} == {ErrorCode.NONE}


async def test_flights_that_land_together_do_not_share_one_turn(
    autojump_clock: trio.abc.Clock, monkeypatch: pytest.MonkeyPatch, nursery: trio.Nursery
) -> None:
    talk = Coordination(group_initial_rebalance_delay_ms=0)
    await talk.start(nursery)
    are_committed = trio.Event()

    async def commit(*_: Any) -> None:
        await are_committed.wait()

    monkeypatch.setattr(talk.log, "_commit", commit)
    talk.log.commit_seconds = 1
    answers = [talk.join(group=f"group{number}") for number in range(300)]
    await trio.testing.wait_all_tasks_blocked()
    monkeypatch.setattr(time_slice, "SLICE_S", 0)
    are_committed.set()
    async with counted_turns() as turns:
        await answers_to(*answers)
        assert turns.count > 50


async def test_a_session_begins_when_the_answer_is_out(autojump_clock: trio.abc.Clock, nursery: trio.Nursery) -> None:
    talk = Coordination(group_initial_rebalance_delay_ms=0)
    await talk.start(nursery)
    joined = await finished(talk.join(session_timeout_ms=6_000))
    talk.log.commit_seconds = 9
    synced = await finished(talk.sync(joined, assignment=b"all"))
    request = HeartbeatRequest(group_id="group", generation_id=1, member_id=joined.member_id)
    assert synced.assignment == b"all"
    assert talk.groups.classic.heartbeat(request).error_code == ErrorCode.NONE
    await trio.sleep(6.1)
    assert talk.groups.classic.heartbeat(request).error_code == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("commit_seconds", [0, 0.001])
async def test_a_long_deletion_stops_where_the_partition_is_lost(
    autojump_clock: trio.abc.Clock, caplog: pytest.LogCaptureFixture, nursery: trio.Nursery, commit_seconds: float
) -> None:
    talk = Coordination()
    talk.groups.offsets._topics = FakeTopics(topic=2000)
    await talk.start(nursery)
    for start in range(0, 2000, 500):
        await finished(talk.commit(1, partitions=tuple(range(start, start + 500))))
    talk.log.commit_seconds = commit_seconds
    written = len(talk.log.batches[GROUP_PARTITION])
    deletion = talk.groups.delete_groups(DeleteGroupsRequest(groups_names=["group"]))
    talk.groups.on_election(GROUP_PARTITION)  # before the task has had a turn that appends what is long
    assert (await finished(deletion)).results[0].error_code == ErrorCode.NOT_COORDINATOR
    await trio.sleep(5)
    assert len(talk.log.batches[GROUP_PARTITION]) == written
    assert offset_of(committed(talk)) == 1
    assert not [each for each in caplog.records if each.levelno >= logging.ERROR]


async def test_bug_in_a_settlement_leaves_nobody_without_an_answer(
    autojump_clock: trio.abc.Clock,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    nursery: trio.Nursery,
) -> None:
    talk = Coordination(group_initial_rebalance_delay_ms=0)
    await talk.start(nursery)
    monkeypatch.setattr(Shard, "settle", failing_at(1, Shard.settle))
    with caplog.at_level(logging.CRITICAL, "ottla.groupcoord"):
        assert error_of(await finished(talk.commit(1))) in (ErrorCode.NOT_COORDINATOR, ErrorCode.UNKNOWN_SERVER_ERROR)
    await trio.testing.wait_all_tasks_blocked()
    assert error_of(await finished(talk.commit(2))) is ErrorCode.NONE


async def test_everybody_is_sent_away_when_the_coordinator_stops(autojump_clock: trio.abc.Clock) -> None:
    talk = Coordination()
    answers: dict[str, Any] = {}
    async with trio.open_nursery() as askers, trio.open_nursery() as nursery:
        await talk.start(nursery)
        askers.start_soon(collect, answers, "join", talk.join())
        await trio.sleep(1)
        nursery.cancel_scope.cancel()
    assert answers["join"].error_code == ErrorCode.NOT_COORDINATOR
    assert talk.join().error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


@pytest.mark.parametrize("stops", [False, True])
async def test_callers_of_a_lost_partition_are_answered_in_slices(
    autojump_clock: trio.abc.Clock, monkeypatch: pytest.MonkeyPatch, stops: bool
) -> None:
    monkeypatch.setattr(loading, "ANSWERED_AT_ONCE", 10)
    monkeypatch.setattr(time_slice, "SLICE_S", 0)
    talk = Coordination()
    async with trio.open_nursery() as coordinator:
        await talk.start(coordinator)
        joins = [talk.join() for _ in range(100)]
        with counted((Caller, "answer")) as steps:
            talk.groups.on_resignation(GROUP_PARTITION)
            assert steps.all["answer"] == 10
            if not stops:
                await trio.testing.wait_all_tasks_blocked()
                assert steps.all["answer"] == 100 and steps.most["answer"] == 10
        coordinator.cancel_scope.cancel()
    assert [each.response().error_code for each in joins] == [ErrorCode.NOT_COORDINATOR] * 100


# ---------------------------------------------------------------------- elections and loading


async def test_a_stop_between_two_answers_to_one_commit_leaves_nobody_without_an_answer(
    autojump_clock: trio.abc.Clock, monkeypatch: pytest.MonkeyPatch, nursery: trio.Nursery
) -> None:
    monkeypatch.setattr(time_slice, "SLICE_S", 0)
    talk = Coordination()
    talk.log.commit_seconds = 1
    answers: dict[int, Any] = {}
    async with trio.open_nursery() as coordinator:
        await talk.start(coordinator)
        # The first commit has an append of its own, and the others share one.
        commits = [talk.commit(number) for number in range(20)]
        for number in (0, *range(2, 20)):
            nursery.start_soon(collect, answers, number, commits[number])
        await collect(answers, 1, commits[1])
        coordinator.cancel_scope.cancel()
    await trio.testing.wait_all_tasks_blocked()
    assert [error_of(answers[number]) for number in range(20)] == [ErrorCode.NONE] * 20


@pytest.mark.parametrize("turns", range(5))
async def test_requests_of_connections_that_end_with_the_coordinator_meet_no_bug(
    turns: int, autojump_clock: trio.abc.Clock, caplog: pytest.LogCaptureFixture
) -> None:
    """Trio chooses the order of the tasks that are cancelled by chance, so each number of turns has many tries."""
    for _ in range(20):
        talk = Coordination()
        talk.log.commit_seconds = 2
        errors: list[ErrorCode] = []

        async def connection(talk: Coordination = talk, errors: list[ErrorCode] = errors) -> None:
            try:
                await trio.sleep_forever()
            finally:
                with trio.CancelScope(shield=True):
                    for _ in range(turns):
                        await trio.lowlevel.checkpoint()
                    errors.append(error_of(await finished(talk.commit(1))))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(connection)
            await talk.start(nursery)
            nursery.start_soon(connection)
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
        assert len(errors) == 2
        assert set(errors) <= {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE}
    assert not [record for record in caplog.records if "bug" in record.getMessage()]


async def test_members_have_a_whole_session_after_a_load(autojump_clock: trio.abc.Clock, nursery: trio.Nursery) -> None:
    talk = Coordination(group_initial_rebalance_delay_ms=0)
    await talk.start(nursery)
    joined = await finished(talk.join())
    await finished(talk.sync(joined, assignment=b"all"))
    talk.groups.on_resignation(GROUP_PARTITION)
    await trio.sleep(20)
    talk.groups.on_election(GROUP_PARTITION)
    request = DescribeGroupsRequest(groups=["group"])
    for seconds, members in ((9, 1), (2, 0)):
        await trio.sleep(seconds)
        (group,) = (await finished(talk.groups.classic.describe_groups(request, api_version=5))).groups
        assert len(group.members) == members


async def test_groups_move_with_the_partition(autojump_clock: trio.abc.Clock, nursery: trio.Nursery) -> None:
    talk = Coordination()
    answers: dict[str, Any] = {}
    await talk.start(nursery)
    talk.commit(5)
    nursery.start_soon(collect, answers, "join", talk.join())
    await trio.sleep(1)
    partition = talk.groups.partition_for("group")
    talk.groups.on_resignation(partition)
    await trio.testing.wait_all_tasks_blocked()
    assert answers["join"].error_code == ErrorCode.NOT_COORDINATOR
    assert committed(talk).error_code == error_of(talk.commit(6)) == ErrorCode.NOT_COORDINATOR
    talk.groups.on_election(partition)
    assert committed(talk).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    await trio.testing.wait_all_tasks_blocked()
    assert offset_of(committed(talk)) == 5


async def test_heartbeats_are_good_while_loading(autojump_clock: trio.abc.Clock, nursery: trio.Nursery) -> None:
    talk = Coordination()
    talk.log.load_seconds = 10
    heartbeat = HeartbeatRequest(group_id="group", generation_id=1, member_id="somebody")
    await nursery.start(talk.groups.run)
    assert talk.groups.classic.heartbeat(heartbeat).error_code == ErrorCode.NOT_COORDINATOR
    talk.groups.on_election(talk.groups.partition_for("group"))
    await trio.sleep(1)
    assert talk.groups.classic.heartbeat(heartbeat).error_code == ErrorCode.NONE
    assert talk.join().error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    await trio.sleep(10)
    assert talk.groups.classic.heartbeat(heartbeat).error_code == ErrorCode.UNKNOWN_MEMBER_ID


async def test_partition_lost_while_loading_stays_lost(autojump_clock: trio.abc.Clock, nursery: trio.Nursery) -> None:
    talk = Coordination()
    talk.log.load_seconds = 10
    await nursery.start(talk.groups.run)
    partition = talk.groups.partition_for("group")
    talk.groups.on_election(partition)
    await trio.sleep(1)
    talk.groups.on_resignation(partition)
    await trio.sleep(20)
    assert talk.join().error_code == ErrorCode.NOT_COORDINATOR


async def test_partition_that_cannot_be_read_is_not_coordinated(
    autojump_clock: trio.abc.Clock, nursery: trio.Nursery
) -> None:
    talk = Coordination()
    talk.log.unreadable = ErrorCode.KAFKA_STORAGE_ERROR
    await talk.start(nursery)
    assert talk.join().error_code == ErrorCode.NOT_COORDINATOR


@pytest.mark.parametrize("problem", ["unserved", "unreadable"])
async def test_load_that_failed_is_tried_again_without_another_election(
    problem: str, autojump_clock: trio.abc.Clock, nursery: trio.Nursery
) -> None:
    talk = Coordination()
    await talk.start(nursery)
    talk.commit(5)
    partition = talk.groups.partition_for("group")
    setattr(talk.log, problem, ErrorCode.KAFKA_STORAGE_ERROR)
    talk.groups.on_election(partition)
    await trio.sleep(10)
    assert committed(talk).error_code == ErrorCode.NOT_COORDINATOR
    setattr(talk.log, problem, None)
    await trio.sleep(LOAD_RETRY_MAX_S + 0.1)
    assert offset_of(committed(talk)) == 5


async def test_nobody_is_answered_by_what_another_leader_may_cut_off(
    autojump_clock: trio.abc.Clock, nursery: trio.Nursery
) -> None:
    talk = Coordination()
    await talk.start(nursery)
    talk.commit(5)
    talk.commit(6, group="other")
    first, second = (talk.groups.partition_for(group) for group in ("group", "other"))
    assert first != second
    followers = talk.log.followers[first] = trio.Event()
    talk.groups.on_election(first)
    talk.groups.on_election(second)
    await trio.sleep(60)
    assert committed(talk).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert talk.join().error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert offset_of(committed(talk, "other")) == 6  # it does not wait behind the first one
    del talk.log.followers[first]
    followers.set()
    await trio.testing.wait_all_tasks_blocked()
    assert offset_of(committed(talk)) == 5


async def test_a_leader_that_loses_its_partition_before_all_is_committed_does_not_coordinate(
    autojump_clock: trio.abc.Clock, caplog: pytest.LogCaptureFixture, nursery: trio.Nursery
) -> None:
    talk = Coordination()
    await talk.start(nursery)
    partition = talk.groups.partition_for("group")
    followers = talk.log.followers[partition] = trio.Event()
    talk.groups.on_election(partition)
    await trio.testing.wait_all_tasks_blocked()
    talk.log.failure = ErrorCode.NOT_LEADER_OR_FOLLOWER
    with caplog.at_level(logging.CRITICAL, "ottla.groupcoord"):
        followers.set()
        await trio.testing.wait_all_tasks_blocked()
    assert talk.join().error_code == ErrorCode.NOT_COORDINATOR
    # A leader that it still is loads it later.
    del talk.log.followers[partition]
    await trio.sleep(LOAD_RETRY_MAX_S + 0.1)
    assert offset_of(committed(talk)) == -1


async def test_load_gives_way_by_the_clock_and_not_at_every_batch(
    autojump_clock: trio.abc.Clock, monkeypatch: pytest.MonkeyPatch, nursery: trio.Nursery
) -> None:
    """A turn of a busy loop takes a millisecond, and there may be a hundred thousand batches of one record."""
    talk = Coordination()
    await talk.start(nursery)
    for offset in range(1_000):
        talk.commit(offset)
    passed = count()
    clock = SimpleNamespace(perf_counter=lambda: next(passed) * SLICE_S / 100, time_ns=time.time_ns)
    monkeypatch.setattr(time_slice, "time", clock)
    async with counted_turns() as turns:
        talk.groups.on_election(talk.groups.partition_for("group"))
        while committed(talk).error_code:
            await trio.lowlevel.checkpoint()
        assert 8 <= turns.count <= 30
    assert offset_of(committed(talk)) == 999


async def test_loads_without_a_wait_do_not_share_one_turn(
    autojump_clock: trio.abc.Clock, monkeypatch: pytest.MonkeyPatch, nursery: trio.Nursery
) -> None:
    talk = Coordination()
    await talk.start(nursery)
    monkeypatch.setattr(time_slice, "SLICE_S", 0)
    loaded: list[int] = []

    async def read_batches(partition: int) -> AsyncGenerator[bytes, None]:
        loaded.append(partition)
        for batch in talk.log.batches[partition]:
            yield batch

    monkeypatch.setattr(talk.log, "read_batches", read_batches)
    for partition in range(PARTITION_COUNT):
        talk.groups.on_election(partition)
    loads_in_turns = []
    while len(loaded) < PARTITION_COUNT:
        before = len(loaded)
        await trio.lowlevel.checkpoint()
        loads_in_turns.append(len(loaded) - before)
    assert max(loads_in_turns) <= 2 < PARTITION_COUNT  # Trio runs tasks in any order, so two turns may be neighbours


async def test_load_meets_errors_of_every_kind_and_succeeds(
    autojump_clock: trio.abc.Clock,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    nursery: trio.Nursery,
) -> None:
    talk = Coordination()
    await talk.start(nursery)
    talk.commit(5)
    problems = [OSError(24, "Too many open files"), KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER), ValueError("bug")]

    async def read_batches(partition: int) -> AsyncGenerator[bytes, None]:
        for batch in talk.log.batches[partition]:
            yield batch
            if problems:
                raise problems.pop()

    monkeypatch.setattr(talk.log, "read_batches", read_batches)
    with caplog.at_level(logging.CRITICAL, "ottla.groupcoord"):
        talk.groups.on_election(talk.groups.partition_for("group"))
        await trio.sleep(4 * LOAD_RETRY_MAX_S)
    assert not problems
    assert offset_of(committed(talk)) == 5


@pytest.mark.parametrize("is_lost", [False, True])
async def test_load_that_comes_to_nothing_leaves_nothing_behind(
    is_lost: bool, autojump_clock: trio.abc.Clock, monkeypatch: pytest.MonkeyPatch, nursery: trio.Nursery
) -> None:
    talk = Coordination()
    await talk.start(nursery)
    talk.commit(5)

    async def read_batches(partition: int) -> AsyncGenerator[bytes, None]:
        for batch in talk.log.batches[partition]:
            yield batch
        await trio.sleep(1)
        if not is_lost:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE)

    monkeypatch.setattr(talk.log, "read_batches", read_batches)
    talk.groups.on_resignation(GROUP_PARTITION)
    with nothing_is_left_of(ClassicGroup):
        talk.groups.on_election(GROUP_PARTITION)
        await trio.sleep(0.5 if is_lost else 5)
        talk.groups.on_resignation(GROUP_PARTITION)
        await trio.sleep(2)
        assert committed(talk).error_code == ErrorCode.NOT_COORDINATOR


async def test_partition_is_loaded_when_its_broker_is_not_fenced_any_more(
    autojump_clock: trio.abc.Clock, nursery: trio.Nursery
) -> None:
    talk = Coordination()
    await talk.start(nursery)
    talk.commit(5)
    talk.log.fenced = True
    talk.log.unreadable = ErrorCode.NOT_LEADER_OR_FOLLOWER
    talk.groups.on_election(talk.groups.partition_for("group"))
    await trio.sleep(60)
    talk.log.fenced, talk.log.unreadable = False, None
    await trio.sleep(2 * FENCED_LOOK_S)
    assert offset_of(committed(talk)) == 5


async def test_partition_lost_between_two_tries_stays_lost(
    autojump_clock: trio.abc.Clock, nursery: trio.Nursery
) -> None:
    talk = Coordination()
    talk.log.unreadable = ErrorCode.KAFKA_STORAGE_ERROR
    await talk.start(nursery)
    talk.groups.on_resignation(talk.groups.partition_for("group"))
    talk.log.unreadable = None
    await trio.sleep(60)
    assert talk.join().error_code == ErrorCode.NOT_COORDINATOR


async def test_bug_while_unloading_does_not_keep_the_broker_from_resigning(
    autojump_clock: trio.abc.Clock,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    nursery: trio.Nursery,
) -> None:
    talk = Coordination()
    await talk.start(nursery)
    talk.commit(5)
    with monkeypatch.context() as patch, caplog.at_level(logging.CRITICAL, "ottla.groupcoord"):
        patch.setattr(Shard, "unload", lambda *arguments: 1 / 0)
        talk.groups.on_resignation(talk.groups.partition_for("group"))
    assert committed(talk).error_code == ErrorCode.NOT_COORDINATOR


async def test_log_of_a_kafka_broker_is_understood(autojump_clock: trio.abc.Clock, nursery: trio.Nursery) -> None:
    talk = Coordination()
    batches = talk.log.batches[talk.groups.partition_for("group")]
    key = b"\0\x03\0\x05group"  # a record of a kind of group that is not served
    batches.append(encode_batch([Record(0, 1, key, b"\0\0\0\0\0\1"), Record(0, 1, None, b"x")]))
    batches.append(encode_batch([Record(0, 1, b"\0\1broken", b"\0\1broken")]))
    batches.append(FORMATS.encode_records([offset_record(5)], 1))
    for producer_id, control_type, offset in ((1, ControlType.COMMIT, 6), (2, ControlType.ABORT, 7)):
        records = [Record(0, 1, *_encoded(offset_record(offset)))]
        batches.append(encode_batch(records, base_offset=10, producer_id=producer_id, is_transactional=True))
        marker = EndTxnMarker(control_type, 0)
        batches.append(encode_end_txn_marker(marker, timestamp_ms=1, producer_id=producer_id, producer_epoch=0))
    await talk.start(nursery)
    assert offset_of(committed(talk)) == 6


def _encoded(record: OffsetRecord) -> tuple[bytes, bytes | None]:
    return FORMATS.encode_record(record)


# ---------------------------------------------------------------------- bugs


async def test_bug_costs_no_more_than_a_reload(
    autojump_clock: trio.abc.Clock,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    nursery: trio.Nursery,
) -> None:
    talk = Coordination()
    answers: dict[str, Any] = {}
    await talk.start(nursery)
    talk.commit(5)
    nursery.start_soon(collect, answers, "join", talk.join())
    await trio.sleep(1)
    with monkeypatch.context() as patch, caplog.at_level(logging.CRITICAL, "ottla.groupcoord"):
        patch.setattr(OffsetMetadataManager, "_check_commit", lambda *arguments: 1 / 0)
        assert error_of(talk.commit(6)) is ErrorCode.UNKNOWN_SERVER_ERROR
    await trio.testing.wait_all_tasks_blocked()
    assert answers["join"].error_code == ErrorCode.NOT_COORDINATOR
    assert offset_of(committed(talk)) == 5
    assert error_of(talk.commit(6)) is ErrorCode.NONE


def failing_at(number: int, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, with a bug that its call of this number meets."""
    calls = count(1)
    return lambda *arguments, **named: 1 / 0 if next(calls) == number else function(*arguments, **named)


async def answers_to(*asked: Any) -> list[Any]:
    """The answers to requests that are under way together."""
    answers: dict[int, Any] = {}
    async with trio.open_nursery() as askers:
        for number, each in enumerate(asked):
            askers.start_soon(collect, answers, number, each)
    return [answers[number] for number in range(len(asked))]


async def test_bug_in_a_request_that_stood_in_line_costs_nobody_an_answer(
    autojump_clock: trio.abc.Clock,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    nursery: trio.Nursery,
) -> None:
    talk = Coordination()
    talk.log.commit_seconds = 2
    await talk.start(nursery)
    monkeypatch.setattr(OffsetMetadataManager, "_check_commit", failing_at(3, OffsetMetadataManager._check_commit))
    with caplog.at_level(logging.CRITICAL, "ottla.groupcoord"):
        # The first one's commit is waited for by the fetch, behind which the others stand in line.
        first = talk.commit(0)
        fetch = committed(talk, require_stable=True)
        answers = await answers_to(first, fetch, *[talk.commit(number) for number in range(1, 4)])
    assert [error_of(answer) for answer in answers] == [
        ErrorCode.NONE, ErrorCode.NONE,
        ErrorCode.NOT_COORDINATOR, ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.NOT_COORDINATOR,
    ]  # fmt: skip
    await trio.testing.wait_all_tasks_blocked()
    assert error_of(await finished(talk.commit(6))) is ErrorCode.NONE


async def test_bug_in_the_middle_of_a_rebalance_leaves_nobody_without_an_answer(
    autojump_clock: trio.abc.Clock,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    nursery: trio.Nursery,
) -> None:
    talk = Coordination()
    await talk.start(nursery)
    monkeypatch.setattr(ClassicGroup, "_refresh_session", failing_at(2, ClassicGroup._refresh_session))
    with caplog.at_level(logging.CRITICAL, "ottla.groupcoord"):
        answers = await answers_to(talk.join(), talk.join())
    assert {answer.error_code for answer in answers} == {ErrorCode.NOT_COORDINATOR}


async def test_a_cancelled_request_about_many_groups_lets_go_of_all_of_them(
    autojump_clock: trio.abc.Clock, nursery: trio.Nursery
) -> None:
    talk = Coordination()
    talk.log.commit_seconds = 2
    await talk.start(nursery)
    names = [
        name for name in (f"g{number}" for number in range(100)) if talk.groups.partition_for(name) == GROUP_PARTITION
    ]
    with nothing_is_left_of(PendingReply):
        nursery.start_soon(collect, {}, "commit", talk.commit(5))
        await trio.sleep(0.01)
        with trio.move_on_after(1):
            await talk.groups.delete_groups(DeleteGroupsRequest(groups_names=names[:8]))
        await trio.sleep(20)


async def test_bug_while_a_caller_leaves_costs_no_more_than_a_reload(
    autojump_clock: trio.abc.Clock,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    nursery: trio.Nursery,
) -> None:
    talk = Coordination()
    answers: dict[str, Any] = {}
    await talk.start(nursery)
    talk.commit(5)
    first, second = talk.join(), talk.join()
    nursery.start_soon(collect, answers, "second", second)
    await trio.lowlevel.checkpoint()
    with monkeypatch.context() as patch, caplog.at_level(logging.CRITICAL, "ottla.groupcoord"):
        patch.setattr(Shard, "abandon", lambda *arguments, **times: 1 / 0)
        first.abandon()
    await trio.testing.wait_all_tasks_blocked()
    assert answers["second"].error_code == ErrorCode.NOT_COORDINATOR
    assert offset_of(committed(talk)) == 5


async def test_bug_before_the_first_record_of_a_call_costs_no_more_than_a_reload(
    autojump_clock: trio.abc.Clock,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    nursery: trio.Nursery,
) -> None:
    """The group is made, and to be forgotten if its records are refused. There are none to refuse yet."""
    talk = Coordination()
    await talk.start(nursery)
    request = ConsumerGroupHeartbeatRequest(
        group_id="group",
        member_id="member",
        member_epoch=0,
        rebalance_timeout_ms=1_000,
        subscribed_topic_names=["topic"],
        topic_partitions=[],
    )

    async def heartbeat() -> int:
        answer = talk.groups.consumer.heartbeat(request, api_version=1, client_id="client", client_host="/127.0.0.1")
        return (await finished(answer)).error_code

    with monkeypatch.context() as patch, caplog.at_level(logging.CRITICAL, "ottla.groupcoord"):
        patch.setattr(Rebalancing, "put", lambda *arguments: 1 / 0)
        assert await heartbeat() == ErrorCode.UNKNOWN_SERVER_ERROR
    await trio.testing.wait_all_tasks_blocked()
    assert await heartbeat() == ErrorCode.NONE


async def test_all_partitions_are_served(autojump_clock: trio.abc.Clock, nursery: trio.Nursery) -> None:
    talk = Coordination()
    await talk.start(nursery)
    groups = [f"group{number}" for number in range(20)]
    assert {talk.groups.partition_for(group) for group in groups} == set(range(PARTITION_COUNT))
    for number, group in enumerate(groups):
        talk.commit(number, group=group)
    assert [offset_of(committed(talk, group)) for group in groups] == list(range(20))
