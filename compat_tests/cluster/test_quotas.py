"""Quotas that one make of broker keeps in ZooKeeper are told and obeyed by the other."""

from typing import Any

import pytest
from compat_tests.cluster.mixed import ALL, KAFKA, OTTLA, Mixed
from compat_tests.differential.scenarios.client_quotas import EXACT, alter, describe, entry
from compat_tests.support.brokers import BrokerProcess, wait_until
from compat_tests.support.wire_client import WireClient

from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.record_encoding import encode_batch
from ottla.wire.records import Record
from ottla.wire.schema import ZERO_UUID

# Of signs that a path of ZooKeeper cannot hold, and the words that stand for the default in it. Apache Kafka cannot keep "..".
NAMES = ("quota", "Ä字 b", "a/b*c~d%20+e=,\"'", "<default>")
PARTITION_OF = {OTTLA: 0, KAFKA: 1}


def told(broker: BrokerProcess, *named: tuple[str, str]) -> dict[str, float]:
    with WireClient((broker.host, broker.port), client_id="stage hand") as client:
        answer = client.ask(describe(*((kind, EXACT, name) for kind, name in named), strict=True), 1)
    assert answer.error_code == 0, answer
    return {each.key: each.value for found in answer.entries for each in found.values}


def change(broker: BrokerProcess, named: list[tuple[str, str | None]], **values: float | None) -> None:
    with WireClient((broker.host, broker.port), client_id="stage hand") as client:
        answer = client.ask(alter(entry(named, *values.items())), 1)
    assert [each.error_code for each in answer.entries] == [0], answer


def throttled_ms(broker: BrokerProcess, topic: str, partition: int, client_id: str) -> int:
    """What the broker tells a client that sends 20 kB."""
    data = PartitionProduceData(index=partition, records=encode_batch([Record(0, 1, None, b"x" * 20_000)]))
    named = TopicProduceData(name=topic, topic_id=ZERO_UUID, partition_data=[data])
    with WireClient((broker.host, broker.port), client_id=client_id) as client:
        answer: Any = client.ask(ProduceRequest(acks=1, timeout_ms=30_000, topic_data=[named]), 9)
    assert answer.responses[0].partition_responses[0].error_code == 0, answer
    return answer.throttle_time_ms


def alike(mixed: Mixed, named: list[tuple[str, str]], **values: float) -> None:
    wait_until(lambda: all(told(mixed.broker(at), *named) == values for at in ALL), f"all tell {values} of {named}")


@pytest.mark.parametrize("writer", [KAFKA, OTTLA])
def test_every_broker_tells_and_obeys_what_one_was_told(mixed: Mixed, writer: int) -> None:
    topic, client = f"obeyed-{writer}", f"client-{writer}"
    mixed.create(topic, [OTTLA], [KAFKA])
    for reader, partition in PARTITION_OF.items():
        assert throttled_ms(mixed.broker(reader), topic, partition, client) == 0
    named = [("client-id", client)]
    change(mixed.broker(writer), named, producer_byte_rate=1000.0, consumer_byte_rate=2000.0)
    alike(mixed, named, producer_byte_rate=1000.0, consumer_byte_rate=2000.0)
    for reader, partition in PARTITION_OF.items():
        wait_until(lambda: throttled_ms(mixed.broker(reader), topic, partition, client) > 0, "it throttles")  # noqa: B023
    change(mixed.broker(writer), named, producer_byte_rate=None, consumer_byte_rate=None)
    alike(mixed, named)
    for reader, partition in PARTITION_OF.items():
        wait_until(lambda: throttled_ms(mixed.broker(reader), topic, partition, client) == 0, "it is free")  # noqa: B023


@pytest.mark.parametrize("writer", [KAFKA, OTTLA])
@pytest.mark.parametrize("name", NAMES)
def test_names_of_any_kind_mean_the_same_to_both(mixed: Mixed, writer: int, name: str) -> None:
    both: list[tuple[str, str]] = [("user", f"{name}"), ("client-id", f"{writer}{name}")]
    change(mixed.broker(writer), list(both), request_percentage=12.5)
    alike(mixed, both, request_percentage=12.5)
    other = OTTLA if writer == KAFKA else KAFKA
    change(mixed.broker(other), list(both), request_percentage=None)
    alike(mixed, both)


def test_kafkas_tool_writes_quotas_that_ottla_obeys(mixed: Mixed) -> None:
    mixed.create("by-tool", [OTTLA])

    def configs(*arguments: str) -> str:
        bootstrap = ("--bootstrap-server", mixed.broker(KAFKA).bootstrap)
        return mixed.tools("kafka.admin.ConfigCommand", *bootstrap, *arguments).fine()

    client = ("--entity-type", "clients", "--entity-name", "of-the-tool")
    configs("--alter", *client, "--add-config", "producer_byte_rate=1000")
    alike(mixed, [("client-id", "of-the-tool")], producer_byte_rate=1000.0)
    wait_until(lambda: throttled_ms(mixed.broker(OTTLA), "by-tool", 0, "of-the-tool") > 0, "Ottla throttles")
    assert "producer_byte_rate=1000" in configs("--describe", *client)
    configs("--alter", *client, "--delete-config", "producer_byte_rate")
    alike(mixed, [("client-id", "of-the-tool")])
