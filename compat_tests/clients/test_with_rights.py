"""Each client over SASL_SSL, with exactly the rights that it needs: it produces, consumes in a group, commits and goes on.

`OTTLA_COMPAT_GUARDED=1` runs all suites of this folder, and others, against a broker with TLS, SASL and rules: see
`support/guarding.py`.
"""

import asyncio
import json
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import aiokafka
import pytest
from compat_tests.apache.brokers import write_properties
from compat_tests.clients.test_kafkajs import SCENARIOS
from compat_tests.conftest import KEEP_EVERYTHING
from compat_tests.support.brokers import wait_until
from compat_tests.support.guarded import GROUP, READ, TOPIC, WRITE, GuardedOttla
from confluent_kafka import Consumer, KafkaError, Producer
from confluent_kafka.admin import NewTopic
from kafka import KafkaConsumer, KafkaProducer
from kafka.errors import TopicAuthorizationFailedError

VALUES = [b"%d" % number for number in range(10)]


class Client(NamedTuple):
    """A user who owns a topic and a group."""

    broker: GuardedOttla
    user: str
    topic: str
    group: str

    def may_write(self) -> None:
        self.broker.allow(self.user, [(WRITE, TOPIC, self.topic)])

    def may_read(self) -> None:
        self.broker.allow(self.user, [(READ, TOPIC, self.topic), (READ, GROUP, self.group)])

    def may_do_its_work(self) -> None:
        self.may_write()
        self.may_read()

    def was_refused_nothing(self) -> bool:
        return self.broker.refused(self.user) == []


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardedOttla]:
    broker = GuardedOttla(tmp_path_factory.mktemp("guarded"), {})
    broker.start()
    yield broker
    broker.stop()


@pytest.fixture
def new_client(guarded: GuardedOttla, unique: Callable[[str], str]) -> Callable[..., Client]:
    def new(user: str | None = None) -> Client:
        """With a new user, who has SCRAM credentials, unless one is named who has a password for PLAIN."""
        if user is None:
            user = unique("user")
            guarded.add_user(user)
        made = Client(guarded, user, unique("topic"), unique("group"))
        guarded.admin.create_topics([NewTopic(made.topic, 1, 1, config=KEEP_EVERYTHING)])[made.topic].result(60)
        return made

    return new


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_kafka_python(new_client, mechanism):
    client = new_client()
    login = client.broker.kafka_python(client.user, mechanism)
    client.may_do_its_work()
    producer = KafkaProducer(**login)
    for value in VALUES:
        producer.send(client.topic, value)
    producer.close()

    def take(count: int) -> list[bytes]:
        consumer = KafkaConsumer(
            client.topic,
            group_id=client.group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            max_poll_records=count,
            consumer_timeout_ms=60_000,
            **login,
        )
        found = [next(consumer).value for _ in range(count)]
        consumer.commit()
        consumer.close()
        return found

    assert take(4) == VALUES[:4]
    assert take(6) == VALUES[4:]
    assert client.was_refused_nothing()


def test_aiokafka(new_client):
    client = new_client()
    login = client.broker.kafka_python(client.user, "SCRAM-SHA-512")
    login["ssl_context"] = ssl.create_default_context(cafile=login.pop("ssl_cafile"))
    client.may_do_its_work()

    async def take(count: int) -> list[bytes]:
        options = {"auto_offset_reset": "earliest", "enable_auto_commit": False, "group_id": client.group}
        async with aiokafka.AIOKafkaConsumer(client.topic, **options, **login) as consumer:
            found = [(await consumer.getone()).value for _ in range(count)]
            await consumer.commit()
        return found

    async def work() -> list[bytes]:
        async with aiokafka.AIOKafkaProducer(**login) as producer:
            for value in VALUES:
                await producer.send_and_wait(client.topic, value)
        return await take(4) + await take(6)

    assert asyncio.run(work()) == VALUES
    assert client.was_refused_nothing()


@pytest.mark.parametrize("group_protocol", ["classic", "consumer"])
def test_confluent_kafka(new_client, group_protocol):
    client = new_client()
    login = client.broker.librdkafka(client.user, "SCRAM-SHA-512")
    client.may_do_its_work()
    producer = Producer(login | {"enable.idempotence": True})
    for value in VALUES:
        producer.produce(client.topic, value)
    assert producer.flush(60) == 0

    def take(count: int) -> list[bytes]:
        options = {"group.id": client.group, "auto.offset.reset": "earliest", "enable.auto.commit": False}
        consumer = Consumer(login | options | {"group.protocol": group_protocol})
        consumer.subscribe([client.topic])
        found: list[bytes] = []

        def is_done() -> bool:
            found.extend(each.value() for each in consumer.consume(count - len(found), 0.5) if each.error() is None)
            return len(found) == count

        wait_until(is_done, f"{count} records are there")
        consumer.commit(asynchronous=False)
        consumer.close()
        return found

    assert take(4) == VALUES[:4]
    assert take(6) == VALUES[4:]
    assert client.was_refused_nothing()


def test_kafkajs(new_client, node, run):
    client = new_client()
    client.may_do_its_work()
    command, modules = node
    options = client.broker.kafka_python(client.user, "SCRAM-SHA-256")
    security = {
        "ssl": {"ca": [Path(client.broker.authority).read_text()]},
        "sasl": {
            "mechanism": "scram-sha-256",
            "username": client.user,
            "password": options["sasl_plain_password"],
        },
    }
    environment = {
        "NODE_PATH": modules,
        "KAFKAJS_NO_PARTITIONER_WARNING": "1",
        "NODE_NO_WARNINGS": "1",
        "KAFKAJS_SECURITY": json.dumps(security),
    }
    arguments = ("commit", client.broker.bootstrap, client.topic, client.group)
    assert json.loads(run(command, str(SCENARIOS), *arguments, **environment)) == [str(i) for i in range(3, 10)]
    assert client.was_refused_nothing()


def test_java(new_client, java_scenarios, run, tmp_path):
    client = new_client()
    client.may_do_its_work()
    properties = write_properties(tmp_path / "client.properties", client.broker.java(client.user, "SCRAM-SHA-512"))
    arguments = ("commit", client.broker.bootstrap, client.topic, client.group)
    printed = run(*java_scenarios, *arguments, CLIENT_PROPERTIES=str(properties))
    assert dict(line.split("=", 1) for line in printed.splitlines()) == {
        "first": "4",
        "next": "4",
        "committed": "4 note 0",
    }
    assert client.was_refused_nothing()


def test_kcat(new_client, kcat, run):
    """By PLAIN: Debian's librdkafka sends its nonce twice, which is refused (CVE-2024-56128)."""
    client = new_client("kcat")
    client.may_do_its_work()
    login = client.broker.librdkafka(client.user, "PLAIN")
    options = [part for name, value in login.items() for part in ("-X", f"{name}={value}")]
    read = ("-G", client.group, "-q", "-e", "-X", "auto.offset.reset=earliest", "-f", "%s\n", client.topic)
    run(kcat, "-P", "-t", client.topic, *options, stdin="one\ntwo\n")
    assert run(kcat, *options, *read) == "one\ntwo\n"
    run(kcat, "-P", "-t", client.topic, *options, stdin="three\n")
    assert run(kcat, *options, *read) == "three\n"
    assert client.was_refused_nothing()


# ---------------------------------------------------------------------- without a right


def test_who_may_not_write_is_told_so(new_client):
    client = new_client()
    client.may_read()
    login = client.broker.kafka_python(client.user, "SCRAM-SHA-256")
    # An idempotent one is refused its producer id before it comes to its topic.
    producer = KafkaProducer(enable_idempotence=False, **login)
    with pytest.raises(TopicAuthorizationFailedError):
        producer.send(client.topic, b"x").get(timeout=60)
    producer.close()
    assert "operation = WRITE" in client.broker.refused(client.user)[-1]


@pytest.mark.parametrize(
    ("right", "code"),
    [
        ((READ, TOPIC), KafkaError.GROUP_AUTHORIZATION_FAILED),
        ((READ, GROUP), KafkaError.TOPIC_AUTHORIZATION_FAILED),
    ],
)
def test_who_may_not_read_a_topic_or_a_group_is_told_so(new_client, right, code):
    client = new_client()
    operation, kind = right
    client.broker.allow(client.user, [(operation, kind, client.topic if kind is TOPIC else client.group)])
    login = client.broker.librdkafka(client.user, "SCRAM-SHA-256")
    consumer = Consumer(login | {"group.id": client.group})
    consumer.subscribe([client.topic])

    def told() -> int | None:
        found = consumer.poll(0.5)
        return None if found is None or found.error() is None else found.error().code()

    assert wait_until(told, "the consumer hears of it") == code
    consumer.close()
