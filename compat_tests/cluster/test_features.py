"""Levels of features in clusters: of Ottla alone, under transactions, of a release that knows too little, and with Apache Kafka 3.9."""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from compat_tests.apache.brokers import ApacheKafka3
from compat_tests.clients.transactional import Java, committed, read
from compat_tests.files.portrait import Asker
from compat_tests.support.brokers import OttlaProcess, wait_until
from compat_tests.support.cluster import Cluster
from confluent_kafka.admin import AdminClient, NewTopic
from kazoo.client import KazooClient

from ottla.server.cli.cli import main
from ottla.server.cluster.features import supported_levels
from ottla.wire.messages.api_versions import ApiVersionsRequest
from ottla.wire.messages.describe_transactions import DescribeTransactionsRequest

NEWEST = supported_levels()
LOWERED = [f"{name}=0" for name in NEWEST]


def told(cluster: Cluster) -> list[tuple[dict[str, int], int]]:
    """What each running broker tells clients: finalized levels and their epoch."""
    request = ApiVersionsRequest(client_software_name="a", client_software_version="1")
    found = []
    for broker in cluster.running:
        with Asker((broker.host, broker.port)) as asker:
            answer = asker.ask(request, 4)
        found.append(
            ({each.name: each.max_version_level for each in answer.finalized_features}, answer.finalized_features_epoch)
        )
    return found


def features(cluster: Cluster, *arguments: str) -> int:
    return main(["features", "-b", cluster.bootstrap, "--timeout", "60", *arguments])


@contextlib.contextmanager
def zookeeper_of(cluster: Cluster) -> Iterator[KazooClient]:
    client = KazooClient(cluster.zookeeper.address)
    client.start()
    try:
        yield client
    finally:
        client.stop()
        client.close()


@pytest.mark.parametrize("is_served", [True, False], ids=["served", "zookeeper"])
def test_all_brokers_tell_the_same(tmp_path: Path, is_served: bool, capsys: pytest.CaptureFixture[str]) -> None:
    with Cluster(tmp_path / "cluster", is_served=is_served) as cluster:
        assert told(cluster) == [(NEWEST, 0)] * 3  # as soon as a broker serves
        assert features(cluster, "--json") == 0
        listed = json.loads(capsys.readouterr().out)
        assert {each["feature"]: each["finalized"] for each in listed} == NEWEST
        assert features(cluster, "downgrade", "transaction.version=1") == 0
        lowered = {**NEWEST, "transaction.version": 1}
        wait_until(lambda: told(cluster) == [(lowered, 1)] * 3, "all have heard of it")
        # It stays, whoever comes and whoever is the controller.
        for broker in cluster.brokers:
            broker.stop()
            broker.restart()
            cluster.wait_until_whole()
            assert told(cluster) == [(lowered, 1)] * 3
        assert features(cluster, "upgrade", "transaction.version=2") == 0
        wait_until(lambda: told(cluster) == [(NEWEST, 2)] * 3, "all have heard of it")


def epoch_of(cluster: Cluster, transactional_id: str) -> int:
    """The producer epoch of a transactional id, as its coordinator has it."""
    found: list[int] = []

    def look() -> bool:
        for broker in cluster.running:
            with Asker((broker.host, broker.port)) as asker:
                [state] = asker.ask(
                    DescribeTransactionsRequest(transactional_ids=[transactional_id]), 0
                ).transaction_states
            if state.error_code == 0 and state.transaction_state.startswith("Complete"):
                found.append(state.producer_epoch)
                return True
        return False

    wait_until(look, "the coordinator tells of the id", 60)
    return found[-1]


def connect_anew(cluster: Cluster) -> None:
    """A client that connects anew hears of levels."""
    for broker in cluster.brokers:
        broker.stop()
        broker.restart()
        cluster.wait_until_whole()
        wait_until(lambda: all(each.isr_nodes for each in cluster.partitions("out").values()), "it is led")


@pytest.mark.timeout(600)
def test_java_transactions_go_on_while_the_level_goes_down_and_up(tmp_path: Path, coordinated: list[str]) -> None:
    with Cluster(tmp_path / "cluster", is_served=True) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        topics = [f"out-{number}" for number in range(3)]  # led by one broker each
        config = {"min.insync.replicas": "2"}
        for made in admin.create_topics([NewTopic(topic, 1, 3, config=config) for topic in [*topics, "out"]]).values():
            made.result(60)
        cluster.wait_until_whole()
        producer = Java(coordinated, cluster.bootstrap, "changing")
        expected: list[bytes] = []
        number = 0

        def transact() -> int:
            """A transaction over all topics, with offsets, that is committed and one that is aborted; the epoch after it."""
            nonlocal number
            for end in (producer.commit, producer.abort):
                value = b"%d" % number
                producer.begin()
                for topic in topics:
                    producer.send(topic, value)
                producer.send_offset("out", number + 1, "group")
                end()
                if end == producer.commit:
                    expected.append(value)
                number += 1
            return epoch_of(cluster, "changing")

        with contextlib.closing(producer):
            before = transact()
            assert transact() == before + 2, "each transaction has an epoch of its own"
            for level in ("1", "0", "2"):
                # The level changes while a transaction is open.
                producer.begin()
                producer.send(topics[0], b"open")
                assert (
                    features(cluster, "upgrade" if level == "2" else "downgrade", f"transaction.version={level}") == 0
                )
                wait_until(
                    lambda: all(levels.get("transaction.version", 0) == int(level) for levels, _ in told(cluster)),  # noqa: B023
                    f"all are at {level}",
                )
                producer.send(topics[1], b"open")
                producer.commit()
                transact()
                connect_anew(cluster)
                transact()  # the first one after a change may raise the epoch once more
                first, second = transact(), transact()
                assert second == first + (2 if level == "2" else 0), level
        for topic in topics:
            got = read(cluster.bootstrap, topic, until=expected[-1])
            assert [each for each in got if each != b"open"] == expected
            assert got.count(b"open") == (0 if topic == topics[2] else 3)
        assert committed(cluster.bootstrap, "out", "group") == number - 1


def test_a_release_that_knows_too_little_ends_with_one_line(tmp_path: Path) -> None:
    with Cluster(tmp_path / "cluster", (OttlaProcess,) * 2) as cluster:
        first, second = cluster.brokers
        second.stop()
        with zookeeper_of(cluster) as zookeeper:
            node = json.loads(zookeeper.get("/feature")[0])
            node["features"]["future.version"] = {"max_version_level": 3}
            zookeeper.set("/feature", json.dumps(node).encode())
        words = "the cluster uses future.version=3, which this release does not support: start a newer release, or first lower it with"
        wait_until(first.died, "it does not go on")
        assert words in first.log and "Traceback" not in first.log
        second.launch()
        wait_until(second.died, "it does not start")
        last = second.log.splitlines()[-1]
        assert words in last and "Traceback" not in second.log
        with zookeeper_of(cluster) as zookeeper:
            del node["features"]["future.version"]
            zookeeper.set("/feature", json.dumps(node).encode())
        first.restart()
        second.restart()
        cluster.wait_until_whole()
        assert [levels for levels, _ in told(cluster)] == [NEWEST] * 2


def test_kafka_joins_when_nothing_is_finalized(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path / "cluster", (OttlaProcess, ApacheKafka3))
    ottla, kafka = cluster.brokers
    del ottla.settings["inter.broker.protocol.version"]
    with contextlib.ExitStack() as stack:
        stack.push(cluster)  # stops it
        cluster.zookeeper.start()
        cluster.start_brokers([ottla])
        assert told(cluster) == [(NEWEST, 0)]
        kafka.launch()
        wait_until(kafka.died, "it sees what it does not support, and ends", 120)
        assert "FinalizedFeatureCache update failed since feature compatibility checks failed" in kafka.log
        assert features(cluster, "downgrade", *LOWERED) == 0
        wait_until(lambda: told(cluster) == [({}, 1)], "nothing is finalized")
        cluster.start_brokers([kafka])
        ottla.stop()
        ottla.restart()
        cluster.wait_until_whole()
        assert [levels for levels, _ in told(cluster)] == [{}] * 2
        # What somebody has lowered stays low when Kafka is gone.
        kafka.stop()
        cluster.wait_until_whole()
        assert [levels for levels, _ in told(cluster)] == [{}]
        assert features(cluster, "upgrade", *(f"{name}={level}" for name, level in NEWEST.items())) == 0
        wait_until(lambda: told(cluster) == [(NEWEST, 2)], "the newest levels are told again")
