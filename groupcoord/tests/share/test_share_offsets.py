"""The offsets of share groups: altered and deleted by administrators; deleted groups and topics."""

import pytest

from ottla.groupcoord.share.offsets import ForgetShareTopics, ReadInitialized
from ottla.groupcoord.tests.conversation import GROUP
from ottla.groupcoord.tests.share_talk import INTERVAL_MS, OTHER, TOPIC, ShareTalk, partitions_in
from ottla.wire.errors import ErrorCode

UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def with_offsets(*topics: str) -> ShareTalk:
    """An empty group that has read these topics."""
    talk = ShareTalk()
    talk.joined("m", topics=topics or ("topic",))
    talk.beat("m", -1)
    return talk


# ---------------------------------------------------------------------- alter


def test_offsets_of_a_new_group_are_set() -> None:
    talk = ShareTalk()
    response = talk.alter(("topic", 1, 7), ("other", 0, 9))
    assert response.error_code == ErrorCode.NONE
    assert {each.topic_name: [one.error_code for one in each.partitions] for each in response.responses} == {
        "topic": [0],
        "other": [0],
    }
    (request,) = talk.asked
    assert [
        (topic.topic_id, each.partition, each.state_epoch, each.start_offset)
        for topic in request.topics
        for each in topic.partitions
    ] == [(TOPIC, 1, 1, 7), (OTHER, 0, 1, 9)]
    assert talk.phases() == ({TOPIC: [1], OTHER: [0]}, {}, [])
    assert talk.described().group_state == "Empty" and talk.group().group_epoch == 1
    talk.confirm()
    assert talk.phases() == ({}, {TOPIC: [1], OTHER: [0]}, [])
    talk.assert_replay_is_equal()


def test_what_does_not_exist_has_no_offset() -> None:
    talk = ShareTalk()
    response = talk.alter(("topic", 0, 1), ("nowhere", 0, 1), ("topic", 2, 1), ("nowhere", -1, 1))
    assert [(each.topic_name, each.topic_id) for each in response.responses] == [
        ("nowhere", bytes(16)),
        ("topic", TOPIC),
    ]
    assert [each.error_code for each in response.responses[0].partitions] == [UNKNOWN, UNKNOWN]
    assert [(each.partition_index, each.error_code) for each in response.responses[1].partitions] == [
        (0, 0),
        (2, UNKNOWN),
    ]
    assert partitions_in(talk.asked[0]) == {TOPIC: [0]}


def test_a_negative_partition_refuses_all_offsets() -> None:
    talk = ShareTalk()
    response = talk.alter(("topic", 0, 1), ("topic", -1, 1))
    assert (response.error_code, response.responses) == (ErrorCode.UNKNOWN_SERVER_ERROR, [])
    assert response.error_message.startswith("Initialize share group parameters has invalid partitionId - ")
    assert talk.asked == []
    talk.assert_replay_is_equal()


def test_without_a_topic_that_exists_nothing_happens() -> None:
    talk = ShareTalk()
    assert talk.alter(("nowhere", 0, 1)).error_code == ErrorCode.NONE
    assert talk.alter().error_code == ErrorCode.NONE
    assert (talk.asked, talk.states()) == ([], {})


def test_offsets_of_a_group_with_members_stay() -> None:
    talk = ShareTalk()
    talk.joined("m")
    before = talk.states()
    assert talk.alter(("topic", 0, 1)).error_code == ErrorCode.NON_EMPTY_GROUP
    assert talk.delete_offsets("topic").error_code == ErrorCode.NON_EMPTY_GROUP
    assert talk.prepare_deletion().error is ErrorCode.NON_EMPTY_GROUP
    assert talk.states() == before


def test_members_read_what_an_administrator_has_begun() -> None:
    talk = ShareTalk()
    talk.alter(("topic", 0, 7))
    talk.confirm()
    talk.beat("m", 0)
    # The topic is known by now, so the partitions that are not are begun at their beginning.
    assert [(each.partition, each.start_offset) for each in talk.asked[1].topics[0].partitions] == [(1, 0)]
    assert talk.assigned() == {"m": {"topic": [0]}}


# ---------------------------------------------------------------------- delete


def test_offsets_of_topics_are_deleted_in_two_steps() -> None:
    talk = with_offsets("topic", "other")
    response = talk.delete_offsets("topic", "nowhere")
    assert response.error_code == ErrorCode.NONE
    assert [(each.topic_name, each.error_code) for each in response.responses] == [("nowhere", UNKNOWN)]
    assert partitions_in(talk.asked[-1]) == {TOPIC: [0, 1]}
    assert talk.phases() == ({}, {OTHER: [0]}, [TOPIC])
    talk.restart()
    assert talk.phases() == ({}, {OTHER: [0]}, [TOPIC])
    talk.confirm_deletion(TOPIC)
    assert talk.phases() == ({}, {OTHER: [0]}, [])
    talk.assert_replay_is_equal()


def test_a_deletion_that_did_not_end_can_be_asked_for_again() -> None:
    talk = with_offsets("topic")
    talk.delete_offsets("topic")
    talk.images.put("topic", 3)
    assert talk.delete_offsets("topic").responses == []
    assert partitions_in(talk.asked[-1]) == {TOPIC: [0, 1, 2]}


def test_topics_without_offsets_cannot_be_deleted() -> None:
    talk = with_offsets("topic")
    (answer,) = talk.delete_offsets("other").responses
    assert answer.error_code == UNKNOWN and answer.error_message != UNKNOWN.message
    assert talk.delete_offsets("nowhere").responses[0].error_message == UNKNOWN.message


def test_a_group_that_never_had_offsets_has_nothing_to_say_about_them() -> None:
    talk = ShareTalk()
    assert talk.delete_offsets("topic").error_code == ErrorCode.GROUP_ID_NOT_FOUND
    talk.beat("m", 0, "nowhere")
    talk.beat("m", -1)
    assert talk.delete_offsets("topic", "nowhere").responses == []


def test_a_topic_that_is_read_again_is_deleted_no_more() -> None:
    talk = with_offsets("topic")
    talk.delete_offsets("topic")
    talk.beat("m", 0)
    assert talk.phases() == ({TOPIC: [0, 1]}, {}, [])
    assert {each.start_offset for each in talk.asked[-1].topics[0].partitions} == {-1}


# ---------------------------------------------------------------------- the end of groups and topics


def test_a_group_is_deleted_after_its_state() -> None:
    talk = with_offsets("topic", "other")
    talk.images.put("topic", 3)
    talk.delete_offsets("topic")
    prepared = talk.prepare_deletion()
    assert prepared.error is ErrorCode.NONE and prepared.to_delete is not None
    assert partitions_in(prepared.to_delete) == {OTHER: [0], TOPIC: [0, 1, 2]}
    initializing, initialized, deleting = talk.phases()
    assert (initializing, initialized, sorted(deleting)) == ({}, {}, [OTHER, TOPIC])
    assert talk.delete_group() is ErrorCode.NONE
    assert talk.states() == {} and talk.listed() == []
    talk.assert_replay_is_equal()


def test_a_late_answer_does_not_bring_back_what_is_being_deleted() -> None:
    talk = ShareTalk()
    talk.beat("m", 0)
    talk.beat("m", -1)
    talk.prepare_deletion()
    talk.confirm()
    assert talk.phases() == ({}, {}, [TOPIC])


def test_there_is_nothing_to_prepare_for_other_groups() -> None:
    talk = ShareTalk()
    talk.commit(5)
    assert talk.prepare_deletion() == (ErrorCode.NONE, None)
    assert talk.prepare_deletion("nobody") == (ErrorCode.NONE, None)
    talk.delete_group()
    talk.beat("m", 0, "nowhere")
    talk.beat("m", -1)
    assert talk.prepare_deletion() == (ErrorCode.NONE, None)


def test_a_deletion_that_the_log_refuses_leaves_the_group_as_it_was() -> None:
    talk = with_offsets("topic")
    before = talk.states()
    talk.refuse_appends = ErrorCode.NOT_COORDINATOR
    assert talk.delete_group() is ErrorCode.NOT_COORDINATOR
    assert talk.prepare_deletion().error is ErrorCode.NOT_COORDINATOR
    assert talk.delete_offsets("topic").error_code == ErrorCode.NOT_COORDINATOR
    assert talk.alter(("topic", 0, 1)).error_code == ErrorCode.NOT_COORDINATOR
    assert talk.states() == before


def test_deleted_topics_are_forgotten_in_every_phase() -> None:
    talk = with_offsets("topic", "other")
    talk.delete_offsets("other")
    talk.alter(("topic", 0, 1))
    forget = ForgetShareTopics(frozenset({TOPIC, OTHER}))
    assert talk.ask(forget, 0).response == 1
    assert talk.phases() == ({}, {}, [])
    assert talk.ask(forget, 0).response == 0
    talk.assert_replay_is_equal()


def test_a_topic_that_was_deleted_meanwhile_is_not_initialized() -> None:
    talk = ShareTalk()
    talk.beat("m", 0)
    talk.images.remove("topic")
    talk.confirm()
    assert talk.phases()[1] == {}


@pytest.mark.parametrize("group", [GROUP, "nobody"])
def test_initialized_partitions_are_told(group: str) -> None:
    talk = with_offsets("topic")
    found = talk.shard.read(ReadInitialized(group), now_ms=talk.now_ms)
    assert found == ({TOPIC: [0, 1]} if group == GROUP else {})


def test_a_quiet_heartbeat_writes_nothing() -> None:
    talk = ShareTalk()
    talk.joined("m")
    count = len(talk.log)
    for _ in range(3):
        talk.advance(INTERVAL_MS)
        talk.beat("m", talk.epoch_of("m"))
    assert len(talk.log) == count
