"""Produce requests: acknowledgements, topics and partitions that are none, and what a request may hold for a partition."""

from typing import Any

from compat_tests.differential.asking import produce
from compat_tests.differential.asking_records import (
    GZIP,
    TWO_RECORDS,
    ZSTD,
    batch,
    offer,
    read_back,
    transactional_id,
    zipped,
)
from compat_tests.differential.conversation import Talk, Topic, scenario

from ottla.wire.errors import ErrorCode
from ottla.wire.legacy_records import encode_message_set
from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from ottla.wire.records import Record
from ottla.wire.schema import ZERO_UUID

TOPIC_IDS_SINCE = 13
INT32_MAX = 2**31 - 1
MADE_UP_ID = b"\x07" * 16
TRANSACTIONAL = 0x10


def old_set(magic: int) -> bytes:
    return encode_message_set([Record(0, 1000, b"key", b"value"), Record(1, 1001, None, b"value")], magic)


def good(talk: Talk) -> bytes:
    """Records that this version of Produce may carry: magic 2, or message sets."""
    return batch() if talk.version >= 3 else old_set(1 if talk.version == 2 else 0)


def request(
    *asked: tuple[Topic, int, bytes | None], acks: int = -1, transactional_id: str | None = None
) -> ProduceRequest:
    """Each of its triples is a topic entry of its own, with one partition."""
    topics = [
        TopicProduceData(
            name=topic.name, topic_id=topic.id, partition_data=[PartitionProduceData(index=partition, records=records)]
        )
        for topic, partition, records in asked
    ]
    return ProduceRequest(transactional_id=transactional_id, acks=acks, timeout_ms=10_000, topic_data=topics)


def in_order(*topics: Topic) -> Any:
    """Kafka answers in the order of a hash map; puts the answer into the order of these topics, and of partitions."""
    order = {topic.id: index for index, topic in enumerate(topics)} | {each.name: i for i, each in enumerate(topics)}

    def arrange(answer: Any) -> None:
        answer.responses.sort(key=lambda each: order[each.name or each.topic_id])
        for each in answer.responses:
            each.partition_responses.sort(key=lambda partition: partition.index)

    return arrange


@scenario(ProduceRequest)
def acknowledgements(talk: Talk) -> None:
    topic = talk.topic()
    for acks in (1, -1, 2, -2, 32767, -32768):
        talk.ask(produce(topic, good(talk), acks=acks), label=f"acks={acks}")
    nobody = Topic("nothing", MADE_UP_ID)
    talk.ask(produce(nobody, good(talk), acks=2), label="acks=2 for an unknown topic")
    talk.ask(produce(topic, batch(magic=3), acks=2), label="acks=2 with records that cannot be")
    talk.ask(produce(topic, batch(crc=1), acks=2), label="acks=2 with a wrong checksum")


@scenario(ProduceRequest)
def without_acknowledgement(talk: Talk) -> None:
    topic = talk.topic()
    link = talk.link()
    link.send(produce(topic, good(talk), acks=0), answered=False)
    link.send(produce(topic, good(talk), acks=1), label="acks=1 after acks=0")
    link.receive()
    refused = {
        "an unknown partition": produce(topic, good(talk), partition=7, acks=0),
        "a wrong checksum": produce(topic, batch(crc=1) if talk.version >= 3 else good(talk)[:-1] + b"!", acks=0),
        "a magic that cannot be": produce(topic, batch(magic=3), acks=0),
    }
    for name, each in refused.items():
        link = talk.link(name)
        link.send(each, answered=False)
        talk.note(f"acks=0 and {name}", link.answer())
    read_back(talk, topic)


@scenario(ProduceRequest)
def too_few_replicas(talk: Talk) -> None:
    topic = talk.topic(min_insync_replicas="2")
    for acks in (-1, 1, -1):
        talk.ask(produce(topic, good(talk), acks=acks), label=f"acks={acks} of one replica")
    talk.ask(produce(topic, batch(crc=1), acks=-1), label="and a wrong checksum")
    talk.ask(produce(topic, b"", acks=-1), label="and no records")
    link = talk.link("without acks")
    link.send(produce(topic, good(talk), acks=0), answered=False)
    link.send(produce(topic, good(talk), acks=1), label="acks=1 after acks=0")
    link.receive()


@scenario(ProduceRequest)
def timeouts(talk: Talk) -> None:
    topic = talk.topic()
    for timeout_ms in (0, -1, 1, INT32_MAX):
        asked = produce(topic, good(talk))
        asked.timeout_ms = timeout_ms
        talk.ask(asked, label=f"within {timeout_ms} ms")


@scenario(ProduceRequest)
def topics_that_are_none(talk: Talk) -> None:
    topic = talk.topic()
    for partition in (1, -1, INT32_MAX):
        talk.ask(produce(topic, good(talk), partition), label=f"partition {partition}")
    for name in ("nothing", "", "not a name", "x" * 250, "__nothing"):
        talk.ask(produce(Topic(name, MADE_UP_ID), good(talk)), label=f"topic {name[:20]!r}")
    talk.ask(produce(Topic("", ZERO_UUID), good(talk)), label="no topic at all")
    talk.ask(produce(Topic(topic.name, MADE_UP_ID), good(talk)), label="a name and a foreign id")
    talk.ask(produce(Topic("nothing", topic.id), good(talk)), label="an id and a foreign name")


def is_known(answer: ProduceResponse) -> bool:
    return answer.responses[0].partition_responses[0].error_code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@scenario(ProduceRequest)
def internal_topics(talk: Talk) -> None:
    talk.group()
    name = "__consumer_offsets"
    asked = [MetadataRequestTopic(topic_id=ZERO_UUID, name=name)]
    found = talk.do(MetadataRequest(topics=asked, allow_auto_topic_creation=False)).topics[0]
    topic = Topic(name, found.topic_id)
    talk.until(produce(topic, good(talk)), is_known, talk.version)
    for what, records in {"records": good(talk), "nothing": b"", "a wrong checksum": batch(crc=1)}.items():
        answer = talk.do(produce(topic, records), talk.version)
        told = answer.responses[0].partition_responses[0]
        talk.note(f"{what} for {name}", [told.error_code, told.base_offset, told.log_start_offset, told.error_message])


@scenario(ProduceRequest)
def requests_of_several_partitions(talk: Talk) -> None:
    one, two = talk.topic("one", partitions=2), talk.topic("two")
    missing = Topic(talk.name("zero"), MADE_UP_ID)
    records = good(talk)
    arrange = in_order(missing, one, two)
    several = request((two, 0, records), (missing, 0, records), (one, 1, records), (one, 0, records), (one, 5, records))
    talk.ask(several, arrange=arrange, label="good and missing ones")
    bad = request((two, 0, records), (one, 0, batch(crc=1) if talk.version >= 3 else records[:-1] + b"!"))
    talk.ask(bad, arrange=arrange, label="one of them with a wrong checksum")
    talk.ask(request((two, 0, records), (one, 0, batch(magic=3))), arrange=arrange, label="one whose magic cannot be")
    talk.ask(request((two, 0, records), (one, 0, batch(length=3))), arrange=arrange, label="one whose length cannot be")
    talk.ask(request((two, 0, records), (one, 0, b"")), arrange=arrange, label="one without records")
    talk.ask(request((two, 0, records), (two, 0, records)), arrange=arrange, label="one of them twice")
    read_back(talk, one)
    read_back(talk, two)


@scenario(ProduceRequest)
def requests_without_partitions(talk: Talk) -> None:
    topic = talk.topic()
    talk.ask(ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[]), label="no topics")
    empty = TopicProduceData(name=topic.name, topic_id=topic.id, partition_data=[])
    talk.ask(ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[empty]), label="no partitions")
    unknown = TopicProduceData(name="nothing", topic_id=MADE_UP_ID, partition_data=[])
    talk.ask(ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[unknown]), label="no partitions of no topic")
    link = talk.link("without acks")
    link.send(ProduceRequest(acks=0, timeout_ms=1000, topic_data=[]), answered=False)
    link.send(produce(topic, good(talk)), label="after no topics with acks=0")
    link.receive()


@scenario(ProduceRequest)
def what_a_partition_may_be_given(talk: Talk) -> None:
    topic = talk.topic()
    whole = good(talk)
    offered = {
        "nothing": b"",
        "one byte": b"\0",
        "half a batch": whole[:20],
        "all but its last byte": whole[:-1],
        "one and a half": whole + whole[:20],
        "two": whole + whole,
        "one and zeros": whole + bytes(30),
        "one of magic 2": batch(),
        "two of magic 2": batch() + batch(),
        "zeros": bytes(100),
        "noise": bytes(range(100)),
        "magic 0": old_set(0),
        "magic 1": old_set(1),
        "magic 1 and 0": old_set(1) + old_set(0),
        "magic 2 and 1": batch() + old_set(1),
        "magic 1 and 2": old_set(1) + batch(),
        "zipped": batch(TWO_RECORDS, zipped, attributes=GZIP),
        "zstd that is none": batch(attributes=ZSTD),
    }
    for name, records in offered.items():
        offer(talk, topic, records, name)
    read_back(talk, topic)


@scenario(ProduceRequest)
def null_records(talk: Talk) -> None:
    link = talk.link()
    link.send(produce(talk.topic(), None))
    link.stays_quiet()


@scenario(ProduceRequest)
def transactional_batches(talk: Talk) -> None:
    one, two = talk.topic("one"), talk.topic("two")
    records = batch(attributes=TRANSACTIONAL, producer_id=7_000_000, producer_epoch=0, base_sequence=0)
    arrange = in_order(one, two)
    talk.ask(request((one, 0, good(talk)), (two, 0, records)), arrange=arrange, label="without a transactional id")
    talk.ask(request((one, 0, records), (two, 0, batch(magic=3))), arrange=arrange, label="and worse behind it")
    talk.ask(request((one, 0, batch(magic=3)), (two, 0, records)), arrange=arrange, label="and worse before it")
    read_back(talk, one)
    link = talk.link("without acks")
    link.send(request((one, 0, records), acks=0), answered=False)
    talk.note("without acks", link.answer())


@scenario(ProduceRequest, versions="3-13")  # there are transactional ids since 3
def a_transactional_id_without_a_transaction(talk: Talk) -> None:
    topic = talk.topic()
    for label, name in (("a name", talk.name("transaction")), ("an empty name", "")):
        talk.ask(request((topic, 0, batch()), transactional_id=name), label=f"plain records of {label}")


@scenario(ProduceRequest, versions="3-13")
def a_transaction_that_was_never_begun(talk: Talk) -> None:
    topic, name = talk.topic(), transactional_id(talk)
    records = batch(attributes=TRANSACTIONAL, producer_id=7_000_000, producer_epoch=0, base_sequence=0)
    talk.ask(request((topic, 0, records), transactional_id=name), label="its first records")
    read_back(talk, topic)
