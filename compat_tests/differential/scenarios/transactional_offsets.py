"""Offsets in transactions: who may commit them, and who sees them when."""

from typing import Any

from compat_tests.differential.asking_groups import describe
from compat_tests.differential.asking_offsets import commit, fetch, fetch_group, in_order_of_topics, offsets_of
from compat_tests.differential.asking_stages import STATES, impostors, out_of_step, stage, themselves
from compat_tests.differential.asking_transactions import Producer, new_producer, until_complete
from compat_tests.differential.conversation import Talk, Topic, scenario

from ottla.wire.messages.offsets import OffsetDeleteRequest, OffsetDeleteRequestPartition, OffsetDeleteRequestTopic
from ottla.wire.messages.transactions import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)

ADDED_BEFORE = 4  # the last version of TxnOffsetCommit whose clients add the group before


def commit_in(
    producer: Producer, group: str, topic: Topic, offsets: dict[int, int], metadata: str = "metadata", **details: Any
) -> TxnOffsetCommitRequest:
    partitions = [
        TxnOffsetCommitRequestPartition(
            partition_index=index, committed_offset=offset, committed_leader_epoch=7, committed_metadata=metadata
        )
        for index, offset in offsets.items()
    ]
    return TxnOffsetCommitRequest(
        transactional_id=producer.name,
        group_id=group,
        producer_id=producer.id,
        producer_epoch=producer.epoch,
        topics=[TxnOffsetCommitRequestTopic(name=topic.name, topic_id=topic.id, partitions=partitions)],
        **details,
    )


def takes_part(talk: Talk, producer: Producer, group: str) -> None:
    answer = talk.until(producer.add_offsets(group), lambda answer: answer.error_code == 0)
    assert answer.error_code == 0


def ended(talk: Talk, producer: Producer, *, commit: bool) -> Producer:
    answer = talk.do(producer.end(commit=commit), 5 if talk.version > ADDED_BEFORE else 4)
    assert answer.error_code == 0, answer
    return until_complete(talk, producer.name)


def stable_offsets(talk: Talk, group: str, topic: Topic, label: str) -> None:
    for stable in (False, True):
        asked = fetch(fetch_group(group, (topic, (0, 1))), require_stable=stable)
        talk.ask(asked, label=f"{label}, {'stable' if stable else 'any'}")
    # All offsets of the group, of which some have never been committed outside of the transaction.
    everything = fetch(fetch_group(group, everything=True), require_stable=True)
    talk.ask(everything, label=f"{label}, all of the group's", arrange=in_order_of_topics)


@scenario(TxnOffsetCommitRequest)
def until_the_end(talk: Talk) -> None:
    topic, group = talk.topic(partitions=2), talk.group()
    producer = new_producer(talk)
    talk.do(commit(group, topic, {1: 50}))
    for commits in (True, False):
        takes_part(talk, producer, group)
        talk.ask(commit_in(producer, group, topic, {0: 1}), label="the offsets")
        talk.ask(commit_in(producer, group, topic, {0: 2}), label="and again")
        stable_offsets(talk, group, topic, "before the end")
        producer = ended(talk, producer, commit=commits)
        stable_offsets(talk, group, topic, "committed" if commits else "aborted")
    takes_part(talk, producer, group)
    talk.ask(commit_in(producer, group, topic, {0: 3, 1: 60}), label="once more")
    talk.do(commit(group, topic, {0: 4}))
    ended(talk, producer, commit=True)
    stable_offsets(talk, group, topic, "with a plain commit behind it")
    describe(talk, group)


@scenario(TxnOffsetCommitRequest)
def producers_that_may_not(talk: Talk) -> None:
    topic, group, other = talk.topic(), talk.group(), talk.group("other")
    producer = new_producer(talk)

    def ask(by: Producer, label: str, of: str = group) -> None:
        talk.ask(commit_in(by, of, topic, {0: 5}), label=label)

    takes_part(talk, producer, group)
    for epoch in (-1, 1):
        ask(producer.at(epoch=epoch), f"epoch {epoch:+}")
    ask(producer.at(id=1000), "another producer")
    ask(Producer(talk.name("unknown"), producer.id, 0), "an unknown id")
    ask(Producer("", producer.id, 0), "no id")
    ask(producer, "no group", of="")
    ask(producer, "the offsets")
    ask(producer.at(epoch=-1), "an older epoch, now that it is open")
    takes_part(talk, producer, other)
    ask(producer, "another group", of=other)
    after = ended(talk, producer, commit=True)
    ask(producer, "after the end")
    ask(after, "after the end, in its own epoch")
    offsets_of(talk, group, topic)


@scenario(TxnOffsetCommitRequest)
def topics_that_do_not_exist(talk: Talk) -> None:
    topic, group = talk.topic(partitions=2), talk.group()
    nowhere = Topic(talk.name("nowhere"), b"\xee" * 16)
    nameless = Topic("", bytes(16))
    producer = new_producer(talk)
    takes_part(talk, producer, group)
    talk.ask(commit_in(producer, group, topic, {0: 1, 2: 2, -1: 3, 1: 4}), label="some partitions")
    for label, where in (("a topic", nowhere), ("no name", nameless)):
        talk.ask(commit_in(producer, group, where, {0: 1}), label=label)
    talk.ask(commit_in(producer, "", nowhere, {0: 1}), label="neither topic nor group")
    both = commit_in(producer, group, topic, {0: 5, 7: 5})
    both.topics += commit_in(producer, group, nowhere, {0: 6}).topics

    def by_name(answer: Any) -> None:
        for each in answer.topics:
            each.partitions.sort(key=lambda told: told.partition_index)
        answer.topics.sort(key=lambda each: (each.name, each.topic_id == nowhere.id))

    talk.ask(both, label="one that exists and one that does not", arrange=by_name)
    for length in (4096, 4097):
        talk.ask(commit_in(producer, group, topic, {0: 9}, "x" * length), label=f"metadata of {length}")
    talk.ask(commit_in(producer, group, topic, {}), label="no partition")
    talk.ask(commit_in(producer, group, topic, {0: 1, 1: 1}, ""), label="no metadata")
    ended(talk, producer, commit=True)
    offsets_of(talk, group, topic, partitions=(0, 1))


@scenario(TxnOffsetCommitRequest, versions="3+")  # members are named since 3
def members_of_groups_in_each_state(talk: Talk) -> None:
    topic = talk.topic()
    producer = new_producer(talk)
    for state in STATES:
        group = stage(talk, state)
        takes_part(talk, producer, group.group)
        everybody = (*impostors(group), *out_of_step(group), *themselves(group))
        for offset, speaker in enumerate(everybody):
            asked = commit_in(
                producer,
                group.group,
                topic,
                {0: offset},
                member_id=speaker.member_id,
                generation_id_or_member_epoch=speaker.generation_id,
                group_instance_id=speaker.instance,
            )
            talk.ask(asked, label=f"{state}, {speaker.label}")
    after = ended(talk, producer, commit=True)
    assert after.id == producer.id


@scenario(TxnOffsetCommitRequest, versions="0-2")  # nobody is named before 3
def groups_in_each_state(talk: Talk) -> None:
    topic = talk.topic()
    producer = new_producer(talk)
    for state in STATES:
        group = stage(talk, state)
        takes_part(talk, producer, group.group)
        talk.ask(commit_in(producer, group.group, topic, {0: 1}), label=state)
    ended(talk, producer, commit=True)


@scenario(TxnOffsetCommitRequest)
def offsets_that_are_deleted_meanwhile(talk: Talk) -> None:
    topic, group = talk.topic(), talk.group()
    producer = new_producer(talk)
    talk.do(commit(group, topic, {0: 50}))
    takes_part(talk, producer, group)
    talk.ask(commit_in(producer, group, topic, {0: 1}), label="the offsets")
    partitions = [OffsetDeleteRequestPartition(partition_index=0)]
    asked = OffsetDeleteRequest(
        group_id=group, topics=[OffsetDeleteRequestTopic(name=topic.name, partitions=partitions)]
    )
    talk.ask(asked, label="their deletion")
    ended(talk, producer, commit=True)
    offsets_of(talk, group, topic)


@scenario(TxnOffsetCommitRequest, settings={"transaction.partition.verification.enable": "false"})
def of_no_producer(talk: Talk) -> None:
    """Without a producer id (-1) there is no transaction to wait for; of any other number there might be one."""
    topic, group = talk.topic(partitions=2), talk.group()
    producer = new_producer(talk)
    for epoch in (-1, 0, 5):
        nobody = Producer(producer.name, -1, epoch)
        talk.ask(commit_in(nobody, group, topic, {0: 3 + epoch}), label=f"nobody, epoch {epoch}")
        stable_offsets(talk, group, topic, f"after epoch {epoch}")
    for number in (-2, producer.id + 1):
        other = Producer(producer.name, number, 0)
        talk.ask(
            commit_in(other, talk.group("other"), topic, {1: 7}), label=f"another, {'-2' if number < 0 else 'known'}"
        )
        stable_offsets(talk, talk.group("other"), topic, "after it")
