"""A schema registry beside the brokers of a test."""

from __future__ import annotations

import json
import threading
import urllib.request

import pytest

from ottla.server.testing.kafka import Kafka


def asked(url: str, body: object | None = None) -> object:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/vnd.schemaregistry.v1+json"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)


@pytest.mark.parametrize("brokers", [1, 3])
def test_schemas_are_registered_and_a_fresh_world_has_none(brokers: int):
    with Kafka(brokers) as kafka:
        url = kafka.registry.url
        assert asked(f"{url}/subjects/orders-value/versions", {"schema": '"string"'}) == {"id": 1}
        assert asked(f"{url}/subjects") == ["orders-value"] and kafka.registry.url == url
        kafka.reset()
        assert asked(f"{kafka.registry.url}/subjects") == []
    assert not [each for each in threading.enumerate() if each.name == "ottla-registry"]


def test_a_registry_reaches_brokers_with_tls():
    with Kafka(tls=True) as kafka:
        assert asked(f"{kafka.registry.url}/subjects/orders-value/versions", {"schema": '"string"'}) == {"id": 1}


def test_a_restored_snapshot_has_the_schemas_of_then_at_the_same_address():
    with Kafka() as kafka:
        url = kafka.registry.url
        assert asked(f"{url}/subjects/kept-value/versions", {"schema": '"string"'}) == {"id": 1}
        snapshot = kafka.snapshot()
        asked(f"{url}/subjects/forgotten-value/versions", {"schema": '"long"'})
        kafka.restore(snapshot)
        assert asked(f"{url}/subjects") == ["kept-value"] and kafka.registry.url == url
