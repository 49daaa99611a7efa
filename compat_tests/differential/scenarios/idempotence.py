"""Idempotent producers: the window of five batches, gaps, epochs, the end of the sequence, and what is forgotten."""

import time

from compat_tests.differential.asking_records import ONE, batch, fetch, new_producer, offer, read_back, record
from compat_tests.differential.conversation import Talk, Topic, scenario

from ottla.wire.messages.delete_topics import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from ottla.wire.messages.describe_transactions import DescribeProducersRequest, TopicRequest
from ottla.wire.messages.produce import ProduceRequest

RETENTION_AT_ONCE = {"log.retention.check.interval.ms": "100", "log.initial.task.delay.ms": "100"}
EXPIRATION_AT_ONCE = {"producer.id.expiration.ms": "60000", "producer.id.expiration.check.interval.ms": "50"}
INT16_MAX, INT32_MAX = 2**15 - 1, 2**31 - 1


def records_of(producer_id: int, epoch: int, sequence: int, count: int = 2, written_ms: int | None = None) -> bytes:
    """Written now unless told otherwise: a producer is forgotten by the time of its last records."""
    now = int(time.time() * 1000) if written_ms is None else written_ms
    area = b"".join(record(offset_delta=index) for index in range(count))
    return batch(
        area,
        count=count,
        last_offset_delta=count - 1,
        base_timestamp=now,
        max_timestamp=now,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
    )


class Producer:
    """Writes with an id of its own into one partition; the transcript names the sequences."""

    def __init__(self, talk: Talk, topic: Topic) -> None:
        self.talk = talk
        self.topic = topic
        self.id = new_producer(talk)

    def writes(self, sequence: int, count: int = 2, epoch: int = 0, note: str = "") -> None:
        records = records_of(self.id, epoch, sequence, count)
        offer(self.talk, self.topic, records, f"{count} from {sequence} in epoch {epoch}{note}")

    def is_described(self) -> None:
        asked = DescribeProducersRequest(topics=[TopicRequest(name=self.topic.name, partition_indexes=[0])])
        self.talk.ask(asked, label="the producers")


@scenario(ProduceRequest, versions="3-13")  # message sets have no producers
def duplicates_in_the_window(talk: Talk) -> None:
    producer = Producer(talk, talk.topic())
    for batch_number in range(7):
        producer.writes(2 * batch_number)
    for sequence in (12, 10, 8, 6, 4, 2, 0):
        producer.writes(sequence, note=" again")
    producer.writes(12, count=1, note=", half of one")
    producer.writes(13, count=1, note=", the other half")
    producer.writes(10, count=4, note=", two in one")
    producer.writes(14, note=" at last")
    producer.is_described()
    read_back(talk, producer.topic)


@scenario(ProduceRequest, versions="3-13")
def gaps(talk: Talk) -> None:
    producer = Producer(talk, talk.topic())
    producer.writes(5, note=" of an unknown producer")
    for sequence in (8, 6, 5, 4, 0, INT32_MAX, 7):
        producer.writes(sequence)
    producer.is_described()


@scenario(ProduceRequest, versions="3-13")
def epochs(talk: Talk) -> None:
    producer = Producer(talk, talk.topic())
    producer.writes(0, epoch=3)
    producer.writes(2, epoch=2, note=", which is over")
    producer.writes(0, epoch=2, note=", which is over")
    producer.writes(2, epoch=4, note=" not from the start")
    producer.writes(0, epoch=4)
    producer.writes(0, epoch=4, note=" again")
    producer.writes(0, epoch=3, note=" again")
    producer.writes(2, epoch=3, note=", which is over")
    producer.writes(2, epoch=4)
    producer.writes(0, epoch=INT16_MAX)
    producer.writes(2, epoch=INT16_MAX)
    producer.is_described()
    read_back(talk, producer.topic)


@scenario(ProduceRequest, versions="3-13")
def the_end_of_the_sequence(talk: Talk) -> None:
    for start, then in ((INT32_MAX - 1, (0, 2)), (INT32_MAX, (1, 0, 3)), (INT32_MAX - 2, (INT32_MAX, 0, 1))):
        producer = Producer(talk, talk.topic(f"from-{start}"))
        producer.writes(start, note=", the first")
        for sequence in then:
            producer.writes(sequence)
        producer.writes(start, note=" again")
        producer.is_described()


@scenario(ProduceRequest, versions="3-13")
def producers_beside_each_other(talk: Talk) -> None:
    topic = talk.topic()
    first, second = Producer(talk, topic), Producer(talk, topic)
    first.writes(0, note=" of the first")
    second.writes(0, note=" of the second")
    first.writes(2, note=" of the first")
    second.writes(0, note=" of the second again")
    offer(talk, topic, batch(), "of no producer")
    second.writes(3, note=" of the second, with a gap")
    first.writes(4, note=" of the first")
    read_back(talk, topic)


@scenario(ProduceRequest, versions="3-13")
def partitions_count_for_themselves(talk: Talk) -> None:
    topic = talk.topic(partitions=2)
    producer_id = new_producer(talk)
    for partition, sequence in ((0, 0), (1, 0), (0, 2), (1, 4), (1, 2)):
        offer(talk, topic, records_of(producer_id, 0, sequence), f"{sequence} in {partition}", partition)


@scenario(ProduceRequest, versions="3-13")
def after_all_records_were_deleted(talk: Talk) -> None:
    producer = Producer(talk, talk.topic())
    producer.writes(0)
    producer.writes(2)
    asked = [DeleteRecordsPartition(partition_index=0, offset=-1)]
    topics = [DeleteRecordsTopic(name=producer.topic.name, partitions=asked)]
    talk.ask(DeleteRecordsRequest(topics=topics, timeout_ms=10_000))
    producer.is_described()
    producer.writes(2, note=" again")
    producer.writes(6, note=" with a gap")
    producer.writes(4)
    producer.is_described()


@scenario(ProduceRequest, versions="3-13", settings=RETENTION_AT_ONCE)
def after_retention_took_the_segments(talk: Talk) -> None:
    topic = talk.topic(retention_ms="-1", retention_bytes="1", segment_bytes="1048576")
    producer = Producer(talk, topic)
    producer.writes(0)
    offer(talk, topic, batch(record(value=b"x" * 900_000), **ONE), "much from nobody")
    offer(talk, topic, batch(record(value=b"x" * 900_000), **ONE), "as much again")
    talk.until(fetch(topic), lambda answer: answer.responses[0].partitions[0].error_code)
    producer.is_described()
    producer.writes(7, note=" with a gap")
    producer.writes(2)
    producer.is_described()


@scenario(ProduceRequest, versions="3-13", settings=EXPIRATION_AT_ONCE)
def after_it_was_forgotten(talk: Talk) -> None:
    producer = Producer(talk, talk.topic())
    hours_ago = int(time.time() * 1000) - 2 * 3_600_000
    offer(talk, producer.topic, records_of(producer.id, 3, 0, written_ms=hours_ago), "records of hours ago")
    asked = DescribeProducersRequest(topics=[TopicRequest(name=producer.topic.name, partition_indexes=[0])])
    talk.until(asked, lambda answer: not answer.topics[0].partitions[0].active_producers)
    producer.writes(9, epoch=1, note=" of a producer that is unknown again")
    producer.writes(11, epoch=1)
    producer.is_described()
