"""The settings of brokers where Apache Kafka 3.9 and Ottla share a ZooKeeper: what each describes, and who reads whose passwords."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from compat_tests.apache.brokers import ApacheKafka3
from compat_tests.support.brokers import BrokerProcess, OttlaProcess, wait_until
from compat_tests.support.cluster import Cluster
from compat_tests.support.wire_client import WireClient
from kazoo.client import KazooClient

from ottla.wire.messages.alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalConfig,
    IncrementalConfigsResource,
)
from ottla.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ottla.wire.schema import Message

KAFKA, OTTLA, WITHOUT_SECRET = range(3)
BROKER, SET = 4, 0
SECRET = {"password.encoder.secret": "secret-of-the-encoder", "log.cleaner.dedupe.buffer.size": str(16 << 20)}
MARKER = "Märker 🗝 secret"
PASSWORDS = ("listener.name.x.ssl.key.password", "listener.name.x.plain.sasl.jaas.config", "no.such.ssl.keystore.key")

# What is told of one setting: its value, whether it is read-only, source, sensitive, synonyms, type.
Told = tuple[Any, ...]

OF_ONE_PROCESS = {"broker.id", "log.dirs", "listeners", "node.id"}
"""Different with any two brokers."""

WITHOUT_DEFAULT = {"inter.broker.protocol.version"}
"""Kafka's default is its own release. Here none is given in a cluster of Ottla alone."""

AS_IN_KAFKA_4 = {
    # The defaults and types of Kafka 4.4, which Ottla has everywhere.
    "controller.listener.names",
    "early.start.listeners",
    "group.consumer.assignors",
    "group.coordinator.append.linger.ms",
    "group.coordinator.rebalance.protocols",
    "group.coordinator.threads",
    "group.share.max.size",
    "group.share.partition.max.record.locks",
    "log.dir",
    "log.message.timestamp.after.max.ms",
    "metric.reporters",
    "num.recovery.threads.per.data.dir",
    "remote.log.manager.copier.thread.pool.size",
    "remote.log.manager.expiration.thread.pool.size",
    "remote.log.manager.thread.pool.size",
    "remote.log.reader.threads",
    "sasl.oauthbearer.expected.audience",
    # Kafka 4 has these as lists, 3.9 as texts. It changes the addresses that are told only together with the listeners.
    "advertised.listeners",
    "zookeeper.ssl.cipher.suites",
}
MISSING_HERE = {"leader.imbalance.per.broker.percentage"}
"""Kafka 4 has it as an internal setting, which it does not describe."""

ONLY_HERE = {"zookeeper.sasl.username", "zookeeper.sasl.password"}
"""Kafka has these in a JAAS file. Beside them there is what Kafka 4 has and 3.9 has not: `kafka_4` has that list."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    kinds = (ApacheKafka3, OttlaProcess, OttlaProcess)
    with Cluster(tmp_path_factory.mktemp("cluster"), kinds, each=[SECRET, SECRET, {}]) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def zookeeper(cluster: Cluster) -> Iterator[KazooClient]:
    client = KazooClient(cluster.zookeeper.address)
    client.start()
    yield client
    client.stop()
    client.close()


def ask(broker: BrokerProcess, request: Message, version: int) -> Any:
    client = WireClient((broker.host, broker.port), client_id="settings", timeout_s=30)
    try:
        client.send(request, version)
        return client.receive()
    finally:
        client.close()


def described(cluster: Cluster, number: int) -> dict[str, Told]:
    resource = DescribeConfigsResource(resource_type=BROKER, resource_name=str(number), configuration_keys=None)
    request = DescribeConfigsRequest(resources=[resource], include_synonyms=True, include_documentation=True)
    (result,) = ask(cluster.brokers[number], request, 4).results
    assert result.error_code == 0
    assert MARKER not in repr(result) and SECRET["password.encoder.secret"] not in repr(result)
    assert all(each.documentation for each in result.configs if not each.name.endswith(PASSWORDS))
    return {
        each.name: (
            each.value,
            each.read_only,
            each.config_source,
            each.is_sensitive,
            [(synonym.name, synonym.value, synonym.source) for synonym in each.synonyms],
            each.config_type,
        )
        for each in result.configs
    }


def alter(cluster: Cluster, number: int, name: str, value: str, *, for_all: bool = False) -> tuple[int, str | None]:
    change = IncrementalConfig(name=name, config_operation=SET, value=value)
    resource = IncrementalConfigsResource(
        resource_type=BROKER, resource_name="" if for_all else str(number), configs=[change]
    )
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
    (answer,) = ask(cluster.brokers[number], request, 1).responses
    return answer.error_code, answer.error_message


def test_a_member_describes_what_kafka_3_does(cluster: Cluster) -> None:
    theirs, ours = described(cluster, KAFKA), described(cluster, OTTLA)
    assert set(theirs) - set(ours) == MISSING_HERE
    differing = {name for name, told in theirs.items() if name in ours and ours[name] != told}
    assert differing <= OF_ONE_PROCESS | WITHOUT_DEFAULT | AS_IN_KAFKA_4
    # What is here only has no name of the ZooKeeper mode, which Kafka 3.9 knows best.
    unknown = {
        name for name in set(ours) - set(theirs) if re.match(r"zookeeper|password|inter\.broker|control\.", name)
    }
    assert unknown == ONLY_HERE


def test_passwords_are_refused_in_kafkas_words(cluster: Cluster) -> None:
    code = "Invalid config value for resource ConfigResource(type=BROKER, name='{}'): {}"
    for name in PASSWORDS:
        refused = alter(cluster, WITHOUT_SECRET, name, MARKER)
        assert refused == (40, code.format(WITHOUT_SECRET, "Password encoder secret not configured"))
    for number in (KAFKA, OTTLA):
        refused = alter(cluster, number, PASSWORDS[2], MARKER, for_all=True)
        assert refused == (40, code.format("", "Password config can be defined only at broker level"))


@pytest.mark.parametrize(("writer", "reader"), [(KAFKA, OTTLA), (OTTLA, KAFKA)])
def test_one_writes_passwords_and_the_other_reads_them(
    cluster: Cluster, zookeeper: KazooClient, writer: int, reader: int
) -> None:
    for name in PASSWORDS:
        assert alter(cluster, writer, name, MARKER) == (0, None)
    kept, _ = zookeeper.get(f"/config/brokers/{writer}")
    assert MARKER.encode() not in kept and kept.count(b"encryptedPassword:") == len(PASSWORDS)
    path = f"/config/brokers/{reader}"
    zookeeper.ensure_path(path)
    zookeeper.set(path, kept)
    notice = f'{{"version":2,"entity_path":"brokers/{reader}"}}'.encode()
    zookeeper.create("/config/changes/config_change_", notice, sequence=True)
    # Both leave aside what they cannot decrypt.
    wait_until(lambda: set(PASSWORDS) <= set(described(cluster, reader)), "the other one has read them")
    zookeeper.set(path, b'{"version":1,"config":{}}')
    zookeeper.create("/config/changes/config_change_", notice, sequence=True)
    wait_until(lambda: not set(PASSWORDS) & set(described(cluster, reader)), "they are gone")
    assert MARKER not in cluster.brokers[reader].log and MARKER not in cluster.brokers[writer].log
