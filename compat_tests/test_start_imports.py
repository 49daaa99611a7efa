"""A broker imports nothing of what nobody has asked it for."""

import sys

from compat_tests.support.brokers import OttlaProcess
from confluent_kafka import Producer

PROGRAM = """
import sys
from ottla.server.cli.cli import main
status = main(sys.argv[1:])
print("imported", *sys.modules)
sys.exit(status)
"""

NOT_ASKED_FOR = (
    "h11",
    "joserfc",
    "kazoo",
    "ottla.groupcoord.classic.",
    "ottla.groupcoord.consumer.",
    "ottla.groupcoord.modern.",
    "ottla.groupcoord.service",
    "ottla.groupcoord.share.coordinator.service",
    "ottla.groupcoord.share.service",
    "ottla.groupcoord.streams.",
    "ottla.groupcoord.transactions.service",
    "ottla.server.security.kerberos",
    "ottla.server.security.oauth",
    "ottla.server.cli.client.",
    "ottla.server.cli.inspection",
    "ottla.server.cli.records",
    "ottla.server.cli.replicas",
    "ottla.server.cli.security",
    "ottla.server.registry",
    "ottla.server.rest",
    "ottla.server.admin.console",
    "ottla.server.cluster.coordination.zookeeper",
    "ottla.server.coordinator_factory",
    "ottla.server.api.handlers.alter_",
    "ottla.server.api.handlers.classic_group",
    "ottla.server.api.handlers.create_",
    "ottla.server.api.handlers.delete_",
    "ottla.server.api.handlers.describe_",
    "ottla.server.api.handlers.offsets",
    "ottla.server.api.handlers.share_",
    "ottla.server.api.handlers.transactions",
    "ottla.server.admin.http",
    "ottla.server.config.properties",
    "ottla.server.api.share.",
    "ottla.wire.messages.classic_group",
    "ottla.wire.messages.share_",
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


def test_a_first_record_imports_nothing_of_what_nobody_has_asked_for(tmp_path):
    broker = TellingOttla(tmp_path, {"num.partitions": "1"})
    try:
        broker.start()
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        producer.produce("topic", b"value")
        assert producer.flush(60) == 0
        imported = broker.imported()
    finally:
        broker.stop()
    assert "ottla.server.api.handlers.produce" in imported
    assert sorted(each for each in imported if each.startswith(NOT_ASKED_FOR)) == []
