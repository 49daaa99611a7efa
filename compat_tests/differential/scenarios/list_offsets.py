"""Where in the log: special timestamps, lookups by time, and the errors of ListOffsets."""

from compat_tests.differential.asking import fill
from compat_tests.differential.conversation import Talk, scenario

from ottla.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic

SPECIAL_TIMESTAMPS = range(-8, 0)


def list_offsets(name: str, *asked: tuple[int, int], isolation_level: int = 0) -> ListOffsetsRequest:
    """`asked`: pairs of partition and timestamp."""
    partitions = [ListOffsetsPartition(partition_index=index, timestamp=time) for index, time in asked]
    topics = [ListOffsetsTopic(name=name, partitions=partitions)]
    return ListOffsetsRequest(replica_id=-1, isolation_level=isolation_level, topics=topics)


@scenario(ListOffsetsRequest)
def special_timestamps(talk: Talk) -> None:
    topic = talk.topic()
    for timestamp in SPECIAL_TIMESTAMPS:
        talk.ask(list_offsets(topic.name, (0, timestamp)), label=f"{timestamp} of an empty log")
    fill(talk, topic, [1000, 3000, 2000])
    for timestamp in SPECIAL_TIMESTAMPS:
        talk.ask(list_offsets(topic.name, (0, timestamp)), label=f"{timestamp}")


@scenario(ListOffsetsRequest)
def lookups_by_time(talk: Talk) -> None:
    topic = talk.topic()
    fill(talk, topic, [1000, 3000, 2000])
    fill(talk, topic, [2500, 5000])
    for timestamp in (0, 1000, 1001, 2999, 3000, 3001, 5000, 5001, 1 << 62):
        talk.ask(list_offsets(topic.name, (0, timestamp)), label=f"at {timestamp}")
