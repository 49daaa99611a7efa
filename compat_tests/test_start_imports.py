"""What a broker imports: nothing of what nobody has asked it for, and after a restart what its records need."""

import subprocess
import sys

import pytest
from compat_tests.support.brokers import OttlaProcess, wait_until
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

PROGRAM = """
import sys
from ottla.server.commands.cli import main
status = main(sys.argv[1:])
print("imported", *sys.modules)
sys.exit(status)
"""
ALL_HANDLERS = "from ottla.server.gate.dispatch import all_routes; all_routes()"

NOT_ASKED_FOR = (
    "_ssl",
    "ctypes.util",
    "h11",
    "joserfc",
    "kazoo",
    "ottla.groupcoord.consumer.",
    "ottla.groupcoord.modern.",
    "ottla.groupcoord.share.coordinator.service",
    "ottla.groupcoord.share.coordinator.shard",
    "ottla.groupcoord.share.heartbeat",
    "ottla.groupcoord.share.offset",
    "ottla.groupcoord.share.part",
    "ottla.groupcoord.share.service",
    "ottla.groupcoord.streams.",
    "ottla.groupcoord.transactions.service",
    "ottla.groupcoord.transactions.shard",
    "ottla.server.cluster.streams_topics",
    "ottla.server.client.",
    "ottla.server.auth.kerberos",
    "ottla.server.auth.oauth",
    "ottla.server.coordination.zookeeper",
    "ottla.server.coordinators.share_coordinators",
    "ottla.server.coordinators.transaction_markers",
    "ottla.server.coordinators.transaction_verification",
    "ottla.server.console",
    "ottla.server.handlers.alter_",
    "ottla.server.handlers.consumer_group_",
    "ottla.server.handlers.create_partitions",
    "ottla.server.handlers.describe_",
    "ottla.server.handlers.end_txn",
    "ottla.server.handlers.list_transactions",
    "ottla.server.handlers.share_",
    "ottla.server.handlers.streams_",
    "ottla.server.http",
    "ottla.server.settings.environment",
    "ottla.server.settings.login_rules",
    "ottla.server.settings.sasl_rules",
    "ottla.server.settings.token_rules",
    "ottla.server.share.",
    "ottla.wire.messages.consumer_group_",
    "ottla.wire.messages.share_",
    "ottla.wire.messages.streams_",
    "subprocess",
    "trio._dtls",
    "trio._subprocess",
)
"""Modules and beginnings of names of modules."""


class TellingOttla(OttlaProcess):
    """Says at its end what it has imported."""

    def command(self):
        return [sys.executable, "-c", PROGRAM, *super().command()[3:]]

    def imported(self):
        """Stops it."""
        self.stop()
        return set(self.log.rpartition("\nimported ")[2].split())


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    """Where Python and Ottla keep what they have compiled; the index of all handlers is there."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
        monkeypatch.setenv("PYTHONPYCACHEPREFIX", str(tmp_path_factory.mktemp("compiled")))
        subprocess.run([sys.executable, "-c", ALL_HANDLERS], check=True)
        yield


@pytest.fixture
def telling(tmp_path, compiled):
    broker = TellingOttla(tmp_path, {"group.initial.rebalance.delay.ms": "0", "num.partitions": "1"})
    yield broker.start()
    broker.stop()


def read_one(bootstrap, **settings):
    """As a member of a group, which commits."""
    settings |= {"bootstrap.servers": bootstrap, "auto.offset.reset": "earliest", "enable.auto.commit": False}
    consumer = Consumer(settings)
    consumer.subscribe(["topic"])
    message = wait_until(lambda: consumer.poll(1), "a record arrives", 60)
    assert not message.error()
    [committed] = consumer.commit(message, asynchronous=False)
    consumer.close()
    assert committed.error is None, committed.error


def write_one(bootstrap, **settings):
    producer = Producer({"bootstrap.servers": bootstrap, **settings})
    if "transactional.id" in settings:
        producer.init_transactions(60)
        producer.begin_transaction()
    producer.produce("topic", b"value")
    if "transactional.id" in settings:
        producer.commit_transaction(60)
    assert producer.flush(60) == 0


def late(imported):
    return sorted(module for module in imported if module.startswith(NOT_ASKED_FOR))


def test_a_first_record_needs_no_code_of_groups(telling):
    write_one(telling.bootstrap)
    imported = telling.imported()
    of_groups = (
        "ottla.groupcoord.classic.",
        "ottla.groupcoord.offsets.",
        "ottla.groupcoord.service",
        "ottla.wire.messages.join_group",
        "uuid",
    )
    assert "ottla.server.handlers.produce" in imported
    assert sorted(each for each in imported if each.startswith(of_groups)) == []


def test_records_and_classic_groups_need_no_code_of_transactions_and_newer_groups(telling):
    AdminClient({"bootstrap.servers": telling.bootstrap}).list_topics(timeout=60)
    write_one(telling.bootstrap)
    read_one(telling.bootstrap, **{"group.id": "classic"})
    imported = telling.imported()
    assert "ottla.groupcoord.classic.part" in imported
    assert late(imported) == []


def test_a_restart_loads_what_its_records_need_and_no_more(telling):
    write_one(telling.bootstrap, **{"transactional.id": "id"})
    read_one(telling.bootstrap, **{"group.id": "consumer", "group.protocol": "consumer"})
    telling.stop()
    telling.restart()
    consumer = Consumer({"bootstrap.servers": telling.bootstrap, "group.id": "consumer", "group.protocol": "consumer"})
    [committed] = consumer.committed([TopicPartition("topic", 0)], timeout=60)
    consumer.close()
    assert committed.offset == 1
    imported = telling.imported()
    assert {"ottla.groupcoord.consumer.part", "ottla.groupcoord.transactions.shard"} <= imported
    assert not any(each.startswith("ottla.groupcoord.streams.") for each in imported)
