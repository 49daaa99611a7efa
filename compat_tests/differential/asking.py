"""Requests that many scenarios make, with what they leave open filled in."""

from compat_tests.differential.conversation import Talk, Topic

from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.record_encoding import encode_batch
from ottla.wire.records import Record


def produce(topic: Topic, batch: bytes | None, partition: int = 0, acks: int = -1) -> ProduceRequest:
    """For any version: the topic has both its name and its id."""
    data = PartitionProduceData(index=partition, records=batch)
    topics = [TopicProduceData(name=topic.name, topic_id=topic.id, partition_data=[data])]
    return ProduceRequest(acks=acks, timeout_ms=10_000, topic_data=topics)


def fill(talk: Talk, topic: Topic, timestamps: list[int], partition: int = 0) -> None:
    """Writes one batch, a record for each timestamp; not part of the transcript."""
    batch = encode_batch(Record(offset, time, None, b"value") for offset, time in enumerate(timestamps))
    answer = talk.do(produce(topic, batch, partition))
    assert answer.responses[0].partition_responses[0].error_code == 0, answer
