"""Metrics that real clients push come out on /metrics, as Kafka's own tool has asked for them (KIP-714)."""

import pytest
from compat_tests.support.brokers import wait_until
from compat_tests.support.wire_client import WireClient
from compat_tests.test_http import Scraped
from confluent_kafka import Consumer, Producer
from prometheus_client.parser import text_string_to_metric_families

from ottla.wire.messages.api_versions import ApiVersionsRequest
from ottla.wire.messages.telemetry import GetTelemetrySubscriptionsRequest, PushTelemetryRequest

TOOL = "org.apache.kafka.tools.ClientMetricsCommand"
PERFORMANCE = "org.apache.kafka.tools.ProducerPerformance"
PUSHED = "org_apache_kafka_"
TELEMETRY = {71, 72}
SECONDS = 60
PRODUCERS_MAX = 8


@pytest.fixture(scope="module")
def receiving(tmp_path_factory):
    process = Scraped(tmp_path_factory.mktemp("telemetry"), {"http.listener": "127.0.0.1:0"})
    yield process.start()
    process.stop()


@pytest.fixture
def subscribe(receiving, java_tools):
    """Subscribes with Kafka's tool, and ends what was subscribed: `subscribe(name, *options)`."""
    made = []

    def tool(*arguments):
        return java_tools("kafka_4")(TOOL, "--bootstrap-server", receiving.bootstrap, *arguments).fine()

    def make(name, *options):
        made.append(name)
        assert "Altered" in tool("--alter", "--name", name, *options)
        assert name in tool("--describe", "--name", name)
        return tool

    yield make
    for name in made:
        tool("--delete", "--name", name)
        assert name not in tool("--describe")


def numbers(broker, client_id):
    """Sample -> the sum of what instances of a client have pushed."""
    found = {}
    for family in text_string_to_metric_families(broker.get("/metrics")[1]):
        for sample in family.samples:
            if sample.labels.get("client_id") == client_id:
                found[sample.name] = found.get(sample.name, 0) + sample.value
    return found


def pushed(receiving, client_id, *names):
    """What a client has pushed, once all of these are there."""
    wanted = {PUSHED + name for name in names}
    return wait_until(
        lambda: found if wanted <= (found := numbers(receiving, client_id)).keys() else None,
        f"{client_id} pushes",
        SECONDS,
    )


def test_kafkas_tool_says_what_is_subscribed(receiving, subscribe):
    both = "org.apache.kafka.producer.,org.apache.kafka.consumer."
    tool = subscribe("some", "--metrics", both, "--interval", "500", "--match", "client_id=a.*")
    told = tool("--describe", "--name", "some")
    assert "interval.ms=500" in told and f"metrics={both}" in told
    assert "match=client_id=a.*" in told
    assert tool("--list").split() == ["some"]


def test_librdkafka_pushes_what_it_is_asked_for(receiving, subscribe):
    who = "client_id=lib.*,client_software_name=confluent-kafka-python"
    subscribe(
        "lib", "--metrics", "org.apache.kafka.producer.,org.apache.kafka.consumer.", "--interval", "200", "--match", who
    )
    producer = Producer({"bootstrap.servers": receiving.bootstrap, "client.id": "lib-producer"})
    producer.produce("pushed", b"x")
    assert producer.flush(SECONDS) == 0
    settings = {"group.id": "g", "auto.offset.reset": "earliest", "client.id": "lib-consumer"}
    consumer = Consumer({"bootstrap.servers": receiving.bootstrap, **settings})
    consumer.subscribe(["pushed"])
    assert wait_until(lambda: consumer.poll(1), "a record arrives", SECONDS).value() == b"x"
    found = pushed(receiving, "lib-producer", "producer_connection_creation_total", "producer_node_request_latency_avg")
    assert found[f"{PUSHED}producer_connection_creation_total"] >= 0
    pushed(receiving, "lib-consumer", "consumer_connection_creation_total")
    consumer.close()


def test_a_java_producer_pushes_its_metrics_to_the_end(receiving, subscribe, java_tools):
    who = "client_software_name=apache-kafka-java,client_id=java.*"
    subscribe("java", "--metrics", "org.apache.kafka.producer.", "--interval", "400", "--match", who)
    command = ["--topic", "pushed", "--num-records", "300", "--record-size", "10", "--throughput", "300"]
    sent = f"{PUSHED}producer_record_send_total"
    counted = []
    # Java's client does not push as it ends if a push is under way: then some records are not counted.
    while 300 not in counted and len(counted) < PRODUCERS_MAX:
        client_id = f"java-{len(counted)}"
        settings = [f"bootstrap.servers={receiving.bootstrap}", f"client.id={client_id}"]
        java_tools("kafka_4")(PERFORMANCE, *command, "--producer-props", *settings).fine()
        found = pushed(receiving, client_id, "producer_record_send_total", "producer_batch_size_avg")
        assert found[sent] <= 300 and "ottla_client" in found
        counted.append(found[sent])
    # Deltas, added up. What it pushes as it ends is among them.
    assert counted[-1] == 300


def test_who_matches_nothing_pushes_nothing(receiving, subscribe):
    subscribe("none", "--metrics", "*", "--interval", "100", "--match", "client_id=some.*")
    nobody, somebody = (
        Producer({"bootstrap.servers": receiving.bootstrap, "client.id": name}) for name in ("nobody", "somebody")
    )
    for producer in (nobody, somebody):
        producer.produce("pushed", b"x")
        assert producer.flush(SECONDS) == 0
    pushed(receiving, "somebody", "producer_connection_creation_total")
    assert numbers(receiving, "nobody") == {}


def test_a_client_that_pushes_nonsense_is_told_so_and_others_are_served(receiving):
    with WireClient((receiving.host, receiving.port), client_id="strange") as client:
        versions = client.ask(ApiVersionsRequest(client_software_name="strange", client_software_version="1"), 3)
        assert {each.api_key for each in versions.api_keys} >= TELEMETRY
        told = client.ask(GetTelemetrySubscriptionsRequest(client_instance_id=bytes(16)), 0)
        push = {
            "client_instance_id": told.client_instance_id,
            "subscription_id": told.subscription_id,
            "terminating": True,
        }
        for codec, metrics, code in ((4, b"nonsense", 87), (9, b"", 42), (0, b"", 42)):
            request = PushTelemetryRequest(compression_type=codec, metrics=metrics, **push)
            # After the last push everything is refused, whatever became of that.
            assert client.ask(request, 0).error_code == code
    assert receiving.get("/readyz")[0] == 200
    assert numbers(receiving, "strange") == {}


def test_without_the_endpoint_nobody_is_asked_for_metrics(bootstrap):
    host, port = bootstrap.split(":")
    with WireClient((host, int(port)), client_id="x") as client:
        versions = client.ask(ApiVersionsRequest(client_software_name="x", client_software_version="1"), 3)
        assert not TELEMETRY & {each.api_key for each in versions.api_keys}
        client.send(GetTelemetrySubscriptionsRequest(client_instance_id=bytes(16)), 0)
        assert client.receive() is None
