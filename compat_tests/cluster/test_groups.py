"""Groups in a cluster: their coordinators move with the partitions of __consumer_offsets, and nothing committed is lost."""

import contextlib
from collections.abc import Iterator

import pytest
from compat_tests.support.brokers import wait_until
from compat_tests.support.cluster import Cluster
from compat_tests.support.groups import ask_coordinator
from compat_tests.support.raw import Peer
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

GROUP = "readers"
COUNT = 300


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(
        tmp_path_factory.mktemp("groups"), settings={"offsets.topic.num.partitions": "3"}, is_served=True
    ) as cluster:
        yield cluster


def create(cluster: Cluster, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic(topic, 2, 3, config={"min.insync.replicas": "2"})])[topic].result(60)
    cluster.wait_until_whole()


def produce(cluster: Cluster, topic: str, first: int, count: int) -> None:
    problems = []
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "enable.idempotence": True})
    for number in range(first, first + count):
        producer.produce(
            topic, b"%d" % number, partition=number % 2, on_delivery=lambda error, _: error and problems.append(error)
        )
    assert producer.flush(60) == 0
    assert problems == []


def coordinator_id(cluster: Cluster, group: str) -> int:
    """Which broker coordinates a group, as soon as one does."""

    def ask() -> int:
        broker = cluster.running[0]
        with contextlib.suppress(AssertionError, OSError), Peer((broker.host, broker.port)) as peer:
            answer = peer.call("FindCoordinator", 3, key=group, key_type=0)
            return answer.node_id + 1 if answer.error_code == 0 else 0
        return 0

    return wait_until(ask, "the group has a coordinator") - 1


def take(consumer: Consumer, found: list[int]) -> int:
    for message in consumer.consume(100, timeout=0.3):
        if message.error() is None:
            found.append(int(message.value()))
        else:
            assert message.error().code() in (KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT), message.error()
    return len(set(found))


@pytest.mark.parametrize("end", ["kill", "stop"])
def test_a_group_survives_its_coordinator(cluster: Cluster, end: str) -> None:
    topic, group = f"survives-{end}", f"{GROUP}-{end}"
    create(cluster, topic)
    produce(cluster, topic, 0, COUNT)
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([topic])
    found: list[int] = []
    try:
        wait_until(lambda: take(consumer, found) == COUNT, "the group reads", 60)
        consumer.commit(asynchronous=False)
        gone = cluster.brokers[coordinator_id(cluster, group)]
        getattr(gone, end)()
        wait_until(lambda: cluster.brokers[coordinator_id(cluster, group)] is not gone, "another one coordinates")
        produce(cluster, topic, COUNT, COUNT)
        wait_until(lambda: take(consumer, found) == 2 * COUNT, "the group reads on", 60)
        consumer.commit(asynchronous=False)
        assert sorted(found) == list(range(2 * COUNT))  # nobody was made to begin anew
        committed = consumer.committed([TopicPartition(topic, 0), TopicPartition(topic, 1)], timeout=60)
        assert [each.offset for each in committed] == [COUNT, COUNT]
    finally:
        consumer.close()
    gone.restart()
    cluster.wait_until_whole()
    topic_name = "__consumer_offsets"
    wait_until(
        lambda: all(len(each.isr_nodes) == 3 for each in cluster.partitions(topic_name).values()), "all in sync", 60
    )


def test_committed_offsets_follow_the_coordinator(cluster: Cluster) -> None:
    """Planned movement of the partitions of __consumer_offsets, one broker after the other."""
    topic, group = "follows", "followers"
    create(cluster, topic)
    for first in (0, 1, 2):
        order = [first, (first + 1) % 3, (first + 2) % 3]
        coordinator_id(cluster, group)
        cluster.reassign("__consumer_offsets", {index: order for index in range(3)})
        cluster.elect_preferred("__consumer_offsets", range(3))
        wait_until(lambda first=first: coordinator_id(cluster, group) == first, "the coordinator has moved")
        consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": group, "enable.auto.commit": False})
        try:
            if first:
                assert ask_coordinator(lambda: consumer.committed([TopicPartition(topic, 0)], timeout=60)) == first  # noqa: B023
            offsets = [TopicPartition(topic, 0, first + 1)]
            assert ask_coordinator(lambda: consumer.commit(offsets=offsets, asynchronous=False)) == first + 1  # noqa: B023
        finally:
            consumer.close()
