"""Where in the log: special timestamps, lookups by time, who may ask, and the errors of ListOffsets."""

from typing import Any

from compat_tests.differential.asking import fill
from compat_tests.differential.asking_reading import a_batch, append, delete_records, nowhere
from compat_tests.differential.conversation import OLDER, Talk, scenario

from ottla.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.wire.records import Compression

SPECIAL_TIMESTAMPS = range(-8, 0)
LATEST, EARLIEST = -1, -2


def asked_of(name: str, *asked: tuple[int, int], leader_epoch: int = -1) -> ListOffsetsTopic:
    """`asked`: pairs of partition and timestamp."""
    return ListOffsetsTopic(
        name=name,
        partitions=[
            ListOffsetsPartition(partition_index=index, timestamp=time, current_leader_epoch=leader_epoch)
            for index, time in asked
        ],
    )


def list_offsets(name: str, *asked: tuple[int, int], **fields: Any) -> ListOffsetsRequest:
    return request(asked_of(name, *asked), **fields)


def request(*topics: ListOffsetsTopic, **fields: Any) -> ListOffsetsRequest:
    return ListOffsetsRequest(**{"replica_id": -1, "topics": list(topics)} | fields)


def in_order(answer: Any) -> None:
    """Kafka answers topics and partitions in the order of its hash map."""
    answer.topics.sort(key=lambda topic: topic.name)
    for topic in answer.topics:
        topic.partitions.sort(key=lambda partition: partition.partition_index)


@scenario(ListOffsetsRequest)
def special_timestamps(talk: Talk) -> None:
    topic = talk.topic()
    for timestamp in SPECIAL_TIMESTAMPS:
        talk.ask(list_offsets(topic.name, (0, timestamp)), label=f"{timestamp} of an empty log")
    fill(talk, topic, [1000, 3000, 2000])
    for timestamp in (-(1 << 63), *SPECIAL_TIMESTAMPS):
        talk.ask(list_offsets(topic.name, (0, timestamp)), label=f"{timestamp}")


@scenario(ListOffsetsRequest)
def lookups_by_time(talk: Talk) -> None:
    topic = talk.topic()
    fill(talk, topic, [1000, 3000, 2000])
    fill(talk, topic, [2500, 5000])
    for timestamp in (0, 1000, 1001, 2999, 3000, 3001, 5000, 5001, 1 << 62):
        talk.ask(list_offsets(topic.name, (0, timestamp)), label=f"at {timestamp}")


@scenario(ListOffsetsRequest)
def the_largest_timestamp(talk: Talk) -> None:
    """The first record that has it, if several have."""
    topic = talk.topic(partitions=3)
    fill(talk, topic, [1000, 4000, 4000])
    fill(talk, topic, [4000, 2000])
    fill(talk, topic, [4000, 4000], partition=1)
    fill(talk, topic, [5000], partition=1)
    fill(talk, topic, [1000], partition=1)
    append(talk, topic, a_batch(timestamp=-1), partition=2)
    for index in range(3):
        for timestamp in (-3, 0, 4000):
            talk.ask(list_offsets(topic.name, (index, timestamp)), label=f"partition {index} at {timestamp}")


@scenario(ListOffsetsRequest)
def compressed_batches(talk: Talk) -> None:
    topic = talk.topic(partitions=5)
    for index, codec in enumerate(Compression):
        append(
            talk,
            topic,
            a_batch(records=4, compression=codec),
            a_batch(timestamp=500, compression=codec),
            partition=index,
        )
        for timestamp in (0, 1001, 1002, 1004, -3):
            talk.ask(list_offsets(topic.name, (index, timestamp)), label=f"{codec.name} at {timestamp}")


@scenario(ListOffsetsRequest)
def after_records_were_deleted(talk: Talk) -> None:
    topic = talk.topic()
    fill(talk, topic, [1000, 9000, 2000])
    fill(talk, topic, [3000, 4000])
    for before in (2, 3, 5):
        delete_records(talk, topic, before)
        for timestamp in (*range(-6, 0), 0, 1000, 3500, 8000):
            talk.ask(list_offsets(topic.name, (0, timestamp)), label=f"at {timestamp}, 0-{before - 1} deleted")


@scenario(ListOffsetsRequest)
def missing_partitions(talk: Talk) -> None:
    topic = talk.topic(partitions=2)
    unknown = nowhere(talk)
    for index in (2, -1):
        talk.ask(list_offsets(topic.name, (index, LATEST)), label=f"partition {index}")
    talk.ask(list_offsets(unknown.name, (0, LATEST)), label="an unknown topic")
    talk.ask(list_offsets(unknown.name, (0, -99)), label="an unknown topic and timestamp")
    talk.ask(list_offsets("a b", (0, LATEST)), label="a name that cannot be")
    both = asked_of(topic.name, (0, LATEST), (5, LATEST), (1, EARLIEST)), asked_of(unknown.name, (0, LATEST))
    talk.ask(request(*both), label="among good", arrange=in_order)


@scenario(ListOffsetsRequest)
def duplicates_and_empty_topics(talk: Talk) -> None:
    one, two = talk.topic("one", partitions=2), talk.topic("two")
    talk.ask(request(), label="nothing")
    talk.ask(request(asked_of(one.name)), label="a topic without partitions")
    talk.ask(request(asked_of(one.name), asked_of(two.name, (0, LATEST))), label="one without, one with")
    twice = asked_of(one.name, (0, LATEST), (1, LATEST), (0, EARLIEST))
    talk.ask(request(twice), label="a partition twice", arrange=in_order)
    apart = asked_of(one.name, (0, LATEST)), asked_of(two.name, (0, LATEST)), asked_of(one.name, (1, LATEST))
    talk.ask(request(*apart), label="a topic in two entries", arrange=in_order)
    apart[2].partitions[0].partition_index = 0
    talk.ask(request(*apart), label="a partition in two entries", arrange=in_order)
    lost = asked_of(talk.name("nowhere"), (0, LATEST), (0, -99))
    talk.ask(request(lost), label="an unknown partition twice")


@scenario(ListOffsetsRequest)
def leader_epochs(talk: Talk) -> None:
    topic = talk.topic()
    fill(talk, topic, [1000])
    for epoch in (-2, -1, 0, 1):
        for timestamp in (LATEST, EARLIEST, 0, -3):
            asked = request(asked_of(topic.name, (0, timestamp), leader_epoch=epoch))
            talk.ask(asked, label=f"{timestamp} in epoch {epoch}")
    talk.ask(request(asked_of(topic.name, (0, -99), leader_epoch=9)), label="nonsense in a wrong epoch")


@scenario(ListOffsetsRequest)
def replicas_and_isolation(talk: Talk) -> None:
    topic = talk.topic()
    fill(talk, topic, [1000, 2000])
    for replica in (-3, -2, -1, 0, 5):
        for timestamp in (LATEST, EARLIEST, 1500, -99):
            talk.ask(
                list_offsets(topic.name, (0, timestamp), replica_id=replica), label=f"{replica} asks for {timestamp}"
            )
    wrong_epoch = asked_of(topic.name, (0, LATEST), leader_epoch=3)
    talk.ask(request(wrong_epoch, replica_id=5), label="5 asks in a wrong epoch")
    for level in (1, 2, -1):
        for timestamp in (LATEST, 1500):
            asked = list_offsets(topic.name, (0, timestamp), isolation_level=level)
            talk.ask(asked, label=f"{timestamp} at isolation level {level}")


@scenario(ListOffsetsRequest, versions="10+")
def timeouts(talk: Talk) -> None:
    """v10 brought a timeout, for lookups in tiered storage: nothing here has to be waited for."""
    topic = talk.topic()
    for timeout_ms in (-1, 0, 1, 0x7FFFFFFF):
        talk.ask(list_offsets(topic.name, (0, LATEST), timeout_ms=timeout_ms), label=f"{timeout_ms} ms")


@scenario(ListOffsetsRequest)
def times_of_the_append(talk: Talk) -> None:
    """With log append time every record of a batch has the batch's time."""
    topic = talk.topic(message_timestamp_type="LogAppendTime")
    fill(talk, topic, [1000, 2000])
    for timestamp in (-3, 0, 3000, 1 << 62):
        talk.ask(list_offsets(topic.name, (0, timestamp)), label=f"{timestamp}")


@scenario(ListOffsetsRequest, versions="0", settings=OLDER)
def first_offsets_of_segments(talk: Talk) -> None:
    """Ask in v0, which returns at most `max_num_offsets` first offsets of segments, chosen by the modification times of their files."""
    topic = talk.topic(segment_ms="1000")
    empty = talk.topic("empty")
    for time in (1000, 5000, 5500, 9000):  # three segments, of which the second has two records
        fill(talk, topic, [time])
    for replica in (-1, -2, 5):
        for timestamp in (LATEST, EARLIEST, -3, 0, 1000, 1 << 62):
            for count in (0, 1, 2, 100):
                wish = ListOffsetsPartition(partition_index=0, timestamp=timestamp, max_num_offsets=count)
                asked = request(ListOffsetsTopic(name=topic.name, partitions=[wish]), replica_id=replica)
                talk.ask(asked, label=f"{count} at {timestamp} for {replica}")
    for timestamp in (LATEST, EARLIEST, 1 << 62):
        wish = ListOffsetsPartition(partition_index=0, timestamp=timestamp, max_num_offsets=5)
        talk.ask(request(ListOffsetsTopic(name=empty.name, partitions=[wish])), label=f"an empty log at {timestamp}")
    negative = ListOffsetsPartition(partition_index=0, timestamp=LATEST, max_num_offsets=-1)
    talk.ask(request(ListOffsetsTopic(name=topic.name, partitions=[negative])), label="-1 offsets")
    delete_records(talk, topic, 2)
    wish = ListOffsetsPartition(partition_index=0, timestamp=LATEST, max_num_offsets=100)
    talk.ask(request(ListOffsetsTopic(name=topic.name, partitions=[wish])), label="after a deletion of records")


@scenario(ListOffsetsRequest, versions="0", settings=OLDER)
def older_requests(talk: Talk) -> None:
    """Ask in v0 for special timestamps, for partitions that do not exist, and for a partition several times."""
    topic, unknown = talk.topic(partitions=2), nowhere(talk)
    fill(talk, topic, [1000, 3000, 2000])
    for timestamp in (-(1 << 63), *SPECIAL_TIMESTAMPS, 0, 2000, 1 << 62):
        talk.ask(list_offsets(topic.name, (0, timestamp)), label=f"{timestamp}")
    for name, index in ((topic.name, 2), (topic.name, -1), (unknown.name, 0), ("a b", 0)):
        for timestamp in (LATEST, -99):
            talk.ask(list_offsets(name, (index, timestamp)), label=f"{timestamp} of partition {index}")
    talk.ask(request(), label="nothing")
    talk.ask(request(asked_of(topic.name)), label="a topic without partitions")
    twice = asked_of(topic.name, (0, LATEST), (1, LATEST), (0, EARLIEST))
    talk.ask(request(twice, asked_of(topic.name, (0, LATEST))), label="a partition three times", arrange=in_order)
