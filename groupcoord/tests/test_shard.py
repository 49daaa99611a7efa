"""Loading and unloading a shard, and what administrators ask of it."""

import gc
from weakref import ref

import pytest

from ottla.groupcoord.classic.manager import DescribeGroup
from ottla.groupcoord.classic.members import (
    GroupMetadataKey,
    GroupMetadataRecord,
    GroupMetadataValue,
    MemberMetadata,
)
from ottla.groupcoord.classic.rebalancing import ClassicGroup
from ottla.groupcoord.offsets.manager import OffsetMetadataManager
from ottla.groupcoord.offsets.table import OffsetCommitKey, OffsetCommitValue, OffsetRecord
from ottla.groupcoord.runtime.answers import Caller
from ottla.groupcoord.tests.conversation import (
    GROUP,
    INITIAL_DELAY_MS,
    REBALANCE_MS,
    SESSION_MS,
    Conversation,
    subscription,
)
from ottla.groupcoord.tests.fakes import FORMATS
from ottla.wire.errors import ErrorCode

# ---------------------------------------------------------------------- restart


def test_stable_group_is_back_after_a_restart() -> None:
    talk = Conversation()
    joins = talk.stable_group(2)
    talk.commit(7, joined=joins[0])
    before = talk.shard.read(DescribeGroup(GROUP, 6), now_ms=0)
    talk.restart()
    assert talk.shard.read(DescribeGroup(GROUP, 6), now_ms=0) == before and talk.state() == "Stable"
    assert talk.committed() == 7
    assert [talk.heartbeat(each) for each in joins] == [ErrorCode.NONE] * 2
    assert talk.sync(joins[1]).response.assignment == joins[1].response.member_id.encode()
    assert talk.commit(8, joined=joins[1]) is ErrorCode.NONE


def test_members_of_a_loaded_group_have_one_session_to_show_up() -> None:
    talk = Conversation()
    joins = talk.stable_group(2)
    talk.restart()
    talk.advance(SESSION_MS - 1)
    talk.heartbeat(joins[0])
    talk.advance(1)
    assert talk.heartbeat(joins[0]) is ErrorCode.REBALANCE_IN_PROGRESS
    assert talk.heartbeat(joins[1]) is ErrorCode.UNKNOWN_MEMBER_ID


def test_rebalance_is_forgotten_by_a_restart() -> None:
    talk = Conversation()
    joins = talk.stable_group(2)
    parked = talk.join(joins[0].response.member_id)
    talk.restart()
    assert parked.error is ErrorCode.NOT_COORDINATOR
    assert talk.state() == "Stable" and talk.heartbeat(joins[0]) is ErrorCode.NONE


def test_new_group_is_back_empty_after_a_restart() -> None:
    talk = Conversation()
    pending = talk.join()
    talk.restart()
    assert talk.state() == "Empty"
    assert talk.join(pending.response.member_id).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_generation_goes_on_after_a_restart() -> None:
    talk = Conversation()
    (joined,) = talk.stable_group(1)
    talk.leave((joined.response.member_id, None))
    talk.restart()
    again = talk.join_twice()
    talk.advance(INITIAL_DELAY_MS)
    assert again.response.generation_id == 3


def test_static_members_are_known_after_a_restart() -> None:
    talk = Conversation()
    joined = talk.join(instance="static")
    talk.advance(INITIAL_DELAY_MS)
    talk.settle_generation([joined])
    talk.restart()
    back = talk.join(instance="static")
    assert back.response.generation_id == 1 and back.response.skip_assignment


def test_loaded_group_above_its_size_keeps_those_who_join_first() -> None:
    talk = Conversation()
    joins = talk.stable_group(3)
    talk.config = type(talk.config)(group_max_size=2)
    talk.restart()
    assert talk.state() == "PreparingRebalance"
    again = [talk.join(each.response.member_id) for each in joins]
    assert again[2].error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert again[0].error is again[1].error is ErrorCode.NONE


def test_group_that_could_not_be_written_does_not_exist() -> None:
    talk = Conversation()
    talk.refuse_appends = ErrorCode.COORDINATOR_NOT_AVAILABLE
    refused = talk.join(version=3)
    assert refused.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert talk.state() == "Dead"
    talk.advance(REBALANCE_MS)
    talk.refuse_appends = ErrorCode.NONE
    talk.stable_group(1)


def member(member_id: str, instance: str | None = None) -> MemberMetadata:
    return MemberMetadata(
        member_id=member_id,
        group_instance_id=instance,
        client_id="c",
        client_host="h",
        session_timeout=SESSION_MS,
        subscription=subscription("topic"),
        assignment=b"a",
    )


@pytest.mark.parametrize(
    ("members", "leader", "kept"),
    [
        ([member("a"), member("a")], "a", ["a"]),
        ([member("a", "i"), member("b", "i")], "b", ["a"]),
        ([member("a")], "gone", ["a"]),
        ([], "gone", []),
    ],
)
def test_record_that_contradicts_itself_is_loaded_as_far_as_it_makes_sense(
    members: list[MemberMetadata], leader: str, kept: list[str]
) -> None:
    talk = Conversation()
    value = GroupMetadataValue(protocol_type="consumer", generation=4, protocol="range", leader=leader, members=members)
    shard = talk._new_shard()
    shard.replay(GroupMetadataRecord(GroupMetadataKey(group=GROUP), value))
    assert list(shard.start_sessions(0)) == []
    shard.loaded(now_ms=0, timestamp_ms=0)
    assert [each.member_id for each in shard.read(DescribeGroup(GROUP, 6), now_ms=0).members] == kept
    talk.shard = shard
    talk.advance(3 * SESSION_MS)
    assert talk.state() == "Empty"


def test_the_end_of_a_load_does_not_look_at_every_group(monkeypatch: pytest.MonkeyPatch) -> None:
    """There may be a million of them, and it is done in one step."""
    talk = Conversation(group_max_size=2)
    shard = talk._new_shard()
    members = {"small": 1, "large": 3, "ended": 3}
    for group_id, count in members.items():
        value = GroupMetadataValue(
            protocol_type="consumer",
            generation=4,
            protocol="range",
            leader="0",
            members=[member(str(number)) for number in range(count)],
        )
        shard.replay(GroupMetadataRecord(GroupMetadataKey(group=group_id), value))
    shard.replay(GroupMetadataRecord(GroupMetadataKey(group="ended"), None))
    for number in range(1000):
        key = OffsetCommitKey(group=f"offsets {number}", topic="topic", partition=0)
        shard.replay(OffsetRecord(key, OffsetCommitValue(offset=1, metadata="", commit_timestamp=0)))
    assert sum(1 for _ in shard.start_sessions(0)) == 10
    looked_at: list[str] = []
    shrink = ClassicGroup.shrink_to_size

    def looking(group: ClassicGroup) -> None:
        looked_at.append(group.group_id)
        shrink(group)

    monkeypatch.setattr(ClassicGroup, "shrink_to_size", looking)
    monkeypatch.setattr(ClassicGroup, "start_sessions", None)
    shard.loaded(now_ms=0, timestamp_ms=0)
    assert looked_at == ["large"]
    assert shard.read(DescribeGroup("large", 6), now_ms=0).group_state == "PreparingRebalance"
    assert shard.read(DescribeGroup("small", 6), now_ms=0).group_state == "Stable"


def test_loading_applies_the_latest_record_of_a_group() -> None:
    talk = Conversation()
    (joined,) = talk.stable_group(1)
    talk.leave((joined.response.member_id, None))
    shard = talk._new_shard()
    for key, value in talk.log:
        record = FORMATS.decode_record(key, value)
        assert record is not None
        shard.replay(record)
    shard.loaded(now_ms=0, timestamp_ms=0)
    assert shard.read(DescribeGroup(GROUP, 6), now_ms=0).group_state == "Empty"


def test_an_unloaded_shard_frees_its_groups_and_offsets_without_the_garbage_collector() -> None:
    talk = Conversation()
    talk.commit(7, joined=talk.stable_group(2)[0])
    groups, effects = talk.shard._groups, talk.shard._effects
    (offsets,) = [ref(each) for each in talk.shard._managers if isinstance(each, OffsetMetadataManager)]
    assert groups and len(effects.timers) > 2 and offsets() is not None
    gc.disable()
    try:
        talk.restart()
        assert not groups and not len(effects.timers) and offsets() is None
    finally:
        gc.enable()


def test_everybody_who_waits_is_told_when_a_shard_is_unloaded() -> None:
    talk = Conversation()
    joins = [talk.join_twice(), talk.join_twice()]
    other = talk.join(group="other", version=3)
    talk.advance(INITIAL_DELAY_MS - 1)
    replies = talk.shard.unload(ErrorCode.NOT_COORDINATOR)
    told: dict[Caller, object] = {caller: response for caller, response in replies}
    assert {*joins, other} == set(told)
    assert {response.error_code for response in told.values()} == {ErrorCode.NOT_COORDINATOR}  # type: ignore[attr-defined]


# ---------------------------------------------------------------------- describe and list


def test_stable_group_is_described_with_protocol_and_metadata() -> None:
    talk = Conversation()
    joins = talk.stable_group(2)
    described = talk.shard.read(DescribeGroup(GROUP, 6), now_ms=0)
    assert (described.group_state, described.protocol_type, described.protocol_data) == ("Stable", "consumer", "range")
    first = described.members[0]
    assert first.member_id == joins[0].response.member_id
    assert (first.client_id, first.client_host) == ("client", "/127.0.0.1")
    assert (first.member_metadata, first.member_assignment) == (subscription("topic"), first.member_id.encode())


def test_group_in_a_rebalance_is_described_without_protocol_and_metadata() -> None:
    talk = Conversation()
    joins = talk.stable_group(2)
    talk.join(joins[0].response.member_id)
    described = talk.shard.read(DescribeGroup(GROUP, 6), now_ms=0)
    assert (described.group_state, described.protocol_data) == ("PreparingRebalance", "")
    assert [each.member_metadata for each in described.members] == [b"", b""]


def test_unknown_group_is_dead_or_an_error_by_version() -> None:
    shard = Conversation().shard
    old, new = shard.read(DescribeGroup("who", 5), now_ms=0), shard.read(DescribeGroup("who", 6), now_ms=0)
    assert (old.group_state, old.error_code) == ("Dead", ErrorCode.NONE)
    assert (new.group_state, new.error_code) == ("Dead", ErrorCode.GROUP_ID_NOT_FOUND)
    assert new.error_message == "Group who not found."


@pytest.mark.parametrize(
    ("states", "types", "found"),
    [
        ([], [], {GROUP, "simple"}),
        ([" stable "], [], {GROUP}),
        (["EMPTY", "Dead"], [], {"simple"}),
        (["nonsense"], [], set()),
        ([], ["Classic"], {GROUP, "simple"}),
        ([], ["consumer", "CLASSIC"], {GROUP, "simple"}),
        ([], ["consumer"], set()),
        (["Stable"], ["classic"], {GROUP}),
    ],
)
def test_groups_are_listed_by_state_and_type(states: list[str], types: list[str], found: set[str]) -> None:
    talk = Conversation()
    talk.stable_group(1)
    talk.commit(group="simple")
    assert {each.group_id for each in talk.listed(states, types)} == found


def test_listed_group_shows_what_kafka_shows() -> None:
    talk = Conversation()
    talk.stable_group(1)
    talk.commit(group="simple")
    group, simple = talk.listed()
    assert (group.protocol_type, group.group_state, group.group_type) == ("consumer", "Stable", "classic")
    assert (simple.protocol_type, simple.group_state) == ("", "Empty")


# ---------------------------------------------------------------------- delete


def test_group_with_members_cannot_be_deleted() -> None:
    talk = Conversation()
    talk.stable_group(1)
    assert talk.delete_group() is ErrorCode.NON_EMPTY_GROUP
    assert talk.delete_group("who") is ErrorCode.GROUP_ID_NOT_FOUND


def test_deleted_group_is_gone_with_its_offsets_for_good() -> None:
    talk = Conversation()
    (joined,) = talk.stable_group(1)
    talk.commit(1, joined=joined)
    talk.commit(2, joined=joined, topic="other")
    talk.advance(SESSION_MS)
    assert talk.delete_group() is ErrorCode.NONE
    assert talk.state() == "Dead" and talk.committed() == talk.committed(topic="other") == -1
    talk.restart()
    assert talk.state() == "Dead" and talk.committed() == -1


def test_deletion_that_cannot_be_written_did_not_happen() -> None:
    talk = Conversation()
    talk.commit(1)
    talk.refuse_appends = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert talk.delete_group() is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert talk.committed() == 1 and talk.state() == "Empty"


def test_pending_member_of_a_deleted_group_starts_over() -> None:
    talk = Conversation()
    pending = talk.join()
    assert talk.delete_group() is ErrorCode.NONE
    assert talk.join(pending.response.member_id).error is ErrorCode.UNKNOWN_MEMBER_ID
    talk.advance(SESSION_MS)
    talk.stable_group(1)
