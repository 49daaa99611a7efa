"""Changes by the console of any broker of a cluster: as the broker itself, and as a principal whose rules decide."""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from compat_tests.support.brokers import BrokerProcess, OttlaProcess, wait_until
from compat_tests.support.cluster import Cluster

SETTINGS = {
    "http.listener": ":0",
    "http.console.write": "true",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    directory: Path = tmp_path_factory.mktemp("cluster")
    each = [{}, {"http.console.principal": "User:console"}, {}]
    with Cluster(directory, (OttlaProcess,) * 3, SETTINGS, each=each, is_served=True) as cluster:
        # Broker 1 is the one with a principal; it must not be the controller.
        if asked(cluster.brokers[0], "overview")["controllerId"] == 1:
            cluster.brokers[1].stop()
            cluster.brokers[1].restart()
            cluster.wait_until_whole()
        yield cluster


def asked(broker: BrokerProcess, path: str, body: Any = None) -> Any:
    """Send a request to a broker's console; return the answer, or the text of a refusal."""
    address, token = re.findall(r"console +(http://[^/]+)/#token=(\S+)", broker.log)[-1]
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    data = None if body is None else json.dumps(body).encode()
    try:
        with urllib.request.urlopen(
            urllib.request.Request(f"{address}/api/{path}", data, headers), timeout=60
        ) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as refusal:
        return refusal.read().decode()


def rule(operation: str, **more: str) -> dict[str, str]:
    usual = {"resource": "topic", "name": "made", "pattern": "prefixed", "host": "*", "permission": "allow"}
    return usual | {"principal": "User:console", "operation": operation} | more


def test_each_broker_has_changes_carried_out_by_the_controller(cluster: Cluster) -> None:
    controller_id = asked(cluster.brokers[0], "overview")["controllerId"]
    assert controller_id != 1
    with_some, with_all_rights = cluster.brokers[1], cluster.brokers[0 if controller_id == 2 else 2]
    assert "AUTHORIZATION_FAILED" in asked(with_some, "create-topic", {"name": "made.1", "partitions": 2})
    for operation in ("alter", "delete", "describe", "create"):  # who may create has all other rights by then
        assert asked(with_all_rights, "add-acl", rule(operation))["done"] == "The rule is added."
    # The rules reach the other broker with some delay.
    wait_until(
        lambda: "done" in asked(with_some, "create-topic", {"name": "made.1", "partitions": 2}),
        "the topic is created",
        60,
    )
    assert "AUTHORIZATION_FAILED" in asked(with_some, "create-topic", {"name": "other", "partitions": 1})
    for broker, topic in ((with_some, "made.1"), (with_all_rights, "made.2")):
        if broker is with_all_rights:
            assert "done" in asked(broker, "create-topic", {"name": topic, "partitions": 2, "replicas": 2})
        assert asked(broker, "add-partitions", {"name": topic, "partitions": 3})["done"].endswith("has 3 partitions.")
        told = asked(broker, "trim-topic", {"name": topic})
        assert "Other brokers lead partitions" in told and "ottla topics trim" in told
        assert "done" in asked(broker, "delete-topic", {"name": topic})
    # Users belong to the cluster, and no rule allows changes of the cluster.
    user = {"name": "u", "mechanism": "SCRAM-SHA-256", "password": "p"}
    assert "CLUSTER_AUTHORIZATION_FAILED" in asked(with_some, "set-user", user)
    assert asked(with_all_rights, "set-user", user)["done"] == "User u is added."
