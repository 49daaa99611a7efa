"""Transactions over all brokers of a cluster, of one make and of both: each asks the others' coordinators, and writes their markers."""

import contextlib
import time
from collections.abc import Iterator

import pytest
from compat_tests.cluster.mixed import KAFKA, OTHER_KAFKA, OTTLA, Mixed
from compat_tests.support.brokers import BrokerProcess, wait_until
from compat_tests.support.cluster import Cluster
from compat_tests.support.wire_client import WireClient
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.groupcoord.java_hashing import absolute_string_hash
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.describe_transactions import DescribeTransactionsRequest
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.messages.producer_ids import InitProducerIdRequest
from ottla.wire.record_encoding import encode_batch
from ottla.wire.records import Record

PARTITIONS = 3
PRODUCERS = 6  # so that every broker coordinates some
ROUNDS = 4
LOG = "__transaction_state"


@pytest.fixture(scope="module")
def own_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    settings = {"offsets.topic.num.partitions": "3", "group.initial.rebalance.delay.ms": "0"}
    with Cluster(tmp_path_factory.mktemp("transactions"), settings=settings, is_served=True) as cluster:
        yield cluster


@pytest.fixture
def of_both(mixed: Mixed) -> Cluster:
    return mixed.cluster


@pytest.fixture(params=["own_cluster", "of_both"])
def cluster(request: pytest.FixtureRequest) -> Cluster:
    found: Cluster = request.getfixturevalue(request.param)
    return found


def create(cluster: Cluster, *topics: str) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    futures = admin.create_topics(
        [NewTopic(topic, PARTITIONS, 3, config={"min.insync.replicas": "2"}) for topic in topics]
    )
    for topic in topics:
        futures[topic].result(60)
    cluster.wait_until_whole()


def committed(cluster: Cluster, topic: str, count: int) -> list[bytes]:
    """The values of a topic as readers of committed records see them, once there are as many."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": f"{topic}-reader",
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.assign([TopicPartition(topic, index, 0) for index in range(PARTITIONS)])
    values: list[bytes] = []

    def is_all_there() -> bool:
        values.extend(message.value() for message in consumer.consume(100, timeout=0.3) if message.error() is None)
        return len(values) >= count

    try:
        wait_until(is_all_there, f"{count} values in {topic}", 60)
        # Until the ends of the partitions: nothing of what was aborted follows.
        for _ in range(3):
            is_all_there()
    finally:
        consumer.close()
    return values


def test_what_is_committed_is_read_and_nothing_else(cluster: Cluster, unique) -> None:
    topic = unique("topic")
    create(cluster, topic)
    expected = []
    for number in range(PRODUCERS):
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": unique(f"producer-{number}")})
        producer.init_transactions(60)
        for turn in range(ROUNDS):
            producer.begin_transaction()
            values = [b"%d-%d-%d" % (number, turn, index) for index in range(PARTITIONS)]
            for index, value in enumerate(values):
                producer.produce(topic, value, partition=index)
            if turn % 2:
                # Or librdkafka may ask for an end before the coordinator knows that this transaction has begun.
                assert producer.flush(60) == 0
                producer.abort_transaction(60)
            else:
                producer.commit_transaction(60)
                expected += values
    assert sorted(committed(cluster, topic, len(expected))) == sorted(expected)


def test_offsets_and_records_are_committed_together(cluster: Cluster, unique) -> None:
    source, sink, group = unique("source"), unique("sink"), unique("group")
    create(cluster, source, sink)
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    values = [b"%d" % number for number in range(60)]
    for number, value in enumerate(values):
        producer.produce(source, value, partition=number % PARTITIONS)
    assert producer.flush(60) == 0
    options = {
        "bootstrap.servers": cluster.bootstrap,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "isolation.level": "read_committed",
    }
    consumer = Consumer(options)
    consumer.subscribe([source])
    writer = Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": unique("writer")})
    writer.init_transactions(60)
    done, deadline = 0, time.monotonic() + 180
    aborts_left = 3
    while done < len(values):
        assert time.monotonic() < deadline
        messages = [each for each in consumer.consume(10, timeout=1) if each.error() is None]
        if not messages:
            continue
        writer.begin_transaction()
        for message in messages:
            writer.produce(sink, message.value(), partition=message.partition())
        writer.send_offsets_to_transaction(
            consumer.position(consumer.assignment()), consumer.consumer_group_metadata(), 60
        )
        if aborts_left:
            aborts_left -= 1
            assert writer.flush(60) == 0
            writer.abort_transaction(60)
            # Nothing of it counts: it begins anew at the committed offsets.
            for each in consumer.committed(consumer.assignment(), timeout=60):
                consumer.seek(TopicPartition(each.topic, each.partition, max(each.offset, 0)))
            continue
        writer.commit_transaction(60)
        done += len(messages)
    consumer.close()
    assert sorted(committed(cluster, sink, len(values)), key=int) == values


def test_no_broker_takes_what_its_coordinator_does_not_know_of(cluster: Cluster, unique) -> None:
    topic = unique("topic")
    create(cluster, topic)
    names = [unique(f"producer-{number}") for number in range(PRODUCERS)]
    for name in names:
        Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": name}).init_transactions(60)
    wait_until(lambda: is_spread(cluster), "several brokers coordinate")
    coordinators = set()
    for name in names:
        broker, producer = _found(cluster, name)
        coordinators.add(broker)
        for index in range(PARTITIONS):
            leader = cluster.leader(topic, index)
            batch = encode_batch(
                [Record(0, int(time.time() * 1000), None, b"hanging")],
                producer_id=producer.producer_id,
                producer_epoch=producer.producer_epoch,
                base_sequence=0,
                is_transactional=True,
            )
            data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=index, records=batch)])
            request = ProduceRequest(transactional_id=name, acks=-1, timeout_ms=10_000, topic_data=[data])
            for version, refused in ((10, ErrorCode.INVALID_TXN_STATE), (11, ErrorCode.TRANSACTION_ABORTABLE)):
                assert answer_to(request, version, leader) == refused, (leader, name)
    assert len(coordinators) > 1


def answer_to(request: ProduceRequest, version: int, leader: BrokerProcess) -> ErrorCode:
    """What a leader says when its coordinator has answered it: on a busy machine one may be on its way, or late."""
    told = []

    def is_told() -> bool:
        with WireClient((leader.host, leader.port), client_id="zombie") as client:
            answer = client.ask(request, version)
        told.append(ErrorCode(answer.responses[0].partition_responses[0].error_code))
        return not told[-1].retriable

    wait_until(is_told, "the coordinator answers the leader")
    return told[-1]


def is_spread(cluster: Cluster) -> bool:
    """Whether several brokers lead what coordinators live in; a session that ended may have made one of them lead all."""
    partitions = cluster.partitions(LOG)
    cluster.elect_preferred(LOG, list(partitions))
    return len({each.leader_id for each in partitions.values()} - {-1}) > 1


def _found(cluster: Cluster, name: str):
    """The broker that coordinates an id, and the producer it gives."""
    request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000)
    found = []

    def ask() -> bool:
        for number, broker in enumerate(cluster.brokers):
            with WireClient((broker.host, broker.port), client_id="finder") as client:
                answer = client.ask(request, 4)
            if answer.error_code == 0:
                found[:] = [number, answer]
                return True
        return False

    wait_until(ask, "the id has a coordinator")
    return found


def coordinated_by(cluster: Cluster, number: int, unique) -> str:
    """A transactional id of that coordinator."""
    Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": unique("first")}).init_transactions(60)

    def leads() -> list[int]:
        cluster.elect_preferred(LOG, list(cluster.partitions(LOG)))
        return [index for index, each in cluster.partitions(LOG).items() if each.leader_id == number]

    led = wait_until(leads, f"broker {number} leads something of {LOG}", 60)
    names = (unique(f"prepared-{attempt}") for attempt in range(1000))
    return next(name for name in names if absolute_string_hash(name) % len(cluster.partitions(LOG)) in led)


def state_of(cluster: Cluster, name: str) -> str:
    """As its coordinator says, if there is one at the moment."""
    for broker in cluster.running:
        with (
            contextlib.suppress(OSError),
            WireClient((broker.host, broker.port), client_id="describer", timeout_s=5) as client,
        ):
            [told] = client.ask(DescribeTransactionsRequest(transactional_ids=[name]), 0).transaction_states
            if told.error_code == 0:
                return told.transaction_state
    return ""


@pytest.mark.parametrize(("coordinator", "leader"), [(OTTLA, OTHER_KAFKA), (OTHER_KAFKA, KAFKA)])
def test_the_next_coordinator_completes_what_was_prepared(mixed: Mixed, coordinator: int, leader: int, unique) -> None:
    cluster, topic = mixed.cluster, unique("topic")
    mixed.create(topic, *[(leader,)] * PARTITIONS)  # no other broker can take the markers
    name = coordinated_by(cluster, coordinator, unique)
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": name})
    producer.init_transactions(60)
    producer.begin_transaction()
    for index in range(PARTITIONS):
        producer.produce(topic, b"%d" % index, partition=index)
    assert producer.flush(60) == 0
    mixed.broker(leader).pause()
    try:
        producer.commit_transaction(60)
        wait_until(
            lambda: state_of(cluster, name) == "PrepareCommit", "it is prepared, and its markers cannot be written"
        )
        mixed.broker(coordinator).kill()
    finally:
        mixed.broker(leader).resume()
    wait_until(lambda: state_of(cluster, name) == "CompleteCommit", "the transaction is complete", 90)
    assert sorted(committed(cluster, topic, PARTITIONS)) == [b"%d" % index for index in range(PARTITIONS)]
