"""DeleteRecords: to an offset, to the high watermark, and what is refused; DescribeProducers' errors."""

from compat_tests.differential.asking import fill
from compat_tests.differential.asking_records import fetch, read_back
from compat_tests.differential.conversation import Talk, scenario

from ottla.wire.messages.delete_topics import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from ottla.wire.messages.describe_transactions import DescribeProducersRequest, TopicRequest
from ottla.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic

INT32_MAX, INT64_MAX = 2**31 - 1, 2**63 - 1


def delete(name: str, *asked: tuple[int, int], timeout_ms: int = 10_000) -> DeleteRecordsRequest:
    """`asked`: pairs of partition and offset."""
    partitions = [DeleteRecordsPartition(partition_index=index, offset=offset) for index, offset in asked]
    return DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=name, partitions=partitions)], timeout_ms=timeout_ms)


def earliest(name: str) -> ListOffsetsRequest:
    asked = [ListOffsetsPartition(partition_index=0, timestamp=-2)]
    return ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=name, partitions=asked)])


@scenario(DeleteRecordsRequest)
def to_an_offset(talk: Talk) -> None:
    topic = talk.topic()
    fill(talk, topic, [1000, 1001, 1002])
    fill(talk, topic, [1003, 1004])
    for offset in (0, 1, 3, 2, 1, 4, 5, 5, -1):
        talk.ask(delete(topic.name, (0, offset)), label=f"to {offset}")
        talk.ask(earliest(topic.name))
    fill(talk, topic, [1005])
    talk.ask(delete(topic.name, (0, 4)), label="to an offset that is gone")
    read_back(talk, topic, offset=5)
    talk.ask(fetch(topic, 4), label="Fetch of what is gone")


@scenario(DeleteRecordsRequest)
def offsets_that_are_none(talk: Talk) -> None:
    topic = talk.topic()
    talk.ask(delete(topic.name, (0, -1)), label="all of an empty log")
    talk.ask(delete(topic.name, (0, 0)), label="nothing of an empty log")
    fill(talk, topic, [1000, 1001])
    for offset in (3, INT64_MAX, -2, -(2**63)):
        talk.ask(delete(topic.name, (0, offset)), label=f"to {offset}")


def in_order(answer: DeleteRecordsResponse) -> None:
    answer.topics.sort(key=lambda topic: topic.name)
    for topic in answer.topics:
        topic.partitions.sort(key=lambda partition: partition.partition_index)


@scenario(DeleteRecordsRequest)
def partitions_that_are_none(talk: Talk) -> None:
    topic = talk.topic()
    for index in (1, -1, INT32_MAX):
        talk.ask(delete(topic.name, (index, 0)), label=f"partition {index}")
    for name in ("nothing", "", "not a name"):
        talk.ask(delete(name, (0, 0)), label=f"topic {name!r}")
    talk.ask(delete(topic.name, (0, 0), (0, -1), (4, 0)), arrange=in_order, label="one twice and one that is none")
    talk.ask(delete(topic.name), label="no partitions")
    talk.ask(DeleteRecordsRequest(topics=[], timeout_ms=1000), label="no topics")
    talk.ask(delete(topic.name, (0, 0), timeout_ms=0), label="no time")
    talk.ask(delete(topic.name, (0, 0), timeout_ms=-1), label="less than no time")


@scenario(DeleteRecordsRequest)
def several_partitions(talk: Talk) -> None:
    one, two = talk.topic("one", partitions=2), talk.topic("two")
    for topic, partition in ((one, 0), (one, 1), (two, 0)):
        fill(talk, topic, [1000, 1001, 1002], partition)
    both = DeleteRecordsRequest(
        topics=[*delete(two.name, (0, 1)).topics, *delete(one.name, (1, -1), (0, 9)).topics], timeout_ms=1000
    )
    talk.ask(both, arrange=in_order, label="of two topics")


@scenario(DeleteRecordsRequest)
def topics_that_keep_their_records(talk: Talk) -> None:
    compacted = talk.topic("compacted", cleanup_policy="compact")
    both = talk.topic("both", cleanup_policy="compact,delete")
    for kind, topic in (("compact", compacted), ("compact,delete", both)):
        talk.ask(delete(topic.name, (0, 0)), label=f"nothing of {kind}")
        talk.ask(delete(topic.name, (0, -1)), label=f"all of {kind}")
        talk.ask(delete(topic.name, (0, 5)), label=f"too much of {kind}")
    talk.group()
    for partition in (0, 99):
        talk.ask(delete("__consumer_offsets", (partition, 0)), label=f"partition {partition} of an internal topic")


@scenario(DescribeProducersRequest)
def producers_of_partitions_that_are_none(talk: Talk) -> None:
    topic = talk.topic(partitions=2)

    def ask(label: str, *asked: tuple[str, list[int]]) -> None:
        topics = [TopicRequest(name=name, partition_indexes=indexes) for name, indexes in asked]
        talk.ask(DescribeProducersRequest(topics=topics), label=label)

    ask("producers of an empty log", (topic.name, [0, 1]))
    ask("of a missing partition", (topic.name, [1, 7, -1]))
    ask("of missing topics", ("nothing", [0]), ("", [0]), ("not a name", [0]))
    ask("of the same twice", (topic.name, [0, 0]), (topic.name, [0]))
    ask("of nothing", (topic.name, []))
    ask("of nobody")
