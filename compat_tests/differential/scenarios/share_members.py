"""Members of share groups: epochs, subscriptions, assignments."""

from compat_tests.differential.asking_groups import Member
from compat_tests.differential.asking_share import (
    AT_ONCE,
    FIRST_EPOCH,
    described,
    heartbeat,
    in_order_of_assignment,
    in_order_of_members,
    joined,
    known,
    offsets_of,
)
from compat_tests.differential.conversation import Talk, scenario

from ottla.wire.messages.groups import DeleteGroupsRequest, ListGroupsRequest
from ottla.wire.messages.share_group import ShareGroupDescribeRequest, ShareGroupHeartbeatRequest


@scenario(ShareGroupHeartbeatRequest, settings=AT_ONCE)
def one_member(talk: Talk) -> None:
    """It joins, gets its partitions once they are known, goes on, and leaves."""
    group, topic = talk.group(), known(talk, talk.topic(partitions=3))
    talk.ask(heartbeat(group, 0, topic.name), label="joins")
    talk.until(offsets_of(group), lambda answer: bool(answer.groups[0].topics))
    for label, epoch in (("goes on", 2), ("with its last epoch", 2), ("goes on", 3), ("goes on", 3)):
        talk.ask(heartbeat(group, epoch), label=label, arrange=in_order_of_assignment)
    talk.ask(heartbeat(group, 3, topic.name), label="says everything", arrange=in_order_of_assignment)
    talk.ask(heartbeat(group, 0, topic.name), label="joins again", arrange=in_order_of_assignment)
    for _ in range(2):
        talk.ask(heartbeat(group, -1), label="leaves")
    talk.ask(heartbeat(group, 3), label="was it")
    talk.ask(heartbeat(group, 0, topic.name), label="is back", arrange=in_order_of_assignment)


@scenario(ShareGroupHeartbeatRequest, settings=AT_ONCE)
def epochs_that_are_wrong(talk: Talk) -> None:
    group, topic = talk.group(), known(talk, talk.topic())
    for epoch in (1, -1):
        talk.ask(heartbeat(talk.name("nowhere"), epoch, topic.name), label=f"no group, {epoch}")
    epoch = joined(talk, group, topic)
    for wrong in (-2, -128, 1, epoch + 1, 1000):
        talk.ask(heartbeat(group, wrong), label=f"epoch {wrong}")
    for wrong in (1, -1, epoch):
        talk.ask(heartbeat(group, wrong, member="stranger"), label=f"a stranger's {wrong}")


@scenario(ShareGroupHeartbeatRequest, settings=AT_ONCE)
def heartbeats_that_say_too_little(talk: Talk) -> None:
    group, topic = talk.group(), talk.name("nowhere")
    talk.ask(heartbeat(group, 0), label="no topics")
    talk.ask(heartbeat(group, 0, subscribed_topic_names=[]), label="an empty list of topics")
    for member in ("", " ", "\t", "m" * 36, "m" * 37, "é" * 36):
        talk.ask(heartbeat(group, 0, topic, member=member), label=f"{len(member)} characters")
    for name in ("", " "):
        talk.ask(heartbeat(name, 0, topic), label=f"group {name!r}")
    for rack in ("", " ", "rack"):
        talk.ask(heartbeat(group, 0, topic, rack_id=rack), label=f"rack {rack!r}")


@scenario(ShareGroupHeartbeatRequest, settings=AT_ONCE)
def subscriptions_that_change(talk: Talk) -> None:
    group, first, second = (
        talk.group(),
        known(talk, talk.topic("first", partitions=2)),
        known(talk, talk.topic("second")),
    )
    epoch = joined(talk, group, first, second)
    talk.ask(heartbeat(group, epoch), label="both", arrange=in_order_of_assignment)
    talk.ask(heartbeat(group, 3, first.name), label="the first", arrange=in_order_of_assignment)
    talk.ask(heartbeat(group, 4, first.name, first.name), label="the first, twice", arrange=in_order_of_assignment)
    talk.ask(heartbeat(group, 4, second.name), label="the second", arrange=in_order_of_assignment)
    talk.ask(heartbeat(group, 5, subscribed_topic_names=[]), label="nothing", arrange=in_order_of_assignment)
    talk.ask(heartbeat(group, 6, talk.name("nowhere")), label="what does not exist", arrange=in_order_of_assignment)
    talk.ask(described(group), label="described", arrange=in_order_of_members)


@scenario(ShareGroupHeartbeatRequest, settings=AT_ONCE)
def members_of_one_partition(talk: Talk) -> None:
    """They share it."""
    group, topic = talk.group(), known(talk, talk.topic())
    joined(talk, group, topic, member="a")
    for member, epoch in (("a", FIRST_EPOCH), ("b", 0), ("c", 0), ("a", 3), ("b", 4), ("a", -1), ("c", 5), ("b", 5)):
        topics = [topic.name] if epoch == 0 else []
        talk.ask(heartbeat(group, epoch, *topics, member=member), label=f"{member}, {epoch}")
    talk.ask(described(group), label="described", arrange=in_order_of_members)


@scenario(ShareGroupHeartbeatRequest, settings=AT_ONCE)
def members_of_four_partitions(talk: Talk) -> None:
    """Who has which is chance, how many is not."""
    group, topic = talk.group(), known(talk, talk.topic(partitions=4))
    joined(talk, group, topic, member="a")
    epochs = {"a": FIRST_EPOCH, "b": 0, "c": 0}
    for turn in range(3):
        for member, epoch in list(epochs.items()):
            topics = [topic.name] if epoch == 0 else []
            epochs[member] = talk.do(heartbeat(group, epoch, *topics, member=member), 1).member_epoch
        shares = talk.do(described(group), 1).groups[0].members
        counts = [sum(len(each.partitions) for each in member.assignment.topic_partitions) for member in shares]
        talk.note(f"shares after turn {turn}", sorted(counts))
        talk.note(f"epochs after turn {turn}", epochs)


@scenario(ShareGroupDescribeRequest, settings=AT_ONCE)
def described_groups(talk: Talk) -> None:
    group, topic = talk.group(), known(talk, talk.topic(partitions=2))
    classic = talk.group("classic")
    Member(talk, classic, "of a classic group", quiet=True).join()
    talk.ask(described(group, talk.name("nowhere"), "", classic), label="none of them", arrange=in_order_of_members)
    joined(talk, group, topic)
    talk.do(heartbeat(group, FIRST_EPOCH, rack_id="rack"), 1)
    talk.ask(described(group, operations=True), label="stable", arrange=in_order_of_members)
    talk.ask(described(group, group), label="twice", arrange=in_order_of_members)
    talk.do(heartbeat(group, -1), 1)
    talk.ask(described(group), label="empty", arrange=in_order_of_members)
    talk.ask(described(), label="nothing")


@scenario(ListGroupsRequest, versions="5+", settings=AT_ONCE)  # before there are no types
def listed_share_groups(talk: Talk) -> None:
    group, topic = talk.group(), known(talk, talk.topic())

    def only_this(answer: object) -> None:
        answer.groups[:] = [each for each in answer.groups if each.group_id == group]  # type: ignore[attr-defined]

    joined(talk, group, topic)
    for types in (["share"], ["Share"], ["classic"], []):
        talk.ask(ListGroupsRequest(states_filter=[], types_filter=types), label=f"{types}", arrange=only_this)
    talk.do(heartbeat(group, -1), 1)
    for states in (["Stable"], ["empty"]):
        talk.ask(ListGroupsRequest(states_filter=states, types_filter=[]), label=f"{states}", arrange=only_this)


@scenario(DeleteGroupsRequest, settings=AT_ONCE)
def share_groups_are_deleted(talk: Talk) -> None:
    group, topic = talk.group(), known(talk, talk.topic())
    epoch = joined(talk, group, topic)
    talk.ask(DeleteGroupsRequest(groups_names=[group]), label="with a member")
    talk.do(heartbeat(group, -1), 1)
    for _ in range(2):
        talk.ask(DeleteGroupsRequest(groups_names=[group]), label="empty")
    talk.ask(heartbeat(group, epoch), 1, label="goes on")
    talk.ask(described(group), label="described")
    talk.ask(offsets_of(group, (topic.name, (0,))), label="its offsets")
