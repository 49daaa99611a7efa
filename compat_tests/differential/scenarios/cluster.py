"""What there is: DescribeCluster, DescribeTopicPartitions page by page, DescribeLogDirs."""

from typing import Any

from compat_tests.differential.asking_reading import SPARING, delete_records, fill_batches
from compat_tests.differential.conversation import Talk, scenario

from ottla.wire.messages.cluster import DescribeClusterRequest
from ottla.wire.messages.describe_topic_partitions import Cursor, DescribeTopicPartitionsRequest, TopicRequest
from ottla.wire.messages.log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest


@scenario(DescribeClusterRequest)
def the_cluster(talk: Talk) -> None:
    for operations in (False, True):
        for fenced in (False, True):
            asked = DescribeClusterRequest(
                include_cluster_authorized_operations=operations, include_fenced_brokers=fenced
            )
            talk.ask(asked, label=f"operations {operations}, fenced brokers {fenced}")


@scenario(DescribeClusterRequest, versions="1+")
def endpoint_types(talk: Talk) -> None:
    """v1 brought them."""
    for kind in (-1, 0, 1, 2, 3, 127):
        for operations in (False, True):
            asked = DescribeClusterRequest(include_cluster_authorized_operations=operations, endpoint_type=kind)
            talk.ask(asked, label=f"type {kind}, operations {operations}")


def pages(*names: str, limit: int = 2000, cursor: tuple[str, int] | None = None) -> DescribeTopicPartitionsRequest:
    return DescribeTopicPartitionsRequest(
        topics=[TopicRequest(name=name) for name in names],
        response_partition_limit=limit,
        cursor=None if cursor is None else Cursor(topic_name=cursor[0], partition_index=cursor[1]),
    )


@scenario(DescribeTopicPartitionsRequest)
def topics_by_name(talk: Talk) -> None:
    one, two, missing = talk.topic("one", partitions=2), talk.topic("two"), talk.name("missing")
    talk.group()
    talk.ask(pages(two.name, one.name), label="in the order of names")
    talk.ask(pages(one.name, one.name), label="twice")
    talk.ask(pages(two.name, missing, one.name), label="with a missing one")
    for name in ("", ".", "a b", "x" * 250):
        talk.ask(pages(name), label=repr(name[:9]))
    talk.ask(pages("__consumer_offsets"), label="an internal one")
    talk.ask(pages("__transaction_state_of_ours"), label="one that only looks internal")


@scenario(DescribeTopicPartitionsRequest)
def pages_and_cursors(talk: Talk) -> None:
    one, three = talk.topic("a-one", partitions=3), talk.topic("c-three", partitions=2)
    two = talk.name("b-two")  # is missing
    names = one.name, two, three.name
    for limit in (-1, 0, 1, 2, 3, 4, 5, 6):
        talk.ask(pages(*names, limit=limit), label=f"{limit} partitions a page")
    cursor: tuple[str, int] | None = None
    for page in range(5):
        answer = talk.ask(pages(*names, limit=1, cursor=cursor), label=f"page {page}")
        cursor = (answer.next_cursor.topic_name, answer.next_cursor.partition_index) if answer.next_cursor else None
    for name in names:
        for index in (0, 1, 2, 3, 9):
            talk.ask(pages(*names, cursor=(name, index)), label=f"from {name[:5]} {index}")
            talk.ask(pages(*names, cursor=(name, index), limit=2), label=f"two from {name[:5]} {index}")


@scenario(DescribeTopicPartitionsRequest, settings=SPARING)
def pages_of_a_sparing_broker(talk: Talk) -> None:
    """max.request.partition.size.limit is 2."""
    one, two = talk.topic("a-one", partitions=3), talk.topic("b-two")
    for limit in (0, 1, 2, 3, 2000):
        talk.ask(pages(one.name, two.name, limit=limit), label=f"{limit} partitions a page")
    talk.ask(pages(one.name, two.name, cursor=(one.name, 2)), label="from the third on")


@scenario(DescribeTopicPartitionsRequest)
def cursors_that_cannot_be(talk: Talk) -> None:
    one, two = talk.topic("a-one"), talk.topic("b-two")
    for label, cursor in (
        ("a topic that is not asked for", (talk.name("aa"), 0)),
        ("beyond all that is asked for", (talk.name("z"), 0)),
        ("no name", ("", 0)),
        ("a partition below 0", (one.name, -1)),
        ("both wrong", ("", -1)),
    ):
        talk.ask(pages(one.name, two.name, cursor=cursor), label=label)
    talk.ask(pages(cursor=(talk.name("a-one"), -1)), label="a partition below 0, of all topics")


@scenario(DescribeTopicPartitionsRequest)
def pages_of_all_topics(talk: Talk) -> None:
    """From a name on that only this telling's topics have before them; other topics are left out."""
    one = talk.topic("zz-one", partitions=2)

    def only_ours(answer: Any) -> None:
        answer.topics = [each for each in answer.topics if talk.run in each.name]
        answer.next_cursor = None

    talk.ask(pages(cursor=(one.name, 1)), label="from the second partition on", arrange=only_ours)
    talk.ask(pages(cursor=(one.name, 5)), label="from beyond its partitions on", arrange=only_ours)
    talk.ask(pages(cursor=(one.name[:-1], 5)), label="from a topic that is not there", arrange=only_ours)
    talk.ask(pages(limit=1, cursor=(one.name, 0)), label="one partition", arrange=only_ours)


def directories(*topics: tuple[str, list[int]]) -> DescribeLogDirsRequest:
    asked = [DescribableLogDirTopic(topic=name, partitions=partitions) for name, partitions in topics]
    return DescribeLogDirsRequest(topics=asked)


@scenario(DescribeLogDirsRequest)
def log_directories(talk: Talk) -> None:
    one, two = talk.topic("one", partitions=3), talk.topic("two")
    fill_batches(talk, one, 2, partition=1)

    def own(answer: Any) -> None:
        for result in answer.results:
            result.topics = sorted(
                (each for each in result.topics if talk.run in each.name), key=lambda each: each.name
            )
            for topic in result.topics:
                topic.partitions.sort(key=lambda each: each.partition_index)

    talk.ask(DescribeLogDirsRequest(topics=None), label="everything", arrange=own)
    talk.ask(directories(), label="nothing", arrange=own)
    talk.ask(directories((one.name, [0, 1])), label="two partitions", arrange=own)
    talk.ask(directories((one.name, [1]), (two.name, [0]), (one.name, [1, 2])), label="some of them twice", arrange=own)
    talk.ask(directories((one.name, []), (two.name, [7, -1])), label="none, and unknown ones", arrange=own)
    talk.ask(directories((talk.name("nowhere"), [0])), label="an unknown topic", arrange=own)
    talk.ask(directories(("a b", [0])), label="a name that cannot be", arrange=own)
    delete_records(talk, one, before=1, partition=1)
    talk.ask(directories((one.name, [1])), label="deleted records stay with their segment", arrange=own)
