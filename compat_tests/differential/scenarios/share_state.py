"""The state of share partitions, as brokers ask share coordinators about it."""

from typing import Any

from compat_tests.differential.conversation import COORDINATOR_IS_COMING, Talk, Topic, scenario

from ottla.wire.messages import share_group_state
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest
from ottla.wire.messages.share_group_state import (
    DeleteShareGroupStateRequest,
    InitializeShareGroupStateRequest,
    ReadShareGroupStateRequest,
    ReadShareGroupStateSummaryRequest,
    WriteShareGroupStateRequest,
)
from ottla.wire.schema import Message

SHARE = 2
AVAILABLE, ACKNOWLEDGED, ARCHIVED = 0, 2, 4
Batch = tuple[int, int, int, int]


def initialize(group: str, topic_id: bytes, partition: int = 0, *, epoch: int = 1, start: int = 0) -> Message:
    data = share_group_state.InitializeStatePartition(partition=partition, state_epoch=epoch, start_offset=start)
    topics = [share_group_state.InitializeStateData(topic_id=topic_id, partitions=[data])]
    return InitializeShareGroupStateRequest(group_id=group, topics=topics)


def read(group: str, topic_id: bytes, partition: int = 0, *, leader: int = 0) -> Message:
    data = share_group_state.ReadStatePartition(partition=partition, leader_epoch=leader)
    topics = [share_group_state.ReadStateData(topic_id=topic_id, partitions=[data])]
    return ReadShareGroupStateRequest(group_id=group, topics=topics)


def write(
    group: str, topic_id: bytes, *batches: Batch, partition: int = 0, epoch: int = 1, leader: int = 0, start: int = -1
) -> Message:
    data = share_group_state.WriteStatePartition(
        partition=partition,
        state_epoch=epoch,
        leader_epoch=leader,
        start_offset=start,
        delivery_complete_count=len(batches),
        state_batches=[
            share_group_state.StateBatch(
                first_offset=first, last_offset=last, delivery_state=state, delivery_count=count
            )
            for first, last, state, count in batches
        ],
    )
    topics = [share_group_state.WriteStateData(topic_id=topic_id, partitions=[data])]
    return WriteShareGroupStateRequest(group_id=group, topics=topics)


def delete(group: str, topic_id: bytes, partition: int = 0) -> Message:
    topics = [
        share_group_state.DeleteStateData(
            topic_id=topic_id, partitions=[share_group_state.DeleteStatePartition(partition=partition)]
        )
    ]
    return DeleteShareGroupStateRequest(group_id=group, topics=topics)


def summary(group: str, topic_id: bytes, partition: int = 0, *, leader: int = 0) -> Message:
    data = share_group_state.ReadStatePartition(partition=partition, leader_epoch=leader)
    topics = [share_group_state.ReadStateSummaryData(topic_id=topic_id, partitions=[data])]
    return ReadShareGroupStateSummaryRequest(group_id=group, topics=topics)


def share_partition(talk: Talk, partitions: int = 1) -> tuple[str, Topic]:
    """A group and a topic whose share coordinators are ready."""
    group, topic = talk.name("group"), talk.topic(partitions=partitions)

    def is_there(answer: Any) -> bool:
        return answer.results[0].partitions[0].error_code not in COORDINATOR_IS_COMING[:3]

    talk.do(FindCoordinatorRequest(key_type=SHARE, coordinator_keys=[f"{group}:AAAAAAAAAAAAAAAAAAAAAQ:0"]))
    for partition in range(partitions):
        talk.until(summary(group, topic.id, partition), is_there)
    return group, topic


def nonsense(group: str, topic: Topic, ask: Any) -> list[tuple[str, Message]]:
    """Questions that name nothing that there could be."""
    return [
        ("no such topic", ask(group, bytes(15) + b"\7")),
        ("no topic", ask(group, bytes(16))),
        ("no such partition", ask(group, topic.id, partition=7)),
        ("a negative partition", ask(group, topic.id, partition=-1)),
        ("no group", ask("", topic.id)),
    ]


@scenario(InitializeShareGroupStateRequest)
def initialized_state(talk: Talk) -> None:
    group, topic = share_partition(talk)
    for label, asked in nonsense(group, topic, initialize):
        talk.ask(asked, label=label)
    for epoch, start in ((1, -1), (1, -1), (1, 5), (3, 0), (2, 0), (3, 4), (-1, 0)):
        talk.ask(initialize(group, topic.id, epoch=epoch, start=start), label=f"epoch {epoch} from {start}")
        talk.ask(summary(group, topic.id), label="summary")
    talk.ask(InitializeShareGroupStateRequest(group_id=group, topics=[]), label="nothing")


@scenario(ReadShareGroupStateRequest)
def read_state(talk: Talk) -> None:
    group, topic = share_partition(talk)
    for label, asked in nonsense(group, topic, read):
        talk.ask(asked, label=label)
    talk.ask(read(group, topic.id), label="unknown")
    talk.do(initialize(group, topic.id, epoch=4, start=2))
    for leader in (0, 3, 3, 2, -1, 3):
        talk.ask(read(group, topic.id, leader=leader), label=f"leader {leader}")
    talk.ask(summary(group, topic.id), label="summary")


@scenario(WriteShareGroupStateRequest)
def written_state(talk: Talk) -> None:
    group, topic = share_partition(talk)
    for label, asked in nonsense(group, topic, write):
        talk.ask(asked, label=label)
    talk.ask(write(group, topic.id, (0, 4, ACKNOWLEDGED, 1)), label="unknown")
    talk.do(initialize(group, topic.id, start=0))
    stories: list[tuple[str, Message]] = [
        ("first", write(group, topic.id, (0, 9, AVAILABLE, 1))),
        ("in between", write(group, topic.id, (3, 5, ACKNOWLEDGED, 1))),
        ("again, lower", write(group, topic.id, (3, 4, AVAILABLE, 1))),
        ("delivered again", write(group, topic.id, (0, 2, AVAILABLE, 2), (6, 6, ARCHIVED, 2))),
        ("beside", write(group, topic.id, (10, 12, AVAILABLE, 1))),
        ("the start moves", write(group, topic.id, start=4)),
        ("the start does not move back", write(group, topic.id, (5, 7, ARCHIVED, 3), start=2)),
        ("an older state epoch", write(group, topic.id, epoch=0)),
        ("a newer state epoch", write(group, topic.id, epoch=2)),
        ("a newer leader", write(group, topic.id, leader=2)),
        ("a negative leader", write(group, topic.id, leader=-1)),
        ("a negative epoch", write(group, topic.id, epoch=-1)),
    ]
    leader = 0
    for label, asked in stories:
        talk.ask(asked, label=label)
        # Reading as an older leader is refused, and as a newer one it fences those before it.
        leader = max(leader, 2 if label == "a newer leader" else 0)
        talk.ask(read(group, topic.id, leader=leader), label="read")
        talk.ask(summary(group, topic.id), label="summary")


@scenario(ReadShareGroupStateSummaryRequest)
def summarized_state(talk: Talk) -> None:
    group, topic = share_partition(talk, partitions=2)
    for label, asked in nonsense(group, topic, summary):
        talk.ask(asked, label=label)
    talk.ask(summary(group, topic.id), label="unknown")
    talk.do(initialize(group, topic.id, epoch=2, start=3))
    talk.do(write(group, topic.id, (3, 3, ACKNOWLEDGED, 1), epoch=2, leader=1, start=3))
    for leader in (1, 0, 5, -1):
        talk.ask(summary(group, topic.id, leader=leader), label=f"leader {leader}")
    talk.ask(summary(group, topic.id, 1), label="the other partition")


@scenario(DeleteShareGroupStateRequest)
def deleted_state(talk: Talk) -> None:
    group, topic = share_partition(talk)
    for label, asked in nonsense(group, topic, delete):
        talk.ask(asked, label=label)
    talk.ask(delete(group, topic.id), label="unknown")
    talk.do(initialize(group, topic.id, epoch=2, start=3))
    for label in ("known", "known no more"):
        talk.ask(delete(group, topic.id), label=label)
        talk.ask(summary(group, topic.id), label="summary")
    talk.ask(initialize(group, topic.id, epoch=1), label="with an older epoch")
    talk.ask(summary(group, topic.id), label="summary")
