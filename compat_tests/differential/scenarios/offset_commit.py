"""Commits: by whom, of what, and what is kept of them."""

from compat_tests.differential.asking_groups import describe, leave_request, until_state
from compat_tests.differential.asking_offsets import commit, commit_partition, commit_topic, offsets_of
from compat_tests.differential.asking_stages import EMPTY, STABLE, STATES, impostors, out_of_step, stage, themselves
from compat_tests.differential.conversation import Talk, Topic, scenario

from ottla.wire.messages.groups import DeleteGroupsRequest
from ottla.wire.messages.offsets import OffsetCommitRequest, OffsetCommitRequestTopic
from ottla.wire.schema import ZERO_UUID

LONGEST_METADATA = 4096


def nowhere(talk: Talk) -> Topic:
    return Topic(talk.name("nowhere"), b"\xee" * 16)


@scenario(OffsetCommitRequest)
def commits_in_each_state(talk: Talk) -> None:
    topic = talk.topic()
    for state in STATES:
        group = stage(talk, state)
        everybody = (*impostors(group), *out_of_step(group), *themselves(group))
        for offset, speaker in enumerate(everybody):
            request = commit(
                group.group,
                topic,
                {0: offset},
                member_id=speaker.member_id,
                generation_id_or_member_epoch=speaker.generation_id,
                group_instance_id=speaker.instance,
            )
            talk.ask(request, label=f"{state}, {speaker.label}")
        offsets_of(talk, group.group, topic, label=f"{state}, offsets")
        describe(talk, group.group, label=f"{state}, describe")


@scenario(OffsetCommitRequest)
def commits_to_no_group(talk: Talk) -> None:
    """Generation -1 keeps offsets without a group; the empty name is a group like any other."""
    topic = talk.topic()
    for generation_id in (-1, -2, -(1 << 31), 0, 1, (1 << 31) - 1):
        group = talk.group(f"group{generation_id}")
        for member_id in ("", "who"):
            request = commit(group, topic, {0: 5}, member_id=member_id, generation_id_or_member_epoch=generation_id)
            talk.ask(request, label=f"generation {generation_id}, {member_id!r}")
        describe(talk, group)
    talk.ask(commit("", topic, {0: 5}), label="empty name")
    talk.ask(commit("", topic, {0: 5}, generation_id_or_member_epoch=3), label="empty name, generation 3")
    offsets_of(talk, "", topic)
    talk.do(DeleteGroupsRequest(groups_names=[""]))  # which other scenarios ask for


@scenario(OffsetCommitRequest)
def partitions_that_do_not_exist(talk: Talk) -> None:
    group = talk.group()
    topic, other = talk.topic(partitions=2), talk.topic("other")
    unknown = nowhere(talk)
    talk.ask(commit(group, topic, {0: 1, 2: 2, -1: 3, 1: 4, (1 << 31) - 1: 5}), label="some")
    talk.ask(commit(group, topic, {7: 1}), label="none")
    talk.ask(commit(group, unknown, {0: 1, -1: 2}), label="no such topic")
    topics = [commit_topic(unknown, {1: 1}), commit_topic(topic, {5: 1, 0: 6}), commit_topic(other, {0: 7})]
    talk.ask(commit(group, topic, {}, topics=topics), label="several topics")
    talk.ask(commit(group, topic, {}, topics=[commit_topic(unknown, {})]), label="no partitions of no topic")
    talk.ask(commit(group, topic, {}), label="no partitions")
    talk.ask(commit(group, topic, {}, topics=[]), label="no topics")
    offsets_of(talk, group, topic, other, partitions=(0, 1, 2))


@scenario(OffsetCommitRequest)
def what_does_not_exist_hides_who_asks(talk: Talk) -> None:
    """Topics are looked at first; the group is asked only if something is left."""
    topic, unknown = talk.topic(), nowhere(talk)
    group = stage(talk, STABLE)
    strange = {"member_id": "who", "generation_id_or_member_epoch": 1}
    talk.ask(commit(group.group, unknown, {0: 1}, **strange))
    topics = [commit_topic(unknown, {0: 1}), commit_topic(topic, {0: 1, 9: 1})]
    talk.ask(commit(group.group, topic, {}, topics=topics, **strange))
    talk.ask(commit(group.group, topic, {}, topics=[], **strange))


@scenario(OffsetCommitRequest)
def the_same_twice(talk: Talk) -> None:
    group = talk.group()
    topic = talk.topic(partitions=2)
    twice = [commit_partition(0, 1), commit_partition(1, 2), commit_partition(0, 3), commit_partition(9, 1)]
    once = OffsetCommitRequestTopic(name=topic.name, topic_id=topic.id, partitions=twice)
    talk.ask(commit(group, topic, {}, topics=[once]))
    offsets_of(talk, group, topic, partitions=(0, 1))
    talk.ask(commit(group, topic, {}, topics=[commit_topic(topic, {0: 5, 1: 6}), commit_topic(topic, {0: 7})]))
    offsets_of(talk, group, topic, partitions=(0, 1))
    talk.ask(commit(group, topic, {}, topics=[commit_topic(topic, {9: 5, 1: 8}), commit_topic(topic, {8: 5, 0: 9})]))
    offsets_of(talk, group, topic, partitions=(0, 1))


@scenario(OffsetCommitRequest)
def metadata_of_all_lengths(talk: Talk) -> None:
    """The limit counts UTF-16 units, as Java's strings do."""
    group = talk.group()
    topic = talk.topic(partitions=8)
    told = ["", None, "é", "m" * LONGEST_METADATA, "m" * (LONGEST_METADATA + 1)]
    told += ["é" * LONGEST_METADATA, "\U0001f600" * (LONGEST_METADATA // 2), "\U0001f600" * (LONGEST_METADATA // 2 + 1)]
    partitions = [commit_partition(index, index, committed_metadata=text) for index, text in enumerate(told)]
    once = OffsetCommitRequestTopic(name=topic.name, topic_id=topic.id, partitions=partitions)
    talk.ask(commit(group, topic, {}, topics=[once]))
    offsets_of(talk, group, topic, partitions=range(8))


@scenario(OffsetCommitRequest)
def offsets_and_epochs_of_all_sizes(talk: Talk) -> None:
    """Nobody compares them with the log's."""
    group = talk.group()
    topic = talk.topic(partitions=8)
    given = [
        (0, 0),
        (-1, -1),
        (-2, 5),
        (1 << 62, 1 << 30),
        ((1 << 63) - 1, -2),
        (-(1 << 63), -(1 << 31)),
        (7, 0),
        (8, -1),
    ]
    partitions = [
        commit_partition(index, offset, committed_leader_epoch=epoch) for index, (offset, epoch) in enumerate(given)
    ]
    once = OffsetCommitRequestTopic(name=topic.name, topic_id=topic.id, partitions=partitions)
    talk.ask(commit(group, topic, {}, topics=[once]))
    offsets_of(talk, group, topic, partitions=range(8))


@scenario(OffsetCommitRequest)
def retention_asked_for_by_the_client(talk: Talk) -> None:
    """Versions 2 to 4 may; what has to expire at once is still there until somebody looks."""
    group = talk.group()
    topic = talk.topic()
    for offset, retention_ms in enumerate((-1, 0, 1, 3_600_000, (1 << 63) - 1, -2)):
        talk.ask(commit(group, topic, {0: offset}, retention_time_ms=retention_ms), label=f"for {retention_ms} ms")
        offsets_of(talk, group, topic)


@scenario(OffsetCommitRequest)
def topics_by_id(talk: Talk) -> None:
    """Since version 10; before, the id is not looked at."""
    group = talk.group()
    topic = talk.topic()
    for kind, topic_id in (("zero", ZERO_UUID), ("unknown", b"\xee" * 16), ("own", topic.id)):
        talk.ask(commit(group, Topic(topic.name, topic_id), {0: 1, 1: 2}), label=kind)
    talk.ask(commit(group, Topic("", topic.id), {0: 3}), label="no name")
    offsets_of(talk, group, topic)


@scenario(OffsetCommitRequest)
def a_groups_offsets_outlive_its_members(talk: Talk) -> None:
    topic = talk.topic()
    group = stage(talk, STABLE, pending=False)
    member = {"member_id": group.follower.member_id, "generation_id_or_member_epoch": group.generation_id}
    talk.ask(commit(group.group, topic, {0: 1}, **member))
    talk.do(leave_request(group.group, (group.follower.member_id, None)))
    talk.ask(commit(group.group, topic, {0: 2}, **member))
    talk.do(leave_request(group.group, ("", "one")))
    until_state(talk, group.group, EMPTY)
    talk.ask(commit(group.group, topic, {0: 3}, **member))
    offsets_of(talk, group.group, topic)
    talk.ask(commit(group.group, topic, {0: 4}))
    offsets_of(talk, group.group, topic)
