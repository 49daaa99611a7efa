"""Real clients over TLS: with and without a certificate of their own, and with SASL inside."""

import shutil
import socket
import ssl
import time

import pytest
from compat_tests.support.brokers import OttlaProcess, serve_until, wait_until
from compat_tests.support.raw import receive_frame, request
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource
from kafka import KafkaConsumer, KafkaProducer

from ottla.server.launch.certificates_command import make_certificates

SECRET = "alices-secret-word"
LARGE = bytes(range(256)) * 3000  # some tens of records of TLS
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"


class EncryptedOttla(OttlaProcess):
    protocol = "SSL"

    def command(self):
        return [each.replace("PLAINTEXT://", f"{self.protocol}://") for each in super().command()]


class SaslSslOttla(EncryptedOttla):
    protocol = "SASL_SSL"


def stores(directory):
    """What `ottla certificates` makes for an authority, a broker on this machine and a client."""
    make_certificates(directory, ["localhost"], days=2)
    return directory


def settings(directory, protocol):
    return {
        "security.inter.broker.protocol": protocol,
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(directory / "localhost.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(directory / "authority.pem"),
        "num.partitions": "1",
    }


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return stores(tmp_path_factory.mktemp("stores"))


@pytest.fixture(scope="module")
def encrypted(tmp_path_factory, files):
    broker = EncryptedOttla(tmp_path_factory.mktemp("ssl"), settings(files, "SSL") | {"ssl.client.auth": "required"})
    yield broker.start()
    broker.stop()
    assert "PRIVATE KEY" not in broker.log


@pytest.fixture(scope="module")
def with_sasl(tmp_path_factory, files):
    own = {
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_ssl.plain.sasl.jaas.config": f'{MODULE} required user_alice="{SECRET}";',
    }
    broker = SaslSslOttla(tmp_path_factory.mktemp("sasl_ssl"), settings(files, "SASL_SSL") | own)
    yield broker.start()
    broker.stop()
    assert SECRET not in broker.log


def librdkafka(broker, files, **more):
    return {
        "bootstrap.servers": broker.bootstrap,
        "security.protocol": broker.protocol,
        "ssl.ca.location": str(files / "authority.pem"),
        **{name.replace("_", "."): value for name, value in more.items()},
    }


def certificate(files):
    path = str(files / "client.pem")
    return {"ssl_certificate_location": path, "ssl_key_location": path}


def sasl(password=SECRET):
    return {"sasl_mechanism": "PLAIN", "sasl_username": "alice", "sasl_password": password}


def python(broker, files, **more):
    return {
        "bootstrap_servers": broker.bootstrap,
        "security_protocol": broker.protocol,
        "ssl_cafile": str(files / "authority.pem"),
        **more,
    }


def produce_and_fetch(config, topic):
    failures = []
    producer = Producer(config | {"error_cb": failures.append})
    for _ in range(20):
        producer.produce(topic, LARGE, on_delivery=lambda error, _: failures.append(error) if error else None)
    assert producer.flush(60) == 0
    assert failures == []
    consumer = Consumer(config | {"group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    found, end = [], time.monotonic() + 60
    while len(found) < 20 and time.monotonic() < end:
        found += consumer.consume(20, 1)
    consumer.close()
    assert [each.value() == LARGE for each in found] == [True] * 20


def python_produces_and_fetches(config, topic):
    producer = KafkaProducer(**config)
    for number in range(5):
        assert producer.send(topic, LARGE).get(timeout=60).offset == number
    producer.close()
    consumer = KafkaConsumer(topic, auto_offset_reset="earliest", consumer_timeout_ms=60_000, **config)
    assert [next(consumer).value == LARGE for _ in range(5)] == [True] * 5
    consumer.close()


def test_librdkafka_with_a_certificate(encrypted, files):
    produce_and_fetch(librdkafka(encrypted, files, **certificate(files)), "confluent")


def test_kafka_python_with_a_certificate(encrypted, files):
    path = str(files / "client.pem")
    python_produces_and_fetches(python(encrypted, files, ssl_certfile=path, ssl_keyfile=path), "python")


def refused(config):
    failures = []
    producer = Producer(config | {"error_cb": failures.append})
    serve_until(producer, lambda: failures, "the failure is told")
    return str(failures)


def logged(broker, line):
    """The client can have the alert before the broker's line is written."""
    wait_until(lambda: line in broker.log, f"the log says {line!r}")


def connected(broker, files):
    """A connection after its handshake, and the certificate that the broker has shown."""
    context = ssl.create_default_context(cafile=files / "authority.pem")
    context.load_cert_chain(files / "client.pem")
    plain = socket.create_connection((broker.host, broker.port), timeout=30)
    connection = context.wrap_socket(plain, server_hostname="localhost")
    return connection, connection.getpeercert(binary_form=True)


def is_served(connection):
    connection.sendall(request("ApiVersions", 0))
    return receive_frame(connection) is not None


def test_a_certificate_changes_and_every_connection_stays(encrypted, files, tmp_path):
    for name in ("authority.pem", "authority.key.pem"):
        shutil.copy(files / name, tmp_path)
    make_certificates(tmp_path, ["localhost"], days=3)
    old, new = files / "localhost.pem", tmp_path / "localhost.pem"
    settings = librdkafka(encrypted, files, **certificate(files))
    admin, producer = AdminClient(settings), Producer(settings | {"acks": "all"})

    def change(path):
        name = "listener.name.ssl.ssl.keystore.location"
        entry = ConfigEntry(name, str(path), incremental_operation=AlterConfigOpType.SET)
        [answer] = admin.incremental_alter_configs(
            [ConfigResource("broker", "0", incremental_configs=[entry])]
        ).values()
        answer.result(60)

    failures = []
    held, first = connected(encrypted, files)
    with held:
        for path in (new, old, new):
            change(path)
            other, shown = connected(encrypted, files)
            with other:
                assert is_served(other)
            assert (shown == first) == (path == old)
            assert is_served(held)
            producer.produce("changed", b"x", on_delivery=lambda error, _: failures.append(error))
            assert producer.flush(60) == 0
        # What cannot be a keystore is refused, and the one in use stays.
        with pytest.raises(KafkaException, match="INVALID_REQUEST"):
            change(tmp_path / "no such file")
        again, shown = connected(encrypted, files)
        again.close()
        assert shown != first and is_served(held)
    assert failures == [None] * 3


def test_who_shows_no_certificate_is_refused(encrypted, files):
    assert refused(librdkafka(encrypted, files))
    logged(encrypted, "shown no certificate")


def test_librdkafka_logs_in_over_tls(with_sasl, files):
    produce_and_fetch(librdkafka(with_sasl, files, **sasl()), "confluent")


def test_kafka_python_logs_in_over_tls(with_sasl, files):
    own = {"sasl_mechanism": "PLAIN", "sasl_plain_username": "alice", "sasl_plain_password": SECRET}
    python_produces_and_fetches(python(with_sasl, files, **own), "python")


def test_a_wrong_password_is_refused_over_tls(with_sasl, files):
    assert "Authentication failed" in refused(librdkafka(with_sasl, files, **sasl("wrong")))
