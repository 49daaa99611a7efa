"""Who may write in transactions, end them and see them: each request with and without each right."""

from typing import Any

from compat_tests.differential.asking_rights import Right, everybody_asks, only_ours
from compat_tests.differential.asking_transactions import (
    Producer,
    begin,
    by_partition,
    new_producer,
    until_complete,
)
from compat_tests.differential.conversation import Talk, scenario
from compat_tests.differential.logins import SECURED
from compat_tests.differential.scenarios.rights_to_groups import GROUP
from compat_tests.differential.scenarios.rights_to_records import (
    CLUSTER,
    CLUSTER_ACTION,
    DESCRIBE,
    READ,
    TOPIC,
    TRANSACTIONAL_ID,
    WRITE,
    two_topics,
)
from compat_tests.differential.scenarios.transactional_offsets import commit_in

from ottla.server.dispatch.access import AclOperation
from ottla.wire.messages.describe_transactions import DescribeTransactionsRequest, ListTransactionsRequest
from ottla.wire.messages.producer_ids import InitProducerIdRequest
from ottla.wire.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    TxnOffsetCommitRequest,
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)


@scenario(InitProducerIdRequest, "5", settings=SECURED)
def beginning(talk: Talk) -> None:
    producer = new_producer(talk)
    everybody_asks(talk, producer.init(known=False), Right(WRITE, TRANSACTIONAL_ID, producer.name))


@scenario(InitProducerIdRequest, "5", settings=SECURED)
def beginning_to_produce_without_loss(talk: Talk) -> None:
    """Whoever may write to any topic may do it."""
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
    new_producer(talk)
    rights = Right(AclOperation.IDEMPOTENT_WRITE, CLUSTER), Right(WRITE, TOPIC, talk.name("topic"))
    everybody_asks(talk, request, *rights)


@scenario(AddPartitionsToTxnRequest, "3", settings=SECURED)
def adding_partitions(talk: Talk) -> None:
    topics, producer = two_topics(talk), new_producer(talk)
    rights = Right(WRITE, TRANSACTIONAL_ID, producer.name), Right(WRITE, TOPIC, topics[0].name)
    everybody_asks(talk, producer.add({each.name: [0] for each in topics}), *rights, arrange=by_partition)
    everybody_asks(talk, producer.add({topics[0].name: [0]}), *rights, arrange=by_partition)


@scenario(AddPartitionsToTxnRequest, "4+", settings=SECURED)
def verifying_partitions(talk: Talk) -> None:
    """Brokers ask so."""
    topic, producer = talk.topic(), new_producer(talk)
    begin(talk, producer, {topic.name: [0]})
    request = producer.add({topic.name: [0]}, verify_only=True)
    everybody_asks(talk, request, Right(CLUSTER_ACTION, CLUSTER), arrange=by_partition)


@scenario(AddOffsetsToTxnRequest, "3+", settings=SECURED)
def adding_offsets(talk: Talk) -> None:
    group, producer = talk.group(), new_producer(talk)
    rights = Right(WRITE, TRANSACTIONAL_ID, producer.name), Right(READ, GROUP, group)
    everybody_asks(talk, producer.add_offsets(group), *rights)


@scenario(TxnOffsetCommitRequest, "4+", settings=SECURED)
def committing_offsets(talk: Talk) -> None:
    group, producer, topics = talk.group(), new_producer(talk), two_topics(talk)
    talk.until(producer.add_offsets(group), lambda answer: not answer.error_code)
    request = commit_in(producer, group, topics[0], {0: 5})
    request.topics += commit_in(producer, group, topics[1], {0: 5}).topics
    everybody_asks(
        talk,
        request,
        Right(WRITE, TRANSACTIONAL_ID, producer.name),
        Right(READ, GROUP, group),
        Right(READ, TOPIC, topics[0].name),
    )


@scenario(EndTxnRequest, "4+", settings=SECURED)
def ending(talk: Talk) -> None:
    topic, producer = talk.topic(), new_producer(talk)
    begin(talk, producer, {topic.name: [0]})
    everybody_asks(talk, producer.end(commit=True), Right(WRITE, TRANSACTIONAL_ID, producer.name))
    until_complete(talk, producer.name)


@scenario(WriteTxnMarkersRequest, settings=SECURED)
def writing_markers(talk: Talk) -> None:
    """Brokers do, and tools that end transactions which nobody else ends."""
    topic = talk.topic()
    marker = WritableTxnMarker(
        producer_id=77,
        producer_epoch=0,
        transaction_result=False,
        topics=[WritableTxnMarkerTopic(name=topic.name, partition_indexes=[0])],
        coordinator_epoch=0,
    )
    rights = Right(AclOperation.ALTER, CLUSTER), Right(CLUSTER_ACTION, CLUSTER)
    everybody_asks(talk, WriteTxnMarkersRequest(markers=[marker]), *rights)


@scenario(DescribeTransactionsRequest, settings=SECURED)
def describing(talk: Talk) -> None:
    """Topics that are hidden are left out."""
    topics, producer = two_topics(talk), new_producer(talk)
    begin(talk, producer, {each.name: [0] for each in topics})
    request = DescribeTransactionsRequest(transactional_ids=[producer.name, talk.name("hidden")])
    rights = Right(DESCRIBE, TRANSACTIONAL_ID, producer.name), Right(DESCRIBE, TOPIC, topics[0].name)

    def began(answer: Any) -> None:
        for each in answer.transaction_states:
            each.topics.sort(key=lambda topic: topic.topic)

    everybody_asks(talk, request, *rights, arrange=began)
    talk.do(producer.end(commit=False), 4)
    until_complete(talk, producer.name)


@scenario(ListTransactionsRequest, "2", settings=SECURED)
def listing(talk: Talk) -> None:
    producer = new_producer(talk)
    other = Producer(talk.name("hidden"), -1, -1)
    talk.until(other.init(known=False), lambda answer: not answer.error_code)
    request = ListTransactionsRequest(state_filters=[], producer_id_filters=[])
    everybody_asks(talk, request, Right(DESCRIBE, TRANSACTIONAL_ID, producer.name), arrange=only_ours(talk))
