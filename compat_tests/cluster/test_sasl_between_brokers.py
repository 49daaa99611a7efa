"""Brokers log in at each other: three of Ottla by SCRAM, and Ottla beside Apache Kafka 3.9 by PLAIN."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from compat_tests.apache.brokers import ApacheKafka3
from compat_tests.support.brokers import BrokerProcess, OttlaProcess, free_port, wait_until
from compat_tests.support.cluster import Cluster
from compat_tests.support.raw import Peer
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

SECRET, LISTENER = "word-among-brokers", "listener.name.within"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required"
WHO = f'username="broker" password="{SECRET}"'
SETTINGS = {
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,WITHIN:SASL_PLAINTEXT",
    "inter.broker.listener.name": "WITHIN",
    "default.replication.factor": "3",
    "replica.lag.time.max.ms": "2000",
    "connections.max.reauth.ms": "3000",  # so that connections are renewed while the tests run
}
BY_PLAIN = {
    "sasl.enabled.mechanisms": "PLAIN",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    f"{LISTENER}.plain.sasl.jaas.config": f'{PLAIN} {WHO} user_broker="{SECRET}";',
}
BY_SCRAM = {
    "sasl.enabled.mechanisms": "SCRAM-SHA-512",
    "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
    f"{LISTENER}.scram-sha-512.sasl.jaas.config": f"{SCRAM} {WHO};",
}


class OttlaWithUser(OttlaProcess):
    """The user of the brokers begins with them."""

    def command(self) -> list[str]:
        users = self.directory / "users"
        users.write_text(f"SCRAM-SHA-512=[name=broker,password={SECRET}]\n")
        return [*super().command(), "--add-scram", f"@{users}"]


@contextmanager
def secured(directory: Path, kinds: list[type[BrokerProcess]], settings: dict[str, str]) -> Iterator[Cluster]:
    cluster = Cluster(directory, kinds, SETTINGS | settings)
    for broker in cluster.brokers:
        broker.settings["listeners"] = f"PLAINTEXT://{broker.host}:{broker.port},WITHIN://{broker.host}:{free_port()}"
    with cluster:
        yield cluster
    for broker in cluster.brokers:
        assert SECRET not in broker.log


def works(cluster: Cluster, topic: str) -> None:
    """Records are copied, leaders change, and groups find their coordinator."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic(topic, 3, 3)])[topic].result(30)

    def produce(values: list[bytes]) -> None:
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "enable.idempotence": True})
        for value in values:
            producer.produce(topic, value)
        assert producer.flush(60) == 0

    def whole() -> bool:
        return all(len(each.isr_nodes) == 3 for each in cluster.partitions(topic).values())

    produce([b"%d" % number for number in range(50)])
    wait_until(whole, "all replicas are in sync", 30)
    lost = cluster.controller()
    lost.kill()
    produce([b"%d" % number for number in range(50, 100)])
    lost.restart()
    cluster.wait_until_whole()
    wait_until(whole, "all replicas are in sync again", 60)
    consumer = Consumer(
        {"bootstrap.servers": cluster.bootstrap, "group.id": f"{topic}-group", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    found: set[bytes] = set()

    def all_read() -> bool:
        found.update(each.value() for each in consumer.consume(100, 0.5) if each.error() is None)
        return len(found) == 100

    wait_until(all_read, "every record is read", 60)
    consumer.close()


def test_three_brokers_log_in_by_scram(tmp_path: Path) -> None:
    with secured(tmp_path, [OttlaWithUser] * 3, BY_SCRAM) as cluster:
        works(cluster, "scram")
        port = int(cluster.brokers[0].settings["listeners"].rpartition(":")[2])
        # Nobody comes in there without a login.
        with pytest.raises((AssertionError, OSError)), Peer(("127.0.0.1", port), timeout_s=5) as peer:
            peer.call("Metadata", 12, topics=[])


def test_ottla_and_kafka_log_in_at_each_other(tmp_path: Path) -> None:
    with secured(tmp_path, [ApacheKafka3, OttlaProcess, OttlaProcess], BY_PLAIN) as cluster:
        works(cluster, "plain")
