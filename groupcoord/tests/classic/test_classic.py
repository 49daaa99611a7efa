"""Rebalances of a classic group, told as conversations, and its members."""

from __future__ import annotations

import pytest

from ottla.groupcoord.classic.members import (
    GROUP_METADATA_BYTES_MAX,
    PROTOCOLS_MAX,
    GroupMetadataRecord,
    Member,
    Members,
)
from ottla.groupcoord.classic.rebalancing import NEW_MEMBER_JOIN_TIMEOUT_MS, PENDING_MEMBERS_MAX, ClassicGroup
from ottla.groupcoord.config import GroupConfig
from ottla.groupcoord.effects import TEXT_LENGTH_MAX, Effects
from ottla.groupcoord.runtime.answers import Caller
from ottla.groupcoord.tests.conversation import (
    INITIAL_DELAY_MS,
    REBALANCE_MS,
    SESSION_MS,
    Asked,
    Conversation,
    subscription,
)
from ottla.wire.errors import ErrorCode


def member_of(joined: Asked) -> str:
    member_id: str = joined.response.member_id
    return member_id


def rejoin(talk: Conversation, joined: Asked, **details: object) -> Asked:
    return talk.join(member_of(joined), **details)  # type: ignore[arg-type]


# ---------------------------------------------------------------------- becoming a member


def test_first_join_is_told_a_member_id() -> None:
    talk = Conversation()
    asked = talk.join(client_id="me")
    assert asked.error is ErrorCode.MEMBER_ID_REQUIRED
    assert asked.response.member_id == "me-uuid1"
    assert asked.response.protocol_name is None and asked.response.leader == "" and asked.response.generation_id == -1
    assert talk.state() == "Empty"


def test_first_join_before_version_4_is_a_member_at_once() -> None:
    talk = Conversation()
    asked = talk.join(version=3)
    assert asked.response is None
    talk.advance(INITIAL_DELAY_MS)
    assert asked.error is ErrorCode.NONE and asked.response.generation_id == 1


def test_single_member_leads_generation_1() -> None:
    talk = Conversation()
    joined = talk.join_twice()
    assert joined.response is None and talk.state() == "PreparingRebalance"
    talk.advance(INITIAL_DELAY_MS)
    response = joined.response
    assert (response.generation_id, response.protocol_type, response.protocol_name) == (1, "consumer", "range")
    assert response.leader == response.member_id == "client-uuid1"
    assert [each.member_id for each in response.members] == ["client-uuid1"]
    assert not response.skip_assignment and talk.state() == "CompletingRebalance"


def test_only_the_leader_learns_who_else_is_in() -> None:
    talk = Conversation()
    joins = [talk.join_twice(protocols={"range": bytes([number])}) for number in range(3)]
    talk.advance(2 * INITIAL_DELAY_MS)
    leader, *followers = joins
    assert [(each.member_id, each.metadata) for each in leader.response.members] == [
        (member_of(joined), bytes([number])) for number, joined in enumerate(joins)
    ]
    assert all(each.response.members == [] for each in followers)
    assert all(each.response.leader == member_of(leader) for each in followers)


def test_unknown_member_id_is_refused_in_any_group() -> None:
    talk = Conversation()
    assert talk.join("who").error is ErrorCode.UNKNOWN_MEMBER_ID
    talk.stable_group()
    refused = talk.join("who")
    assert refused.error is ErrorCode.UNKNOWN_MEMBER_ID and refused.response.member_id == "who"


@pytest.mark.parametrize("details", [{"protocols": {}}, {"protocol_type": ""}])
def test_empty_group_wants_a_protocol(details: dict[str, object]) -> None:
    talk = Conversation()
    assert talk.join(**details).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL  # type: ignore[arg-type]
    assert talk.state() == "Empty", "who is refused has made the group all the same"
    talk.restart()
    assert talk.state() == "Empty"


@pytest.mark.parametrize(
    "details", [{"protocols": {"roundrobin": b""}}, {"protocol_type": "connect"}, {"protocols": {}}]
)
def test_members_must_share_a_protocol(details: dict[str, object]) -> None:
    talk = Conversation()
    (first,) = talk.stable_group(1)
    refused = talk.join(**details)  # type: ignore[arg-type]
    assert refused.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    refused = rejoin(talk, first, **details)
    assert refused.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL and refused.response.member_id == member_of(first)
    assert talk.state() == "Stable"


def test_any_protocol_type_will_do() -> None:
    talk = Conversation()
    details = {"protocol_type": "connect", "protocols": {"sessioned": b"1", "compatible": b"2", "default": b"3"}}
    joins = talk.stable_group(2, **details)
    assert joins[0].response.protocol_type == "connect" and joins[0].response.protocol_name == "sessioned"


def test_protocol_is_what_most_members_like_best_of_what_all_support() -> None:
    talk = Conversation()
    offers = [("a", "b", "c"), ("b", "c", "d"), ("c", "b"), ("b", "c", "a")]
    joins = [talk.join_twice(protocols=dict.fromkeys(names, b"")) for names in offers]
    talk.advance(2 * INITIAL_DELAY_MS)
    assert {each.response.protocol_name for each in joins} == {"b"}


def test_answers_before_version_7_have_an_empty_protocol_name() -> None:
    talk = Conversation()
    assert talk.join(version=6).response.protocol_name == ""
    assert talk.join(version=7).response.protocol_name is None


def test_version_0_rebalances_within_the_session_timeout() -> None:
    talk = Conversation()
    joins = [talk.join(version=0, session_ms=6_000, rebalance_ms=-1) for _ in range(2)]
    talk.advance(2 * INITIAL_DELAY_MS)
    talk.settle_generation(joins)
    rejoined = rejoin(talk, joins[0], version=0, session_ms=6_000, rebalance_ms=-1)
    talk.advance(5_999)
    assert rejoined.response is None
    talk.advance(1)
    assert rejoined.response.generation_id == 2


def test_group_of_full_size_takes_nobody_else() -> None:
    talk = Conversation(group_max_size=2)
    joins = talk.stable_group(2)
    refused = talk.join()
    assert refused.error is ErrorCode.GROUP_MAX_SIZE_REACHED and refused.response.member_id == ""
    assert talk.state() == "Stable"
    assert rejoin(talk, joins[1]).error is ErrorCode.NONE


def test_size_is_counted_by_those_who_came_back_first() -> None:
    talk = Conversation(group_max_size=2)
    first, second, late = talk.join(), talk.join(), talk.join()
    first, second = talk.join(member_of(first)), talk.join(member_of(second))
    refused = talk.join(member_of(late))
    assert refused.error is ErrorCode.GROUP_MAX_SIZE_REACHED
    talk.advance(2 * INITIAL_DELAY_MS)
    assert first.error is ErrorCode.NONE and len(first.response.members) == 2


def test_flood_of_member_ids_is_bounded() -> None:
    talk = Conversation()
    talk.join()
    group = talk.shard._groups["group"]  # the public way takes ten thousand joins
    group.members.pending_join |= {f"ghost{number}" for number in range(PENDING_MEMBERS_MAX)}
    assert talk.join().error is ErrorCode.GROUP_MAX_SIZE_REACHED


@pytest.mark.parametrize(
    "details",
    [
        {"protocols": {f"p{number}": b"" for number in range(PROTOCOLS_MAX + 1)}},
        {"protocols": {"p" * (TEXT_LENGTH_MAX + 1): b""}},
        {"protocol_type": "p" * (TEXT_LENGTH_MAX + 1)},
        {"instance": "i" * (TEXT_LENGTH_MAX + 1)},
    ],
)
def test_join_that_would_not_fit_into_a_record_is_refused(details: dict[str, object]) -> None:
    talk = Conversation()
    assert talk.join(**details).error is ErrorCode.INVALID_REQUEST  # type: ignore[arg-type]
    assert talk.state() == "Empty"


def test_long_client_id_is_cut_to_fit_into_a_record() -> None:
    talk = Conversation()
    joined = talk.join(client_id="\ufffd" * 32_767)
    assert joined.error is ErrorCode.MEMBER_ID_REQUIRED
    assert len(joined.response.encode(9)) < 32_767


def test_metadata_beyond_all_measure_is_refused() -> None:
    talk = Conversation()
    huge = {"range": bytes(GROUP_METADATA_BYTES_MAX + 1)}
    assert talk.join(protocols=huge).error is ErrorCode.GROUP_MAX_SIZE_REACHED
    (joined,) = talk.stable_group(1)
    again = rejoin(talk, joined)
    assert talk.sync(again, {member_of(joined): huge["range"]}).error is ErrorCode.UNKNOWN_SERVER_ERROR
    assert talk.state() == "CompletingRebalance"


# ---------------------------------------------------------------------- the first rebalance


def test_first_rebalance_waits_for_more_members_up_to_the_rebalance_timeout() -> None:
    talk = Conversation()
    joins = [talk.join_twice(rebalance_ms=8_000)]
    for _ in range(4):
        talk.advance(1_900)
        joins.append(talk.join_twice(rebalance_ms=8_000))
        assert all(each.response is None for each in joins)
    talk.advance(400)
    assert all(each.response.generation_id == 1 for each in joins)


def test_first_rebalance_ends_when_nobody_else_comes() -> None:
    talk = Conversation()
    joins = [talk.join_twice()]
    talk.advance(INITIAL_DELAY_MS - 1)
    joins.append(talk.join_twice())
    talk.advance(INITIAL_DELAY_MS)
    assert joins[0].response is None
    talk.advance(1)
    assert all(each.response.generation_id == 1 for each in joins)


def test_first_rebalance_without_delay_ends_at_once() -> None:
    talk = Conversation(group_initial_rebalance_delay_ms=0)
    joined = talk.join_twice()
    talk.advance(0)
    assert joined.error is ErrorCode.NONE


def test_everybody_leaving_the_first_rebalance_empties_the_group() -> None:
    talk = Conversation()
    joined = talk.join_twice()
    left = talk.leave(("client-uuid1", None))
    assert left.response.members[0].error_code == ErrorCode.NONE
    assert joined.error is ErrorCode.UNKNOWN_MEMBER_ID
    talk.advance(INITIAL_DELAY_MS)
    assert talk.state() == "Empty"


# ---------------------------------------------------------------------- later rebalances


def test_new_member_makes_everybody_join_again() -> None:
    talk = Conversation()
    joins = talk.stable_group(2)
    new = talk.join_twice()
    assert talk.state() == "PreparingRebalance"
    assert [talk.heartbeat(each) for each in joins] == [ErrorCode.REBALANCE_IN_PROGRESS] * 2
    again = [rejoin(talk, joins[0])]
    assert new.response is None
    again.append(rejoin(talk, joins[1]))
    assert all(each.response.generation_id == 2 for each in (new, *again))
    assert len(again[0].response.members) == 3


def test_rebalance_waits_for_handed_out_member_ids() -> None:
    talk = Conversation()
    (joined,) = talk.stable_group(1)
    pending = talk.join(session_ms=SESSION_MS)
    again = rejoin(talk, joined)
    assert again.response is None, "the leader's join starts a rebalance that waits for the pending member"
    new = talk.join(member_of(pending))
    assert again.error is new.error is ErrorCode.NONE


def test_pending_member_is_no_static_member() -> None:
    talk = Conversation()
    talk.stable_group(1)
    pending = talk.join()
    refused = talk.join(member_of(pending), instance="static")
    assert refused.error is ErrorCode.UNKNOWN_SERVER_ERROR and refused.response.member_id == ""
    assert talk.join(member_of(pending)).response is None, "it still is a pending member"


def test_pending_member_is_forgotten_after_a_session_timeout() -> None:
    talk = Conversation()
    (joined,) = talk.stable_group(1)
    pending = talk.join(session_ms=6_000)
    again = rejoin(talk, joined)
    talk.advance(6_000)
    assert again.error is ErrorCode.NONE
    assert talk.join(member_of(pending)).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_members_that_do_not_come_back_are_dropped_after_the_rebalance_timeout() -> None:
    talk = Conversation()
    joins = talk.stable_group(2, session_ms=60_000)
    again = rejoin(talk, joins[0], session_ms=60_000)
    talk.advance(REBALANCE_MS - 1)
    assert again.response is None
    talk.advance(1)
    assert again.error is ErrorCode.NONE and len(again.response.members) == 1
    assert talk.heartbeat(joins[1]) is ErrorCode.UNKNOWN_MEMBER_ID


def test_leader_that_does_not_come_back_is_replaced() -> None:
    talk = Conversation()
    joins = talk.stable_group(2, session_ms=60_000)
    again = rejoin(talk, joins[1], session_ms=60_000, protocols={"range": b"changed"})
    talk.advance(REBALANCE_MS)
    assert again.response.leader == member_of(joins[1]) and len(again.response.members) == 1


def test_follower_joining_again_unchanged_gets_the_present_generation() -> None:
    talk = Conversation()
    joins = talk.stable_group(2)
    again = rejoin(talk, joins[1])
    assert again.response.generation_id == 1 and again.response.members == [] and talk.state() == "Stable"


def test_changed_metadata_makes_everybody_join_again() -> None:
    talk = Conversation()
    joins = talk.stable_group(2)
    again = rejoin(talk, joins[1], protocols={"range": b"changed"})
    assert again.response is None and talk.state() == "PreparingRebalance"
    leader = rejoin(talk, joins[0])
    assert leader.response.generation_id == 2
    assert [each.metadata for each in leader.response.members][1] == b"changed"


def test_leader_joining_again_makes_everybody_join_again() -> None:
    talk = Conversation()
    joins = talk.stable_group(2)
    assert rejoin(talk, joins[0]).response is None
    assert talk.state() == "PreparingRebalance"


def test_lost_join_answer_is_given_again() -> None:
    talk = Conversation()
    joined = talk.join_twice()
    talk.advance(INITIAL_DELAY_MS)
    again = rejoin(talk, joined)
    assert again.response == joined.response and talk.state() == "CompletingRebalance"


def test_changed_metadata_before_the_assignment_starts_over() -> None:
    talk = Conversation()
    joins = [talk.join_twice(), talk.join_twice()]
    talk.advance(2 * INITIAL_DELAY_MS)
    waiting = talk.sync(joins[1])
    again = rejoin(talk, joins[0], protocols={"range": b"changed"})
    assert waiting.error is ErrorCode.REBALANCE_IN_PROGRESS and again.response is None
    assert rejoin(talk, joins[1]).response.generation_id == again.response.generation_id == 2


def test_second_join_of_a_parked_member_sends_the_first_away() -> None:
    talk = Conversation()
    joins = talk.stable_group(2)
    parked = rejoin(talk, joins[0])
    again = rejoin(talk, joins[0])
    assert parked.error is ErrorCode.REBALANCE_IN_PROGRESS and again.response is None
    rejoin(talk, joins[1])
    assert again.error is ErrorCode.NONE


def test_new_member_that_nobody_waits_for_expires() -> None:
    talk = Conversation()
    joins = talk.stable_group(2, session_ms=1_000_000, rebalance_ms=1_000_000)
    new = talk.join(version=3, rebalance_ms=1_000_000)
    talk.advance(NEW_MEMBER_JOIN_TIMEOUT_MS)
    assert new.error is ErrorCode.UNKNOWN_MEMBER_ID
    assert [rejoin(talk, each).response is None for each in joins] == [True, False]


@pytest.mark.parametrize("details", [{"version": 3}, {"instance": "static"}])
def test_new_member_that_disconnects_is_forgotten(details: dict[str, object]) -> None:
    talk = Conversation()
    joins = talk.stable_group(2)
    new = talk.join(**details)  # type: ignore[arg-type]
    talk.disconnect(new)
    assert [rejoin(talk, each).response is None for each in joins] == [True, False]


def test_known_member_that_disconnects_while_joining_stays() -> None:
    talk = Conversation()
    joins = talk.stable_group(2)
    talk.disconnect(rejoin(talk, joins[0]))
    second = rejoin(talk, joins[1])
    assert second.response.generation_id == 2 and second.response.leader == member_of(joins[0])


# ---------------------------------------------------------------------- sync


def test_members_wait_for_the_leaders_assignment() -> None:
    talk = Conversation()
    joins = [talk.join_twice(), talk.join_twice()]
    talk.advance(2 * INITIAL_DELAY_MS)
    follower = talk.sync(joins[1])
    assert follower.response is None
    leader = talk.sync(joins[0], {member_of(joins[0]): b"left", member_of(joins[1]): b"right"})
    assert (leader.response.assignment, follower.response.assignment) == (b"left", b"right")
    assert (follower.response.protocol_type, follower.response.protocol_name) == ("consumer", "range")
    assert talk.state() == "Stable"


def test_member_without_an_assignment_gets_an_empty_one() -> None:
    talk = Conversation()
    joins = [talk.join_twice(), talk.join_twice()]
    talk.advance(2 * INITIAL_DELAY_MS)
    follower = talk.sync(joins[1])
    talk.sync(joins[0], {member_of(joins[0]): b"all", "stranger": b"none of it"})
    assert follower.error is ErrorCode.NONE and follower.response.assignment == b""


def test_stable_group_gives_the_assignment_again() -> None:
    talk = Conversation()
    joins = talk.stable_group(2)
    for joined in joins:
        assert talk.sync(joined).response.assignment == member_of(joined).encode()


@pytest.mark.parametrize(
    ("details", "error"),
    [
        ({"member_id": "who"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"generation_id": 0}, ErrorCode.ILLEGAL_GENERATION),
        ({"group_instance_id": "who"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"protocol_type": "connect"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_name": "roundrobin"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"group_id": "other"}, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_sync_of_somebody_else_is_refused(details: dict[str, object], error: ErrorCode) -> None:
    talk = Conversation()
    (joined,) = talk.stable_group(1)
    assert talk.sync(joined, **details).error is error  # type: ignore[arg-type]


def test_sync_without_protocol_names_is_not_checked_for_them() -> None:
    talk = Conversation()
    (joined,) = talk.stable_group(1)
    assert talk.sync(joined, version=4, protocol_type=None, protocol_name=None).error is ErrorCode.NONE


def test_sync_during_a_rebalance_is_told_to_join() -> None:
    talk = Conversation()
    joins = talk.stable_group(2)
    rejoin(talk, joins[0])
    assert talk.sync(joins[1]).error is ErrorCode.REBALANCE_IN_PROGRESS


def test_second_sync_of_a_parked_member_sends_the_first_away() -> None:
    talk = Conversation()
    joins = [talk.join_twice(), talk.join_twice()]
    talk.advance(2 * INITIAL_DELAY_MS)
    parked, again = talk.sync(joins[1]), talk.sync(joins[1])
    assert parked.error is ErrorCode.REBALANCE_IN_PROGRESS and again.response is None


def test_members_that_never_sync_are_dropped_after_the_rebalance_timeout() -> None:
    talk = Conversation()
    joins = [talk.join_twice(session_ms=60_000) for _ in range(3)]
    talk.advance(2 * INITIAL_DELAY_MS)
    leader = talk.sync(joins[0])
    talk.sync(joins[1])
    assert leader.error is ErrorCode.NONE and talk.state() == "Stable"
    talk.advance(REBALANCE_MS)
    assert talk.state() == "PreparingRebalance"
    assert talk.heartbeat(joins[0]) is ErrorCode.REBALANCE_IN_PROGRESS
    assert talk.heartbeat(joins[2]) is ErrorCode.UNKNOWN_MEMBER_ID


def test_leader_that_never_syncs_sends_its_followers_back_to_join() -> None:
    talk = Conversation()
    joins = [talk.join_twice(session_ms=60_000) for _ in range(2)]
    talk.advance(2 * INITIAL_DELAY_MS)
    follower = talk.sync(joins[1])
    talk.advance(REBALANCE_MS)
    assert follower.error is ErrorCode.REBALANCE_IN_PROGRESS
    again = rejoin(talk, joins[1], session_ms=60_000)
    assert again.response.leader == member_of(joins[1])


def test_assignment_that_cannot_be_written_sends_everybody_back_to_join() -> None:
    talk = Conversation()
    joins = [talk.join_twice(), talk.join_twice()]
    talk.advance(2 * INITIAL_DELAY_MS)
    follower = talk.sync(joins[1])
    talk.refuse_appends = ErrorCode.UNKNOWN_SERVER_ERROR
    leader = talk.sync(joins[0], {member_of(joins[1]): b"too large"})
    assert leader.error is follower.error is ErrorCode.UNKNOWN_SERVER_ERROR
    assert talk.state() == "PreparingRebalance"
    talk.refuse_appends = ErrorCode.NONE
    again = [rejoin(talk, each) for each in joins]
    talk.settle_generation(again)
    assert talk.state() == "Stable"


def test_stable_group_is_in_the_log() -> None:
    talk = Conversation()
    joins = talk.stable_group(2)
    record = talk.records()[-1]
    assert isinstance(record, GroupMetadataRecord) and record.value is not None
    assert (record.value.generation, record.value.protocol, record.value.leader) == (1, "range", member_of(joins[0]))
    assert {each.member_id: each.assignment for each in record.value.members} == {
        member_of(joined): member_of(joined).encode() for joined in joins
    }


# ---------------------------------------------------------------------- heartbeats and sessions


@pytest.mark.parametrize(
    ("details", "error"),
    [
        ({}, ErrorCode.NONE),
        ({"group_id": "other"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"member_id": "who"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"generation_id": 2}, ErrorCode.ILLEGAL_GENERATION),
        ({"group_instance_id": "who"}, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_heartbeat_says_who_belongs(details: dict[str, object], error: ErrorCode) -> None:
    talk = Conversation()
    (joined,) = talk.stable_group(1)
    assert talk.heartbeat(joined, **details) is error


def test_heartbeats_keep_a_session() -> None:
    talk = Conversation()
    joins = talk.stable_group(2)
    for _ in range(5):
        talk.advance(SESSION_MS - 1)
        assert [talk.heartbeat(each) for each in joins] == [ErrorCode.NONE] * 2
    talk.advance(SESSION_MS - 1)
    talk.heartbeat(joins[0])
    talk.advance(1)
    assert talk.heartbeat(joins[0]) is ErrorCode.REBALANCE_IN_PROGRESS
    assert talk.heartbeat(joins[1]) is ErrorCode.UNKNOWN_MEMBER_ID


def test_heartbeat_is_good_between_join_and_sync() -> None:
    talk = Conversation()
    joined = talk.join_twice()
    talk.advance(INITIAL_DELAY_MS)
    assert talk.heartbeat(joined) is ErrorCode.NONE


def test_member_waiting_in_a_rebalance_does_not_expire() -> None:
    talk = Conversation()
    joins = talk.stable_group(2, session_ms=6_000, rebalance_ms=60_000)
    waiting = rejoin(talk, joins[0], session_ms=6_000, rebalance_ms=60_000)
    for _ in range(3):
        talk.advance(5_000)
        assert talk.heartbeat(joins[1]) is ErrorCode.REBALANCE_IN_PROGRESS
    assert waiting.response is None
    assert rejoin(talk, joins[1], session_ms=6_000, rebalance_ms=60_000).error is waiting.error is ErrorCode.NONE


def test_commits_keep_a_session() -> None:
    talk = Conversation()
    (joined,) = talk.stable_group(1)
    for _ in range(3):
        talk.advance(SESSION_MS - 1)
        assert talk.commit(joined=joined) is ErrorCode.NONE
    assert talk.state() == "Stable"


def test_silent_member_is_dropped_from_a_rebalance() -> None:
    talk = Conversation()
    joins = talk.stable_group(2)
    again = rejoin(talk, joins[0])
    talk.advance(SESSION_MS)
    assert again.error is ErrorCode.NONE and len(again.response.members) == 1


def test_group_whose_members_fell_silent_is_empty() -> None:
    talk = Conversation()
    talk.stable_group(2)
    talk.advance(SESSION_MS)
    assert talk.state() == "Empty"
    record = talk.records()[-1]
    assert isinstance(record, GroupMetadataRecord) and record.value is not None
    assert (record.value.generation, record.value.members, record.value.protocol) == (2, [], None)
    assert (record.value.protocol_type, record.value.leader) == ("consumer", None)


# ---------------------------------------------------------------------- leaving


def test_leaving_makes_the_others_join_again() -> None:
    talk = Conversation()
    joins = talk.stable_group(2)
    assert talk.leave((member_of(joins[1]), None)).response.members[0].error_code == ErrorCode.NONE
    assert talk.heartbeat(joins[0]) is ErrorCode.REBALANCE_IN_PROGRESS
    again = rejoin(talk, joins[0])
    assert again.response.generation_id == 2 and len(again.response.members) == 1


def test_last_member_leaving_empties_the_group() -> None:
    talk = Conversation()
    (joined,) = talk.stable_group(1)
    talk.leave((member_of(joined), None))
    assert talk.state() == "Empty" and talk.heartbeat(joined) is ErrorCode.UNKNOWN_MEMBER_ID


def test_leave_that_cannot_be_written_is_an_error_though_the_member_is_gone() -> None:
    talk = Conversation()
    (joined,) = talk.stable_group(1)
    talk.refuse_appends = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert talk.leave((member_of(joined), None)).error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert talk.state() == "Empty"


def test_pending_member_can_leave() -> None:
    talk = Conversation()
    pending = talk.join()
    assert talk.leave((member_of(pending), None)).response.members[0].error_code == ErrorCode.NONE
    assert talk.join(member_of(pending)).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_each_leaving_member_has_an_error_of_its_own() -> None:
    talk = Conversation()
    joins = talk.stable_group(2)
    left = talk.leave((member_of(joins[0]), None), ("who", None), ("", None), ("", "who"), (member_of(joins[0]), None))
    unknown = ErrorCode.UNKNOWN_MEMBER_ID
    assert [each.error_code for each in left.response.members] == [0, unknown, unknown, unknown, unknown]


def test_leaving_an_unknown_group_is_an_error_of_each_member() -> None:
    talk = Conversation()
    left = talk.leave(("who", None), group="nowhere")
    assert left.error is ErrorCode.NONE
    assert [each.error_code for each in left.response.members] == [ErrorCode.UNKNOWN_MEMBER_ID]


def test_member_leaving_while_it_waits_is_answered() -> None:
    talk = Conversation()
    joins = [talk.join_twice(), talk.join_twice()]
    talk.advance(2 * INITIAL_DELAY_MS)
    waiting = talk.sync(joins[1])
    talk.leave((member_of(joins[1]), None))
    assert waiting.error is ErrorCode.UNKNOWN_MEMBER_ID


# ---------------------------------------------------------------------- static members


def static_pair(talk: Conversation, **details: object) -> list[Asked]:
    joins = [talk.join(instance=name, **details) for name in ("first", "second")]  # type: ignore[arg-type]
    talk.advance(2 * INITIAL_DELAY_MS)
    return talk.settle_generation(joins)


def test_static_member_needs_no_second_join() -> None:
    talk = Conversation()
    joins = static_pair(talk)
    assert [member_of(each) for each in joins] == ["first-uuid1", "second-uuid2"]
    assert [each.group_instance_id for each in joins[0].response.members] == ["first", "second"]


@pytest.mark.parametrize("version", [5, 9])
def test_static_follower_comes_back_without_a_rebalance(version: int) -> None:
    talk = Conversation()
    joins = static_pair(talk)
    back = talk.join(instance="second", version=version)
    assert back.response.generation_id == 1 and member_of(back) == "second-uuid3"
    assert back.response.leader == member_of(joins[0]) and not back.response.skip_assignment
    assert talk.state() == "Stable"
    assert talk.sync(back, instance="second").response.assignment == b"second-uuid2"
    assert talk.heartbeat(joins[1], group_instance_id="second") is ErrorCode.FENCED_INSTANCE_ID
    assert talk.heartbeat(joins[1]) is ErrorCode.UNKNOWN_MEMBER_ID


def test_static_leader_comes_back_and_skips_the_assignment() -> None:
    talk = Conversation()
    static_pair(talk)
    back = talk.join(instance="first", version=9)
    assert back.response.leader == member_of(back) and back.response.skip_assignment
    assert [each.member_id for each in back.response.members] == ["second-uuid2", "first-uuid3"]


def test_static_leader_that_cannot_skip_is_shown_its_old_self_as_leader() -> None:
    talk = Conversation()
    static_pair(talk)
    back = talk.join(instance="first", version=8)
    assert back.response.leader == "first-uuid1" and back.response.members == []
    assert talk.sync(back, instance="first").response.assignment == b"first-uuid1"


def test_static_member_back_with_another_choice_makes_everybody_join_again() -> None:
    talk = Conversation()
    both = {"range": b"", "roundrobin": b""}
    joins = static_pair(talk, protocols=both)
    back = talk.join(instance="second", protocols={"roundrobin": b""})
    assert back.response is None and talk.state() == "PreparingRebalance"
    again = rejoin(talk, joins[0], instance="first", protocols=both)
    assert again.response.protocol_name == back.response.protocol_name == "roundrobin"


def test_static_replacement_that_cannot_be_written_never_happened() -> None:
    talk = Conversation()
    joins = static_pair(talk)
    talk.refuse_appends = ErrorCode.COORDINATOR_NOT_AVAILABLE
    refused = talk.join(instance="second")
    assert refused.error is ErrorCode.COORDINATOR_NOT_AVAILABLE and refused.response.member_id == ""
    assert [talk.heartbeat(each) for each in joins] == [ErrorCode.NONE] * 2
    talk.refuse_appends = ErrorCode.NONE
    assert talk.join(instance="second").error is ErrorCode.NONE


def test_parked_join_of_a_replaced_static_member_is_fenced() -> None:
    talk = Conversation()
    joins = static_pair(talk)
    parked = rejoin(talk, joins[0], instance="first")
    back = talk.join(instance="first")
    assert parked.error is ErrorCode.FENCED_INSTANCE_ID and parked.response.member_id == "first-uuid1"
    assert back.response is None
    rejoin(talk, joins[1], instance="second")
    assert back.response.generation_id == 2


def test_parked_sync_of_a_replaced_static_member_is_fenced() -> None:
    talk = Conversation()
    joins = [talk.join(instance=name) for name in ("first", "second")]
    talk.advance(2 * INITIAL_DELAY_MS)
    parked = talk.sync(joins[1], instance="second")
    talk.join(instance="second")
    assert parked.error is ErrorCode.FENCED_INSTANCE_ID
    assert talk.state() == "PreparingRebalance", "the leader may already have assigned to the old member id"


def test_static_member_with_the_wrong_member_id_is_fenced() -> None:
    talk = Conversation()
    joins = static_pair(talk)
    assert talk.join(member_of(joins[0]), instance="second").error is ErrorCode.FENCED_INSTANCE_ID
    assert talk.sync(joins[0], instance="second").error is ErrorCode.FENCED_INSTANCE_ID
    assert talk.heartbeat(joins[0], group_instance_id="second") is ErrorCode.FENCED_INSTANCE_ID
    assert talk.commit(joined=joins[0], group_instance_id="second") is ErrorCode.FENCED_INSTANCE_ID
    left = talk.leave((member_of(joins[0]), "second"))
    assert left.response.members[0].error_code == ErrorCode.FENCED_INSTANCE_ID


def test_static_member_stays_through_a_rebalance_it_misses() -> None:
    talk = Conversation()
    joins = static_pair(talk, session_ms=100_000)
    again = rejoin(talk, joins[0], instance="first", session_ms=100_000)
    talk.advance(REBALANCE_MS)
    assert [each.group_instance_id for each in again.response.members] == ["first", "second"]


def test_rebalance_that_nobody_joins_waits_for_the_sessions_to_end() -> None:
    talk = Conversation()
    static_pair(talk, session_ms=100_000)
    talk.leave(("", "second"))
    talk.advance(3 * REBALANCE_MS)
    assert talk.state() == "PreparingRebalance"
    talk.advance(100_000)
    assert talk.state() == "Empty"


def test_late_static_member_ends_the_rebalance_that_nobody_joined() -> None:
    talk = Conversation()
    joins = static_pair(talk, session_ms=100_000)
    talk.leave(("", "second"))
    talk.advance(2 * REBALANCE_MS)
    assert rejoin(talk, joins[0], instance="first").response.generation_id == 2


def test_administrator_removes_a_static_member_by_its_instance_id() -> None:
    talk = Conversation()
    joins = static_pair(talk)
    left = talk.leave(("", "second"))
    member = left.response.members[0]
    assert (member.member_id, member.group_instance_id, member.error_code) == ("", "second", ErrorCode.NONE)
    assert talk.heartbeat(joins[1]) is ErrorCode.UNKNOWN_MEMBER_ID


def test_subscription_of_a_generation_is_known_until_the_next() -> None:
    talk = Conversation()
    joins = talk.stable_group(1, protocols={"range": subscription("one", "two")})
    group = talk.shard._groups["group"]
    assert group.subscribed_topics == {"one", "two"}
    rejoin(talk, joins[0], protocols={"range": subscription("three")})
    assert group.subscribed_topics == {"three"}


def member(member_id: str, *protocols: str, instance: str | None = None) -> Member:
    return Member(
        member_id,
        group_instance_id=instance,
        client_id="client",
        client_host="/127.0.0.1",
        rebalance_timeout_ms=1000,
        session_timeout_ms=1000,
        protocols=dict.fromkeys(protocols or ("range",), b"x"),
    )


def group_of(*those: Member) -> Members:
    members = Members()
    for each in those:
        members.add(each, "consumer")
    return members


def test_first_member_leads_until_it_goes() -> None:
    members = group_of(member("a"), member("b"))
    assert members.leader_id == "a"
    members.remove("a")
    assert members.leader_id == "b"
    members.remove("b")
    assert members.leader_id is None and members.metadata_bytes == 0


def test_protocols_count_for_a_newcomer_only_if_everybody_speaks_them() -> None:
    members = group_of(member("a", "x", "y"), member("b", "y", "z"))
    assert members.supports("consumer", ["q", "y"])
    assert not members.supports("consumer", ["x", "z"])
    assert not members.supports("connect", ["y"])
    members.remove("b")
    assert members.supports("consumer", ["x"]) and not members.supports("consumer", ["z"])


@pytest.mark.parametrize(
    ("offers", "chosen"),
    [
        (["x y", "y x", "y x"], "y"),
        (["x y z", "z y", "y z x"], "z"),
        (["x y", "y x"], "x"),
        (["y x", "x y"], "x"),  # a draw
        (["range rr", "rr range"], "rr"),
        (["rr range", "range rr"], "rr"),
    ],
)
def test_vote(offers: list[str], chosen: str) -> None:
    members = group_of(*(member(str(number), *names.split()) for number, names in enumerate(offers)))
    if chosen == "z":
        members.update(members.by_id["2"], dict.fromkeys(("z", "y"), b""), 1, 1)
    with pytest.raises(StopIteration) as chosen_so:
        next(members.select_protocol())
    assert chosen_so.value.value == chosen


def test_static_member_keeps_its_place_under_a_new_id() -> None:
    members = group_of(member("a", instance="one"), member("b", instance="two"))
    replaced = members.replace_static("one", "c")
    assert replaced.member_id == "c" and members.leader_id == "c" and "a" not in members
    group = ClassicGroup("group", Effects(GroupConfig(), lambda: ""))
    group.members = members
    assert group.check_member("c", "one") is ErrorCode.NONE
    assert group.check_member("a", "one") is ErrorCode.FENCED_INSTANCE_ID
    assert group.check_member("a", None) is ErrorCode.UNKNOWN_MEMBER_ID
    assert group.check_member("b", "three") is ErrorCode.UNKNOWN_MEMBER_ID


def test_joined_members_are_counted_once() -> None:
    members = group_of(member("a"), member("b"))
    first, second = Caller(ErrorCode, api_version=9), Caller(ErrorCode, api_version=9)
    a, b = members
    assert members.park_join(a, first) is None
    assert members.park_join(a, second) is first
    assert members.awaiting_join_count == 1 and not members.all_joined
    members.park_join(b, first)
    assert members.all_joined
    members.pending_join.add("c")
    assert not members.all_joined
    assert members.take_join(a) is second and members.take_join(a) is None
    members.remove("b")
    assert members.awaiting_join_count == 0


def test_leader_is_taken_from_those_who_joined() -> None:
    members = group_of(member("a"), member("b"))
    assert not members.elect_joined_leader()
    members.park_join(members.by_id["b"], Caller(ErrorCode, api_version=9))
    assert members.elect_joined_leader() and members.leader_id == "b"


def test_absurd_timeouts_are_no_wait() -> None:
    absurd = member("a")
    absurd.rebalance_timeout_ms = -5
    assert group_of(absurd).rebalance_timeout_ms == 0 == Members().rebalance_timeout_ms
