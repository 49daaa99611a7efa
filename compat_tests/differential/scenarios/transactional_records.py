"""Records of transactions: who may write them, what readers of committed records see, and how a hanging one is ended."""

import time
from typing import Any, NamedTuple

from compat_tests.differential.asking_records import fetch, read_back
from compat_tests.differential.asking_records import new_producer as new_producer_id
from compat_tests.differential.asking_transactions import Producer, begin, new_producer, until_complete
from compat_tests.differential.conversation import Talk, Topic, scenario
from compat_tests.differential.scenarios.idempotence import records_of

from ottla.wire.messages.describe_transactions import DescribeProducersRequest, TopicRequest
from ottla.wire.messages.fetch import FetchRequest
from ottla.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.messages.transactions import WritableTxnMarker, WritableTxnMarkerTopic, WriteTxnMarkersRequest
from ottla.wire.record_encoding import encode_batch
from ottla.wire.records import Record

READ_COMMITTED = 1
ABORTABLE = 11  # the last version of Produce whose clients add their partitions before
UNVERIFIED = {"transaction.partition.verification.enable": "false"}
LATEST, EARLIEST, MAX_TIMESTAMP = -1, -2, -3


def in_transaction(producer: Producer, sequence: int, count: int = 1, *, transactional: bool = True) -> bytes:
    now = int(time.time() * 1000)
    return encode_batch(
        [Record(index, now, b"key", b"value") for index in range(count)],
        producer_id=producer.id,
        producer_epoch=producer.epoch,
        base_sequence=sequence,
        is_transactional=transactional,
    )


class Written(NamedTuple):
    """Records for a partition."""

    partition: int
    records: bytes


def request(topic: Topic, name: str | None, *written: Written) -> ProduceRequest:
    data = [PartitionProduceData(index=each.partition, records=each.records) for each in written]
    topics = [TopicProduceData(name=topic.name, topic_id=topic.id, partition_data=data)]
    return ProduceRequest(transactional_id=name, acks=-1, timeout_ms=10_000, topic_data=topics)


def write(talk: Talk, topic: Topic, producer: Producer, label: str, *written: Written) -> None:
    def by_index(answer: Any) -> None:
        for each in answer.responses:
            each.partition_responses.sort(key=lambda told: told.index)

    talk.ask(request(topic, producer.name, *written), label=label, arrange=by_index)


def written(talk: Talk, topic: Topic, producer: Producer, sequence: int, count: int = 1, partition: int = 0) -> None:
    """Without a word in the transcript, as a client that adds its partitions before."""
    begin(talk, producer, {topic.name: [partition]})
    asked = request(topic, producer.name, Written(partition, in_transaction(producer, sequence, count)))
    answer = talk.do(asked, ABORTABLE)
    assert answer.responses[0].partition_responses[0].error_code == 0, answer


def ended(talk: Talk, producer: Producer, *, commit: bool) -> Producer:
    """The producer of the next transaction."""
    answer = talk.do(producer.end(commit=commit), 4)
    assert answer.error_code == 0, answer
    return until_complete(talk, producer.name)


def describe_producers(talk: Talk, topic: Topic, label: str, *partitions: int) -> None:
    asked = DescribeProducersRequest(topics=[TopicRequest(name=topic.name, partition_indexes=list(partitions or (0,)))])

    def by_id(answer: Any) -> None:
        for partition in answer.topics[0].partitions:
            partition.active_producers.sort(key=lambda each: each.producer_id)

    talk.ask(asked, label=label, arrange=by_id)


# ---------------------------------------------------------------------- who may write


@scenario(ProduceRequest, versions="3-13")  # there are transactions since 3
def first_batches(talk: Talk) -> None:
    topic = talk.topic(partitions=4)
    producer = new_producer(talk)

    def offer(label: str, sequence: int = 0, *, partition: int = 0, by: Producer = producer, count: int = 1) -> None:
        write(talk, topic, by, label, Written(partition, in_transaction(by, sequence, count)))

    offer("not from the start", 3, partition=3)
    begin(talk, producer, {topic.name: [0, 2]})
    offer("in a partition that was added")
    offer("again")
    offer("the next", 1, count=3)
    offer("behind a gap", 7)
    offer("in one that was not", partition=1)
    for epoch in (-1, 1):
        offer(f"epoch {epoch:+}", partition=2, by=producer.at(epoch=epoch))
    offer("of another producer", partition=2, by=producer.at(id=1000))
    offer("of an unknown id", partition=2, by=producer._replace(name=talk.name("unknown")))
    offer("of no id", partition=2, by=producer._replace(name=""))
    offer("in a partition that does not exist", partition=9)
    outside = Written(0, in_transaction(producer, 4, transactional=False))
    write(talk, topic, producer, "outside of the open transaction", outside)
    first = Written(2, in_transaction(producer, 0))
    write(talk, topic, producer, "in several partitions", Written(0, in_transaction(producer, 4)), first)
    describe_producers(talk, topic, "the producers", 0, 1, 2)
    answer = talk.do(producer.end(commit=True), 5 if talk.version > ABORTABLE else 4)
    assert answer.error_code == 0, answer
    after = until_complete(talk, producer.name)
    offer("again after the end", 4)
    offer("after the end", 5)
    offer("after the end, in its own epoch", 0 if after.epoch != producer.epoch else 5, by=after)
    for index in range(3):
        read_back(talk, topic, index)


@scenario(ProduceRequest, versions="3-13")
def transactions_of_two_producers_in_one_request(talk: Talk) -> None:
    topic = talk.topic(partitions=3)
    producer = new_producer(talk)
    begin(talk, producer, {topic.name: [0, 1]})
    own = Written(0, in_transaction(producer, 0))
    for label, other in (("another id", producer.at(id=1000)), ("another epoch", producer.at(epoch=1))):
        plain = Written(2, records_of(new_producer_id(talk), 0, 0))
        write(talk, topic, producer, label, own, Written(1, in_transaction(other, 0)), plain)
    write(
        talk,
        topic,
        producer,
        "one in a transaction, one outside",
        own,
        Written(1, records_of(producer.id + 1000, 0, 0)),
    )
    read_back(talk, topic, 1)


@scenario(ProduceRequest, versions="3-13", settings=UNVERIFIED)
def without_verification(talk: Talk) -> None:
    topic = talk.topic(partitions=3)
    producer = new_producer(talk)
    for sequence in (3, 4, 0):
        records = Written(0, in_transaction(producer, sequence))
        write(talk, topic, producer, f"sequence {sequence} that was never added", records)
    other = producer._replace(name=talk.name("unknown"))
    write(talk, topic, other, "of an unknown id", Written(1, in_transaction(producer, 0)))
    describe_producers(talk, topic, "the producers", 0, 1)


# ---------------------------------------------------------------------- readers of committed records


def history(talk: Talk) -> tuple[Topic, Producer]:
    """Two transactions side by side of which one aborts, one that commits, plain records, one that stays open."""
    topic = talk.topic()
    one, two = new_producer(talk), new_producer_named(talk, "two")
    written(talk, topic, one, 0, 2)
    written(talk, topic, two, 0, 3)
    written(talk, topic, one, 2)
    one = ended(talk, one, commit=False)
    written(talk, topic, two, 3)
    two = ended(talk, two, commit=True)
    plain = encode_batch([Record(0, int(time.time() * 1000), None, b"plain")])
    assert not talk.do(request(topic, None, Written(0, plain))).responses[0].partition_responses[0].error_code
    written(talk, topic, one, 3)
    one = ended(talk, one, commit=False)
    written(talk, topic, two, 4, 2)
    plain = encode_batch([Record(0, int(time.time() * 1000), None, b"plain")])
    assert not talk.do(request(topic, None, Written(0, plain))).responses[0].partition_responses[0].error_code
    return topic, two


def new_producer_named(talk: Talk, suffix: str) -> Producer:
    name = talk.name(f"transaction-{suffix}")
    answer = talk.do(Producer(name, -1, -1).init(known=False))
    assert answer.error_code == 0, answer
    return Producer(name, answer.producer_id, answer.producer_epoch)


@scenario(FetchRequest, versions="4+")  # consumers know of transactions since 4
def committed_records(talk: Talk) -> None:
    topic, last = history(talk)

    def read(label: str) -> None:
        for offset in (0, 1, 3, 6, 7, 8, 10, 11, 13, 14):
            asked = fetch(topic, offset)
            asked.isolation_level = READ_COMMITTED
            talk.ask(asked, label=f"{label}, from {offset}")

    read("while one is open")
    small = fetch(topic, max_bytes=1)
    small.isolation_level = READ_COMMITTED
    talk.ask(small, label="a batch alone")
    talk.ask(fetch(topic, 7), label="uncommitted as well")
    ended(talk, last, commit=False)
    read("when all are decided")


@scenario(ListOffsetsRequest, versions="2+")  # the isolation level is there since 2
def ends_of_committed_records(talk: Talk) -> None:
    topic, last = history(talk)

    def look(label: str) -> None:
        for timestamp in (LATEST, EARLIEST, 0, int(time.time() * 1000) + 60_000):
            # The newest timestamps are known from a later version on.
            partitions = [ListOffsetsPartition(partition_index=0, timestamp=timestamp)]
            for isolation in (0, 1):
                topics = [ListOffsetsTopic(name=topic.name, partitions=partitions)]
                asked = ListOffsetsRequest(replica_id=-1, isolation_level=isolation, topics=topics)
                talk.ask(asked, label=f"{label}, {min(timestamp, 1)} with isolation level {isolation}")

    look("while one is open")
    ended(talk, last, commit=True)
    look("when all are decided")


# ---------------------------------------------------------------------- hanging transactions


@scenario(WriteTxnMarkersRequest, settings=UNVERIFIED)
def a_hanging_transaction(talk: Talk) -> None:
    topic = talk.topic(partitions=2)
    producer = new_producer(talk).at(epoch=1)
    for index in range(2):
        asked = request(topic, producer.name, Written(index, in_transaction(producer, 0)))
        answer = talk.do(asked, ABORTABLE)
        assert answer.responses[0].partition_responses[0].error_code == 0, answer
    describe_producers(talk, topic, "hanging", 0, 1)

    def end(
        label: str, *, epoch: int = 0, coordinator_epoch: int = 0, places: list[int], by: int = producer.id
    ) -> None:
        marker = WritableTxnMarker(
            producer_id=by,
            producer_epoch=producer.epoch + epoch,
            transaction_result=False,
            topics=[WritableTxnMarkerTopic(name=topic.name, partition_indexes=places)],
            coordinator_epoch=coordinator_epoch,
        )

        def by_index(answer: Any) -> None:
            for each in answer.markers:
                for told in each.topics:
                    told.partitions.sort(key=lambda partition: partition.partition_index)

        talk.ask(WriteTxnMarkersRequest(markers=[marker]), label=label, arrange=by_index)

    end("of an older epoch", epoch=-1, places=[0])
    end("what kafka-transactions sends", places=[0], coordinator_epoch=0)
    end("again", places=[0])
    end("of an older coordinator", places=[0], coordinator_epoch=-1)
    end("of a newer epoch", places=[1], epoch=1)
    end("of another producer", places=[1], by=producer.id + 1000)
    end("somewhere else", places=[0, 9])
    describe_producers(talk, topic, "ended", 0, 1)
    for index in range(2):
        read_back(talk, topic, index)
