"""OffsetForLeaderEpoch: where the records of an epoch end, and who may not ask."""

from typing import Any

from compat_tests.differential.asking_reading import delete_records, fill_batches, nowhere
from compat_tests.differential.conversation import Talk, scenario

from ottla.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)


def epochs_of(name: str, *asked: tuple[int, int], current: int = -1) -> OffsetForLeaderTopic:
    """`asked`: pairs of partition and leader epoch."""
    return OffsetForLeaderTopic(
        topic=name,
        partitions=[
            OffsetForLeaderPartition(partition=index, leader_epoch=epoch, current_leader_epoch=current)
            for index, epoch in asked
        ],
    )


def request(*topics: OffsetForLeaderTopic, **fields: Any) -> OffsetForLeaderEpochRequest:
    return OffsetForLeaderEpochRequest(topics=list(topics), **fields)


@scenario(OffsetForLeaderEpochRequest)
def ends_of_epochs(talk: Talk) -> None:
    topic = talk.topic()
    for epoch in (-2, -1, 0, 1):
        talk.ask(request(epochs_of(topic.name, (0, epoch))), label=f"epoch {epoch} of an empty log")
    fill_batches(talk, topic, 3)
    for epoch in (-2, -1, 0, 1, 0x7FFFFFFF):
        talk.ask(request(epochs_of(topic.name, (0, epoch))), label=f"epoch {epoch}")
    delete_records(talk, topic, before=2)
    for epoch in (-1, 0, 1):
        talk.ask(request(epochs_of(topic.name, (0, epoch))), label=f"epoch {epoch} when some were deleted")
    delete_records(talk, topic, before=3)
    for epoch in (-1, 0, 1):
        talk.ask(request(epochs_of(topic.name, (0, epoch))), label=f"epoch {epoch} when all were deleted")


@scenario(OffsetForLeaderEpochRequest)
def fencing(talk: Talk) -> None:
    topic = talk.topic()
    fill_batches(talk, topic, 1)
    for current in (-2, -1, 0, 1):
        for epoch in (-1, 0, 1):
            asked = request(epochs_of(topic.name, (0, epoch), current=current))
            talk.ask(asked, label=f"epoch {epoch} in epoch {current}")


@scenario(OffsetForLeaderEpochRequest)
def missing_partitions(talk: Talk) -> None:
    topic = talk.topic(partitions=2)
    fill_batches(talk, topic, 1)
    unknown = nowhere(talk)
    talk.ask(request(), label="nothing")
    talk.ask(request(epochs_of(topic.name)), label="a topic without partitions")
    talk.ask(request(epochs_of(topic.name, (2, 0), (-1, 0))), label="unknown partitions")
    talk.ask(request(epochs_of(unknown.name, (0, 0), current=4)), label="an unknown topic")
    mixed = epochs_of(unknown.name, (0, 0)), epochs_of(topic.name, (1, 0), (0, 0), (2, 0))
    talk.ask(request(*mixed), label="among good")


@scenario(OffsetForLeaderEpochRequest)
def duplicates(talk: Talk) -> None:
    one, two = talk.topic("one"), talk.topic("two")
    talk.ask(request(epochs_of(one.name, (0, 0), (0, -1))), label="a partition twice")
    apart = epochs_of(one.name, (0, 0)), epochs_of(two.name, (0, 0)), epochs_of(one.name, (0, 1))
    talk.ask(request(*apart), label="a topic in two entries")


@scenario(OffsetForLeaderEpochRequest)
def replicas(talk: Talk) -> None:
    topic = talk.topic()
    fill_batches(talk, topic, 1)
    for replica in (-3, -2, -1, 0, 5):
        talk.ask(request(epochs_of(topic.name, (0, 0)), replica_id=replica), label=f"replica {replica}")
