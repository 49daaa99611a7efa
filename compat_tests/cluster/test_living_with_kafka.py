"""Ottla as one of several brokers of an Apache Kafka 3.9 cluster in ZooKeeper mode, in every role that there is.

One cluster serves all tests; each begins under a controller of Apache Kafka. OTTLA_COMPAT_BROKER=kafka tells the same of
three brokers of Apache Kafka.
"""

import random
from collections.abc import Iterator, Sequence
from typing import ClassVar

import pytest
from compat_tests.cluster.mixed import ALL, KAFKA, OTHER_KAFKA, OTTLA, SETTINGS, Mixed
from compat_tests.history.faults import Fault
from compat_tests.history.members import CLASSIC
from compat_tests.history.run import TOPIC, TOPICS, Plan, run
from compat_tests.support.brokers import wait_until
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as Where
from confluent_kafka.admin import AdminClient

from ottla.server.testing.history.history import HistoryFile
from ottla.server.testing.history.replica_logs import Replicas, batches

MOVED_PARTITIONS = 2


# --- member -------------------------------------------------------------------------------------------------------------


def test_ottla_registers_as_kafka_does(mixed: Mixed) -> None:
    ours, theirs = mixed.node(f"/brokers/ids/{OTTLA}"), mixed.node(f"/brokers/ids/{KAFKA}")
    for node, number in ((ours, OTTLA), (theirs, KAFKA)):
        address = mixed.broker(number).bootstrap
        assert node.pop("endpoints") == [f"PLAINTEXT://{address}"]
        assert f"{node.pop('host')}:{node.pop('port')}" == address
        assert int(node.pop("timestamp")) > 0
    assert ours == theirs
    assert mixed.owner(f"/brokers/ids/{OTTLA}") != 0


def test_all_brokers_describe_topics_alike(mixed: Mixed) -> None:
    mixed.create("alike", (KAFKA, OTTLA), (OTTLA, KAFKA), (OTHER_KAFKA, OTTLA), (OTTLA, OTHER_KAFKA), retention_ms="-1")
    mixed.create("alike-2", (OTTLA, OTHER_KAFKA), at=OTTLA, cleanup_policy="compact")
    described = mixed.described_alike("alike.*")
    assert "PartitionCount: 4" in described
    assert "cleanup.policy=compact" in described
    told = [mixed.view(number, "alike", "alike-2") for number in ALL]
    assert told == [told[0]] * len(ALL)
    mixed.topics(KAFKA, "--alter", "--topic", "alike-2", "--partitions", "4").fine()
    mixed.delete("alike", at=OTTLA)
    for number in ALL:
        wait_until(lambda at=number: mixed.view(at, "alike") == [], "the topic is forgotten")
        wait_until(lambda at=number: len(mixed.view(at, "alike-2")) == 4, "the partitions are known")
    assert "alike\n" not in mixed.topics(OTTLA, "--list").fine()


# --- replicas -----------------------------------------------------------------------------------------------------------


def test_ottla_follows_leaders_of_kafka(mixed: Mixed) -> None:
    mixed.create("followed", (KAFKA, OTTLA), (OTHER_KAFKA, OTTLA), min_insync_replicas="2")
    for codec in ("none", "lz4", "zstd"):
        mixed.produce("followed", 500, codec=codec)
    mixed.produce("followed", 500, partition=1, codec="gzip")
    mixed.wait_for_isr("followed", KAFKA, OTTLA)
    mixed.assert_equal_logs("followed", 0, 1)


def test_a_follower_that_was_away_comes_back(mixed: Mixed) -> None:
    mixed.create("away", (KAFKA, OTTLA), (OTTLA, KAFKA))
    for partition in (0, 1):
        mixed.produce("away", 300, partition=partition)
    mixed.broker(OTTLA).kill()
    mixed.wait_for_isr("away", KAFKA)
    mixed.wait_for_isr("away", KAFKA, partition=1)
    for partition in (0, 1):
        mixed.produce("away", 700, partition=partition)
    mixed.restart(OTTLA)
    for partition in (0, 1):
        mixed.wait_for_isr("away", KAFKA, OTTLA, partition=partition)
    mixed.assert_equal_logs("away", 0, 1)
    mixed.elect_preferred("away", 1)
    mixed.wait_for_leaders("away", {0: KAFKA, 1: OTTLA})
    mixed.produce("away", 100, partition=1)
    mixed.assert_equal_logs("away", 1)


def test_ottla_leads_followers_of_kafka(mixed: Mixed) -> None:
    mixed.create("led", (OTTLA, KAFKA, OTHER_KAFKA), min_insync_replicas="2")
    for codec in ("none", "snappy", "zstd"):
        mixed.produce("led", 500, codec=codec)
    mixed.wait_for_isr("led", *ALL)
    mixed.broker(OTHER_KAFKA).kill()
    mixed.produce("led", 300)
    mixed.wait_for_isr("led", KAFKA, OTTLA)
    mixed.restart(OTHER_KAFKA)
    mixed.wait_for_isr("led", *ALL)
    mixed.produce("led", 100)
    mixed.assert_equal_logs("led")


def test_new_replicas_begin_where_records_were_deleted(mixed: Mixed) -> None:
    """Each makes its replica out of the other's: what the follower asks for first is out of range."""
    mixed.create("shortened", (OTTLA,), (KAFKA,))
    for partition in (0, 1):
        mixed.produce("shortened", 400, partition=partition)
    admin = AdminClient({"bootstrap.servers": mixed.bootstrap, "log_level": 0})
    for deleted in admin.delete_records([Where("shortened", partition, 300) for partition in (0, 1)]).values():
        assert deleted.result(60).low_watermark == 300
    mixed.reassign({("shortened", 0): (OTTLA, KAFKA), ("shortened", 1): (KAFKA, OTTLA)})
    for partition in (0, 1):
        mixed.wait_for_isr("shortened", KAFKA, OTTLA, partition=partition)
        leader, follower = mixed.replicas("shortened", partition).logs.values()
        assert next(batches(leader, None)).base_offset == 0
        assert next(batches(follower, None)).base_offset > 200
    mixed.assert_equal_logs("shortened", 0, 1)


# --- controller ---------------------------------------------------------------------------------------------------------


def test_ottla_controls_brokers_of_kafka(mixed: Mixed) -> None:
    mixed.make_controller(OTTLA)
    mixed.create("ruled", (KAFKA, OTHER_KAFKA), (OTHER_KAFKA, KAFKA), (OTTLA, KAFKA))
    mixed.topics(OTHER_KAFKA, "--create", "--topic", "spread", "--partitions", "6", "--replication-factor", "2").fine()
    wait_until(lambda: len(mixed.view(KAFKA, "spread")) == 6, "the partitions are known")
    mixed.topics(KAFKA, "--alter", "--topic", "spread", "--partitions", "7").fine()
    for partition in range(3):
        mixed.produce("ruled", 200, partition=partition)
    mixed.described_alike("ruled")
    mixed.broker(OTHER_KAFKA).kill()
    mixed.wait_for_leaders("ruled", {0: KAFKA, 1: KAFKA, 2: OTTLA})
    mixed.produce("ruled", 200, partition=1)
    mixed.restart(OTHER_KAFKA)
    mixed.wait_for_isr("ruled", KAFKA, OTHER_KAFKA, partition=1)
    mixed.elect_preferred("ruled", 1)
    mixed.wait_for_leaders("ruled", {0: KAFKA, 1: OTHER_KAFKA, 2: OTTLA})
    mixed.reassign({("ruled", 0): (OTHER_KAFKA, OTTLA), ("ruled", 2): (KAFKA, OTHER_KAFKA)})
    mixed.wait_for_leaders("ruled", {0: OTHER_KAFKA, 1: OTHER_KAFKA, 2: KAFKA})
    mixed.wait_for_isr("ruled", OTTLA, OTHER_KAFKA)
    mixed.assert_equal_logs("ruled", 0, 1, 2)
    mixed.delete("ruled")
    for number in ALL:
        wait_until(lambda at=number: not list(mixed.broker(at).data_dir.glob("ruled-[0-9]")), "the logs are deleted")
    assert mixed.controller_id() == OTTLA


def test_brokers_hand_over_what_they_lead_before_they_stop(mixed: Mixed) -> None:
    """To a controller of the other make each."""
    mixed.create("handed", (OTTLA, KAFKA), (OTHER_KAFKA, KAFKA))
    for controller, number, partition in ((KAFKA, OTTLA, 0), (OTTLA, OTHER_KAFKA, 1)):
        mixed.make_controller(controller)
        mixed.wait_until_all_are_in_sync()
        broker = mixed.broker(number)
        already_logged = len(broker.log)
        broker.stop()
        state = mixed.state("handed", partition)
        assert (state["leader"], state["isr"]) == (KAFKA, [KAFKA])
        assert "unclean shutdown" not in broker.log[already_logged:]
        mixed.restart(number)
        mixed.wait_for_isr("handed", KAFKA, number, partition=partition)


# --- all at once --------------------------------------------------------------------------------------------------------


class Moving:
    """A cluster for `compat_tests.history.run`: its partitions move from broker to broker, and then leaders are killed."""

    replication_factor = 1
    configs: ClassVar[dict[str, str]] = {}
    kinds_of_groups = (CLASSIC,)  # Kafka 3.9 knows no newer ones
    addresses: ClassVar[Sequence[tuple[str, int]]] = ()  # one replica alone is away while it moves or is killed

    def __init__(self, mixed: Mixed) -> None:
        self._mixed = mixed
        self.bootstrap = mixed.bootstrap

    def is_well(self) -> bool:
        return True  # without probes the answer is never used

    def faults(self, topic: str, chance: random.Random) -> Iterator[Fault]:
        for targets in ((KAFKA, OTHER_KAFKA), (OTTLA,), (OTHER_KAFKA, KAFKA), (OTTLA, KAFKA, OTHER_KAFKA)):
            yield Fault("reassignment", lambda ids=targets: self._move(ids), lambda: None)
        for number in (OTTLA, KAFKA):  # each leads when it is killed
            yield Fault("SIGKILL", lambda at=number: self._kill(at), lambda at=number: self._mixed.restart(at))

    def _move(self, replicas: tuple[int, ...]) -> str:
        self._mixed.reassign({(TOPIC, index): replicas for index in range(MOVED_PARTITIONS)})
        for index in range(MOVED_PARTITIONS):
            self._mixed.elect_preferred(TOPIC, index)
        self._mixed.wait_for_leaders(TOPIC, dict.fromkeys(range(MOVED_PARTITIONS), replicas[0]))
        return f"to {replicas}"

    def _kill(self, number: int) -> str:
        self._move((number, *(other for other in ALL if other != number)))
        self._mixed.broker(number).kill()
        return str(number)

    def stop(self) -> None:
        """Others need the brokers: their logs are read while they run, when nothing more is written."""
        self._mixed.assert_equal_logs(TOPIC, *range(MOVED_PARTITIONS))

    def replicas(self, topic: str, partition: int) -> Replicas:
        return self._mixed.replicas(topic, partition)


@pytest.mark.parametrize(
    "controller",
    [
        pytest.param(KAFKA, marks=pytest.mark.long, id="controller of kafka"),
        pytest.param(OTTLA, id="controller of ottla"),
    ],
)
def test_a_topic_moves_to_ottla_and_back_while_clients_are_at_work(mixed: Mixed, tmp_path, controller: int) -> None:
    mixed.make_controller(controller)
    plan = Plan(seed=7, partitions=MOVED_PARTITIONS, producers=2, members=0, rate=200.0, between_faults=(50, 300))
    outcome = run(Moving(mixed), plan, HistoryFile(tmp_path / "history.jsonl"), lambda faults: faults == 6)
    for topic in TOPICS:
        mixed.delete(topic)
    assert outcome.proofs == [], str(outcome)
    assert outcome.failed == 0
    assert outcome.acknowledged > 100
    assert outcome.committed_offsets > 0


def test_a_group_goes_on_while_its_coordinator_moves(mixed: Mixed) -> None:
    mixed.create("grouped", (KAFKA, OTTLA))
    settings = {"bootstrap.servers": mixed.bootstrap, "group.id": "wanderers", "auto.offset.reset": "earliest"}
    consumer = Consumer(settings | {"enable.auto.commit": False, "session.timeout.ms": 30_000, "log_level": 0})
    assignments: list[list[Where]] = []
    consumer.subscribe(["grouped"], on_assign=lambda _, assigned: assignments.append(assigned))
    partition = 0
    for number, target in enumerate((KAFKA, OTTLA, OTHER_KAFKA, OTTLA)):
        mixed.produce("grouped", 100)
        if number == 0:
            assert take(consumer, 1) == [0]
            partition = coordinator_partition("wanderers")
        others = [broker for broker in ALL if broker != target]
        mixed.reassign({("__consumer_offsets", partition): (target, *others)})
        mixed.elect_preferred("__consumer_offsets", partition)
        mixed.wait_for_leaders("__consumer_offsets", {partition: target})
        assert take(consumer, 99 + (number > 0)) == list(range(number * 100 + (number == 0), number * 100 + 100))
        consumer.commit(asynchronous=False)
        told = {mixed.groups(at, "--describe", "--group", "wanderers", "--offsets").fine() for at in ALL}
        assert len(told) == 1
        assert f" {number * 100 + 100} " in told.pop()
    consumer.close()
    assert len(assignments) == 1, "nobody had to join again"
    mixed.assert_equal_logs("__consumer_offsets", partition)


def coordinator_partition(group: str) -> int:
    """Of __consumer_offsets: the absolute value of Java's hash of the name."""
    code = 0
    for letter in group:
        code = code * 31 + ord(letter) & 0xFFFFFFFF
    return min(code, (1 << 32) - code) % int(SETTINGS["offsets.topic.num.partitions"])


def take(consumer: Consumer, count: int) -> list[int]:
    """The offsets of that many records."""
    found: list[int] = []
    while len(found) < count:
        messages = consumer.consume(count - len(found), timeout=60)
        assert messages, f"{len(found)} of {count} records within 60 s"
        assert [message.error() for message in messages if message.error()] == []
        found += [message.offset() for message in messages]
    return found
