"""Brokers speak TLS with each other: three of Ottla, and Ottla beside Apache Kafka 3.9."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from compat_tests.apache.brokers import ApacheKafka3
from compat_tests.cluster.secured import (
    BY_PLAIN,
    BY_SCRAM,
    LISTENER,
    OttlaWithUser,
    certificates,
    made,
    port_of,
    running,
    settings_of,
    works,
)
from compat_tests.support.brokers import BrokerProcess, OttlaProcess, wait_until
from compat_tests.support.cluster import Cluster
from compat_tests.support.raw import Peer
from kazoo.client import KazooClient

from ottla.server.launch.certificates_command import Authority

AUTHORITY = Authority("of the cluster", days=2)
# Clients are anonymous at the other listener. They may do all, so what brokers may do is decided by their own names.
AUTHORIZER = {
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "super.users": "User:ANONYMOUS;User:broker",
}
OUT_OF_CERTIFICATES = {f"{LISTENER}.ssl.principal.mapping.rules": "RULE:^CN=(broker)-[0-9],O=Ottla$/$1/"}


def encrypted(
    directory: Path,
    kinds: Sequence[type[BrokerProcess]],
    settings: dict[str, str],
    protocol: str = "SSL",
    more_listeners: Sequence[str] = (),
) -> Cluster:
    directory.mkdir(exist_ok=True)
    each = [certificates(directory / "tls", number, AUTHORITY) for number in range(len(kinds))]
    return made(directory, kinds, settings_of(protocol) | settings, each, more_listeners)


def closed_to_plaintext(broker: BrokerProcess) -> None:
    with pytest.raises((AssertionError, OSError)), Peer(("127.0.0.1", port_of(broker)), timeout_s=5) as peer:
        peer.call("Metadata", 12, topics=[])


@pytest.mark.long
def test_three_brokers_show_certificates_to_each_other(tmp_path: Path) -> None:
    with running(encrypted(tmp_path, [OttlaProcess] * 3, AUTHORIZER | OUT_OF_CERTIFICATES)) as cluster:
        works(cluster, "mutual")
        closed_to_plaintext(cluster.brokers[0])


def test_brokers_may_do_what_two_rules_allow(tmp_path: Path) -> None:
    """They are no super users here. One of them asks the controller to create internal topics, for which Kafka wants Create too."""
    settings = AUTHORIZER | BY_SCRAM | {"super.users": "User:ANONYMOUS"}
    cluster = encrypted(tmp_path, [OttlaWithUser] * 3, settings, "SASL_SSL")
    cluster.zookeeper.start()
    allowed = {"principal": "User:broker", "permissionType": "Allow", "host": "*"}
    rules = [allowed | {"operation": operation} for operation in ("ClusterAction", "Create")]
    zookeeper = KazooClient(cluster.zookeeper.address)
    zookeeper.start()
    node = json.dumps({"version": 1, "acls": rules}).encode()
    zookeeper.create("/kafka-acl/Cluster/kafka-cluster", node, makepath=True)
    zookeeper.stop()
    zookeeper.close()
    with running(cluster):
        works(cluster, "by-rule")
        closed_to_plaintext(cluster.brokers[0])


def test_ottla_and_kafka_show_certificates_to_each_other(tmp_path: Path) -> None:
    kinds = [ApacheKafka3, OttlaProcess, OttlaProcess]
    with running(encrypted(tmp_path, kinds, AUTHORIZER | OUT_OF_CERTIFICATES)) as cluster:
        works(cluster, "mixed")


@pytest.mark.long
def test_ottla_and_kafka_log_in_at_each_other_over_tls(tmp_path: Path) -> None:
    with running(encrypted(tmp_path, [OttlaProcess, OttlaProcess, ApacheKafka3], BY_PLAIN, "SASL_SSL")) as cluster:
        works(cluster, "mixed-login")


def test_the_controllers_connections_have_a_listener_of_their_own(tmp_path: Path) -> None:
    """Brokers of both makes log in at WITHIN, and show certificates at CONTROL."""
    within = [certificates(tmp_path / "tls", number, AUTHORITY) for number in range(3)]
    control = [{name.replace(".within.", ".control."): text for name, text in each.items()} for each in within]
    settings = settings_of("SASL_PLAINTEXT") | BY_PLAIN | {"control.plane.listener.name": "CONTROL"}
    settings["listener.security.protocol.map"] += ",CONTROL:SSL"
    kinds = [OttlaProcess, ApacheKafka3, OttlaProcess]
    with running(made(tmp_path, kinds, settings, control, ["CONTROL"])) as cluster:
        works(cluster, "control-plane")
        controller = cluster.controller()
        for broker in cluster.brokers:
            if broker is not controller:
                port = port_of(broker, "CONTROL")
                wait_until(lambda port=port: is_connected_to(port), "the controller comes to it there")


def is_connected_to(port: int) -> bool:
    """Tell whether this machine has an established connection with the port at either end.

    A JVM's end of a connection is in tcp6, and the other end in tcp.
    """
    rows = [row.split() for file in ("tcp", "tcp6") for row in Path("/proc/net", file).read_text().splitlines()[1:]]
    established = [row for row in rows if row[3] == "01"]
    return any(int(end.rpartition(":")[2], 16) == port for row in established for end in row[1:3])


def test_a_broker_of_another_authority_is_refused_and_told_and_comes_in_with_a_right_certificate(
    tmp_path: Path,
) -> None:
    stranger = Authority("of somebody else", days=2)
    right = [certificates(tmp_path / "tls", number, AUTHORITY) for number in range(3)]
    wrong = certificates(tmp_path / "wrong", 2, stranger, trusted=[stranger, AUTHORITY])
    cluster = made(tmp_path, [OttlaProcess] * 3, settings_of("SSL"), [*right[:2], wrong])
    *trusted, refused = cluster.brokers
    try:
        cluster.zookeeper.start()
        cluster.start_brokers(trusted)
        refused.launch()
        # The controller goes to it first, and nobody else knows of it before that succeeds.
        controller = cluster.controller()
        line = f"Broker 2 at 127.0.0.1:{port_of(refused)} is unavailable: no TLS connection: its certificate is refused"
        wait_until(lambda: line in controller.log, "the controller tells that it cannot reach it", 60)
        there = "closing a connection of 127.0.0.1 to listener WITHIN: it has ended the handshake, perhaps because it does not trust"
        wait_until(lambda: there in refused.log, "it is told there", 60)
        assert controller.log.count(line) == 1
        refused.kill()
        refused.settings |= right[2]
        refused.restart()
        cluster.wait_until_whole()
        works(cluster, "at-last")
    finally:
        cluster.kill()


def test_a_broker_that_would_not_trust_itself_does_not_start(tmp_path: Path) -> None:
    stranger = Authority("of somebody else", days=2)
    own = certificates(tmp_path, 0, AUTHORITY, trusted=[stranger])
    (broker,) = made(tmp_path, [OttlaProcess], settings_of("SSL"), [own]).brokers
    broker.launch()
    assert broker.process.wait(60) == 1
    assert "A client SSLEngine created with the provided settings can't connect to a server SSLEngine" in broker.log
    assert "Traceback" not in broker.log
