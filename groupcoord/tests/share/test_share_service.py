"""Requests of share groups on virtual time: the share coordinator is asked behind them, and may take its time or refuse."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from ottla.groupcoord.effects import NAMED_MAX
from ottla.groupcoord.runtime.answers import finished
from ottla.groupcoord.tests.fakes import Coordination
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.groups import DeleteGroupsRequest
from ottla.wire.messages.share_group import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
    ShareGroupDescribeRequest,
    ShareGroupHeartbeatRequest,
)

TOPIC, OTHER = b"topic...........", b"other..........."
UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class ShareGroupsTalk(Coordination):
    """Requests of share groups' clients."""

    def __init__(self) -> None:
        super().__init__(group_share_assignment_interval_ms=0)

    async def beat(self, member_id: str = "m", epoch: int = 0, **details: Any) -> Any:
        topics = ["topic"] if epoch == 0 else None
        given = {"group_id": "group", "subscribed_topic_names": topics}
        request = ShareGroupHeartbeatRequest(member_id=member_id, member_epoch=epoch, **(given | details))
        return await finished(self.groups.share.heartbeat(request, client_id="c", client_host="/127.0.0.1"))

    async def joined(self) -> None:
        await self.beat()
        await trio.testing.wait_all_tasks_blocked()
        assert (await self.beat(epoch=2)).member_epoch == 3

    async def alter(self, topic: str, *offsets: int, group: str = "group") -> Any:
        partitions = [
            AlterShareGroupOffsetsRequestPartition(partition_index=index, start_offset=offset)
            for index, offset in enumerate(offsets)
        ]
        topics = [AlterShareGroupOffsetsRequestTopic(topic_name=topic, partitions=partitions)]
        return await self.groups.share.alter_offsets(AlterShareGroupOffsetsRequest(group_id=group, topics=topics))

    async def delete_offsets(self, *topics: str, group: str = "group") -> Any:
        named = [DeleteShareGroupOffsetsRequestTopic(topic_name=each) for each in topics]
        request = DeleteShareGroupOffsetsRequest(group_id=group, topics=named)
        return await self.groups.share.delete_offsets(request)

    async def described(self, *topics: tuple[str, list[int]], group: str = "group", all_topics: bool = False) -> Any:
        named = [DescribeShareGroupOffsetsRequestTopic(topic_name=each, partitions=found) for each, found in topics]
        asked = DescribeShareGroupOffsetsRequestGroup(group_id=group, topics=None if all_topics else named)
        (answer,) = (await self.groups.share.offsets.describe(DescribeShareGroupOffsetsRequest(groups=[asked]))).groups
        return answer

    async def group(self, name: str) -> Any:
        request = ShareGroupDescribeRequest(group_ids=[name], include_authorized_operations=False)
        (described,) = (await finished(self.groups.share.describe(request, operations=lambda group_id: 0))).groups
        return described

    async def delete_groups(self, *groups: str) -> dict[str, int]:
        answer = self.groups.delete_groups(DeleteGroupsRequest(groups_names=list(groups)))
        return {each.group_id: each.error_code for each in (await finished(answer)).results}


def starts(group: Any) -> dict[str, list[tuple[int, int, int]]]:
    """(partition, start, lag) by topic."""
    return {
        topic.topic_name: [(each.partition_index, each.start_offset, each.lag) for each in topic.partitions]
        for topic in group.topics
    }


@pytest.fixture
async def talk(nursery: trio.Nursery) -> ShareGroupsTalk:
    talk = ShareGroupsTalk()
    await talk.start(nursery)
    return talk


# ---------------------------------------------------------------------- members


@pytest.mark.parametrize("commit_seconds", [0, 1])
async def test_a_member_does_not_wait_for_the_share_coordinator(
    autojump_clock: MockClock, talk: ShareGroupsTalk, commit_seconds: int
) -> None:
    talk.log.commit_seconds, talk.share_coordinators.seconds = commit_seconds, 10
    response = await talk.beat()
    assert (response.error_code, response.member_epoch, talk.share_coordinators.known) == (0, 2, {})
    await talk.beat(epoch=2)
    await trio.sleep(20)
    assert len(talk.share_coordinators.asked) == 1
    response = await talk.beat(epoch=2)
    assert [each.partitions for each in response.assignment.topic_partitions] == [[0, 1]]


async def test_initialization_begins_though_the_member_has_hung_up(
    autojump_clock: MockClock, talk: ShareGroupsTalk
) -> None:
    talk.log.commit_seconds = 1
    with trio.move_on_after(0.5):
        await talk.beat()
    await trio.sleep(5)
    assert len(talk.share_coordinators.asked) == 1
    assert starts(await talk.described(all_topics=True)) == {"topic": [(0, -1, -1), (1, -1, -1)]}


async def test_partitions_that_are_refused_are_begun_again(autojump_clock: MockClock, talk: ShareGroupsTalk) -> None:
    talk.share_coordinators.errors[TOPIC, 1] = ErrorCode.COORDINATOR_NOT_AVAILABLE
    await talk.beat()
    await trio.testing.wait_all_tasks_blocked()
    response = await talk.beat(epoch=2)
    assert [each.partitions for each in response.assignment.topic_partitions] == [[0]]
    await trio.testing.wait_all_tasks_blocked()
    del talk.share_coordinators.errors[TOPIC, 1]
    assert (await talk.beat(epoch=3)).assignment is None
    await trio.testing.wait_all_tasks_blocked()
    response = await talk.beat(epoch=3)
    assert [each.partitions for each in response.assignment.topic_partitions] == [[0, 1]]


@pytest.mark.parametrize(
    "wrong",
    [
        {"member_id": ""},
        {"member_id": " "},
        {"member_id": "x" * 37},
        {"group_id": ""},
        {"rack_id": ""},
        {"subscribed_topic_names": None},
        {"subscribed_topic_names": []},
        {"member_epoch": -2},
    ],
)
async def test_heartbeats_that_no_group_would_take(
    autojump_clock: MockClock, talk: ShareGroupsTalk, wrong: dict[str, Any]
) -> None:
    given = {"group_id": "group", "member_id": "m", "member_epoch": 0, "subscribed_topic_names": ["topic"]}
    request = ShareGroupHeartbeatRequest(**(given | wrong))
    response = await finished(talk.groups.share.heartbeat(request, client_id="c", client_host="/h"))
    assert response.error_code == ErrorCode.INVALID_REQUEST
    # Of an id of a wrong length Kafka says no more than that.
    assert bool(response.error_message) is (0 < len(request.member_id) <= 36)


async def test_nobody_names_more_than_is_looked_at_in_one_step(
    autojump_clock: MockClock, talk: ShareGroupsTalk
) -> None:
    many = [f"t{number}" for number in range(NAMED_MAX + 1)]
    refused = [
        await talk.beat(subscribed_topic_names=many),
        await talk.alter("topic", *[0] * NAMED_MAX),
        await talk.delete_offsets(*many),
        await talk.described(("topic", [0] * NAMED_MAX)),
    ]
    assert {each.error_code for each in refused} == {ErrorCode.INVALID_REQUEST}
    answered = [
        await talk.beat(subscribed_topic_names=many[1:]),
        await talk.alter("topic", *[0] * (NAMED_MAX - 1), group="other"),
        await talk.delete_offsets(*many[1:], group="other"),
        await talk.described(("topic", [0] * (NAMED_MAX - 1))),
    ]
    assert {each.error_code for each in answered} == {ErrorCode.NONE}


async def test_without_a_coordinator_everybody_hears_so(autojump_clock: MockClock, talk: ShareGroupsTalk) -> None:
    for partition in range(3):
        talk.groups.on_resignation(partition)
    assert (await talk.beat()).error_code == ErrorCode.NOT_COORDINATOR
    assert (await talk.group("group")).error_code == ErrorCode.NOT_COORDINATOR
    assert (await talk.alter("topic", 1)).error_code == ErrorCode.NOT_COORDINATOR
    assert (await talk.delete_offsets("topic")).error_code == ErrorCode.NOT_COORDINATOR
    assert (await talk.described(all_topics=True)).error_code == ErrorCode.NOT_COORDINATOR
    # The share coordinator knows where share partitions start, and that is somebody else.
    assert (await talk.described(("topic", [0]))).error_code == ErrorCode.NONE
    assert await talk.delete_groups("group") == {"group": ErrorCode.NOT_COORDINATOR}


async def test_a_group_without_a_name_cannot_be_described(autojump_clock: MockClock, talk: ShareGroupsTalk) -> None:
    assert (await talk.group("")).error_code == ErrorCode.INVALID_GROUP_ID
    assert (await talk.alter("topic", 1, group="")).error_code == ErrorCode.INVALID_GROUP_ID
    assert (await talk.delete_offsets("topic", group="")).error_code == ErrorCode.INVALID_GROUP_ID


# ---------------------------------------------------------------------- offsets


async def test_altered_offsets_are_described_with_what_is_left(
    autojump_clock: MockClock, talk: ShareGroupsTalk
) -> None:
    response = await talk.alter("topic", 7, 40)
    assert [each.error_code for each in response.responses[0].partitions] == [0, 0]
    talk.share_coordinators.delivered = 3
    assert starts(await talk.described(all_topics=True)) == {"topic": [(0, 7, 90), (1, 40, 57)]}
    named = await talk.described(("nowhere", [5]), ("topic", [1]), ("other", [0]))
    assert starts(named) == {"topic": [(1, 40, 57)], "other": [(0, -1, -1)], "nowhere": [(5, -1, -1)]}
    assert {each.topic_name: each.topic_id for each in named.topics}["nowhere"] == bytes(16)
    assert [each.leader_epoch for each in named.topics[0].partitions] == [4]


async def test_offsets_that_the_share_coordinator_refuses_are_not_set(
    autojump_clock: MockClock, talk: ShareGroupsTalk
) -> None:
    talk.share_coordinators.errors[TOPIC, 1] = ErrorCode.FENCED_STATE_EPOCH
    response = await talk.alter("topic", 7, 40)
    assert [each.error_code for each in response.responses[0].partitions] == [0, ErrorCode.FENCED_STATE_EPOCH]
    assert starts(await talk.described(all_topics=True)) == {"topic": [(0, 7, 93)]}


async def test_what_was_set_stays_though_the_share_coordinator_has_refused_other_partitions(
    autojump_clock: MockClock, talk: ShareGroupsTalk
) -> None:
    talk.share_coordinators.errors = {(TOPIC, 1): ErrorCode.COORDINATOR_NOT_AVAILABLE}
    (topic,) = (await talk.alter("topic", 7, 8)).responses
    assert [each.error_code for each in topic.partitions] == [0, ErrorCode.COORDINATOR_NOT_AVAILABLE]
    talk.share_coordinators.errors = {}
    await trio.sleep(60)
    await talk.joined()
    assert talk.share_coordinators.known["group", TOPIC, 0] == 7


async def test_a_member_whose_initialization_is_overtaken_takes_nothing_from_an_alteration(
    autojump_clock: MockClock, talk: ShareGroupsTalk
) -> None:
    talk.share_coordinators.seconds = 1
    await talk.beat()
    await talk.beat(epoch=-1)
    talk.share_coordinators.errors = dict.fromkeys([(TOPIC, 0), (TOPIC, 1)], ErrorCode.FENCED_STATE_EPOCH)
    await trio.sleep(0.5)
    async with trio.open_nursery() as altering:
        altering.start_soon(talk.alter, "topic", 7, 40)
        await trio.sleep(0.7)  # the first initialization has been refused
        talk.share_coordinators.errors = {}
    assert starts(await talk.described(all_topics=True)) == {"topic": [(0, 7, 93), (1, 40, 60)]}


async def test_an_alteration_that_cannot_be_written_down_is_refused(
    autojump_clock: MockClock, talk: ShareGroupsTalk
) -> None:
    talk.share_coordinators.seconds = 1
    answers = []

    async def alter() -> None:
        answers.append(await talk.alter("topic", 7, 8))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(alter)
        await trio.testing.wait_all_tasks_blocked()
        talk.log.refusal = ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert answers[0].error_code == ErrorCode.NOT_COORDINATOR


async def test_an_end_that_nobody_knows_is_an_error(autojump_clock: MockClock, talk: ShareGroupsTalk) -> None:
    await talk.alter("topic", 7)
    talk.ends.error = ErrorCode.LEADER_NOT_AVAILABLE
    (topic,) = (await talk.described(("topic", [0]))).topics
    (partition,) = topic.partitions
    assert (partition.error_code, partition.start_offset, partition.lag) == (ErrorCode.LEADER_NOT_AVAILABLE, 0, -1)


async def test_what_the_share_coordinator_does_not_say_has_no_start(
    autojump_clock: MockClock, talk: ShareGroupsTalk
) -> None:
    await talk.alter("topic", 7)
    talk.share_coordinators.errors[TOPIC, 0] = ErrorCode.NOT_COORDINATOR
    assert starts(await talk.described(("topic", [0]))) == {"topic": [(0, -1, -1)]}


@pytest.mark.parametrize(("group", "partitions"), [("", [0]), ("group", []), ("group", [-1])])
async def test_descriptions_that_kafka_fails_over(
    autojump_clock: MockClock, talk: ShareGroupsTalk, group: str, partitions: list[int]
) -> None:
    answer = await talk.described(("topic", partitions), group=group)
    assert (answer.error_code, answer.topics) == (ErrorCode.UNKNOWN_SERVER_ERROR, [])
    assert (await talk.described(group=group)).error_code == ErrorCode.NONE


async def test_offsets_are_deleted_first_at_the_share_coordinator(
    autojump_clock: MockClock, talk: ShareGroupsTalk
) -> None:
    await talk.alter("topic", 7, 8)
    await talk.alter("other", 9)
    talk.share_coordinators.errors[OTHER, 0] = ErrorCode.NOT_COORDINATOR
    response = await talk.delete_offsets("other", "topic", "nowhere")
    assert response.error_code == ErrorCode.NONE
    assert [(each.topic_name, each.error_code) for each in response.responses] == [
        ("topic", 0),
        ("nowhere", UNKNOWN),
        ("other", ErrorCode.NOT_COORDINATOR),
    ]
    assert {key[1] for key in talk.share_coordinators.known} == {OTHER}
    talk.share_coordinators.errors.clear()
    response = await talk.delete_offsets("other")
    assert [(each.topic_name, each.error_code) for each in response.responses] == [("other", 0)]
    assert talk.share_coordinators.known == {}


# ---------------------------------------------------------------------- the end of groups and topics


async def test_groups_of_all_kinds_are_deleted_in_one_request(autojump_clock: MockClock, talk: ShareGroupsTalk) -> None:
    await talk.alter("topic", 7)
    await finished(talk.commit(group="classic"))
    await talk.beat(group_id="busy")
    errors = await talk.delete_groups("group", "classic", "busy", "nobody")
    assert errors == {
        "group": ErrorCode.NONE,
        "classic": ErrorCode.NONE,
        "busy": ErrorCode.NON_EMPTY_GROUP,
        "nobody": ErrorCode.GROUP_ID_NOT_FOUND,
    }
    assert not [key for key in talk.share_coordinators.known if key[0] == "group"]
    assert (await talk.group("group")).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert (await talk.group("busy")).error_code == ErrorCode.NONE


async def test_a_group_stays_while_its_state_cannot_be_deleted(
    autojump_clock: MockClock, talk: ShareGroupsTalk
) -> None:
    await talk.alter("topic", 7)
    talk.share_coordinators.errors[TOPIC, 0] = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert await talk.delete_groups("group") == {"group": ErrorCode.COORDINATOR_NOT_AVAILABLE}
    assert (await talk.group("group")).group_state == "Empty"
    talk.share_coordinators.errors.clear()
    assert await talk.delete_groups("group") == {"group": ErrorCode.NONE}
    assert talk.share_coordinators.known == {}


async def test_deleted_topics_are_forgotten_by_share_groups(autojump_clock: MockClock, talk: ShareGroupsTalk) -> None:
    await talk.joined()
    talk.images.remove("topic")
    await talk.groups.on_topics_deleted({"topic": TOPIC})
    talk.images.put("topic", 1, topic_id=b"n" * 16)
    response = await talk.beat(epoch=3)
    assert response.assignment.topic_partitions == []
    await trio.testing.wait_all_tasks_blocked()
    assert {topic.topic_id for topic in talk.share_coordinators.asked[-1].topics} == {b"n" * 16}


async def test_topics_are_forgotten_when_the_log_takes_it(autojump_clock: MockClock, talk: ShareGroupsTalk) -> None:
    await talk.alter("topic", 7)
    talk.log.refusal = ErrorCode.NOT_ENOUGH_REPLICAS
    await talk.groups.on_topics_deleted({"topic": TOPIC})
    assert starts(await talk.described(all_topics=True)) == {"topic": [(0, 7, 93)]}
    talk.log.refusal = None
    await trio.sleep(1.5)
    assert starts(await talk.described(all_topics=True)) == {}


async def test_others_have_turns_while_many_groups_are_described(nursery: trio.Nursery, talk: ShareGroupsTalk) -> None:
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            await trio.lowlevel.checkpoint()
            turns += 1

    nursery.start_soon(other)
    groups = [DescribeShareGroupOffsetsRequestGroup(group_id=f"g{number}", topics=[]) for number in range(100)]
    await talk.groups.share.offsets.describe(DescribeShareGroupOffsetsRequest(groups=groups))
    assert turns > 90
