"""Committed offsets: some, all, none, of one group and of several."""

from compat_tests.differential.asking_offsets import (
    commit,
    commit_topic,
    fetch,
    fetch_group,
    in_order_of_topics,
    offsets_of,
)
from compat_tests.differential.asking_stages import STABLE, STATES, stage
from compat_tests.differential.conversation import Talk, Topic, scenario

from ottla.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.wire.messages.offsets import OffsetFetchRequest
from ottla.wire.schema import ZERO_UUID

ALL_VERSION = 2
SEVERAL_VERSION = 8


def scene(talk: Talk, kind: str = "group") -> tuple[str, Topic, Topic]:
    """A group that committed offsets of two topics."""
    group = talk.group(kind)
    first, second = talk.topic(f"{kind}-first", partitions=3), talk.topic(f"{kind}-second")
    topics = [commit_topic(second, {0: 7}), commit_topic(first, {2: 5, 0: 6})]
    talk.do(commit(group, first, {}, topics=topics))
    return group, first, second


@scenario(OffsetFetchRequest)
def some_partitions(talk: Talk) -> None:
    """What was never committed, or cannot have been, is -1 without an error."""
    group, first, second = scene(talk)
    offsets_of(talk, group, first, second, partitions=(2, 1, 0, 3, -1, (1 << 31) - 1))
    offsets_of(talk, group, second, first)
    offsets_of(talk, group, partitions=())
    offsets_of(talk, group, first, partitions=())
    offsets_of(talk, group, Topic(talk.name("nowhere"), b"\xee" * 16), second, partitions=(0, 5))
    offsets_of(talk, group, Topic("", ZERO_UUID), Topic("not a topic's name!", b"\xdd" * 16))


@scenario(OffsetFetchRequest)
def partitions_named_twice(talk: Talk) -> None:
    group, first, second = scene(talk)
    offsets_of(talk, group, first, partitions=(0, 0, 1, 1, 0))
    offsets_of(talk, group, first, second, first)


@scenario(OffsetFetchRequest, versions="2+")  # version 1 cannot say it
def everything(talk: Talk) -> None:
    group, _, _ = scene(talk)
    for require_stable in (False, True):
        request = fetch(fetch_group(group, everything=True), require_stable=require_stable)
        talk.ask(request, arrange=in_order_of_topics)
    talk.ask(fetch(fetch_group(talk.name("nowhere"), everything=True)))


@scenario(OffsetFetchRequest)
def stable_offsets(talk: Talk) -> None:
    group, first, second = scene(talk)
    for topic in (first, second, Topic(talk.name("nowhere"), b"\xee" * 16)):
        talk.ask(fetch(fetch_group(group, (topic, (0, 1))), require_stable=True))


@scenario(OffsetFetchRequest)
def unknown_groups(talk: Talk) -> None:
    _, first, _ = scene(talk)
    offsets_of(talk, talk.name("nowhere"), first)
    offsets_of(talk, talk.name("nowhere"), Topic(talk.name("nowhere"), b"\xee" * 16))


@scenario(OffsetFetchRequest)
def groups_in_each_state(talk: Talk) -> None:
    """Anybody may look."""
    topic = talk.topic()
    for state in STATES:
        group = stage(talk, state)
        offsets_of(talk, group.group, topic, label=state)
        if talk.version >= ALL_VERSION:
            talk.ask(fetch(fetch_group(group.group, everything=True)), label=f"{state}, everything")


@scenario(OffsetFetchRequest)
def several_groups(talk: Talk) -> None:
    """Before version 8 only the first one is asked for."""
    group, first, second = scene(talk)
    other, third, _ = scene(talk, "other")
    mine, others = fetch_group(group, (first, (0,))), fetch_group(other, (third, (0, 1)))
    talk.ask(fetch(mine, others, fetch_group(talk.name("nowhere"), (second, (0,)))))
    talk.ask(fetch(others, fetch_group(group, (third, (0,)))))
    talk.ask(fetch(mine, mine, fetch_group(group, (second, (0,)))), label="one group three times")
    if talk.version >= SEVERAL_VERSION:
        whole = fetch_group(group, everything=True)
        talk.ask(fetch(whole, others, fetch_group(other, everything=True)), arrange=in_order_of_topics)
        talk.ask(fetch(), label="no group")


@scenario(OffsetFetchRequest, versions="8+")  # one group a request before
def everything_twice(talk: Talk) -> None:
    group, first, _ = scene(talk)
    whole = fetch_group(group, everything=True)
    talk.ask(fetch(whole, fetch_group(group, (first, (0,))), whole), arrange=in_order_of_topics)


@scenario(OffsetFetchRequest)
def members_and_epochs(talk: Talk) -> None:
    """Since version 9 a member may say who it is; to a group of the classic protocol that does not matter."""
    group = stage(talk, STABLE)
    topic = talk.topic()
    for member_id in (None, "", "who", group.follower.member_id):
        for epoch in (-2, -1, 0, group.generation_id, 99):
            asked = fetch_group(group.group, (topic, (0,)), member_id=member_id, member_epoch=epoch)
            label = "follower" if member_id == group.follower.member_id else repr(member_id)
            talk.ask(fetch(asked), label=f"{label} in epoch {epoch}")
    absent = fetch_group(talk.name("nowhere"), (topic, (0,)), member_id="who", member_epoch=5)
    talk.ask(fetch(absent), label="who, of no group")


@scenario(OffsetFetchRequest)
def topics_by_id(talk: Talk) -> None:
    """Since version 10; before, the id is not looked at."""
    group, first, second = scene(talk)
    for kind, topic_id in (("zero", ZERO_UUID), ("unknown", b"\xee" * 16), ("another's", second.id), ("own", first.id)):
        offsets_of(talk, group, Topic(first.name, topic_id), label=kind, partitions=(0, 1))
    offsets_of(talk, group, Topic("", first.id), Topic(second.name, ZERO_UUID), second, label="some")


@scenario(OffsetFetchRequest)
def deleted_topics(talk: Talk) -> None:
    """Their offsets go with them, and do not come back with a topic of the same name."""
    group, first, second = scene(talk)
    deletion = DeleteTopicsRequest(topics=[DeleteTopicState(name=first.name, topic_id=ZERO_UUID)], timeout_ms=30_000)
    assert talk.do(deletion).responses[0].error_code == 0
    talk.until(
        fetch(fetch_group(group, (first, (0,)))),
        lambda answer: answer.groups[0].topics[0].partitions[0].committed_offset == -1,
        9,
    )
    offsets_of(talk, group, first, second)
    again = talk.topic("group-first")
    offsets_of(talk, group, again, first, second)
    if talk.version >= ALL_VERSION:
        talk.ask(fetch(fetch_group(group, everything=True)), arrange=in_order_of_topics)
