"""Consumer groups behind the service: wrong heartbeats, commits that take their time, work in threads, many members."""

from typing import Any

import pytest
import trio
import trio.testing

from ottla.groupcoord.consumer import rebalancing
from ottla.groupcoord.consumer.service import OWNED_MAX, TOO_MANY
from ottla.groupcoord.effects import NAMED_MAX
from ottla.groupcoord.modern import describing
from ottla.groupcoord.runtime.answers import finished
from ottla.groupcoord.tests.fakes import Coordination
from ottla.wire import time_slice
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.consumer_group import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupHeartbeatRequest,
    TopicPartitions,
)
from ottla.wire.tests.turns import counted_turns


@pytest.fixture
async def talk(nursery: trio.Nursery, autojump_clock: trio.abc.Clock) -> Coordination:
    coordination = Coordination()
    await coordination.start(nursery)
    return coordination


def request(member_id: str = "a", epoch: int = 0, **details: Any) -> ConsumerGroupHeartbeatRequest:
    given: dict[str, Any] = {"group_id": "group", "member_id": member_id, "member_epoch": epoch}
    if epoch == 0:
        given |= {"rebalance_timeout_ms": 30_000, "subscribed_topic_names": ["topic"], "topic_partitions": []}
    return ConsumerGroupHeartbeatRequest(**(given | details))


def heartbeat(talk: Coordination, member_id: str = "a", epoch: int = 0, *, version: int = 1, **details: Any) -> Any:
    asked = request(member_id, epoch, **details)
    return talk.groups.consumer.heartbeat(asked, api_version=version, client_id="client", client_host="/127.0.0.1")


# ---------------------------------------------------------------------- wrong whatever the group


@pytest.mark.parametrize(
    ("details", "problem"),
    [
        ({"member_id": ""}, "MemberId can't be empty."),
        ({"member_id": "", "epoch": 1, "version": 0}, "MemberId can't be empty."),
        ({"member_id": "", "epoch": -1, "version": 0}, "MemberId can't be empty."),
        ({"member_id": "x" * 9000}, "MemberId is too long."),
        ({"group_id": " "}, "GroupId can't be empty."),
        ({"instance_id": ""}, "InstanceId can't be empty."),
        ({"rack_id": ""}, "RackId can't be empty."),
        ({"rack_id": "\0\t"}, "RackId can't be empty."),
        ({"subscribed_topic_names": ["t"] * (NAMED_MAX + 1)}, TOO_MANY),
        ({"topic_partitions": [TopicPartitions(topic_id=bytes(16), partitions=[0] * OWNED_MAX)]}, TOO_MANY),
        ({"topic_partitions": [TopicPartitions(topic_id=bytes(16), partitions=[])] * (OWNED_MAX + 1)}, TOO_MANY),
        ({"rebalance_timeout_ms": -1}, "RebalanceTimeoutMs must be provided in first request."),
        ({"topic_partitions": None}, "TopicPartitions must be empty when (re-)joining."),
        (
            {"topic_partitions": [TopicPartitions(topic_id=bytes(16), partitions=[0])]},
            "TopicPartitions must be empty when (re-)joining.",
        ),
        (
            {"subscribed_topic_names": None},
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.",
        ),
        ({"epoch": -2}, "InstanceId can't be null."),
        ({"epoch": -3}, "MemberEpoch is invalid."),
    ],
)
async def test_a_heartbeat_may_be_wrong_whatever_the_group(
    talk: Coordination, details: dict[str, Any], problem: str
) -> None:
    answer = heartbeat(talk, **details)
    assert (answer.error_code, answer.error_message) == (ErrorCode.INVALID_REQUEST, problem)


async def test_an_assignor_has_to_be_one_of_those_of_the_broker(talk: Coordination) -> None:
    answer = heartbeat(talk, server_assignor="sticky")
    assert answer.error_code == ErrorCode.UNSUPPORTED_ASSIGNOR
    assert answer.error_message == "ServerAssignor sticky is not supported. Supported assignors: uniform, range."


async def test_a_member_of_version_0_may_come_without_an_id(talk: Coordination) -> None:
    answer = heartbeat(talk, "", version=0)
    assert answer.error_code == ErrorCode.NONE and len(answer.member_id) == 36


async def test_before_the_coordinator_runs_nobody_can_come() -> None:
    assert heartbeat(Coordination()).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


# ---------------------------------------------------------------------- the log takes its time


async def test_an_answer_waits_until_what_it_rests_on_is_committed(
    talk: Coordination, autojump_clock: trio.abc.Clock
) -> None:
    talk.log.commit_seconds = 1
    answers: list[Any] = []

    async def come() -> None:
        answers.append(await finished(heartbeat(talk)))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(come)
        await trio.testing.wait_all_tasks_blocked()
        assert not answers
        # It is in the group already, and a later answer rests on the same commit.
        described = talk.groups.consumer.describe(
            ConsumerGroupDescribeRequest(group_ids=["group"], include_authorized_operations=False), operations=0
        )
        begun = trio.current_time()
        (group,) = (await finished(described)).groups
        assert trio.current_time() == begun + 1
        assert [each.member_id for each in group.members] == ["a"]
    assert answers[0].member_epoch == 2


async def test_a_commit_that_fails_leaves_what_the_log_says(talk: Coordination, autojump_clock: trio.abc.Clock) -> None:
    talk.log.commit_seconds, talk.log.failure = 1, ErrorCode.NOT_LEADER_OR_FOLLOWER
    answer = await finished(heartbeat(talk))
    assert answer.error_code == ErrorCode.NOT_COORDINATOR
    talk.log.failure = None
    await trio.sleep(1)
    assert (await finished(heartbeat(talk, epoch=2))).error_code == ErrorCode.GROUP_ID_NOT_FOUND


# ---------------------------------------------------------------------- beside the loop


async def test_patterns_are_resolved_in_a_thread(talk: Coordination, autojump_clock: trio.abc.Clock) -> None:
    await finished(heartbeat(talk, subscribed_topic_names=None, subscribed_topic_regex="t.*"))
    while (answer := await finished(heartbeat(talk, epoch=1))).assignment is None:
        await trio.sleep(0.1)
    (topic,) = answer.assignment.topic_partitions
    assert topic.partitions == [0, 1]


async def test_large_assignments_are_computed_in_a_thread(
    talk: Coordination, monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.abc.Clock
) -> None:
    monkeypatch.setattr(rebalancing, "SIZE_AT_ONCE", 2)
    came = await finished(heartbeat(talk))
    assert came.assignment.topic_partitions == []
    while (answer := await finished(heartbeat(talk, epoch=came.member_epoch))).assignment is None:
        await trio.sleep(0.1)
    assert answer.member_epoch == 2
    (topic,) = answer.assignment.topic_partitions
    assert topic.partitions == [0, 1]


async def test_many_members_share_many_partitions(talk: Coordination, autojump_clock: trio.abc.Clock) -> None:
    """As in a large application: 100 members and 1,000 partitions, which come within two seconds."""
    talk.images.put("topic", 1000)
    epochs = {}
    for number in range(100):
        answer = await finished(heartbeat(talk, str(number)))
        epochs[str(number)] = answer.member_epoch
        await trio.sleep(0.02)
    owned: dict[str, list[int]] = {}
    for _ in range(6):
        await trio.sleep(1)
        for member_id, epoch in epochs.items():
            topics = [TopicPartitions(topic_id=b"topic".ljust(16, b"."), partitions=owned.get(member_id, []))]
            answer = await finished(heartbeat(talk, member_id, epoch, topic_partitions=topics))
            assert answer.error_code == ErrorCode.NONE
            epochs[member_id] = answer.member_epoch
            if answer.assignment is not None:
                owned[member_id] = [each for topic in answer.assignment.topic_partitions for each in topic.partitions]
    assert {len(each) for each in owned.values()} == {10}
    assert sorted(each for partitions in owned.values() for each in partitions) == list(range(1000))


# ---------------------------------------------------------------------- describe


async def test_groups_are_described_each_once(talk: Coordination) -> None:
    await finished(heartbeat(talk))
    names = ["group", "group", "nobody", "", "x", "y", "z"]
    asked = ConsumerGroupDescribeRequest(group_ids=names, include_authorized_operations=True)
    groups = (await finished(talk.groups.consumer.describe(asked, operations=lambda group_id: 7))).groups
    assert [(each.group_id, each.error_code) for each in groups] == [
        ("group", ErrorCode.NONE),
        ("nobody", ErrorCode.GROUP_ID_NOT_FOUND),
        ("", ErrorCode.INVALID_GROUP_ID),
        *((each, ErrorCode.GROUP_ID_NOT_FOUND) for each in "xyz"),
    ]
    assert [each.authorized_operations for each in groups[:2]] == [7, -(2**31)]


async def test_a_large_group_is_described_in_turns_as_it_was(
    talk: Coordination, monkeypatch: pytest.MonkeyPatch
) -> None:
    for member_id in "abc":
        await finished(heartbeat(talk, member_id=member_id))
    asked = ConsumerGroupDescribeRequest(group_ids=["group"], include_authorized_operations=True)
    at_once = await finished(talk.groups.consumer.describe(asked, operations=lambda _: 7))
    monkeypatch.setattr(describing, "MEMBERS_AT_ONCE", 2)
    monkeypatch.setattr(time_slice, "SLICE_S", 0)
    answer = talk.groups.consumer.describe(asked, operations=lambda _: 7)
    found: list[Any] = []

    async def wait() -> None:
        found.append(await finished(answer))

    async with counted_turns() as counted, trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await trio.lowlevel.checkpoint()
        await finished(heartbeat(talk, member_id="c", epoch=-1))
    assert counted.count >= 3 and found == [at_once] and len(found[0].groups[0].members) == 3
