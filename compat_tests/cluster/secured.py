"""Clusters whose brokers meet at a listener of their own, WITHIN, which is secured; clients use the other one."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from compat_tests.support.brokers import BrokerProcess, OttlaProcess, free_port, wait_until
from compat_tests.support.cluster import Cluster
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.server.launch.certificates_command import Authority

SECRET, LISTENER = "word-among-brokers", "listener.name.within"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required"
WHO = f'username="broker" password="{SECRET}"'
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


def settings_of(protocol: str) -> dict[str, str]:
    return {
        "listener.security.protocol.map": f"PLAINTEXT:PLAINTEXT,WITHIN:{protocol}",
        "inter.broker.listener.name": "WITHIN",
        "default.replication.factor": "3",
        "zookeeper.session.timeout.ms": "9000",  # handshakes of many processes that start at once on few processors
        "replica.lag.time.max.ms": "2000",
        "connections.max.reauth.ms": "3000",  # so that logins are renewed while the tests run
    }


class OttlaWithUser(OttlaProcess):
    """The user of the brokers begins with them."""

    def command(self) -> list[str]:
        users = self.directory / "users"
        users.write_text(f"SCRAM-SHA-512=[name=broker,password={SECRET}]\n")
        return [*super().command(), "--add-scram", f"@{users}"]


def certificates(
    folder: Path, number: int, authority: Authority, *, host: str = "127.0.0.1", trusted: Sequence[Authority] = ()
) -> dict[str, str]:
    """The settings of broker `number`, which that authority has given a certificate for that host.

    It trusts that authority, unless others are `trusted`.
    """
    folder.mkdir(exist_ok=True)
    issued = authority.issue(f"broker-{number}", [host], is_server=True, organization="Ottla")
    keys, authorities = folder / f"broker-{number}.pem", folder / f"trusted-by-{number}.pem"
    keys.write_bytes(issued.key_pem + issued.certificate_pem)
    authorities.write_bytes(b"".join(each.certified.certificate_pem for each in trusted or [authority]))
    return {
        f"{LISTENER}.ssl.keystore.type": "PEM",
        f"{LISTENER}.ssl.keystore.location": str(keys),
        f"{LISTENER}.ssl.truststore.type": "PEM",
        f"{LISTENER}.ssl.truststore.location": str(authorities),
        f"{LISTENER}.ssl.client.auth": "required",
    }


def made(
    directory: Path,
    kinds: Sequence[type[BrokerProcess]],
    settings: dict[str, str],
    each: Sequence[dict[str, str]] = (),
    more_listeners: Sequence[str] = (),
) -> Cluster:
    """Not started yet; `each` are the settings of one broker each."""
    cluster = Cluster(directory, kinds, settings, each=each)
    for broker in cluster.brokers:
        within = ",".join(f"{name}://{broker.host}:{free_port()}" for name in ("WITHIN", *more_listeners))
        broker.settings["listeners"] = f"PLAINTEXT://{broker.host}:{broker.port},{within}"
    return cluster


@contextmanager
def running(cluster: Cluster) -> Iterator[Cluster]:
    with cluster:
        yield cluster
    for broker in cluster.brokers:
        assert SECRET not in broker.log
        assert "PRIVATE KEY" not in broker.log


def port_of(broker: BrokerProcess, listener: str = "WITHIN") -> int:
    address = next(each for each in broker.settings["listeners"].split(",") if each.startswith(f"{listener}://"))
    return int(address.rpartition(":")[2])


def works(cluster: Cluster, topic: str) -> None:
    """Records are copied, leaders change while a producer goes on, nothing is lost, and groups find their coordinator."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic(topic, 3, 3)])[topic].result(60)

    def whole() -> bool:
        found = cluster.partitions(topic).values()
        return len(found) == 3 and all(len(each.isr_nodes) == 3 for each in found)

    failures: list[object] = []
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "enable.idempotence": True})

    def produce(numbers: range) -> None:
        for number in numbers:
            producer.produce(topic, b"%d" % number, on_delivery=lambda e, _: failures.append(e) if e else None)
            producer.poll(0)

    produce(range(50))
    assert producer.flush(60) == 0
    wait_until(whole, "all replicas are in sync")
    # Each broker leads a partition, the controller as well.
    lost = cluster.controller()
    produce(range(50, 75))
    lost.kill()
    produce(range(75, 100))
    assert producer.flush(60) == 0
    assert failures == []
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
