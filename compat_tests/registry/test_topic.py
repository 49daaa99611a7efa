"""The topic of a registry: records of other registries, brokers that go away, and instances that end in the middle."""

import json
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any

from compat_tests.support.brokers import free_port, wait_until
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

KIND = "application/vnd.schemaregistry.v1+json"

# As Confluent's registry 7.9 and Karapace 3 write them: without a digest, with other orders and members.
RECORDS: list[tuple[object, object]] = [
    ({"keytype": "NOOP", "magic": 0}, None),
    (
        {"keytype": "SCHEMA", "subject": "s", "version": 1, "magic": 1},
        {"subject": "s", "version": 1, "id": 5, "schema": '"int"', "deleted": False},
    ),
    (
        {"keytype": "SCHEMA", "subject": "j", "version": 1, "magic": 1},
        {
            "deleted": False,
            "id": 6,
            "references": [],
            "schema": '{"type":"object"}',
            "schemaType": "JSON",
            "subject": "j",
            "version": 1,
        },
    ),
    (
        {"keytype": "SCHEMA", "subject": "gone", "version": 1, "magic": 1},
        {"subject": "gone", "version": 1, "id": 7, "schema": '"long"', "deleted": False},
    ),
    ({"keytype": "DELETE_SUBJECT", "subject": "gone", "magic": 0}, {"subject": "gone", "version": 1}),
    ({"keytype": "CONFIG", "subject": None, "magic": 0}, {"compatibilityLevel": "FULL"}),
    ({"keytype": "MODE", "subject": "s", "magic": 0}, {"mode": "READONLY"}),
    ({"keytype": "CONTEXT", "tenant": "default", "context": ".c", "magic": 0}, {"tenant": "default", "context": ".c"}),
    ({"keytype": "ASSOC", "tenant": "default"}, {"tenant": "default"}),
    ("no key of a registry", "and no value"),
]


def ask(url: str, method: str, path: str, body: object = None) -> Any:
    """Ask for JSON; a refusal is its code."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url + path, data, {"Content-Type": KIND}, method=method)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return json.load(error)["error_code"]


def test_records_of_other_registries_are_read(bootstrap: str, start_registry: Callable[..., Any], unique) -> None:
    topic = unique("schemas")
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1, config={"cleanup.policy": "compact"})])[topic].result()
    producer = Producer({"bootstrap.servers": bootstrap})
    for key, value in RECORDS:
        producer.produce(topic, key=json.dumps(key), value=None if value is None else json.dumps(value))
    producer.flush()
    url = start_registry(bootstrap, "--topic", topic).url
    assert ask(url, "GET", "/subjects") == ["j", "s"]
    assert ask(url, "GET", "/subjects?deleted=true") == ["gone", "j", "s"]
    assert ask(url, "GET", "/schemas/ids/6") == {"schemaType": "JSON", "schema": '{"type":"object"}'}
    assert ask(url, "GET", "/config") == {"compatibilityLevel": "FULL"}
    assert ask(url, "GET", "/mode/s") == {"mode": "READONLY"}
    assert ask(url, "GET", "/contexts") == [".", ".c"]
    # A schema that is known has its id, a new one the next.
    assert ask(url, "POST", "/subjects/t/versions", {"schema": '"int"'}) == {"id": 5}
    assert ask(url, "POST", "/subjects/t2/versions", {"schema": '"string"'}) == {"id": 8}


def test_without_brokers_it_answers_and_refuses_writes(
    start_broker: Callable[..., Any], start_registry: Callable[..., Any]
) -> None:
    broker = start_broker(port=free_port())
    url = start_registry(broker.bootstrap).url
    assert ask(url, "POST", "/subjects/s/versions", {"schema": '"int"'}) == {"id": 1}
    broker.stop()
    assert ask(url, "GET", "/schemas/ids/1") == {"schema": '"int"'}
    assert ask(url, "POST", "/subjects/s/versions", {"schema": '"int"'}) == {"id": 1}
    assert ask(url, "POST", "/subjects/t/versions", {"schema": '"long"'}) in (50001, 50002)
    broker.start()
    wait_until(
        lambda: ask(url, "POST", "/subjects/t/versions", {"schema": '"long"'}) == {"id": 2}, "writes are taken again"
    )
    assert ask(url, "GET", "/subjects") == ["s", "t"]


def test_a_killed_registry_has_lost_nothing_that_was_answered(
    bootstrap: str, start_registry: Callable[..., Any], unique
) -> None:
    topic = unique("schemas")
    for generation in range(3):
        registry = start_registry(bootstrap, "--topic", topic)
        for number in range(5):
            schema = json.dumps({"type": "fixed", "name": f"F{generation}_{number}", "size": 1})
            expected = {"id": 5 * generation + number + 1}
            assert (
                ask(registry.url, "POST", f"/subjects/s{number}-{generation}/versions", {"schema": schema}) == expected
            )
        registry.kill()
    assert len(ask(start_registry(bootstrap, "--topic", topic).url, "GET", "/subjects")) == 15


def test_a_topic_that_is_deleted_is_made_again(bootstrap: str, start_registry: Callable[..., Any], unique) -> None:
    topic = unique("schemas")
    registry = start_registry(bootstrap, "--topic", topic)
    assert ask(registry.url, "POST", "/subjects/s/versions", {"schema": '"int"'}) == {"id": 1}
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.delete_topics([topic])[topic].result()
    wait_until(lambda: ask(registry.url, "GET", "/subjects") == [], "the registry is empty")
    wait_until(
        lambda: ask(registry.url, "POST", "/subjects/t/versions", {"schema": '"long"'}) == {"id": 1}, "writes are taken"
    )
