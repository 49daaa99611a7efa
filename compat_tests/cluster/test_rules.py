"""One set of rules for brokers of both makes: Apache Kafka 3.9 and Ottla obey what either of them, or an old tool, has written.

Whoever comes to the PLAINTEXT listener is nobody in particular, which the rules are about. Brokers and administrators log in
at another one.
"""

import contextlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from compat_tests.apache.brokers import ApacheKafka3, write_properties
from compat_tests.support.brokers import BrokerProcess, OttlaProcess, free_port, wait_until
from compat_tests.support.cluster import Cluster
from compat_tests.support.java_tools import JavaTools
from compat_tests.support.wire_client import WireClient
from confluent_kafka.admin import AdminClient, NewTopic
from kazoo.client import KazooClient

from ottla.server.dispatch.access import AclOperation
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.groups import ListGroupsRequest
from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.wire.messages.offsets import OffsetFetchRequest, OffsetFetchRequestGroup

ME = "User:ANONYMOUS"
KAFKA, OTTLA = 0, 1
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SECRET = "word-among-brokers"
SETTINGS = {
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,WITHIN:SASL_PLAINTEXT",
    "inter.broker.listener.name": "WITHIN",
    "sasl.enabled.mechanisms": "PLAIN",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "listener.name.within.plain.sasl.jaas.config": (
        f'{MODULE} required username="broker" password="{SECRET}" user_broker="{SECRET}";'
    ),
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "super.users": "User:broker",
    "default.replication.factor": "2",
    "auto.create.topics.enable": "false",
}


class Ruled:
    """The cluster, its ZooKeeper, and kafka-acls at each of its brokers."""

    def __init__(self, directory: Path, tools: JavaTools) -> None:
        self.cluster = Cluster(directory, [ApacheKafka3, OttlaProcess], SETTINGS)
        self._tools = tools
        self._within = [free_port() for _ in self.cluster.brokers]
        for broker, port in zip(self.cluster.brokers, self._within, strict=True):
            broker.settings["listeners"] = f"PLAINTEXT://{broker.host}:{broker.port},WITHIN://{broker.host}:{port}"
        login = {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.jaas.config": f'{MODULE} required username="broker" password="{SECRET}";',
        }
        self._login = write_properties(directory / "admin.properties", login)

    @contextlib.contextmanager
    def running(self) -> Iterator["Ruled"]:
        with self.cluster:
            self.zookeeper = KazooClient(self.cluster.zookeeper.address)
            self.zookeeper.start()
            yield self
            self.zookeeper.stop()
            self.zookeeper.close()

    def acls(self, at: int, *arguments: str) -> str:
        server = ("--bootstrap-server", f"127.0.0.1:{self._within[at]}", "--command-config", str(self._login))
        return self._tools("kafka.admin.AclCommand", *server, *arguments).fine()

    def create(self, topic: str) -> None:
        admin = AdminClient(
            {
                "bootstrap.servers": f"127.0.0.1:{self._within[KAFKA]}",
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "PLAIN",
                "sasl.username": "broker",
                "sasl.password": SECRET,
            }
        )
        admin.create_topics([NewTopic(topic, 1, 2)])[topic].result(60)

    # --- what nobody in particular may do

    def answers(self, ask: Callable[[WireClient], Any]) -> list[Any]:
        return [self._answer(broker, ask) for broker in self.cluster.brokers]

    @staticmethod
    def _answer(broker: BrokerProcess, ask: Callable[[WireClient], Any]) -> Any:
        with WireClient((broker.host, broker.port), client_id="nobody") as client:
            return ask(client)

    def until_all(self, ask: Callable[[WireClient], Any], wanted: Any) -> None:
        wait_until(lambda: self.answers(ask) == [wanted] * len(self.cluster.brokers), f"all brokers answer {wanted}")


def operations_on(topic: str) -> Callable[[WireClient], set[AclOperation] | ErrorCode]:
    request = MetadataRequest(
        topics=[MetadataRequestTopic(name=topic)],
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=True,
    )

    def ask(client: WireClient) -> set[AclOperation] | ErrorCode:
        [found] = client.ask(request, 8).topics
        if found.error_code:
            return ErrorCode(found.error_code)
        return {each for each in AclOperation if found.topic_authorized_operations >> each & 1}

    return ask


def error_of(group: str) -> Callable[[WireClient], bool]:
    """Whether the group may not be described."""
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=[])])
    refused = ErrorCode.GROUP_AUTHORIZATION_FAILED
    return lambda client: client.ask(request, 8).groups[0].error_code == refused


@pytest.fixture(scope="module")
def ruled(tmp_path_factory: pytest.TempPathFactory, java_tools) -> Iterator[Ruled]:
    with Ruled(tmp_path_factory.mktemp("ruled"), java_tools("kafka_3")).running() as ruled:
        yield ruled


HIDDEN = ErrorCode.TOPIC_AUTHORIZATION_FAILED
READ, WRITE, DESCRIBE = AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE


@pytest.mark.parametrize("at", [KAFKA, OTTLA], ids=["Apache Kafka", "Ottla"])
def test_rules_by_the_tool_are_obeyed_everywhere(ruled, unique, at):
    topic, group = unique("topic"), unique("group")
    ruled.create(topic)
    ruled.until_all(operations_on(topic), HIDDEN)
    ruled.until_all(error_of(group), True)
    may = ("--allow-principal", ME)
    ruled.acls(at, "--add", *may, "--consumer", "--topic", topic, "--group", group)
    ruled.until_all(operations_on(topic), {READ, DESCRIBE})
    ruled.until_all(error_of(group), False)
    ruled.acls(at, "--add", *may, "--operation", "Write", "--topic", topic[:-3], "--resource-pattern-type", "prefixed")
    ruled.until_all(operations_on(topic), {READ, WRITE, DESCRIBE})
    # A rule that denies, by the other broker.
    ruled.acls(1 - at, "--add", "--deny-principal", "User:*", "--operation", "Read", "--topic", topic)
    ruled.until_all(operations_on(topic), {WRITE, DESCRIBE})
    ruled.acls(1 - at, "--remove", "--topic", topic, "--force")
    ruled.until_all(operations_on(topic), {WRITE, DESCRIBE})

    def is_listed_alike() -> bool:
        mine, others = (sorted(ruled.acls(each, "--list").splitlines()) for each in (KAFKA, OTTLA))
        return mine == others

    wait_until(is_listed_alike, "both list the same, also when the other one has heard of what was removed")
    ruled.acls(at, "--remove", "--topic", topic[:-3], "--resource-pattern-type", "prefixed", "--force")
    ruled.acls(at, "--remove", "--group", group, "--force")
    ruled.until_all(operations_on(topic), HIDDEN)
    ruled.until_all(error_of(group), True)


@pytest.mark.parametrize("at", [KAFKA, OTTLA], ids=["Apache Kafka", "Ottla"])
def test_rules_about_the_cluster_are_obeyed_everywhere(ruled, at):
    def may_alter(client: WireClient) -> bool:
        return bool(
            client.ask(
                MetadataRequest(topics=[], include_cluster_authorized_operations=True), 8
            ).cluster_authorized_operations
            >> AclOperation.ALTER
            & 1
        )

    ruled.acls(at, "--add", "--allow-principal", ME, "--operation", "All", "--cluster")
    ruled.until_all(may_alter, True)
    assert [each.error_code for each in ruled.answers(lambda client: client.ask(ListGroupsRequest(), 4))] == [0, 0]
    ruled.acls(1 - at, "--remove", "--cluster", "--force")
    ruled.until_all(may_alter, False)


def node(*operations: str) -> bytes:
    """What Kafka 3.9 writes."""
    rules = [{"principal": ME, "permissionType": "Allow", "operation": each, "host": "*"} for each in operations]
    return json.dumps({"version": 1, "acls": rules}).encode()


def test_nodes_are_obeyed_that_somebody_else_has_written(ruled, unique):
    topic, zookeeper = unique("topic"), ruled.zookeeper
    ruled.create(topic)
    literal, prefixed = f"/kafka-acl/Topic/{topic}", f"/kafka-acl-extended/prefixed/Topic/{topic[:-3]}"
    zookeeper.create(literal, node("Read"))
    zookeeper.create("/kafka-acl-changes/acl_changes_", f"TOPIC:{topic}".encode(), sequence=True)
    ruled.until_all(operations_on(topic), {READ, DESCRIBE})
    zookeeper.create(prefixed, node("Write", "Alter"))
    change = {"version": 1, "resourceType": "TOPIC", "name": topic[:-3], "patternType": "PREFIXED"}
    notice = json.dumps(change).encode()
    zookeeper.create("/kafka-acl-extended-changes/acl_changes_", notice, sequence=True)
    ruled.until_all(operations_on(topic), {READ, WRITE, DESCRIBE, AclOperation.ALTER})
    zookeeper.delete(literal)
    zookeeper.create("/kafka-acl-changes/acl_changes_", f"TOPIC:{topic}".encode(), sequence=True)
    ruled.until_all(operations_on(topic), {WRITE, DESCRIBE, AclOperation.ALTER})
    zookeeper.delete(prefixed)
    zookeeper.create("/kafka-acl-extended-changes/acl_changes_", notice, sequence=True)
    ruled.until_all(operations_on(topic), HIDDEN)


def test_both_write_the_same_nodes(ruled, unique):
    written = []
    for at in (KAFKA, OTTLA):
        topic = unique("topic")
        for pattern in ("literal", "prefixed"):
            rules = ("--allow-principal", ME, "--allow-host", "10.0.0.1", "--producer", "--topic", topic)
            ruled.acls(at, "--add", *rules, "--resource-pattern-type", pattern)
        nodes = [f"/kafka-acl/Topic/{topic}", f"/kafka-acl-extended/prefixed/Topic/{topic}"]
        found = [json.loads(ruled.zookeeper.get(each)[0]) for each in nodes]
        for each in found:
            each["acls"].sort(key=lambda rule: rule["operation"])
        written.append(found)
        ruled.acls(at, "--remove", "--topic", topic, "--resource-pattern-type", "any", "--force")
    assert written[0] == written[1]
    assert len(written[0][0]["acls"]) == 3  # write, describe, create
