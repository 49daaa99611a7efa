"""Consumer groups of KIP-848: members come, stay and go, and hear step by step what they shall have."""

from compat_tests.differential.asking_consumer_groups import AT_ONCE, ConsumerMember, describe, settle
from compat_tests.differential.asking_groups import Member
from compat_tests.differential.asking_groups import describe as describe_classic
from compat_tests.differential.conversation import Talk, scenario

from ottla.wire.messages.consumer_group import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupHeartbeatRequest,
    TopicPartitions,
)
from ottla.wire.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
)
from ottla.wire.messages.groups import DeleteGroupsRequest, ListGroupsRequest
from ottla.wire.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
)
from ottla.wire.schema import ZERO_UUID

PATTERNS = "1+"
"""Before version 1 a heartbeat cannot say a regular expression."""


@scenario(ConsumerGroupHeartbeatRequest, settings=AT_ONCE)
def members_come_and_go(talk: Talk) -> None:
    topic, group = talk.topic(partitions=3), talk.group()
    first, second = (ConsumerMember(talk, group, each, topic) for each in ("first", "second"))
    first.come()
    first.stay()
    describe(talk, group)
    second.come()
    describe(talk, group)
    first.stay()
    describe(talk, group)
    second.stay()
    first.own()
    second.own()
    describe(talk, group)
    first.go()
    first.stay()
    second.own()
    second.own()
    describe(talk, group)
    second.go()
    describe(talk, group)
    first.come()
    describe(talk, group)


@scenario(ConsumerGroupHeartbeatRequest, settings=AT_ONCE)
def partitions_have_to_be_given_up_first(talk: Talk) -> None:
    topic, group = talk.topic(partitions=2), talk.group()
    first, second = (ConsumerMember(talk, group, each, topic) for each in ("first", "second"))
    first.come()
    had = first.owned
    second.come()
    first.stay()
    first.stay(topic_partitions=had)
    second.stay()
    first.stay(topic_partitions=[])
    second.stay()
    first.own()
    second.own()
    describe(talk, group)


@scenario(ConsumerGroupHeartbeatRequest, settings=AT_ONCE)
def wrong_heartbeats(talk: Talk) -> None:
    topic, group = talk.topic(), talk.group()
    member = ConsumerMember(talk, group, "member", topic)
    for details in (
        {"group_id": ""},
        {"group_id": " "},
        {"instance_id": ""},
        {"rack_id": ""},
        {"rebalance_timeout_ms": -1},
        {"topic_partitions": None},
        {"topic_partitions": [TopicPartitions(topic_id=ZERO_UUID, partitions=[0])]},
        {"subscribed_topic_names": None},
        {"server_assignor": "sticky"},
        {"server_assignor": ""},
    ):
        member.come(**details)
    for epoch in (-3, -2, -1, 1):
        member.heartbeat(f"epoch {epoch}", member_epoch=epoch)
        member.heartbeat(f"epoch {epoch} of nobody", member_epoch=epoch, member_id="")
    describe(talk, group)


@scenario(ConsumerGroupHeartbeatRequest, settings=AT_ONCE)
def epochs_of_others(talk: Talk) -> None:
    topic, group = talk.topic(partitions=2), talk.group()
    first, second = (ConsumerMember(talk, group, each, topic) for each in ("first", "second"))
    first.come()
    for epoch in (1, 3, 2):
        first.heartbeat(f"at {epoch}", member_epoch=epoch)
    ConsumerMember(talk, group, "stranger", topic).heartbeat("comes late", member_epoch=2)
    second.come()
    settle(first, second)
    first.heartbeat("had lost the answer", member_epoch=2)
    first.heartbeat("had lost the answer", member_epoch=2, topic_partitions=first.owned)
    first.heartbeat("had lost two answers", member_epoch=1, topic_partitions=first.owned)
    first.come()
    settle(first, second)
    describe(talk, group)


@scenario(ConsumerGroupHeartbeatRequest, settings=AT_ONCE)
def subscriptions_change(talk: Talk) -> None:
    left, right, group = talk.topic("left"), talk.topic("right", 3), talk.group()
    member = ConsumerMember(talk, group, "member", left, right)
    member.come()
    member.stay(subscribed_topic_names=[right.name])
    member.own()
    describe(talk, group)
    member.stay(subscribed_topic_names=[])
    member.own()
    member.stay(subscribed_topic_names=[left.name, talk.name("nowhere")])
    member.own(rack_id="rack", rebalance_timeout_ms=1000)
    member.stay(subscribed_topic_names=[left.name], rebalance_timeout_ms=1000, topic_partitions=member.owned)
    describe(talk, group)


@scenario(ConsumerGroupHeartbeatRequest, settings=AT_ONCE)
def assignors_are_asked_for(talk: Talk) -> None:
    left, right, group = talk.topic("left", 2), talk.topic("right", 4), talk.group()
    members = [ConsumerMember(talk, group, each, left, right) for each in ("first", "second")]
    for each in members:
        each.come(server_assignor="range")
    settle(*members)
    describe(talk, group)
    for each in members:
        each.stay(server_assignor="uniform")
    settle(*members)
    describe(talk, group)


@scenario(ConsumerGroupHeartbeatRequest, settings=AT_ONCE)
def static_members(talk: Talk) -> None:
    topic, group = talk.topic(partitions=2), talk.group()
    first = ConsumerMember(talk, group, "first", topic, instance="one")
    second = ConsumerMember(talk, group, "second", topic, instance="two")
    first.come()
    second.come()
    settle(first, second)
    again = ConsumerMember(talk, group, "again", topic, instance="one")
    again.come()
    first.come()
    first.stay(instance_id="three")
    first.stay(instance_id="two")
    first.go(-2)
    describe(talk, group)
    again.stay(member_epoch=1)
    again.come()
    second.own()
    first.stay()
    first.go()
    describe(talk, group)
    again.go()
    settle(second, rounds=2)
    again.come()
    describe(talk, group)


@scenario(ConsumerGroupHeartbeatRequest, versions=PATTERNS, settings=AT_ONCE)
def patterns(talk: Talk) -> None:
    talk.topic("left")
    talk.topic("right", 2)
    group = talk.group()
    member = ConsumerMember(talk, group, "member")
    for pattern in ("(", "a{2000}", "(?=a)", "\\1", "[b-a]"):
        member.come(subscribed_topic_names=None, subscribed_topic_regex=pattern)
    describe(talk, group)
    member.come(subscribed_topic_names=None, subscribed_topic_regex=f"(left|right)-{talk.run}")

    def is_assigned(answer: object) -> bool:
        return bool(answer.assignment and answer.assignment.topic_partitions)  # type: ignore[attr-defined]

    known = ConsumerGroupHeartbeatRequest(
        group_id=group,
        member_id="member",
        member_epoch=0,
        rebalance_timeout_ms=30_000,
        subscribed_topic_names=None,
        subscribed_topic_regex=f"(left|right)-{talk.run}",
        topic_partitions=[],
    )
    talk.until(known, is_assigned)
    describe(talk, group)
    other = ConsumerMember(talk, group, "other")
    other.come(subscribed_topic_names=None, subscribed_topic_regex=f"(left|right)-{talk.run}")
    member.epoch = 2
    member.stay(subscribed_topic_regex="", subscribed_topic_names=[])
    member.own()
    other.own()
    other.go()
    describe(talk, group)


@scenario(ConsumerGroupHeartbeatRequest, settings=AT_ONCE)
def offsets_of_members(talk: Talk) -> None:
    topic, group = talk.topic(partitions=2), talk.group()
    first, second = (ConsumerMember(talk, group, each, topic) for each in ("first", "second"))

    def commit(member_id: str, epoch: int, version: int = 9) -> None:
        for partition in (0, 1):
            committed = OffsetCommitRequestPartition(
                partition_index=partition, committed_offset=7, committed_metadata=""
            )
            topics = [OffsetCommitRequestTopic(name=topic.name, topic_id=topic.id, partitions=[committed])]
            request = OffsetCommitRequest(
                group_id=group, generation_id_or_member_epoch=epoch, member_id=member_id, topics=topics
            )
            talk.ask(request, version, label=f"{member_id} commits {partition} at {epoch}")

    def fetch(member_id: str | None, epoch: int) -> None:
        asked = OffsetFetchRequestGroup(group_id=group, member_id=member_id, member_epoch=epoch, topics=None)
        talk.ask(OffsetFetchRequest(groups=[asked], require_stable=True), 9, label=f"{member_id} fetches at {epoch}")

    first.come()
    second.come()
    settle(first, second)
    for epoch in (1, 2, 3, 4, -1):
        commit("first", epoch)
    commit("first", 3, 8)
    commit("", -1)
    commit("stranger", 3)
    for epoch in (2, 3, 4):
        fetch("first", epoch)
    fetch("stranger", 3)
    fetch(None, -1)
    fetch("", -1)
    first.go()
    second.go()
    commit("", -1)
    commit("first", 3)
    fetch("first", 3)


@scenario(ConsumerGroupHeartbeatRequest, settings=AT_ONCE)
def groups_are_listed_described_and_deleted(talk: Talk) -> None:
    topic, group = talk.topic(), talk.group()
    member = ConsumerMember(talk, group, "member", topic)
    member.come()
    listed = ListGroupsRequest(states_filter=[], types_filter=["consumer"])
    answer = talk.do(listed)
    mine = [each for each in answer.groups if each.group_id == group]
    talk.note("listed", [(each.group_state, each.group_type, each.protocol_type) for each in mine])
    describe_classic(talk, group)
    delete = DeleteGroupsRequest(groups_names=[group])
    talk.ask(delete, 2, label="delete")
    member.go()
    talk.ask(delete, 2, label="delete")
    describe(talk, group)


@scenario(ConsumerGroupDescribeRequest, settings=AT_ONCE)
def descriptions(talk: Talk) -> None:
    topic, group, other = talk.topic(partitions=2), talk.group(), talk.group("classic")
    Member(talk, other, "classic member", quiet=True).join()
    ConsumerMember(talk, group, "member", topic, instance="one", rack_id="rack", server_assignor="range").come()
    for asked in (group, other, talk.name("nobody"), ""):
        describe(talk, asked)
    describe(talk, group, group, talk.name("nobody"))


# ---------------------------------------------------------------------- with members of the classic protocol


def words(*topics: str, owned: dict[str, list[int]] | None = None) -> dict[str, bytes]:
    partitions = [TopicPartition(topic=each, partitions=found) for each, found in (owned or {}).items()]
    said = ConsumerProtocolSubscription(topics=list(topics), owned_partitions=partitions)
    return {"range": b"\0\1" + said.encode(1)}


def share(topic: str, *partitions: int) -> bytes:
    given = [TopicPartition(topic=topic, partitions=list(partitions))]
    return b"\0\1" + ConsumerProtocolAssignment(assigned_partitions=given).encode(1)


@scenario(ConsumerGroupHeartbeatRequest, settings=AT_ONCE)
def a_classic_group_is_upgraded_and_downgraded(talk: Talk) -> None:
    topic, group = talk.topic(partitions=2), talk.group()
    old = Member(talk, group, "old", protocols=words(topic.name))
    old.join()
    old.sync({old: share(topic.name, 0, 1)})
    new = ConsumerMember(talk, group, "new", topic)
    new.come()
    old.heartbeat()
    old.sync()
    describe_classic(talk, group)
    answer = old.join(protocols=words(topic.name, owned={topic.name: [0, 1]}))
    assert not answer.error_code
    old.sync()
    old.heartbeat()
    new.stay()
    for partition in (0, 1):
        old.join(protocols=words(topic.name, owned={topic.name: [partition]}))
        old.sync()
        old.heartbeat()
        new.own()
    describe(talk, group)
    old.heartbeat(generation_id=1)
    old.heartbeat(member_id="stranger")
    old.heartbeat(member_id="new")
    new.go()
    describe(talk, group)
    old.heartbeat()
    old.join()
    old.sync({old: share(topic.name, 0, 1)})
    old.heartbeat()
    new.stay()
    old.leave()


@scenario(ConsumerGroupHeartbeatRequest, settings={"group.consumer.migration.policy": "disabled"})
def migration_is_disabled(talk: Talk) -> None:
    topic, group, other = talk.topic(), talk.group(), talk.group("other")
    Member(talk, group, "old", protocols=words(topic.name)).join()
    ConsumerMember(talk, group, "new", topic).come()
    ConsumerMember(talk, other, "first", topic).come()
    Member(talk, other, "late", protocols=words(topic.name)).join()


@scenario(ConsumerGroupHeartbeatRequest, settings=AT_ONCE)
def a_static_member_changes_its_protocol(talk: Talk) -> None:
    topic, group = talk.topic(partitions=2), talk.group()
    old = Member(talk, group, "old", instance="one", protocols=words(topic.name))
    old.join()
    old.sync({old: share(topic.name, 0, 1)})
    new = ConsumerMember(talk, group, "new", topic, instance="one")
    new.come()
    old.heartbeat()
    describe(talk, group)
    again = Member(talk, group, "again", instance="one", protocols=words(topic.name))
    again.join()
    again.sync()
    new.stay()
    describe(talk, group)


@scenario(ConsumerGroupHeartbeatRequest, settings=AT_ONCE)
def empty_groups_change_their_kind(talk: Talk) -> None:
    topic, group = talk.topic(), talk.group()
    old = Member(talk, group, "old", protocols=words(topic.name))
    old.join()
    old.leave()
    new = ConsumerMember(talk, group, "new", topic)
    new.come()
    describe(talk, group)
    new.go()
    Member(talk, group, "older", protocols=words(topic.name)).join(3)
    describe(talk, group)
