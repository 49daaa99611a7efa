"""From Apache Kafka 3.9 to Ottla and back through a mixed cluster, by the commands of docs/migration.md, while clients run."""

import contextlib

import pytest
from compat_tests.apache.brokers import ApacheKafka3
from compat_tests.applications.streams import make_topics, take
from compat_tests.ecosystem.programs import feed, feeder
from compat_tests.migration.reader import Mover, told_to
from compat_tests.support.brokers import BrokerProcess, OttlaProcess, wait_until
from compat_tests.support.cluster import Cluster

pytestmark = pytest.mark.ecosystem
COUNT = 300
KAFKA, OTTLA = 0, 1
ONE_COPY = {
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "offsets.topic.num.partitions": "4",
}


def move(mover: Mover, target: int) -> None:
    _, plan, verify = told_to(__file__)
    mover.places = mover.places | {"--broker-list 1": f"--broker-list {target}"}
    mover.run(plan)
    wait_until(lambda: "still in progress" not in mover.run(verify), "the partitions have moved")


def leave(cluster: Cluster, broker: BrokerProcess) -> None:
    broker.stop()
    cluster.wait_until_whole()


@pytest.mark.timeout(900)
def test_a_cluster_moves_while_clients_run(tmp_path):
    settings, _, _ = told_to(__file__)
    named = dict(line.split("=", 1) for line in settings.text.splitlines()[1:])
    cluster = Cluster(tmp_path / "cluster", (ApacheKafka3, OttlaProcess), ONE_COPY)
    # What the page gives to Ottla is what its broker has here, but for addresses and folders.
    assert named.keys() - cluster.brokers[OTTLA].settings.keys() <= {"broker.id", "listeners", "log.dirs"}
    assert cluster.settings["inter.broker.protocol.version"] == named["inter.broker.protocol.version"]
    with contextlib.ExitStack() as stack:
        stack.push(cluster)
        cluster.zookeeper.start()
        kafka, ottla = cluster.brokers[KAFKA], cluster.brokers[OTTLA]
        cluster.start_brokers([kafka])
        make_topics(kafka.bootstrap, 3, "orders")
        producer = feeder(f"{kafka.bootstrap}")
        feed(producer, "orders", range(COUNT))
        assert producer.flush(120) == 0
        cluster.start_brokers([ottla])
        places = {"kafka:9092": kafka.bootstrap, "ottla:9092": ottla.bootstrap}
        mover = Mover(tmp_path / "mover", "kafka_3", places)
        feed(producer, "orders", range(COUNT, 2 * COUNT))
        move(mover, OTTLA)
        feed(producer, "orders", range(2 * COUNT, 3 * COUNT))
        assert producer.flush(120) == 0
        kafka.stop()
        assert values(ottla.bootstrap, 3 * COUNT) == list(range(3 * COUNT))
        feed(producer, "orders", range(3 * COUNT, 4 * COUNT))
        assert producer.flush(120) == 0
        kafka.restart()
        cluster.wait_until_whole()
        move(mover, KAFKA)
        feed(producer, "orders", range(4 * COUNT, 5 * COUNT))
        assert producer.flush(120) == 0
        ottla.stop()
        assert values(kafka.bootstrap, 5 * COUNT) == list(range(5 * COUNT))


def values(bootstrap: str, count: int) -> list[int]:
    return sorted(int(value) for _, value in take(bootstrap, "orders", lambda found: len(found) >= count))
