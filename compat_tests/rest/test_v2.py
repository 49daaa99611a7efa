"""The second version of the proxy's API, by an ordinary client over HTTP, beside kafka-python."""

import base64
import json

import pytest
from compat_tests.rest.conftest import BINARY, JSON, V2
from compat_tests.support.brokers import wait_until
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import KafkaAdminClient, NewTopic


@pytest.fixture
def topic(bootstrap, unique):
    name = unique("rest")
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    admin.create_topics([NewTopic(name, 2, 1)])
    admin.close()
    return name


def read_by_kafka_python(bootstrap, topic, count):
    consumer = KafkaConsumer(
        topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest", consumer_timeout_ms=60_000
    )
    found = []
    for record in consumer:
        found.append(record)
        if len(found) == count:
            break
    consumer.close()
    return found


def test_records_over_http_are_read_by_a_client(proxy, bootstrap, topic):
    values = [bytes([index]) * 100 for index in range(200)]
    records = [{"key": _base64(b"k"), "value": _base64(value)} for value in values]
    answer = proxy.ask("POST", f"/topics/{topic}", {"records": [*records, {"key": _base64(b"k")}]}, BINARY)
    assert (answer.status, answer.content_type) == (200, V2)
    assert answer.json["key_schema_id"] is answer.json["value_schema_id"] is None
    offsets = answer.json["offsets"]
    assert {each["error_code"] for each in offsets} == {None}, offsets[0]
    found = read_by_kafka_python(bootstrap, topic, 201)
    assert [each.value for each in found] == [*values, None]
    # Both choose the same partition for a key.
    producer = KafkaProducer(bootstrap_servers=bootstrap)
    theirs = producer.send(topic, key=b"k", value=b"").get(60)
    producer.close()
    assert {each["partition"] for each in offsets} == {theirs.partition}
    assert [(each["partition"], each["offset"]) for each in offsets] == [(r.partition, r.offset) for r in found]
    assert theirs.offset == 201


def test_json_goes_to_a_partition(proxy, bootstrap, topic):
    answer = proxy.ask(
        "POST", f"/topics/{topic}/partitions/1", {"records": [{"key": "a", "value": {"b": [1, 2.5, "\u00e4"]}}]}, JSON
    )
    assert answer.json["offsets"] == [{"partition": 1, "offset": 0, "error_code": None, "error": None}]
    answer = proxy.ask(
        "POST", f"/topics/{topic}", {"records": [{"value": 0, "partition": 1}, {"value": 1, "partition": 7}]}, JSON
    )
    assert answer.json["offsets"][0] == {"partition": 1, "offset": 1, "error_code": None, "error": None}
    assert answer.json["offsets"][1]["error_code"] == 40402
    [first, second] = read_by_kafka_python(bootstrap, topic, 2)
    assert (first.key, first.value, second.value) == (b'"a"', '{"b":[1,2.5,"\u00e4"]}'.encode(), b"0")


def test_topics_partitions_and_brokers_are_told(proxy, topic):
    assert topic in proxy.ask("GET", "/topics").json
    told = proxy.ask("GET", f"/topics/{topic}").json
    assert told["name"] == topic
    assert told["configs"]["cleanup.policy"] == "delete"
    [broker] = proxy.ask("GET", "/brokers").json["brokers"]
    partition = {
        "partition": 1,
        "leader": broker,
        "replicas": [{"broker": broker, "leader": True, "in_sync": True}],
    }
    assert told["partitions"] == proxy.ask("GET", f"/topics/{topic}/partitions").json
    assert told["partitions"][1] == proxy.ask("GET", f"/topics/{topic}/partitions/1").json == partition
    proxy.ask("POST", f"/topics/{topic}/partitions/1", {"records": [{"value": 1}]}, JSON)
    assert proxy.ask("GET", f"/topics/{topic}/partitions/1/offsets").json == {"beginning_offset": 0, "end_offset": 1}


@pytest.mark.parametrize(
    ("method", "path", "content", "kind", "code"),
    [
        ("GET", "/topics/no-such-topic", None, V2, 40401),
        ("GET", "/topics/{topic}/partitions/9", None, V2, 40402),
        ("GET", "/topics/{topic}/partitions/x", None, V2, 404),
        ("GET", "/nothing", None, V2, 404),
        ("PUT", "/topics", {}, V2, 405),
        ("POST", "/topics/{topic}/partitions/9", {"records": [{"value": None}]}, JSON, 40402),
        ("POST", "/topics/{topic}", b"{", JSON, 400),
        ("POST", "/topics/{topic}", {"records": []}, JSON, 422),
        ("POST", "/topics/{topic}", {"records": [{"value": "*"}]}, BINARY, 400),
        ("POST", "/topics/{topic}", {"records": [{"value": 1, "valve": 1}]}, JSON, 422),
        ("POST", "/topics/{topic}", {"records": [{"value": 1, "partition": -1}]}, JSON, 422),
        ("POST", "/topics/{topic}", {"records": [{"value": 1}]}, "application/json", 415),
        ("POST", "/topics/{topic}", {"records": [{"value": 1}]}, "text/plain", 415),
        ("POST", "/topics/{topic}", {"records": [{"value": 1}]}, None, 415),
        ("POST", "/topics/{topic}", {"records": [{"value": 1}]}, "application/vnd.kafka.avro.v2+json", 42207),
        ("POST", "/topics/in valid", {"records": [{"value": 1}]}, JSON, 40401),
        ("POST", "/consumers/g", {"format": "xml"}, V2, 422),
        ("POST", "/consumers/g", {"auto.offset.reset": "x"}, V2, 42204),
        ("POST", "/consumers/g", {"fetch.min.bytes": 0}, V2, 40001),
        ("POST", "/consumers/g", {"name": 5}, V2, 400),
        ("POST", "/consumers/g", {"nome": "a"}, V2, 422),
        ("GET", "/consumers/g/instances/i/records", None, V2, 40403),
        ("DELETE", "/consumers/g/instances/i", None, V2, 40403),
    ],
)
def test_errors_have_confluents_codes(proxy, topic, method, path, content, kind, code):
    answer = proxy.ask(method, path.replace("{topic}", topic).replace(" ", "%20"), content, kind)
    assert (answer.code, answer.status) == (code, code if code < 1000 else code // 100)
    assert answer.json["message"]


def test_an_instance_reads_what_a_client_wrote(proxy, bootstrap, topic, instance):
    producer = KafkaProducer(bootstrap_servers=bootstrap, compression_type="gzip")
    for index in range(100):
        producer.send(topic, json.dumps({"n": index}).encode(), key=b"1", partition=index % 2)
    producer.flush()
    producer.close()
    consumer = instance(**{"format": "json", "auto.offset.reset": "earliest", "auto.commit.enable": "false"})
    assert consumer.ask("POST", "/subscription", {"topics": [topic]}).status == 204
    found = consumer.until(100)
    assert sorted(each["value"]["n"] for each in found) == list(range(100))
    assert {each["key"] for each in found} == {1}
    assert {each["topic"] for each in found} == {topic}
    assert consumer.ask("GET", "/subscription").json == {"topics": [topic]}
    partitions = [{"topic": topic, "partition": each} for each in (0, 1)]
    assert consumer.ask("GET", "/assignments").json == {"partitions": partitions}
    # What is committed over HTTP is what a client of the group finds.
    assert consumer.ask("GET", "/offsets", {"partitions": partitions}).json == {"offsets": []}
    assert consumer.ask("POST", "/offsets").status == 200
    wanted = [{**each, "offset": 50, "metadata": ""} for each in partitions]
    assert consumer.ask("GET", "/offsets", {"partitions": partitions}).json == {"offsets": wanted}
    offsets = [{"topic": topic, "partition": 0, "offset": 9, "metadata": "m"}]
    assert consumer.ask("POST", "/offsets", {"offsets": offsets}).status == 200
    client = KafkaConsumer(bootstrap_servers=bootstrap, group_id=consumer.group)
    committed = [client.committed(TopicPartition(topic, each)) for each in (0, 1)]
    client.close()
    assert committed == [10, 50]


def test_instances_of_a_group_share_partitions_also_with_a_client(proxy, bootstrap, topic, instance):
    first = instance(**{"auto.offset.reset": "earliest"})
    second = instance(first.group, **{"auto.offset.reset": "earliest"})
    for each in (first, second):
        each.ask("POST", "/subscription", {"topics": [topic]})
    both = [{"topic": topic, "partition": each} for each in (0, 1)]

    def shares():
        told = [each.ask("GET", "/assignments").json["partitions"] for each in (first, second)]
        return [len(each) for each in told] == [1, 1] and sorted(
            (each for one in told for each in one), key=str
        ) == both

    wait_until(shares, "each instance has a partition")
    second.ask("DELETE")
    wait_until(lambda: first.ask("GET", "/assignments").json["partitions"] == both, "the first one has both")
    client = KafkaConsumer(topic, bootstrap_servers=bootstrap, group_id=first.group)
    wait_until(lambda: client.poll(1_000) is not None and len(client.assignment()) == 1, "the client has a partition")
    client.close()


def test_positions_are_sought(proxy, topic, instance):
    proxy.ask("POST", f"/topics/{topic}/partitions/0", {"records": [{"value": each} for each in range(10)]}, JSON)
    consumer = instance(format="json")
    place = {"topic": topic, "partition": 0}
    assert consumer.ask("POST", "/positions/beginning", {"partitions": [place]}).code == 40903
    assert consumer.ask("POST", "/assignments", {"partitions": [place]}).status == 204
    assert consumer.ask("POST", "/subscription", {"topics": [topic]}).code == 40903
    assert consumer.records() == []
    assert consumer.ask("POST", "/positions/beginning", {"partitions": [place]}).status == 204
    assert [each["offset"] for each in consumer.until(10)] == list(range(10))
    assert consumer.ask("POST", "/positions", {"offsets": [{**place, "offset": 8}]}).status == 204
    assert [each["offset"] for each in consumer.until(2)] == [8, 9]
    past = {**place, "timestamp": "2001-01-01T00:00:00Z"}
    assert consumer.ask("POST", "/positions", {"timestamps": [past]}).status == 204
    some = wait_until(lambda: consumer.records("?max_bytes=4"), "some are read")
    assert [each["value"] for each in some] == [0, 1, 2]
    others = wait_until(lambda: consumer.records("?timeout=300"), "the others are read")
    assert [each["value"] for each in others] == list(range(3, 10))
    assert consumer.ask("POST", "/positions/end", {"partitions": [place]}).status == 204
    assert consumer.records("?timeout=300") == []
    # An offset that is not there is the reset's.
    assert consumer.ask("POST", "/positions", {"offsets": [{**place, "offset": 99}]}).status == 204

    def reads_new():
        found = consumer.records("?timeout=500")
        proxy.ask("POST", f"/topics/{topic}/partitions/0", {"records": [{"value": "new"}]}, JSON)
        return found

    assert {each["value"] for each in wait_until(reads_new, "new records are read")} == {"new"}


def test_an_instance_answers_only_in_its_format(topic, instance):
    consumer = instance(format="json")
    for accept in (BINARY, V2, None):
        assert consumer.ask("GET", "/records", accept=accept).code == 40601


def test_names_of_instances_are_unique_and_any_text(proxy, unique):
    group = f"{unique('group')}%2Fwith%20a%20slash"
    made = proxy.ask("POST", f"/consumers/{group}", {"name": "a/b"})
    assert made.json == {"instance_id": "a/b", "base_uri": f"{proxy.url}/consumers/{group}/instances/a%2Fb"}
    assert proxy.ask("POST", f"/consumers/{group}", {"name": "a/b"}).code == 40902
    assert proxy.ask("DELETE", f"/consumers/{group}/instances/a%2Fb").status == 204


def test_a_pattern_finds_topics_that_come_later(proxy, bootstrap, topic, instance):
    consumer = instance(**{"format": "json", "auto.offset.reset": "earliest"})
    assert consumer.ask("POST", "/subscription", {"topic_pattern": "("}).status == 422
    assert consumer.ask("POST", "/subscription", {"topic_pattern": f"{topic[:-1]}."}).status == 204
    assert consumer.ask("POST", "/subscription", {"topics": [topic]}).code == 40903
    proxy.ask("POST", f"/topics/{topic}", {"records": [{"value": 1}]}, JSON)
    assert [each["value"] for each in consumer.until(1)] == [1]
    assert consumer.ask("GET", "/subscription").json == {"topics": [topic]}
    assert consumer.ask("DELETE", "/subscription").status == 204
    assert consumer.ask("GET", "/assignments").json == {"partitions": []}


def test_auto_commit_keeps_what_was_read(proxy, topic, instance):
    proxy.ask("POST", f"/topics/{topic}/partitions/0", {"records": [{"value": each} for each in range(5)]}, JSON)
    config = {"format": "json", "auto.offset.reset": "earliest"}
    first = instance(**config)
    first.ask("POST", "/subscription", {"topics": [topic]})
    assert len(first.until(5)) == 5
    first.ask("DELETE")
    second = instance(first.group, **config)
    second.ask("POST", "/subscription", {"topics": [topic]})
    proxy.ask("POST", f"/topics/{topic}/partitions/0", {"records": [{"value": "new"}]}, JSON)
    assert [each["value"] for each in second.until(1)] == ["new"]


def test_what_is_no_json_is_said_and_not_passed_over(proxy, bootstrap, topic, instance):
    producer = KafkaProducer(bootstrap_servers=bootstrap)
    producer.send(topic, b"{", partition=0).get(60)
    producer.close()
    consumer = instance(format="json")
    consumer.ask("POST", "/assignments", {"partitions": [{"topic": topic, "partition": 0}]})
    consumer.ask("POST", "/positions/beginning", {"partitions": []})
    for _ in range(2):
        assert consumer.refusal().code == 40801


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
