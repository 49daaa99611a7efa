"""The yardstick itself: both releases come up on loopback, say who they are, and take a record."""

from pathlib import Path
from xml.etree import ElementTree

import pytest
from compat_tests.apache import brokers

RELEASES = Path(__file__).parent / "releases" / "pom.xml"
pytest.importorskip("confluent_kafka")


@pytest.mark.parametrize("release", ["kafka_4", "kafka_3"])
def test_a_release_serves_records(request, release, unique):
    from confluent_kafka import Consumer, Producer

    kafka = request.getfixturevalue(f"apache_{release}")
    topic = unique("topic")
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    producer.produce(topic, b"value")
    assert producer.flush(60) == 0
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    assert consumer.poll(60).value() == b"value"
    consumer.close()
    assert brokers.version(release) == wanted_version(release)


def wanted_version(release):
    """The version in the pom.xml, which is what the jars have to be of."""
    [named] = ElementTree.parse(RELEASES).iterfind(f"{{*}}properties/{{*}}{release}")
    return named.text
