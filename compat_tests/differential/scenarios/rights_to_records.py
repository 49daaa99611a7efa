"""Who may write, read and look up records, and the topics that hold them: each request with and without each right."""

from compat_tests.differential.asking import fill
from compat_tests.differential.asking_reading import fetch, read
from compat_tests.differential.asking_records import new_producer as new_producer_id
from compat_tests.differential.asking_rights import Right, everybody_asks, only_ours
from compat_tests.differential.asking_transactions import new_producer
from compat_tests.differential.conversation import Talk, Topic, scenario
from compat_tests.differential.logins import SECURED

from ottla.server.dispatch.access import AclOperation, ResourceType
from ottla.wire.messages.delete_topics import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from ottla.wire.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from ottla.wire.messages.describe_topic_partitions import TopicRequest as PartitionsOf
from ottla.wire.messages.describe_transactions import DescribeProducersRequest, TopicRequest
from ottla.wire.messages.fetch import FetchRequest, ReplicaState
from ottla.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.record_encoding import encode_batch
from ottla.wire.records import Record
from ottla.wire.schema import ZERO_UUID

CLUSTER, TOPIC, TRANSACTIONAL_ID = ResourceType.CLUSTER, ResourceType.TOPIC, ResourceType.TRANSACTIONAL_ID
READ, WRITE, CREATE, DELETE = AclOperation.READ, AclOperation.WRITE, AclOperation.CREATE, AclOperation.DELETE
DESCRIBE, CLUSTER_ACTION = AclOperation.DESCRIBE, AclOperation.CLUSTER_ACTION


def two_topics(talk: Talk) -> tuple[Topic, Topic]:
    """One that the rights are about, and one that they are not."""
    return talk.topic(), talk.topic("hidden")


def produced(topics: tuple[Topic, ...], batch: bytes, transactional_id: str | None = None) -> ProduceRequest:
    data = [PartitionProduceData(index=0, records=batch)]
    return ProduceRequest(
        transactional_id=transactional_id,
        acks=-1,
        timeout_ms=10_000,
        topic_data=[TopicProduceData(name=each.name, topic_id=each.id, partition_data=data) for each in topics],
    )


def a_record(**options: int | bool) -> bytes:
    return encode_batch([Record(0, 1, None, b"v")], **options)


@scenario(ProduceRequest, "12+", settings=SECURED)
def producing(talk: Talk) -> None:
    topics = two_topics(talk)
    everybody_asks(talk, produced(topics, a_record()), Right(WRITE, TOPIC, topics[0].name))
    # Topics that do not exist are hidden from those who may not describe them.
    nowhere = Topic(talk.name("nowhere"), b"n" * 16)
    everybody_asks(talk, produced((nowhere,), a_record()), Right(WRITE, TOPIC, nowhere.name))


@scenario(ProduceRequest, "12+", settings=SECURED)
def producing_without_loss(talk: Talk) -> None:
    """Nobody asks any more for the right IDEMPOTENT_WRITE of those who have the id of a producer."""
    topics = two_topics(talk)
    batch = a_record(producer_id=new_producer_id(talk), producer_epoch=0, base_sequence=0)
    everybody_asks(talk, produced(topics, batch), Right(WRITE, TOPIC, topics[0].name))


@scenario(ProduceRequest, "12+", settings=SECURED)
def producing_in_a_transaction(talk: Talk) -> None:
    topics = two_topics(talk)
    producer = new_producer(talk)
    batch = a_record(producer_id=producer.id, producer_epoch=producer.epoch, base_sequence=0, is_transactional=True)
    everybody_asks(
        talk,
        produced(topics, batch, producer.name),
        Right(WRITE, TRANSACTIONAL_ID, producer.name),
        Right(WRITE, TOPIC, topics[0].name),
    )


@scenario(FetchRequest, "12+", settings=SECURED)
def fetching(talk: Talk) -> None:
    topic, hidden = two_topics(talk)
    fill(talk, topic, [1])
    fill(talk, hidden, [1])
    everybody_asks(talk, fetch(read(topic), read(hidden)), Right(READ, TOPIC, topic.name))


@scenario(FetchRequest, "12+", settings=SECURED)
def fetching_as_a_replica(talk: Talk) -> None:
    """The number of a broker that there is not: nobody gets records, but only some are told why."""
    topic, _ = two_topics(talk)
    request = fetch(read(topic), replica_id=7, replica_state=ReplicaState(replica_id=7, replica_epoch=1))
    everybody_asks(talk, request, Right(READ, TOPIC, topic.name), Right(CLUSTER_ACTION, CLUSTER))


@scenario(ListOffsetsRequest, "10+", settings=SECURED)
def looking_up_offsets(talk: Talk) -> None:
    topics = two_topics(talk)
    asked = [
        ListOffsetsTopic(name=each.name, partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)])
        for each in topics
    ]
    request = ListOffsetsRequest(replica_id=-1, topics=asked)
    everybody_asks(talk, request, Right(DESCRIBE, TOPIC, topics[0].name))


@scenario(OffsetForLeaderEpochRequest, "3+", settings=SECURED)
def looking_up_epochs(talk: Talk) -> None:
    """Brokers may look up everything."""
    topics = two_topics(talk)
    asked = [
        OffsetForLeaderTopic(topic=each.name, partitions=[OffsetForLeaderPartition(partition=0, leader_epoch=0)])
        for each in topics
    ]
    request = OffsetForLeaderEpochRequest(replica_id=-2, topics=asked)
    everybody_asks(talk, request, Right(DESCRIBE, TOPIC, topics[0].name), Right(CLUSTER_ACTION, CLUSTER))


@scenario(DeleteRecordsRequest, "2", settings=SECURED)
def deleting_records(talk: Talk) -> None:
    topics = two_topics(talk)
    for each in topics:
        fill(talk, each, [1, 2])
    partitions = [DeleteRecordsPartition(partition_index=0, offset=1)]
    asked = [
        DeleteRecordsTopic(name=each, partitions=partitions)
        for each in (*(topic.name for topic in topics), talk.name("nowhere"))
    ]
    request = DeleteRecordsRequest(topics=asked, timeout_ms=30_000)
    everybody_asks(talk, request, Right(DELETE, TOPIC, topics[0].name))


@scenario(DescribeProducersRequest, settings=SECURED)
def describing_producers(talk: Talk) -> None:
    topics = two_topics(talk)
    names = (*(each.name for each in topics), talk.name("nowhere"))
    request = DescribeProducersRequest(topics=[TopicRequest(name=each, partition_indexes=[0, 5]) for each in names])
    everybody_asks(talk, request, Right(READ, TOPIC, topics[0].name))


# ------------------------------------------------------------------ topics


def named(*names: str, create: bool = False) -> MetadataRequest:
    return MetadataRequest(
        topics=[MetadataRequestTopic(topic_id=ZERO_UUID, name=name) for name in names],
        allow_auto_topic_creation=create,
        include_topic_authorized_operations=True,
    )


@scenario(MetadataRequest, "8+", settings=SECURED)
def topics_by_name(talk: Talk) -> None:
    topics = two_topics(talk)
    request = named(*(each.name for each in topics), talk.name("nowhere"))
    request.include_cluster_authorized_operations = talk.version <= 10
    everybody_asks(talk, request, Right(DESCRIBE, TOPIC, topics[0].name), Right(DESCRIBE, CLUSTER))


@scenario(MetadataRequest, "12+", settings=SECURED)
def topics_by_id(talk: Talk) -> None:
    topics = two_topics(talk)
    asked = [MetadataRequestTopic(topic_id=each, name=None) for each in (*(topic.id for topic in topics), b"n" * 16)]
    request = MetadataRequest(topics=asked, include_topic_authorized_operations=True)
    everybody_asks(talk, request, Right(DESCRIBE, TOPIC, topics[0].name))


@scenario(MetadataRequest, "12+", settings=SECURED)
def all_topics(talk: Talk) -> None:
    topics = two_topics(talk)

    def ours(answer: object) -> None:
        found = [each for each in answer.topics if talk.run in each.name]
        answer.topics = found

    everybody_asks(talk, MetadataRequest(topics=None), Right(DESCRIBE, TOPIC, topics[0].name), arrange=ours)


@scenario(MetadataRequest, "13", settings=SECURED)
def topics_that_are_created_on_sight(talk: Talk) -> None:
    """By those who may create them; others are told that they are not there, or may not be known."""
    name = talk.name("new")
    for other in (CLUSTER, TOPIC):
        right = Right(CREATE, CLUSTER) if other is CLUSTER else Right(CREATE, TOPIC, name)
        everybody_asks(talk, named(f"{name}", create=True), Right(DESCRIBE, TOPIC, name), right)
        name = talk.name("newer")


@scenario(DescribeTopicPartitionsRequest, settings=SECURED)
def partitions_by_topic(talk: Talk) -> None:
    topics = two_topics(talk)
    names = (*(each.name for each in topics), talk.name("nowhere"))
    request = DescribeTopicPartitionsRequest(topics=[PartitionsOf(name=each) for each in names])
    everybody_asks(talk, request, Right(DESCRIBE, TOPIC, topics[0].name))


@scenario(DescribeTopicPartitionsRequest, settings=SECURED)
def partitions_of_all_topics(talk: Talk) -> None:
    topics = two_topics(talk)
    request = DescribeTopicPartitionsRequest(topics=[])
    everybody_asks(talk, request, Right(DESCRIBE, TOPIC, topics[0].name), arrange=only_ours(talk))
