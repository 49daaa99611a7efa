"""Real clients log in: over SASL_PLAINTEXT, with each mechanism that they have."""

import asyncio
import json
import re
from collections import Counter

import aiokafka
import pytest
from compat_tests.support.brokers import OttlaProcess, serve_until, wait_until
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion
from kafka import KafkaConsumer, KafkaProducer
from kafka.errors import KafkaError
from kafka.net.connection import SaslReauthenticator

ALICES, ADMINS, WRONG = "alices-secret-word", 'admin "quoted" secret', "nearly-alices-secret"
TOKEN_KEY = "key-of-the-tokens"
CONFIGS = "kafka.admin.ConfigCommand"
TOOLS = "org.apache.kafka.tools"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SETTINGS = {
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    "security.inter.broker.protocol": "SASL_PLAINTEXT",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": f"{MODULE} required"
    f""" user_alice="{ALICES}" user_admin='{ADMINS}';""",
    "connections.max.reauth.ms": "2000",
    "delegation.token.secret.key": TOKEN_KEY,
    "num.partitions": "1",
}


class SaslOttla(OttlaProcess):
    def command(self):
        return [each.replace("PLAINTEXT://", "SASL_PLAINTEXT://") for each in super().command()]


@pytest.fixture(scope="module")
def secured(tmp_path_factory):
    broker = SaslOttla(tmp_path_factory.mktemp("secured"), SETTINGS)
    yield broker.start()
    broker.stop()
    for secret in (ALICES, ADMINS, WRONG, TOKEN_KEY):
        assert secret not in broker.log


def librdkafka(broker, mechanism="PLAIN", name="admin", password=ADMINS):
    return {
        "bootstrap.servers": broker.bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": name,
        "sasl.password": password,
    }


def python(broker, mechanism="PLAIN", name="alice", password=ALICES):
    return {
        "bootstrap_servers": broker.bootstrap,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_plain_username": name,
        "sasl_plain_password": password,
    }


LOGINS = 3
"""Of one connection: at the third one the session of the first is over."""


def test_kafka_python_logs_in_and_again(secured, monkeypatch):
    logins = Counter()
    told = SaslReauthenticator.session_updated

    def note(self, lifetime_ms):
        logins[self] += 1
        told(self, lifetime_ms)

    monkeypatch.setattr(SaslReauthenticator, "session_updated", note)
    producer = KafkaProducer(**python(secured))
    assert producer.send("python", b"x").get(timeout=60).offset == 0
    wait_until(lambda: max(logins.values()) >= LOGINS, "it has logged in again", 60)
    assert producer.send("python", b"x").get(timeout=60).offset == 1
    consumer = KafkaConsumer("python", auto_offset_reset="earliest", consumer_timeout_ms=60_000, **python(secured))
    assert len([next(consumer) for _ in range(2)]) == 2
    producer.close()
    consumer.close()


def test_kafka_python_is_refused(secured):
    with pytest.raises(KafkaError):
        KafkaProducer(**python(secured, password=WRONG), bootstrap_timeout_ms=3000)


def test_aiokafka_logs_in(secured):

    async def produce():
        async with aiokafka.AIOKafkaProducer(**python(secured)) as producer:
            return await producer.send_and_wait("aio", b"x")

    assert asyncio.run(produce()).offset == 0


def test_librdkafka_logs_in_and_again(secured):
    failures, logins = [], [0]

    def count(statistics):
        told = json.loads(statistics)["brokers"].values()
        logins.append(max(each.get("req", {}).get("SaslAuthenticate", 0) for each in told))

    config = {"error_cb": failures.append, "stats_cb": count, "statistics.interval.ms": 100}
    producer = Producer(librdkafka(secured) | config)

    def produce():
        producer.produce(
            "confluent", b"x", on_delivery=lambda error, message: failures.append(error) if error else None
        )
        return producer.flush(60)

    def has_logged_in_again():
        producer.poll(0.1)
        return logins[-1] >= LOGINS

    assert produce() == 0
    wait_until(has_logged_in_again, "it has logged in again", 60)
    assert produce() == 0 and failures == []


def test_librdkafka_hears_why_it_is_refused(secured):
    failures = []
    producer = Producer(librdkafka(secured, name="alice", password=WRONG) | {"error_cb": failures.append})
    serve_until(producer, lambda: failures, "the failure is told")
    assert "Authentication failed: Invalid username or password" in str(failures)


def test_kcat_logs_in(secured, run, kcat):
    options = librdkafka(secured, name="alice", password=ALICES)
    arguments = [part for name, value in options.items() for part in ("-X", f"{name}={value}")]
    assert "broker 0" in run(kcat, "-L", *arguments)


# ---------------------------------------------------------------------- SCRAM

SCRAM = pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])


def give(broker, name, password):
    """A user gets both credentials from an administrator."""
    admin = AdminClient(librdkafka(broker))
    for kind in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
        wanted = UserScramCredentialUpsertion(name, ScramCredentialInfo(kind, 4096), password.encode())
        admin.alter_user_scram_credentials([wanted])[name].result(60)


@SCRAM
def test_scram_users_log_in_with_each_client(secured, unique, mechanism):
    name = unique("user")
    give(secured, name, ALICES)
    producer = KafkaProducer(**python(secured, mechanism, name))
    producer.send("scram", name.encode()).get(timeout=60)
    producer.close()

    async def produce():
        async with aiokafka.AIOKafkaProducer(**python(secured, mechanism, name)) as producer:
            await producer.send_and_wait("scram", b"x")

    asyncio.run(produce())
    # Not Debian's kcat: librdkafka before 2.7 sends its nonce twice, which Kafka refuses since 3.9, too (CVE-2024-56128).
    assert AdminClient(librdkafka(secured, mechanism, name, ALICES)).list_topics(timeout=60).brokers


@SCRAM
def test_a_wrong_proof_and_an_unknown_user_look_alike(secured, unique, mechanism):
    name = unique("user")
    give(secured, name, ALICES)
    told = []
    for each in (name, unique("nobody")):
        failures = []
        producer = Producer(librdkafka(secured, mechanism, each, WRONG) | {"error_cb": failures.append})
        serve_until(producer, lambda: failures, "the failure is told")  # noqa: B023
        told.append(re.search(r"SASL authentication error: (.*?) \(", str(failures))[1])
    assert (
        told
        == [f"Authentication failed during authentication due to invalid credentials with SASL mechanism {mechanism}"]
        * 2
    )


def client_of_admin(folder):
    """A file with which Kafka's tools log in as admin."""
    client = folder / "client.properties"
    quoted = ADMINS.replace('"', r'\\"')
    client.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
        f'sasl.jaas.config={MODULE} required username="admin" password="{quoted}";\n'
    )
    return client


def test_kafka_configs_gives_and_takes_a_user(secured, java_tools, unique, tmp_path):
    name = unique("user")
    client = client_of_admin(tmp_path)

    def configs(*arguments):
        common = ("--bootstrap-server", secured.bootstrap, "--command-config", str(client))
        return java_tools("kafka_4")(
            CONFIGS, *common, "--entity-type", "users", "--entity-name", name, *arguments
        ).fine()

    configs("--alter", "--add-config", f"SCRAM-SHA-256=[iterations=8192,password={ALICES}]")
    assert "iterations=8192" in configs("--describe")
    KafkaProducer(**python(secured, "SCRAM-SHA-256", name)).close()
    configs("--alter", "--delete-config", "SCRAM-SHA-256")
    with pytest.raises(KafkaError):
        KafkaProducer(**python(secured, "SCRAM-SHA-256", name), bootstrap_timeout_ms=3000)


# ---------------------------------------------------------------------- delegation tokens


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize("release", ["kafka_4", "kafka_3"])
def test_java_clients_make_tokens_and_log_in_by_them(secured, java_tools, unique, tmp_path, release, mechanism):
    topic, client, by_token = unique("topic"), client_of_admin(tmp_path), tmp_path / "token.properties"
    tools = java_tools(release)

    def tokens(*arguments):
        common = ("--bootstrap-server", secured.bootstrap, "--command-config", str(client))
        return tools(f"{TOOLS}.DelegationTokenCommand", *common, *arguments)

    made = tokens("--create", "--max-life-time-period", "-1", "--renewer-principal", "User:alice").fine()
    token_id, hmac = re.search(r"^(\S{22})\s+(\S{88})\s+User:admin", made, re.MULTILINE).groups()
    by_token.write_text(
        f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={mechanism}\n"
        f'sasl.jaas.config={SCRAM_MODULE} required username="{token_id}" password="{hmac}" tokenauth="true";\n'
    )
    records = "".join(f"value {number}\n" for number in range(10))
    common = ("--bootstrap-server", secured.bootstrap, "--topic", topic)
    # Kafka 3.9 has its producer elsewhere, and other names for these options, at which 4.4 complains.
    producer = "kafka.tools.ConsoleProducer" if release == "kafka_3" else f"{TOOLS}.ConsoleProducer"
    tools(producer, *common, "--producer.config", str(by_token), stdin=records).fine()
    reading = ("--from-beginning", "--max-messages", "10", "--timeout-ms", "60000", "--consumer.config", str(by_token))
    assert tools(f"{TOOLS}.consumer.ConsoleConsumer", *common, *reading).fine().endswith(records)
    assert token_id in tokens("--describe", "--owner-principal", "User:admin").fine()
    assert "expiry date" in tokens("--renew", "--renew-time-period", "-1", "--hmac", hmac).fine()
    assert "expiry date" in tokens("--expire", "--expiry-time-period", "-1", "--hmac", hmac).fine()
    assert token_id not in tokens("--describe").fine()
    # The log names tokens, but not what logs in.
    assert token_id in secured.log and hmac not in secured.log
    refused = tokens("--renew", "--renew-time-period", "-1", "--hmac", hmac)
    assert refused.status != 0 and "DelegationTokenNotFoundException" in refused.out + refused.err
