"""Requests as they come off the wire: versions, topic names and ids, several groups in one, and checks before the group."""

from typing import Any

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.groupcoord import service
from ottla.groupcoord.java_hashing import absolute_string_hash
from ottla.groupcoord.offsets import service as offsets
from ottla.groupcoord.offsets.commits import elements_in, parts_of
from ottla.groupcoord.runtime.answers import finished
from ottla.groupcoord.service import GROUPS_PER_SLICE, random_uuid
from ottla.groupcoord.shard import ELEMENTS_PER_SLICE
from ottla.groupcoord.tests.fakes import PARTITION_COUNT, Coordination
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.classic_group import HeartbeatRequest, LeaveGroupRequest, MemberIdentity, SyncGroupRequest
from ottla.wire.messages.groups import DeleteGroupsRequest, DescribeGroupsRequest, ListGroupsRequest
from ottla.wire.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from ottla.wire.tests.effort import examples
from ottla.wire.tests.turns import counted_turns

NO_TOPIC_ID = b"nowhere".ljust(16, b".")


@pytest.fixture
async def talk(nursery: trio.Nursery, autojump_clock: trio.abc.Clock) -> Coordination:
    coordination = Coordination()
    await coordination.start(nursery)
    return coordination


def commit_request(*topics: tuple[str, bytes, tuple[int, ...]], group: str = "group") -> OffsetCommitRequest:
    return OffsetCommitRequest(
        group_id=group,
        member_id="",
        topics=[
            OffsetCommitRequestTopic(
                name=name,
                topic_id=topic_id,
                partitions=[
                    OffsetCommitRequestPartition(partition_index=index, committed_offset=index, committed_metadata=None)
                    for index in partitions
                ],
            )
            for name, topic_id, partitions in topics
        ],
    )


def errors_of(response: Any) -> dict[Any, dict[int, int]]:
    return {
        topic.name or topic.topic_id: {each.partition_index: each.error_code for each in topic.partitions}
        for topic in response.topics
    }


# ---------------------------------------------------------------------- checks before the group


@pytest.mark.parametrize("timeout_ms", [-1, 0, 5_999, 1_800_001, 2**31 - 1])
async def test_session_timeout_is_limited(talk: Coordination, timeout_ms: int) -> None:
    assert talk.join(session_timeout_ms=timeout_ms).error_code == ErrorCode.INVALID_SESSION_TIMEOUT


async def test_groups_of_members_have_names(talk: Coordination) -> None:
    assert talk.join(group="").error_code == ErrorCode.INVALID_GROUP_ID
    heartbeat = HeartbeatRequest(group_id="", generation_id=1, member_id="x")
    assert talk.groups.classic.heartbeat(heartbeat).error_code == ErrorCode.INVALID_GROUP_ID
    leave = LeaveGroupRequest(group_id="", members=[])
    assert talk.groups.classic.leave_group(leave, api_version=5).error_code == ErrorCode.INVALID_GROUP_ID
    sync = SyncGroupRequest(group_id="", generation_id=1, member_id="x", assignments=[])
    assert talk.groups.classic.sync_group(sync, api_version=4).error_code == ErrorCode.INVALID_GROUP_ID
    delete = OffsetDeleteRequest(group_id="", topics=[])
    assert talk.groups.offsets.offset_delete(delete).error_code == ErrorCode.INVALID_GROUP_ID


@pytest.mark.parametrize("names", [{"protocol_type": "consumer"}, {"protocol_name": "range"}, {}])
async def test_sync_since_version_5_names_its_protocol(talk: Coordination, names: dict[str, str]) -> None:
    request = SyncGroupRequest(group_id="", generation_id=1, member_id="x", assignments=[], **names)  # type: ignore[arg-type]
    assert talk.groups.classic.sync_group(request, api_version=5).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


# ---------------------------------------------------------------------- leave


async def test_leave_before_version_3_has_one_member_and_one_error(
    talk: Coordination, autojump_clock: trio.abc.Clock
) -> None:
    unknown = talk.groups.classic.leave_group(LeaveGroupRequest(group_id="group", member_id="who"), api_version=2)
    assert (unknown.error_code, unknown.members) == (ErrorCode.UNKNOWN_MEMBER_ID, [])
    joined = await finished(talk.join())
    left = talk.groups.classic.leave_group(
        LeaveGroupRequest(group_id="group", member_id=joined.member_id), api_version=0
    )
    assert (left.error_code, left.members) == (ErrorCode.NONE, [])


async def test_leave_since_version_3_has_an_error_for_each_member(
    talk: Coordination, autojump_clock: trio.abc.Clock
) -> None:
    joined = await finished(talk.join())
    members = [MemberIdentity(member_id=joined.member_id), MemberIdentity(member_id="who")]
    left = talk.groups.classic.leave_group(LeaveGroupRequest(group_id="group", members=members), api_version=3)
    assert left.error_code == ErrorCode.NONE
    assert [each.error_code for each in left.members] == [ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID]


# ---------------------------------------------------------------------- offsets by name and id


async def test_commit_of_what_does_not_exist_is_refused_and_the_rest_kept(talk: Coordination) -> None:
    request = commit_request(("topic", bytes(16), (0, 7, -1)), ("nowhere", bytes(16), (0,)), ("other", bytes(16), (0,)))
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert errors_of(talk.groups.offsets.offset_commit(request, api_version=9)) == {
        "topic": {0: ErrorCode.NONE, 7: unknown, -1: unknown},
        "nowhere": {0: unknown},
        "other": {0: ErrorCode.NONE},
    }


async def test_commit_of_nothing_that_exists_asks_no_group(talk: Coordination) -> None:
    request = commit_request(("nowhere", bytes(16), (0,)))
    request.generation_id_or_member_epoch = 17
    assert errors_of(talk.groups.offsets.offset_commit(request, api_version=9)) == {
        "nowhere": {0: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    }


async def test_commit_and_fetch_by_topic_id(talk: Coordination) -> None:
    topic = talk.topics.topics.get("topic")
    assert topic is not None
    request = commit_request(("", topic.topic_id, (1,)), ("", NO_TOPIC_ID, (0,)))
    committed = talk.groups.offsets.offset_commit(request, api_version=10)
    assert {each.topic_id: each.partitions[0].error_code for each in committed.topics} == {
        topic.topic_id: ErrorCode.NONE,
        NO_TOPIC_ID: ErrorCode.UNKNOWN_TOPIC_ID,
    }
    asked = [OffsetFetchRequestTopics(topic_id=each, partition_indexes=[1]) for each in (NO_TOPIC_ID, topic.topic_id)]
    fetch = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="group", topics=asked)])
    (group,) = talk.groups.offsets.offset_fetch(fetch, api_version=10).groups
    assert {
        each.topic_id: (each.partitions[0].committed_offset, each.partitions[0].error_code) for each in group.topics
    } == {
        topic.topic_id: (1, ErrorCode.NONE),
        NO_TOPIC_ID: (-1, ErrorCode.UNKNOWN_TOPIC_ID),
    }


async def test_all_offsets_by_topic_id_leave_out_topics_that_are_gone(talk: Coordination) -> None:
    talk.commit(5)
    talk.commit(6, topic="other")
    talk.topics = talk.groups.offsets._topics = type(talk.topics)(topic=2)
    fetch = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="group", topics=None)])
    (group,) = talk.groups.offsets.offset_fetch(fetch, api_version=10).groups
    assert [each.topic_id for each in group.topics] == [b"topic".ljust(16, b".")]
    (group,) = talk.groups.offsets.offset_fetch(fetch, api_version=9).groups
    assert {each.name for each in group.topics} == {"topic", "other"}


@pytest.mark.parametrize("version", range(1, 8))
async def test_one_group_is_fetched_before_version_8(talk: Coordination, version: int) -> None:
    talk.commit(5)
    topics = [OffsetFetchRequestTopic(name="topic", partition_indexes=[0, 1])]
    response = talk.groups.offsets.offset_fetch(
        OffsetFetchRequest(group_id="group", topics=topics), api_version=version
    )
    assert [each.committed_offset for each in response.topics[0].partitions] == [5, -1]
    assert response.error_code == ErrorCode.NONE


async def test_several_groups_are_fetched_since_version_8(talk: Coordination) -> None:
    for number in range(5):
        talk.commit(number, group=str(number))
    groups = [OffsetFetchRequestGroup(group_id=str(number), topics=None) for number in range(6)]
    for require_stable in (False, True):
        fetch = OffsetFetchRequest(groups=groups, require_stable=require_stable)
        answers = talk.groups.offsets.offset_fetch(fetch, api_version=8).groups
        assert [each.group_id for each in answers] == list("012345")
        assert [each.topics[0].partitions[0].committed_offset for each in answers[:5]] == list(range(5))
        assert answers[5].topics == []


async def test_all_offsets_of_a_group_are_given_once_however_often_asked_for(talk: Coordination) -> None:
    talk.commit(5)
    groups = [OffsetFetchRequestGroup(group_id="group", topics=None)] * 1000
    assert len(talk.groups.offsets.offset_fetch(OffsetFetchRequest(groups=groups), api_version=8).groups) == 1


@pytest.mark.parametrize(("version", "top_level"), [(1, False), (2, True), (7, True)])
async def test_error_of_a_fetched_group_is_told_as_the_version_can(
    talk: Coordination, version: int, top_level: bool
) -> None:
    talk.groups.on_resignation(talk.groups.partition_for("group"))
    topics = [OffsetFetchRequestTopic(name="topic", partition_indexes=[0])]
    response = talk.groups.offsets.offset_fetch(
        OffsetFetchRequest(group_id="group", topics=topics), api_version=version
    )
    if top_level:
        assert (response.error_code, response.topics) == (ErrorCode.NOT_COORDINATOR, [])
    else:
        assert response.error_code == ErrorCode.NONE
        assert errors_of(response) == {"topic": {0: ErrorCode.NOT_COORDINATOR}}


async def test_a_coordinator_that_may_have_been_replaced_answers_nothing_of_its_groups(talk: Coordination) -> None:
    talk.commit(5)
    fetch = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="group", topics=None)])
    talk.log.fenced = True
    assert talk.groups.offsets.offset_fetch(fetch, api_version=8).groups[0].error_code == ErrorCode.NOT_COORDINATOR
    heartbeat = HeartbeatRequest(group_id="group", generation_id=1, member_id="m")
    assert talk.groups.classic.heartbeat(heartbeat).error_code == ErrorCode.NOT_COORDINATOR
    described = talk.groups.classic.describe_groups(DescribeGroupsRequest(groups=["group"]), api_version=5)
    assert described.groups[0].error_code == ErrorCode.NOT_COORDINATOR
    talk.log.fenced = False
    assert talk.groups.offsets.offset_fetch(fetch, api_version=8).groups[0].error_code == ErrorCode.NONE


async def test_large_commit_is_taken_in_parts(nursery: trio.Nursery, autojump_clock: trio.abc.Clock) -> None:
    talk = Coordination()
    count = 2 * ELEMENTS_PER_SLICE + 7
    talk.topics = talk.groups.offsets._topics = type(talk.topics)(topic=count, other=1)
    await talk.start(nursery)
    request = commit_request(("topic", bytes(16), tuple(range(count + 1))), ("other", bytes(16), (0, 1)))
    response = await finished(talk.groups.offsets.offset_commit(request, api_version=9))
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    errors = errors_of(response)
    assert errors == {"topic": dict.fromkeys(range(count), 0) | {count: unknown}, "other": {0: 0, 1: unknown}}
    assert len(talk.log.records()) == count + 1


async def test_deleted_offsets_are_told_apart_from_partitions_that_do_not_exist(talk: Coordination) -> None:
    talk.commit(5)
    topics = [
        OffsetDeleteRequestTopic(
            name=name, partitions=[OffsetDeleteRequestPartition(partition_index=index) for index in (0, 9)]
        )
        for name in ("topic", "nowhere")
    ]
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    response = talk.groups.offsets.offset_delete(OffsetDeleteRequest(group_id="group", topics=topics))
    assert errors_of(response) == {"topic": {0: ErrorCode.NONE, 9: unknown}, "nowhere": {0: unknown, 9: unknown}}
    missing = talk.groups.offsets.offset_delete(OffsetDeleteRequest(group_id="who", topics=topics))
    assert (missing.error_code, missing.topics) == (ErrorCode.GROUP_ID_NOT_FOUND, [])


async def test_deleted_topics_take_their_offsets_along_everywhere(talk: Coordination) -> None:
    for number in range(30):
        talk.commit(number, group=str(number))
        talk.commit(number, group=str(number), topic="other")
    topic = talk.topics.topics.get("topic")
    assert topic is not None
    await talk.groups.on_topics_deleted({"topic": topic.topic_id})
    groups = [OffsetFetchRequestGroup(group_id=str(number), topics=None) for number in range(30)]
    answers = talk.groups.offsets.offset_fetch(OffsetFetchRequest(groups=groups), api_version=8).groups
    assert all([each.name for each in answer.topics] == ["other"] for answer in answers)


def committed(talk: Coordination) -> tuple[int, list[Any]]:
    """All that the group has committed, or the error that it cannot be told."""
    fetch = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="group", topics=None)])
    answer = talk.groups.offsets.offset_fetch(fetch, api_version=8).groups[0]
    return answer.error_code, answer.topics


@pytest.mark.parametrize("how", ["refused", "not committed", "loading"])
async def test_offsets_of_deleted_topics_go_when_that_is_possible_again(
    how: str, nursery: trio.Nursery, autojump_clock: trio.abc.Clock
) -> None:
    talk = Coordination()
    await talk.start(nursery)
    talk.commit(5)
    topic = talk.topics.topics.get("topic")
    assert topic is not None
    if how == "refused":
        talk.log.refusal = ErrorCode.NOT_ENOUGH_REPLICAS
    elif how == "not committed":
        talk.log.commit_seconds, talk.log.failure = 0.1, ErrorCode.REQUEST_TIMED_OUT
    else:
        talk.log.load_seconds = 30
        talk.groups.on_election(talk.groups.partition_for("group"))
    await talk.groups.on_topics_deleted({"topic": topic.topic_id})
    await trio.sleep(10)
    talk.log.refusal = talk.log.failure = None
    await trio.sleep(30)
    assert committed(talk) == (ErrorCode.NONE, [])


async def test_very_many_deleted_topics_wait_for_one_task_of_each_partition(
    nursery: trio.Nursery, autojump_clock: trio.abc.Clock
) -> None:
    talk = Coordination()
    await talk.start(nursery)
    talk.commit(5)
    topic = talk.topics.topics.get("topic")
    assert topic is not None
    talk.log.refusal = ErrorCode.NOT_ENOUGH_REPLICAS
    tasks = trio.lowlevel.current_statistics().tasks_living
    for number in range(50):
        await talk.groups.on_topics_deleted({"topic": topic.topic_id, str(number): topic.topic_id})
    assert trio.lowlevel.current_statistics().tasks_living - tasks <= PARTITION_COUNT
    talk.log.refusal = None
    await trio.sleep(5)
    assert committed(talk) == (ErrorCode.NONE, [])
    assert trio.lowlevel.current_statistics().tasks_living == tasks


# ---------------------------------------------------------------------- administration


async def test_groups_are_described_from_all_partitions_each_once(talk: Coordination) -> None:
    names = [str(number) for number in range(10)]
    for name in names:
        talk.commit(group=name)
    request = DescribeGroupsRequest(groups=[*names, *names, "who", ""])
    response = talk.groups.classic.describe_groups(request, api_version=6)
    assert [each.group_id for each in response.groups] == [*names, "who", ""]
    assert [each.error_code for each in response.groups] == [0] * 10 + [ErrorCode.GROUP_ID_NOT_FOUND] * 2
    talk.groups.on_resignation(talk.groups.partition_for("1"))
    response = talk.groups.classic.describe_groups(DescribeGroupsRequest(groups=["1"]), api_version=6)
    assert response.groups[0].error_code == ErrorCode.NOT_COORDINATOR


async def test_groups_are_listed_from_all_partitions_unless_one_is_loading(talk: Coordination) -> None:
    for number in range(10):
        talk.commit(group=str(number))
    listed = talk.groups.list_groups(ListGroupsRequest())
    assert {each.group_id for each in listed.groups} == set(map(str, range(10)))
    talk.groups.on_resignation(0)
    assert talk.groups.list_groups(ListGroupsRequest()).error_code == ErrorCode.NONE
    talk.groups.on_election(0)
    assert talk.groups.list_groups(ListGroupsRequest()).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


async def test_all_offsets_of_several_groups_are_fetched_in_slices(
    talk: Coordination, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A few bytes may ask for all offsets of many groups, which may be ten thousand each time."""
    monkeypatch.setattr(offsets, "ELEMENTS_PER_SLICE", 4)
    names = [str(number) for number in range(10)]
    for name in names:
        talk.commit(group=name)
    asked = [OffsetFetchRequestGroup(group_id=name, topics=None) for name in names]
    monkeypatch.setattr(offsets, "_is_much", lambda groups: False)
    answer = talk.groups.offsets.offset_fetch(OffsetFetchRequest(groups=asked), api_version=8)
    async with counted_turns() as turns:
        response = await finished(answer)
    assert [each.group_id for each in response.groups] == names
    assert all(len(each.topics) == 1 for each in response.groups)
    assert turns.count >= len(names) // 2, "the order of tasks within a turn is random, so some are not seen"


async def test_states_to_list_are_read_once_for_all_partitions(
    talk: Coordination, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A megabyte of states would be read for each of fifty partitions."""
    calls = []
    in_listing = service.in_listing
    monkeypatch.setattr(service, "in_listing", lambda *given: calls.append(given) or in_listing(*given))
    talk.commit(group="g")
    assert talk.groups.list_groups(ListGroupsRequest(states_filter=["stable", " EMPTY "])).groups
    assert len(calls) == 1


async def test_very_many_groups_are_listed_in_slices(talk: Coordination, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "ELEMENTS_PER_SLICE", 4)
    for number in range(30):
        talk.commit(group=str(number))
    listing = talk.groups.list_groups(ListGroupsRequest())
    async with counted_turns() as turns:
        listed = await listing
    assert sorted(each.group_id for each in listed.groups) == sorted(map(str, range(30)))
    assert turns.count >= 30 // 4


@pytest.mark.parametrize("count", [3, 3 * GROUPS_PER_SLICE])
@pytest.mark.parametrize("commit_seconds", [0, 0.01])
async def test_groups_are_deleted_each_once(
    talk: Coordination, autojump_clock: trio.abc.Clock, count: int, commit_seconds: float
) -> None:
    names = [str(number) for number in range(count)]
    for name in names:
        talk.commit(group=name)
    talk.log.commit_seconds = commit_seconds
    request = DeleteGroupsRequest(groups_names=[*names, "who", *names])
    response = await finished(talk.groups.delete_groups(request))
    assert [each.group_id for each in response.results] == [*names, "who"]
    assert [each.error_code for each in response.results] == [0] * count + [ErrorCode.GROUP_ID_NOT_FOUND]
    assert talk.groups.list_groups(ListGroupsRequest()).groups == []


# ---------------------------------------------------------------------- small things of Java's


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", 0),
        ("a", 97),
        ("group", 98629247),
        ("console-consumer-12345", 158455506),
        ("polygenelubricants", 0),  # whose hash is Integer.MIN_VALUE
        ("é", 233),
        ("😀", 1772899),
    ],
)
def test_partition_is_chosen_by_javas_hash(text: str, value: int) -> None:
    assert absolute_string_hash(text) == value


def test_uuids_are_of_version_4_and_differ() -> None:
    first, second = random_uuid(), random_uuid()
    assert first != second
    assert [len(part) for part in first.split("-")] == [8, 4, 4, 4, 12]
    assert first[14] == "4" and first[19] in "89ab"


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(st.lists(st.integers(0, 9), max_size=30), max_size=30), st.integers(2, 20))
def test_parts_hold_everything_in_order_and_no_more_than_they_may(topics: list[list[int]], elements_max: int) -> None:
    together: list[list[int]] = []
    last: object = None
    for part in parts_of(topics, list, elements_max):
        assert 1 <= elements_in([piece for _, piece in part], list, 1 << 30) <= elements_max
        for topic, piece in part:
            if topic is last and piece:
                together[-1] += piece
            else:
                together.append(list(piece))
            last = topic
    assert together == topics


async def test_a_large_fetch_is_answered_in_parts_as_a_small_one(talk: Coordination) -> None:
    talk.commit(5)
    indexes = list(range(2 * ELEMENTS_PER_SLICE + 7))
    topics = [OffsetFetchRequestTopics(name=name, partition_indexes=indexes) for name in ("topic", "none", "other")]
    group = OffsetFetchRequestGroup(group_id="group", topics=topics)
    for require_stable in (False, True):
        request = OffsetFetchRequest(groups=[group, group], require_stable=require_stable)
        response = await finished(talk.groups.offsets.offset_fetch(request, api_version=8))
        for answer in response.groups:
            assert [each.name for each in answer.topics] == ["topic", "none", "other"]
            for topic in answer.topics:
                assert [each.partition_index for each in topic.partitions] == indexes
            assert [each.committed_offset for each in answer.topics[0].partitions[:2]] == [5, -1]
    older = [OffsetFetchRequestTopic(name=each.name, partition_indexes=indexes) for each in topics]
    response = await finished(
        talk.groups.offsets.offset_fetch(OffsetFetchRequest(group_id="group", topics=older), api_version=5)
    )
    assert [(each.name, len(each.partitions)) for each in response.topics] == [
        (name, len(indexes)) for name in ("topic", "none", "other")
    ]
    assert response.topics[0].partitions[0].committed_offset == 5


async def test_an_error_of_a_group_stands_for_all_parts_of_a_large_fetch(talk: Coordination) -> None:
    talk.groups.on_resignation(talk.groups.partition_for("group"))
    topics = [OffsetFetchRequestTopics(name="topic", partition_indexes=list(range(2_000)))]
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="group", topics=topics)])
    (group,) = (await finished(talk.groups.offsets.offset_fetch(request, api_version=8))).groups
    assert (group.error_code, group.topics) == (ErrorCode.NOT_COORDINATOR, [])


async def test_a_large_deletion_is_taken_in_parts(talk: Coordination) -> None:
    talk.commit(5)
    partitions = [OffsetDeleteRequestPartition(partition_index=index) for index in range(2_000)]
    topics = [OffsetDeleteRequestTopic(name=name, partitions=partitions) for name in ("topic", "nowhere")]
    response = await finished(talk.groups.offsets.offset_delete(OffsetDeleteRequest(group_id="group", topics=topics)))
    errors = errors_of(response)
    assert errors["topic"][0] == ErrorCode.NONE
    assert (len(errors["topic"]), len(errors["nowhere"])) == (2_000, 2_000)
    missing = await finished(talk.groups.offsets.offset_delete(OffsetDeleteRequest(group_id="who", topics=topics)))
    assert (missing.error_code, missing.topics) == (ErrorCode.GROUP_ID_NOT_FOUND, [])


async def test_very_many_members_leave_in_parts(talk: Coordination) -> None:
    members = [MemberIdentity(member_id=str(number)) for number in range(2_000)]
    request = LeaveGroupRequest(group_id="group", members=members)
    response = await finished(talk.groups.classic.leave_group(request, api_version=5))
    assert [each.member_id for each in response.members] == [each.member_id for each in members]
