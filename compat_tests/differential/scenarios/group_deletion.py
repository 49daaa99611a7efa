"""The end of groups, and of some of their offsets."""

from typing import Any

from compat_tests.differential.asking_groups import SUBSCRIPTION, Member, describe
from compat_tests.differential.asking_offsets import commit, commit_topic, offsets_of
from compat_tests.differential.asking_stages import EMPTY, STABLE, STATES, stage
from compat_tests.differential.conversation import Talk, Topic, scenario

from ottla.wire.messages.groups import DeleteGroupsRequest
from ottla.wire.messages.offsets import OffsetDeleteRequest, OffsetDeleteRequestPartition, OffsetDeleteRequestTopic


def in_order_of_results(answer: Any) -> None:
    """Kafka deletes groups as its hash set holds them."""
    answer.results.sort(key=lambda each: each.group_id)


def delete(talk: Talk, *groups: str, label: str = "delete") -> None:
    talk.ask(DeleteGroupsRequest(groups_names=list(groups)), label=label, arrange=in_order_of_results)


@scenario(DeleteGroupsRequest)
def groups_in_each_state(talk: Talk) -> None:
    for state in STATES:
        group = stage(talk, state)
        delete(talk, group.group, label=state)
        describe(talk, group.group)
        delete(talk, group.group, label=f"{state}, again")


@scenario(DeleteGroupsRequest)
def several_groups(talk: Talk) -> None:
    empty, stable = stage(talk, EMPTY).group, stage(talk, STABLE).group
    delete(talk, stable, talk.name("nowhere"), empty, empty, stable, "", "")
    delete(talk)
    describe(talk, empty, stable)


@scenario(DeleteGroupsRequest)
def groups_with_offsets(talk: Talk) -> None:
    """They go with the group, whether it ever had members or not."""
    topic = talk.topic(partitions=2)
    simple, empty = talk.group("simple"), stage(talk, EMPTY).group
    for group in (simple, empty):
        talk.do(commit(group, topic, {0: 5, 1: 6}))
        delete(talk, group)
        offsets_of(talk, group, topic, partitions=(0, 1))
        talk.do(commit(group, topic, {0: 7}))
        offsets_of(talk, group, topic, partitions=(0, 1))
        describe(talk, group)


def subscribed_to(topic: Topic) -> dict[str, bytes]:
    name = topic.name.encode()
    return {"range": b"\0\1\0\0\0\1" + len(name).to_bytes(2, "big") + name + b"\xff\xff\xff\xff\0\0\0\0"}


def delete_offsets(group: str, *asked: tuple[Topic, tuple[int, ...]]) -> OffsetDeleteRequest:
    topics = [
        OffsetDeleteRequestTopic(
            name=topic.name, partitions=[OffsetDeleteRequestPartition(partition_index=index) for index in partitions]
        )
        for topic, partitions in asked
    ]
    return OffsetDeleteRequest(group_id=group, topics=topics)


@scenario(OffsetDeleteRequest)
def offsets_of_groups_in_each_state(talk: Talk) -> None:
    """A topic that the group reads keeps its offsets, as long as there are members."""
    read, other = talk.topic("read"), talk.topic("other")
    for protocol_type in ("consumer", "connect"):
        for state in STATES:
            group = stage(talk, state, kind=protocol_type, protocol_type=protocol_type, protocols=subscribed_to(read))
            talk.ask(delete_offsets(group.group, (read, (0,)), (other, (0,))), label=f"{protocol_type}, {state}")


@scenario(OffsetDeleteRequest)
def partitions_of_all_kinds(talk: Talk) -> None:
    group = talk.group()
    topic, other = talk.topic(partitions=3), talk.topic("other")
    nowhere = Topic(talk.name("nowhere"), b"\xee" * 16)
    topics = [commit_topic(topic, {0: 5, 1: 6}), commit_topic(other, {0: 7})]
    talk.do(commit(group, topic, {}, topics=topics))
    talk.ask(delete_offsets(group, (topic, (0, 2, 3, -1)), (nowhere, (0, 1))))
    offsets_of(talk, group, topic, other, partitions=(0, 1))
    talk.ask(delete_offsets(group), label="nothing")
    talk.ask(delete_offsets(group, (topic, ()), (nowhere, ())), label="no partitions")
    talk.ask(delete_offsets(group, (topic, (9,))), label="no such partition")
    talk.ask(delete_offsets(group, (topic, (1,)), (other, (0,))), label="the rest")
    offsets_of(talk, group, topic, other, partitions=(0, 1))
    describe(talk, group)


@scenario(OffsetDeleteRequest)
def partitions_named_twice(talk: Talk) -> None:
    group = talk.group()
    topic = talk.topic(partitions=3)
    talk.do(commit(group, topic, {0: 5, 1: 6}))
    talk.ask(delete_offsets(group, (topic, (0, 0, 9, 9))))
    talk.ask(delete_offsets(group, (topic, (1,)), (topic, (2, 9))))
    offsets_of(talk, group, topic, partitions=(0, 1))


@scenario(OffsetDeleteRequest)
def unknown_groups(talk: Talk) -> None:
    topic = talk.topic()
    nowhere = Topic(talk.name("nowhere"), b"\xee" * 16)
    for group in ("", talk.group(), talk.name("never seen")):
        talk.ask(delete_offsets(group, (topic, (0, 9)), (nowhere, (0,))))
        talk.ask(delete_offsets(group, (nowhere, (0,))))


@scenario(OffsetDeleteRequest)
def subscriptions_that_cannot_be_read(talk: Talk) -> None:
    """The group then counts as reading everything.

    A subscription that is cut short is missing here: it makes Kafka's coordinator fail, and the join is never answered.
    """
    topic = talk.topic()
    for kind, subscription in (
        ("empty", b""),
        ("one byte", b"\0"),
        ("negative version", b"\xff\xff" + SUBSCRIPTION[2:]),
        ("newer", b"\0\x63" + SUBSCRIPTION[2:]),
        ("longer", SUBSCRIPTION + b"more"),
    ):
        member = Member(talk, talk.group(kind.replace(" ", "-")), kind, protocols={"range": subscription}, quiet=True)
        member.join()
        member.sync()
        talk.ask(delete_offsets(member.group, (topic, (0,))), label=kind)
