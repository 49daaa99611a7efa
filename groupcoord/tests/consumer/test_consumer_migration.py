"""Living groups change between the classic and the consumer protocol, and have members of both meanwhile."""

from typing import Any

import pytest

from ottla.groupcoord.consumer.group import ConsumerGroup
from ottla.groupcoord.tests.consumer_conversation import (
    INTERVAL_MS,
    ConsumerConversation,
    Owned,
    all_partitions,
    snapshot,
)
from ottla.groupcoord.tests.conversation import GROUP, REBALANCE_MS, SESSION_MS, Asked
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.classic_group import HeartbeatRequest
from ottla.wire.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
)


def words(*topics: str, owned: Owned | None = None, version: int = 1) -> dict[str, bytes]:
    """What a classic member offers."""
    given = owned or {}
    partitions = [TopicPartition(topic=each, partitions=sorted(given[each])) for each in given]
    subscription = ConsumerProtocolSubscription(topics=list(topics), owned_partitions=partitions)
    return {"range": version.to_bytes(2, "big") + subscription.encode(version)}


def assignment(**topics: set[int]) -> bytes:
    partitions = [TopicPartition(topic=each, partitions=sorted(topics[each])) for each in topics]
    return b"\0\1" + ConsumerProtocolAssignment(assigned_partitions=partitions).encode(1)


def read(blob: bytes) -> Owned:
    given = ConsumerProtocolAssignment.decode(blob, 1, start=2)
    return {each.topic: set(each.partitions) for each in given.assigned_partitions}


class MigratingConversation(ConsumerConversation):
    """Members of both protocols."""

    def classic_group(self, count: int = 1, **details: Any) -> list[str]:
        """A stable classic group, whose members share "topic". Returns their ids, the leader's first."""
        joins = [self.join_twice(protocols=words("topic"), **details) for _ in range(count)]
        while joins[0].response is None:
            self.advance(self.config.group_initial_rebalance_delay_ms)
        ids = sorted((each.response.member_id for each in joins), key=lambda each: each != joins[0].response.leader)
        shares = {each: assignment(topic=set(range(number, 2, count))) for number, each in enumerate(ids)}
        self.settle_generation(joins, shares.__getitem__)
        return ids

    def beat(self, member_id: str, generation: int, *, instance: str | None = None) -> ErrorCode:
        request = HeartbeatRequest(
            group_id=GROUP, member_id=member_id, generation_id=generation, group_instance_id=instance
        )
        error: ErrorCode = self.shard.read(request, now_ms=self.now_ms)
        return error

    def join_again(self, member_id: str, owned: Owned, **details: Any) -> Asked:
        return self.join(member_id, protocols=words("topic", owned=owned), **details)

    @property
    def kind(self) -> str:
        return self.shard._groups[GROUP].group_type


@pytest.fixture
def talk() -> MigratingConversation:
    return MigratingConversation()


# ---------------------------------------------------------------------- up


def test_a_classic_group_becomes_a_consumer_group_when_a_new_member_comes(talk: MigratingConversation) -> None:
    (old,) = talk.classic_group()
    talk.commit(5, member_id=old, generation_id_or_member_epoch=1)
    came = talk.come("new")
    assert (came.error, came.response.member_epoch, talk.told(came)) == (ErrorCode.NONE, 2, {})
    assert talk.kind == "consumer" and talk.committed() == 5
    assert talk.beat(old, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    joined = talk.join_again(old, {"topic": {0, 1}})
    assert (joined.error, joined.response.generation_id, joined.response.leader) == (ErrorCode.NONE, 1, "")
    synced = talk.sync(joined)
    kept = read(synced.response.assignment)
    assert len(kept["topic"]) == 1, "it has to give one up first"
    assert talk.beat(old, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    joined = talk.join_again(old, kept)
    assert joined.response.generation_id == 2
    assert read(talk.sync(joined).response.assignment) == kept
    assert talk.beat(old, 2) is ErrorCode.NONE
    got = talk.told(talk.heartbeat("new", 2))
    assert got is not None and all_partitions(kept, got) == [("topic", 0), ("topic", 1)]
    assert [each.member_type for each in talk.described().members] == [0, 1]
    before = snapshot(talk)
    talk.restart()
    assert snapshot(talk) == before and talk.kind == "consumer"


def test_a_group_whose_members_all_have_the_same_partition_becomes_a_consumer_group(
    talk: MigratingConversation,
) -> None:
    joins = [talk.join_twice(protocols=words("topic")) for _ in range(3)]
    while joins[0].response is None:
        talk.advance(talk.config.group_initial_rebalance_delay_ms)
    talk.settle_generation(joins, lambda member_id: assignment(topic={0}))
    came = talk.come("new")
    assert (came.error, talk.kind) == (ErrorCode.NONE, "consumer")


def test_members_that_wait_for_a_rebalance_are_sent_to_join_again(talk: MigratingConversation) -> None:
    old, other = talk.classic_group(2)
    waiting = talk.join(old, protocols=words("topic", "other"))
    assert waiting.response is None
    talk.come("new")
    assert waiting.error is ErrorCode.REBALANCE_IN_PROGRESS and talk.kind == "consumer"
    assert talk.beat(other, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    talk.advance(SESSION_MS)
    assert set(talk.group().members) == {"new"}, "classic members have sessions of their own length"


@pytest.mark.parametrize("policy", ["disabled", "downgrade"])
def test_a_group_is_not_upgraded_against_the_settings(policy: str) -> None:
    talk = MigratingConversation(group_consumer_migration_policy=policy)
    talk.classic_group()
    assert talk.come("new").error is ErrorCode.GROUP_ID_NOT_FOUND and talk.kind == "classic"


def test_a_group_whose_words_are_not_understood_is_not_upgraded(talk: MigratingConversation) -> None:
    (old,) = talk.classic_group()
    talk.join(old, protocols={"range": b"\0\1garbage"})
    assert talk.come("new").error is ErrorCode.GROUP_ID_NOT_FOUND and talk.kind == "classic"


def test_an_assignor_with_data_of_its_own_is_not_given_up(talk: MigratingConversation) -> None:
    joined = talk.join_twice(protocols=words("topic"))
    talk.advance(talk.config.group_initial_rebalance_delay_ms)
    own = b"\0\1" + ConsumerProtocolAssignment(assigned_partitions=[], user_data=b"secret").encode(1)
    talk.settle_generation([joined], lambda member_id: own)
    refused = talk.come("new")
    assert refused.error is ErrorCode.GROUP_ID_NOT_FOUND and "custom assignor" in refused.response.error_message


def test_a_group_of_another_protocol_type_is_not_upgraded(talk: MigratingConversation) -> None:
    talk.join_twice(protocol_type="connect")
    assert talk.come("new").error is ErrorCode.GROUP_ID_NOT_FOUND


def test_a_classic_group_without_room_is_not_upgraded() -> None:
    talk = MigratingConversation(group_consumer_max_size=1)
    talk.classic_group()
    assert talk.come("new").error is ErrorCode.GROUP_MAX_SIZE_REACHED and talk.kind == "classic"


def test_what_the_log_refuses_leaves_the_classic_group_as_it_was(talk: MigratingConversation) -> None:
    (old,) = talk.classic_group()
    talk.refuse_appends = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert talk.come("new").error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert talk.kind == "classic" and talk.beat(old, 1) is ErrorCode.NONE
    talk.refuse_appends = ErrorCode.NONE
    assert talk.come("new").error is ErrorCode.NONE
    assert talk.kind == "consumer"


# ---------------------------------------------------------------------- both


def mixed(talk: MigratingConversation, **details: Any) -> str:
    """A settled group of a classic member and "new". Returns the id of the classic one."""
    (old,) = talk.classic_group(**details)
    talk.come("new")
    kept = read(talk.sync(talk.join_again(old, {"topic": {0, 1}}, **details)).response.assignment)
    talk.sync(talk.join_again(old, kept, **details))
    assert talk.told(talk.heartbeat("new", 2)) is not None
    return old


def test_a_new_classic_member_gets_its_id_first_and_then_its_share(talk: MigratingConversation) -> None:
    talk.images.put("topic", 4)
    talk.come("a")
    talk.advance(INTERVAL_MS)
    first = talk.join(protocols=words("topic"))
    assert first.error is ErrorCode.MEMBER_ID_REQUIRED
    joined = talk.join(first.response.member_id, protocols=words("topic"))
    assert (joined.error, joined.response.generation_id) == (ErrorCode.NONE, 3)
    assert read(talk.sync(joined).response.assignment) == {}
    kept = talk.told(talk.heartbeat("a", 2))
    talk.heartbeat("a", 2, owned=kept)
    assert talk.beat(joined.response.member_id, 3) is ErrorCode.REBALANCE_IN_PROGRESS, "partitions are free for it now"
    joined = talk.join_again(joined.response.member_id, {})
    got = read(talk.sync(joined).response.assignment)
    assert kept is not None and len(all_partitions(kept, got)) == len(set(all_partitions(kept, got))) == 4


def test_an_old_client_joins_without_an_id(talk: MigratingConversation) -> None:
    talk.come("a")
    joined = talk.join(protocols=words("topic", version=0), version=3)
    assert joined.error is ErrorCode.NONE and joined.response.member_id in talk.group().members


def test_classic_requests_are_judged_by_member_and_epoch(talk: MigratingConversation) -> None:
    old = mixed(talk)
    assert talk.beat(old, 1) is ErrorCode.ILLEGAL_GENERATION
    assert talk.beat("nobody", 2) is ErrorCode.UNKNOWN_MEMBER_ID
    assert talk.beat("new", 2) is ErrorCode.UNKNOWN_MEMBER_ID, "it does not use the classic protocol"
    assert talk.beat("new", 2, instance="nobody") is ErrorCode.UNKNOWN_MEMBER_ID
    joined = talk.join_again(old, talk.owned(old))
    assert talk.sync(joined, protocol_name="other").error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert talk.sync(joined, protocol_type="other").error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert talk.sync(joined, generation_id=1).error is ErrorCode.ILLEGAL_GENERATION
    assert talk.sync(joined).error is ErrorCode.NONE
    assert talk.join(protocol_type="connect").error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert talk.join(protocols={"other": b""}).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    refused = talk.join(old, protocols={"range": b"\0"})
    assert refused.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL and refused.response.member_id == "", "as in Kafka"


def test_a_classic_member_that_does_not_join_again_in_time_is_out(talk: MigratingConversation) -> None:
    old = mixed(talk, session_ms=REBALANCE_MS + 10_000)
    talk.advance(INTERVAL_MS)
    talk.images.put("topic", 4)
    talk.heartbeat("new", 2)
    assert talk.beat(old, 2) is ErrorCode.REBALANCE_IN_PROGRESS
    talk.advance(REBALANCE_MS - 1)
    assert talk.beat(old, 2) is ErrorCode.REBALANCE_IN_PROGRESS, "the time goes on"
    talk.advance(1)
    assert talk.beat(old, 2) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_classic_member_that_does_not_ask_for_its_assignment_is_out(talk: MigratingConversation) -> None:
    old = mixed(talk, session_ms=REBALANCE_MS + 10_000)
    talk.join_again(old, talk.owned(old), session_ms=REBALANCE_MS + 10_000)
    talk.advance(REBALANCE_MS)
    assert old not in talk.group().members


def test_classic_members_commit_with_their_generation(talk: MigratingConversation) -> None:
    old = mixed(talk)
    assert talk.commit(7, member_id=old, generation_id_or_member_epoch=2, version=8) is ErrorCode.NONE
    assert talk.commit(7, member_id=old, generation_id_or_member_epoch=3) is ErrorCode.ILLEGAL_GENERATION
    assert talk.commit(7, member_id="new", generation_id_or_member_epoch=2, version=8) is ErrorCode.UNSUPPORTED_VERSION


# ---------------------------------------------------------------------- down


def test_a_group_whose_last_new_member_leaves_is_a_classic_group_again(talk: MigratingConversation) -> None:
    old = mixed(talk)
    talk.go("new")
    assert talk.kind == "classic" and talk.state() == "PreparingRebalance"
    assert talk.beat(old, 3) is ErrorCode.ILLEGAL_GENERATION
    assert talk.beat(old, 2) is ErrorCode.REBALANCE_IN_PROGRESS
    joined = talk.join_again(old, {"topic": {0}})
    assert joined.response.leader == old and joined.response.generation_id == 3
    talk.settle_generation([joined], lambda member_id: assignment(topic={0, 1}))
    talk.restart()
    assert talk.kind == "classic" and talk.state() == "Stable"
    assert talk.come("new").error is ErrorCode.NONE, "and up again"
    assert talk.kind == "consumer"


def test_a_silent_new_member_is_a_reason_to_go_back_too(talk: MigratingConversation) -> None:
    old = mixed(talk, session_ms=100_000)
    talk.advance(talk.settings.consumer_session_timeout_ms)
    assert talk.kind == "classic" and talk.beat(old, 2) is ErrorCode.REBALANCE_IN_PROGRESS


@pytest.mark.parametrize("policy", ["upgrade"])
def test_a_group_is_not_downgraded_against_the_settings(policy: str) -> None:
    talk = MigratingConversation(group_consumer_migration_policy=policy)
    mixed(talk)
    talk.go("new")
    assert talk.kind == "consumer"


def test_a_static_classic_member_in_the_place_of_the_last_new_one_takes_the_group_back(
    talk: MigratingConversation,
) -> None:
    talk.come("new", instance_id="i")
    before = talk.owned("new")
    joined = talk.join(instance="i", protocols=words("topic"))
    assert joined.error is ErrorCode.NONE and talk.kind == "classic"
    synced = talk.sync(joined, instance="i")
    assert read(synced.response.assignment) == before == {"topic": {0, 1}}
    assert talk.heartbeat("new", 2, instance_id="i").error is ErrorCode.GROUP_ID_NOT_FOUND
    talk.restart()
    assert talk.kind == "classic" and talk.state() == "Stable"


def test_a_static_new_member_takes_the_place_of_a_classic_one(talk: MigratingConversation) -> None:
    joined = talk.join(instance="i", protocols=words("topic"))
    talk.advance(talk.config.group_initial_rebalance_delay_ms)
    talk.sync(joined, {joined.response.member_id: assignment(topic={0, 1})}, instance="i")
    came = talk.come("new", instance_id="i")
    assert (came.response.member_epoch, talk.told(came)) == (1, {"topic": {0, 1}})
    assert set(talk.group().members) == {"new"} and talk.group().classic_count == 0


def test_what_the_log_refuses_leaves_the_consumer_group_as_it_was(talk: MigratingConversation) -> None:
    old = mixed(talk)
    before = snapshot(talk)
    talk.refuse_appends = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert talk.go("new").error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert snapshot(talk) == before and talk.beat(old, 2) is ErrorCode.NONE
    talk.refuse_appends = ErrorCode.NONE
    talk.advance(SESSION_MS)
    assert old not in talk.group().members, "its session goes on"


def test_leave_group_removes_members_of_both_protocols(talk: MigratingConversation) -> None:
    old = mixed(talk)
    answers = talk.leave((old, None), ("nobody", None), ("", "nobody")).response.members
    assert [each.error_code for each in answers] == [
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.UNKNOWN_MEMBER_ID,
    ]
    assert set(talk.group().members) == {"new"}


# ---------------------------------------------------------------------- empty groups


def test_an_empty_classic_group_makes_way(talk: MigratingConversation) -> None:
    (old,) = talk.classic_group()
    talk.leave((old, None))
    talk.commit(5)
    assert talk.told(talk.come("new")) == {"topic": {0, 1}}
    assert talk.kind == "consumer" and talk.committed() == 5
    talk.restart()
    assert talk.kind == "consumer" and talk.committed() == 5


def test_an_empty_consumer_group_makes_way(talk: MigratingConversation) -> None:
    talk.come("new")
    talk.go("new")
    assert talk.join("somebody", protocols=words("topic")).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert talk.kind == "consumer"
    assert talk.join(protocols=words("topic")).error is ErrorCode.MEMBER_ID_REQUIRED
    assert talk.kind == "classic"
    talk.restart()
    assert talk.kind == "classic"


def test_an_empty_consumer_group_stays_if_the_log_refuses(talk: MigratingConversation) -> None:
    talk.come("new")
    talk.go("new")
    before = snapshot(talk)
    talk.refuse_appends = ErrorCode.COORDINATOR_NOT_AVAILABLE
    talk.join(protocols=words("topic"), version=3)
    assert talk.kind == "consumer" and snapshot(talk) == before
    assert isinstance(talk.shard._groups[GROUP], ConsumerGroup)
