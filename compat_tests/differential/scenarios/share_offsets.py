"""Offsets of share groups: described, altered, deleted."""

from compat_tests.differential.asking import fill
from compat_tests.differential.asking_share import (
    AT_ONCE,
    alteration,
    deletion,
    heartbeat,
    in_order_of_offsets,
    in_order_of_responses,
    joined,
    known,
    offsets_of,
)
from compat_tests.differential.conversation import Talk, scenario

from ottla.wire.messages.share_group import (
    AlterShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
)


@scenario(DescribeShareGroupOffsetsRequest, settings=AT_ONCE)
def where_groups_start(talk: Talk) -> None:
    group, topic, other = talk.group(), known(talk, talk.topic(partitions=3)), known(talk, talk.topic("other"))
    everything = offsets_of(group)
    named = offsets_of(group, (topic.name, (2, 0)), (talk.name("nowhere"), (0, 7)), (other.name, (0,)))
    talk.ask(everything, label="a new group", arrange=in_order_of_offsets)
    talk.ask(named, label="a new group, named", arrange=in_order_of_offsets)
    joined(talk, group, topic)
    talk.ask(everything, label="of a member", arrange=in_order_of_offsets)
    talk.do(heartbeat(group, -1), 1)
    talk.do(alteration(group, (topic.name, 0, 2), (topic.name, 1, 0)))
    talk.ask(everything, label="altered", arrange=in_order_of_offsets)
    talk.ask(named, label="altered, named", arrange=in_order_of_offsets)


@scenario(DescribeShareGroupOffsetsRequest, settings=AT_ONCE)
def what_is_left_to_read(talk: Talk) -> None:
    group, topic = talk.group(), known(talk, talk.topic())
    fill(talk, topic, [1, 2, 3])
    for offset in (0, 1, 5):
        talk.do(alteration(group, (topic.name, 0, offset)))
        talk.ask(offsets_of(group, (topic.name, (0,))), label=f"from {offset}", arrange=in_order_of_offsets)


@scenario(DescribeShareGroupOffsetsRequest, settings=AT_ONCE)
def descriptions_that_make_no_sense(talk: Talk) -> None:
    group, topic = talk.group(), known(talk, talk.topic())
    talk.ask(DescribeShareGroupOffsetsRequest(groups=[]), label="no group")
    talk.ask(offsets_of(""), label="a group without a name")
    talk.ask(offsets_of("", (topic.name, (0,))), label="a group without a name, named")
    talk.ask(offsets_of(group, (topic.name, ())), label="no partitions")
    talk.ask(offsets_of(group, (topic.name, (-1,))), label="a negative partition")
    talk.ask(offsets_of(group, ("", (0,))), label="a topic without a name")
    empty = DescribeShareGroupOffsetsRequestGroup(group_id=group, topics=[])
    talk.ask(DescribeShareGroupOffsetsRequest(groups=[empty, empty]), label="no topics")


@scenario(AlterShareGroupOffsetsRequest, settings=AT_ONCE)
def altered_offsets(talk: Talk) -> None:
    group, topic = talk.group(), known(talk, talk.topic(partitions=2))
    nowhere = talk.name("nowhere")
    talk.ask(alteration(group, (topic.name, 0, 5), (topic.name, 1, 6)), label="a new group")
    wanted = alteration(group, (nowhere, 0, 1), (topic.name, 0, 7), (topic.name, 2, 1), (nowhere, 1, 1))
    talk.ask(wanted, label="some do not exist", arrange=in_order_of_responses)
    talk.ask(alteration(group, (nowhere, 0, 1)), label="none exists")
    talk.ask(alteration(group), label="nothing")
    talk.ask(alteration(group, (topic.name, 1, -1)), label="nowhere yet")
    talk.ask(alteration("", (topic.name, 1, 1)), label="a group without a name")
    talk.ask(offsets_of(group), 1, label="described", arrange=in_order_of_offsets)
    joined(talk, talk.group("busy"), topic)
    talk.ask(alteration(talk.name("busy"), (topic.name, 0, 5)), label="a group with a member")


@scenario(DeleteShareGroupOffsetsRequest, settings=AT_ONCE)
def deleted_offsets(talk: Talk) -> None:
    group, topic, other = talk.group(), known(talk, talk.topic(partitions=2)), known(talk, talk.topic("other"))
    talk.ask(deletion(group, topic.name), label="a group that does not exist")
    talk.ask(deletion("", topic.name), label="a group without a name")
    talk.do(alteration(group))
    talk.ask(deletion(group, topic.name, talk.name("nowhere")), label="a group without offsets")
    talk.do(alteration(group, (topic.name, 0, 5)))
    talk.until(offsets_of(group), lambda answer: bool(answer.groups[0].topics))
    wanted = deletion(group, topic.name, other.name, talk.name("nowhere"))
    for label in ("some have none", "again"):
        talk.ask(wanted, label=label, arrange=in_order_of_responses)
    talk.ask(deletion(group), label="nothing")
    talk.ask(offsets_of(group), 1, label="described", arrange=in_order_of_offsets)
    talk.ask(offsets_of(group, (topic.name, (0,))), 1, label="described, named", arrange=in_order_of_offsets)
    joined(talk, talk.group("busy"), topic)
    talk.ask(deletion(talk.name("busy"), topic.name), label="a group with a member")
