"""What the two requests of KIP-714 are answered, by Apache Kafka 4 with a plug-in of our own, and by Ottla."""

import shutil
import subprocess
from pathlib import Path

import pytest
from compat_tests.apache.brokers import ApacheKafka4
from compat_tests.support.brokers import OttlaProcess, wait_until
from compat_tests.support.wire_client import WireClient
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

from ottla.wire.compression import Compression, compress
from ottla.wire.messages.alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalConfig,
    IncrementalConfigsResource,
)
from ottla.wire.messages.api_versions import ApiVersionsRequest
from ottla.wire.messages.telemetry import GetTelemetrySubscriptionsRequest, PushTelemetryRequest
from ottla.wire.schema import ZERO_UUID

SOURCE = Path(__file__).parent / "java" / "Receiving.java"
LARGEST = 1 << 20
GOOD = MetricsData(resource_metrics=[{}]).SerializeToString()
METRICS = ",".join(
    f"org.apache.kafka.{name}"
    for name in ("producer.record.queue.time.", "consumer.fetch.latency.", "consumer.coordinator.")
)
PUSHES = {
    "empty": {"metrics": b""},
    "another subscription": {"subscription_id": 7},
    "another subscription, unknown codec": {"subscription_id": 7, "compression_type": 9},
    "unknown codec": {"compression_type": 5},
    "codec below zero": {"compression_type": -1},
    "too large": {"metrics": bytes(LARGEST + 1)},
    "garbage": {"metrics": b"\xff" * 20},
    "the last, garbage": {"metrics": b"\xff" * 20, "terminating": True},
    "the last": {"terminating": True},
    "zeros for an id": {"client_instance_id": ZERO_UUID},
    "one for an id": {"client_instance_id": bytes(15) + b"\1"},
}
for _codec in [each for each in Compression if each]:
    PUSHES |= {
        f"by {_codec.name}": {"compression_type": _codec, "metrics": compress(_codec, GOOD)},
        f"garbage for {_codec.name}": {"compression_type": _codec, "metrics": b"\xff" * 20},
        f"too large by {_codec.name}": {"compression_type": _codec, "metrics": compress(_codec, bytes(LARGEST + 1))},
    }

COMMON = [0, 0, [4, 3, 1, 2], 300_000, LARGEST, True]
IN_ORDER = ["consumer.coordinator.", "producer.record.queue.time.", "consumer.fetch.latency."]
# What Apache Kafka 4.4.0 answers. Of a push: to it, to the same again, and to a get after that.
KAFKAS = {
    "nothing subscribed": [*COMMON, []],
    "subscribed": [*COMMON, [f"org.apache.kafka.{name}" for name in IN_ORDER]],
    "the id of a subscription": -1077131997,
    "the same id": True,
    "empty": [0, 89, 89],
    "another subscription": [117, 89, 89],
    "another subscription, unknown codec": [117, 89, 89],
    "unknown codec": [76, 89, 89],
    "codec below zero": [76, 89, 89],
    "too large": [118, 89, 89],
    "garbage": [87, 89, 89],
    "the last, garbage": [87, 42, 89],
    "the last": [0, 42, 89],
    "zeros for an id": [42, 42, 89],
    "one for an id": [42, 42, 89],
    "get twice": [89, 0, 89],
    "changed": [117, [*COMMON, ["changed"]], 89],
    "gone": [*COMMON, []],
}
for _codec in [each for each in Compression if each]:
    KAFKAS |= {
        f"by {_codec.name}": [0, 89, 89],
        f"garbage for {_codec.name}": [87, 89, 89],
        f"too large by {_codec.name}": [87, 89, 89],
    }


class Talk:
    """A client that asks what to push, and pushes."""

    def __init__(self, client):
        self._client = client

    def get(self, instance_id=ZERO_UUID):
        return self._client.ask(GetTelemetrySubscriptionsRequest(client_instance_id=instance_id), 0)

    def push(self, told, **changed):
        fields = {"client_instance_id": told.client_instance_id, "subscription_id": told.subscription_id}
        fields |= {"terminating": False, "compression_type": 0, "metrics": GOOD}
        return self._client.ask(PushTelemetryRequest(**(fields | changed)), 0).error_code

    def subscribe(self, name, **texts):
        """Change a subscription, and wait until it holds; None deletes a setting."""
        configs = [
            IncrementalConfig(name=key.replace("_", "."), config_operation=int(text is None), value=text)
            for key, text in texts.items()
        ]
        resource = IncrementalConfigsResource(resource_type=16, resource_name=name, configs=configs)
        answer = self._client.ask(IncrementalAlterConfigsRequest(resources=[resource], validate_only=False), 1)
        assert answer.responses[0].error_code == 0, answer


def answers(host, port):
    """What a broker says to each of PUSHES, and to what comes before and after."""
    found = {}
    with WireClient((host, port), client_id="a-client") as client:
        talk = Talk(client)
        client.ask(ApiVersionsRequest(client_software_name="a-name", client_software_version="1.0"), 3)
        found["nothing subscribed"] = said(talk.get())
        # The longest interval that there is: nobody's time comes in this test.
        talk.subscribe("all", metrics=METRICS, interval_ms="300000", match="client_id=a-.*,client_software_name=a-name")
        talk.subscribe("others", metrics="*", interval_ms="100", match="client_id=a-.*,client_software_version=2.0")
        wait_until(lambda: talk.get().requested_metrics, "the subscription holds", 60)
        found["subscribed"] = said(talk.get())
        known = talk.get(bytes(range(16)))
        found["the id of a subscription"] = known.subscription_id
        found["the same id"] = known.client_instance_id == bytes(range(16))
        for label, changed in PUSHES.items():
            told = talk.get()
            pushes = [talk.push(told, **changed) for _ in range(2)]
            found[label] = [*pushes, talk.get(told.client_instance_id).error_code]
        told = talk.get()
        found["get twice"] = [talk.get(told.client_instance_id).error_code, talk.push(told), talk.push(told)]
        talk.subscribe("all", metrics="changed")
        wait_until(lambda: talk.get().requested_metrics == ["changed"], "the change holds", 60)
        anew = talk.get(told.client_instance_id)
        found["changed"] = [talk.push(told), said(anew), talk.push(anew)]
        talk.subscribe("all", metrics=None, interval_ms=None, match=None)
        wait_until(lambda: not talk.get().requested_metrics, "the subscription is gone", 60)
        found["gone"] = said(talk.get(told.client_instance_id))
    return found


def said(told):
    """An answer to a get without what is random."""
    return [
        told.error_code,
        told.throttle_time_ms,
        told.accepted_compression_types,
        told.push_interval_ms,
        told.telemetry_max_bytes,
        told.delta_temporality,
        told.requested_metrics,
    ]


def test_ottla_answers_as_kafka_does(tmp_path):
    broker = OttlaProcess(tmp_path, {"http.listener": "127.0.0.1:0"}).start()
    try:
        assert answers(broker.host, broker.port) == KAFKAS
    finally:
        broker.stop()


class Receiving(ApacheKafka4):
    """A broker of Kafka with the plug-in."""

    def java(self, *options):
        *command, class_path = super().java(*options)
        return [*command, f"{self.directory}:{class_path}"]


@pytest.mark.long
def test_kafka_answers_as_it_is_written_here(tmp_path):
    broker = Receiving(tmp_path, {"metric.reporters": "Receiving"})
    compiler = shutil.which("javac")
    subprocess.run([compiler, "-cp", f"{broker.jars}/*", "-d", tmp_path, SOURCE], check=True, timeout=240)
    broker.start()
    try:
        assert answers(broker.host, broker.port) == KAFKAS
    finally:
        broker.stop()
