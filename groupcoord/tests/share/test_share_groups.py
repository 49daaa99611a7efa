"""Members of share groups: they join, share partitions, and leave; epochs; sessions; restarts; what the log refuses."""

from dataclasses import replace
from typing import Any

import pytest

from ottla.groupcoord.share import heartbeat
from ottla.groupcoord.share.group import KnownTopic
from ottla.groupcoord.share.records import (
    ShareGroupCurrentMemberAssignmentKey,
    ShareGroupMemberMetadataKey,
    ShareGroupMetadataKey,
    ShareGroupStatePartitionMetadataKey,
    ShareGroupTargetAssignmentMemberKey,
    ShareGroupTargetAssignmentMetadataKey,
)
from ottla.groupcoord.tests.conversation import GROUP
from ottla.groupcoord.tests.share_talk import (
    INTERVAL_MS,
    OTHER,
    RETRY_MS,
    SHARE_SESSION_MS,
    TOPIC,
    ShareTalk,
    partitions_in,
)
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.offsets import OffsetCommitRequest, OffsetFetchRequestGroup

# ---------------------------------------------------------------------- joining


def test_the_first_member_begins_its_partitions_and_reads_them_once_they_are_known() -> None:
    talk = ShareTalk()
    response = talk.beat("m", 0)
    assert (response.error_code, response.member_id, response.member_epoch) == (0, "m", 2)
    assert response.heartbeat_interval_ms == 5000
    assert response.assignment is not None and response.assignment.topic_partitions == []
    assert partitions_in(talk.asked[0]) == {TOPIC: [0, 1]}
    assert {(each.state_epoch, each.start_offset) for each in talk.asked[0].topics[0].partitions} == {(2, -1)}
    assert talk.phases() == ({TOPIC: [0, 1]}, {}, [])
    talk.confirm()
    assert talk.phases() == ({}, {TOPIC: [0, 1]}, [])
    response = talk.beat("m", 2)
    assert (response.member_epoch, response.assignment) == (2, None), "assignments have their rhythm"
    talk.advance(INTERVAL_MS)
    response = talk.beat("m", 2)
    assert response.member_epoch == 3 and response.assignment is not None
    (told,) = response.assignment.topic_partitions
    assert (told.topic_id, told.partitions) == (TOPIC, [0, 1])
    assert talk.beat("m", 3).assignment is None and len(talk.asked) == 1
    talk.assert_replay_is_equal()


def test_the_records_of_a_first_heartbeat_are_those_of_kafka() -> None:
    talk = ShareTalk()
    talk.beat("m", 0)
    kinds = [type(each.key) for each in talk.records() if each is not None]
    assert kinds == [
        ShareGroupMemberMetadataKey,
        ShareGroupMetadataKey,
        ShareGroupTargetAssignmentMemberKey,
        ShareGroupTargetAssignmentMetadataKey,
        ShareGroupCurrentMemberAssignmentKey,
        ShareGroupStatePartitionMetadataKey,
    ]


def test_members_share_the_partitions() -> None:
    talk = ShareTalk()
    talk.joined("a", "b", "c")
    assigned = talk.assigned()
    assert sorted(len(each["topic"]) for each in assigned.values()) == [1, 1, 2]
    assert set().union(*[each["topic"] for each in assigned.values()]) == {0, 1}
    talk.assert_replay_is_equal()


def test_a_member_reads_what_it_has_subscribed_to_last() -> None:
    talk = ShareTalk()
    talk.joined("a")
    epoch = talk.epoch_of("a")
    response = talk.beat("a", epoch, "other")
    assert response.assignment is not None and response.assignment.topic_partitions == []
    assert partitions_in(talk.asked[-1]) == {OTHER: [0]}
    talk.confirm()
    talk.advance(INTERVAL_MS)
    response = talk.beat("a", response.member_epoch)
    assert response.assignment is not None
    assert [(each.topic_id, each.partitions) for each in response.assignment.topic_partitions] == [(OTHER, [0])]
    talk.assert_replay_is_equal()


def test_a_topic_that_does_not_exist_is_read_when_it_does() -> None:
    talk = ShareTalk()
    talk.beat("m", 0, "later")
    assert talk.asked == [] and talk.group().group_epoch == 2
    talk.beat("m", 2)
    assert talk.group().group_epoch == 2
    talk.images.put("later", 1)
    talk.advance(INTERVAL_MS)
    assert talk.beat("m", 2).member_epoch == 3
    assert len(partitions_in(talk.asked[0])) == 1
    talk.confirm()
    talk.advance(INTERVAL_MS)
    talk.beat("m", 3)
    assert talk.assigned() == {"m": {"later": [0]}}


def test_new_partitions_of_a_topic_are_read_from_their_beginning() -> None:
    talk = ShareTalk()
    talk.joined("m")
    talk.images.put("topic", 3)
    talk.beat("m", talk.epoch_of("m"))
    (topic,) = talk.asked[-1].topics
    assert [(each.partition, each.start_offset, each.state_epoch) for each in topic.partitions] == [(2, 0, 4)]
    talk.confirm()
    talk.advance(INTERVAL_MS)
    talk.beat("m", talk.epoch_of("m"))
    assert talk.assigned() == {"m": {"topic": [0, 1, 2]}}


def test_a_deleted_topic_is_taken_from_its_members() -> None:
    talk = ShareTalk()
    talk.joined("m", topics=("topic", "other"))
    talk.images.remove("topic")
    talk.advance(INTERVAL_MS)
    epoch = talk.epoch_of("m")
    talk.beat("m", epoch)
    assert talk.assigned() == {"m": {"other": [0]}}
    talk.advance(INTERVAL_MS)
    talk.beat("m", talk.epoch_of("m"))
    assert talk.epoch_of("m") == epoch + 1, "the topic that is gone does not raise the epoch again and again"


def test_what_a_member_says_of_itself_is_kept_and_described() -> None:
    talk = ShareTalk()
    talk.beat("m", 0, "topic", "other", rack="r1", client_id="c1")
    talk.beat("m", 2, client_id="c2")
    (member,) = talk.described().members
    assert (member.rack_id, member.client_id, member.client_host) == ("r1", "c2", "/127.0.0.1")
    assert member.subscribed_topic_names == ["other", "topic"]
    group = talk.described()
    assert (group.group_state, group.group_epoch, group.assignment_epoch, group.assignor_name) == (
        "Stable",
        2,
        2,
        "simple",
    )


# ---------------------------------------------------------------------- initialization


def test_the_partitions_of_many_topics_are_begun_by_one_walk() -> None:
    class Walked(dict[bytes, KnownTopic]):
        walks = 0

        def items(self) -> Any:
            type(self).walks += 1
            return super().items()

    talk = ShareTalk()
    names = [f"t{number}" for number in range(60)]
    for name in names:
        talk.images.put(name, 1)
    talk.joined("a", topics=names)
    known = talk.group().share_partitions
    talk.group().state_partitions = replace(known, initialized=Walked(known.initialized))
    assert not talk.beat("b", 0, *names).error_code
    assert Walked.walks < 10, "not one for each topic"


def test_partitions_whose_initialization_failed_are_begun_again_at_once() -> None:
    talk = ShareTalk()
    talk.beat("m", 0)
    talk.refuse()
    assert talk.phases() == ({}, {}, [])
    talk.beat("m", 2)
    assert len(talk.asked) == 2 and talk.asked[1].topics[0].partitions[0].start_offset == -1
    talk.assert_replay_is_equal()


def test_partitions_whose_initialization_never_ended_are_begun_again_after_a_while() -> None:
    talk = ShareTalk()
    talk.beat("m", 0)
    talk.advance(RETRY_MS - 1)
    talk.beat("m", 2)
    assert len(talk.asked) == 1
    talk.advance(1)
    talk.beat("m", 2)
    assert [partitions_in(each) for each in talk.asked] == [{TOPIC: [0, 1]}] * 2


def test_a_new_coordinator_gives_the_initialization_of_the_old_one_its_time() -> None:
    talk = ShareTalk()
    talk.beat("m", 0)
    talk.restart()
    talk.beat("m", 2)
    assert len(talk.asked) == 1
    talk.advance(RETRY_MS)
    talk.beat("m", 2)
    assert len(talk.asked) == 2


def test_news_of_a_group_that_is_gone_are_no_news() -> None:
    talk = ShareTalk()
    talk.beat("m", 0)
    talk.beat("m", -1)
    talk.delete_group()
    talk.confirm()
    talk.refuse()
    assert talk.states() == {}


# ---------------------------------------------------------------------- epochs


@pytest.mark.parametrize(
    ("member_id", "epoch", "error"),
    [
        ("m", 4, ErrorCode.FENCED_MEMBER_EPOCH),
        ("m", 1, ErrorCode.FENCED_MEMBER_EPOCH),
        ("stranger", 3, ErrorCode.UNKNOWN_MEMBER_ID),
        ("stranger", -1, ErrorCode.UNKNOWN_MEMBER_ID),
        ("m", 3, ErrorCode.NONE),
        ("m", 2, ErrorCode.NONE),
        ("m", 0, ErrorCode.NONE),
    ],
)
def test_epochs(member_id: str, epoch: int, error: ErrorCode) -> None:
    talk = ShareTalk()
    talk.joined("m")
    assert talk.epoch_of("m") == 3
    response = talk.beat(member_id, epoch)
    assert response.error_code == error
    assert bool(response.error_message) == bool(error)
    # The answer before may be lost, so the member is told its epoch again.
    assert response.member_epoch == (0 if error else 3)


def test_a_group_that_does_not_exist_has_no_members() -> None:
    talk = ShareTalk()
    assert talk.beat("m", 1).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert talk.beat("m", -1).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert talk.described().error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert talk.states() == {}


def test_a_group_of_another_kind_is_no_share_group() -> None:
    talk = ShareTalk()
    talk.commit(5)
    assert talk.beat("m", 0).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert talk.alter(("topic", 0, 5)).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert talk.delete_offsets("topic").error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert talk.described().error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_a_full_group_takes_nobody_but_its_members() -> None:
    talk = ShareTalk(group_share_max_size=1)
    talk.beat("a", 0)
    assert talk.beat("b", 0).error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert talk.beat("b", 5).error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert talk.beat("a", 0).error_code == ErrorCode.NONE


# ---------------------------------------------------------------------- leaving


def test_a_member_that_leaves_leaves_its_partitions_to_the_others() -> None:
    talk = ShareTalk()
    talk.joined("a", "b")
    response = talk.beat("a", -1)
    assert (response.error_code, response.member_id, response.member_epoch) == (0, "a", -1)
    talk.advance(INTERVAL_MS)
    talk.beat("b", talk.epoch_of("b"))
    assert talk.assigned() == {"b": {"topic": [0, 1]}}
    talk.assert_replay_is_equal()


def test_a_group_without_members_is_empty_and_begins_at_once_with_the_next_one() -> None:
    talk = ShareTalk()
    talk.joined("a")
    talk.beat("a", -1)
    group = talk.described()
    assert (group.group_state, group.members, group.group_epoch == group.assignment_epoch) == ("Empty", [], True)
    response = talk.beat("b", 0)
    assert response.assignment is not None
    assert [each.partitions for each in response.assignment.topic_partitions] == [[0, 1]]
    talk.assert_replay_is_equal()


def test_a_member_that_is_silent_for_too_long_is_put_out() -> None:
    talk = ShareTalk()
    talk.joined("a", "b")
    talk.advance(SHARE_SESSION_MS - 1)
    talk.beat("b", talk.epoch_of("b"))
    talk.advance(1)
    assert talk.assigned().keys() == {"b"}
    assert talk.beat("a", 3).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_large_assignment_is_made_beside_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat, "SIZE_AT_ONCE", 0)
    talk = ShareTalk(group_share_assignment_interval_ms=0)

    def stay() -> None:
        assert talk.beat("a", talk.epoch_of("a")).error_code == ErrorCode.NONE

    talk.beat("a")
    talk.confirm()
    talk.holds_jobs = True
    stay()
    talk.beat("b")
    assert len(talk.jobs) == 1, "one at a time"
    assert talk.assigned() == {"a": {}, "b": {}}
    talk.do_jobs()
    assert talk.group().assignment_epoch < talk.group().group_epoch, "somebody has come meanwhile"
    stay()
    assert talk.assigned() == {"a": {"topic": [0, 1]}, "b": {}}
    talk.beat("b", -1)
    talk.do_jobs()
    assert set(talk.group().targets) == {"a"}
    stay()
    talk.do_jobs()
    stay()
    assert talk.assigned() == {"a": {"topic": [0, 1]}}
    talk.assert_replay_is_equal()


def test_an_assignment_that_comes_too_late_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat, "SIZE_AT_ONCE", 0)
    talk = ShareTalk(group_share_assignment_interval_ms=0)
    talk.holds_jobs = True
    talk.beat("a")
    talk.beat("a", -1)
    talk.delete_group()
    talk.do_jobs()
    assert not talk.shard._groups
    talk.assert_replay_is_equal()


def test_after_a_restart_everybody_has_a_whole_session() -> None:
    talk = ShareTalk()
    talk.joined("a")
    talk.advance(SHARE_SESSION_MS - INTERVAL_MS)
    talk.restart()
    talk.advance(SHARE_SESSION_MS - 1)
    assert talk.assigned().keys() == {"a"}
    talk.advance(1)
    assert talk.assigned() == {}


def test_a_group_may_have_settings_of_its_own() -> None:
    talk = ShareTalk()
    talk.own_settings[GROUP] = {"share.heartbeat.interval.ms": 7, "share.session.timeout.ms": 9}
    assert talk.beat("m", 0).heartbeat_interval_ms == 7
    assert talk.beat("m", 0, group="another").heartbeat_interval_ms == 5000
    talk.advance(8)
    talk.own_settings[GROUP]["share.session.timeout.ms"] = 20
    talk.beat("m", 2)
    talk.advance(19)
    assert talk.described().group_state == "Stable"
    talk.advance(1)
    assert talk.described().group_state == "Empty"


def test_share_groups_are_listed() -> None:
    talk = ShareTalk()
    talk.beat("m", 0)
    (group,) = talk.listed(types=["share"])
    assert (group.group_id, group.protocol_type, group.group_state, group.group_type) == (
        GROUP,
        "share",
        "Stable",
        "share",
    )
    assert talk.listed(types=["classic"]) == []


def test_a_share_group_takes_no_commits() -> None:
    talk = ShareTalk()
    talk.beat("m", 0)
    commit = OffsetCommitRequest(group_id=GROUP, member_id="m", generation_id_or_member_epoch=2, topics=[])
    assert talk.ask(commit, 9).response.topics == []
    assert talk.commit(5) is ErrorCode.GROUP_ID_NOT_FOUND
    fetch = OffsetFetchRequestGroup(group_id=GROUP, topics=None)
    fetched = talk.shard.read(fetch, now_ms=0)
    assert (fetched.error_code, fetched.topics) == (ErrorCode.NONE, [])
    assert talk.delete_offset("topic").error is ErrorCode.GROUP_ID_NOT_FOUND


# ---------------------------------------------------------------------- the log refuses


def test_nothing_is_left_of_a_group_whose_records_the_log_refuses() -> None:
    talk = ShareTalk()
    talk.refuse_appends = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert talk.beat("m", 0).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert talk.states() == {} and talk.asked == []
    talk.advance(SHARE_SESSION_MS)
    talk.refuse_appends = ErrorCode.NONE
    assert talk.beat("m", 0).member_epoch == 2


@pytest.mark.parametrize("topics", [(), ("topic", "other")])
def test_a_refused_heartbeat_changes_nothing(topics: tuple[str, ...]) -> None:
    talk = ShareTalk()
    talk.joined("a")
    before = talk.states()
    talk.images.put("topic", 5)
    talk.refuse_appends = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert talk.beat("a", 3, *topics).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert talk.states() == before
    talk.refuse_appends = ErrorCode.NONE
    asked = len(talk.asked)
    assert talk.beat("a", 3, *topics).member_epoch == 4
    assert len(talk.asked) == asked + 1, "the new partitions are noticed again"
    talk.assert_replay_is_equal()


def test_a_member_whose_end_is_refused_is_put_out_later() -> None:
    talk = ShareTalk()
    talk.joined("a", "b")
    talk.beat("b", talk.epoch_of("b"))
    talk.advance(SHARE_SESSION_MS - 2 * INTERVAL_MS)
    talk.beat("b", talk.epoch_of("b"))
    talk.refuse_appends = ErrorCode.COORDINATOR_NOT_AVAILABLE
    talk.advance(2 * INTERVAL_MS)
    assert talk.beat("a", -1).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert talk.assigned().keys() == {"a", "b"}
    talk.refuse_appends = ErrorCode.NONE
    talk.advance(INTERVAL_MS)
    assert talk.assigned().keys() == {"b"}
    talk.assert_replay_is_equal()
