"""The third version of the proxy's API, by an ordinary client over HTTP, beside kafka-python."""

import json

import pytest
from compat_tests.conftest import KEEP_EVERYTHING
from compat_tests.rest.conftest import Answer
from compat_tests.support.brokers import wait_until
from kafka import KafkaConsumer, KafkaProducer

JSON = "application/json"
RULE = {
    "resource_type": "TOPIC",
    "resource_name": "orders",
    "pattern_type": "LITERAL",
    "principal": "User:alice",
    "host": "*",
    "operation": "READ",
    "permission": "ALLOW",
}


@pytest.fixture
def ask(proxy):
    """Asks for paths within the cluster."""
    cluster = proxy.cluster_path()

    def ask(method: str, path: str = "", content=None, kind: str = JSON) -> Answer:
        return proxy.ask(method, cluster + path, content, kind)

    return ask


@pytest.fixture
def topic(ask, unique):
    name = unique("rest3")
    content = {"topic_name": name, "partitions_count": 2, "replication_factor": 1}
    for_ever = [{"name": each, "value": value} for each, value in KEEP_EVERYTHING.items()]
    made = ask("POST", "/topics", content | {"configs": for_ever})
    assert made.status == 201, made
    return name


def lines(answer: Answer):
    return [json.loads(line) for line in answer.body.split(b"\r\n") if line]


def test_the_cluster_and_its_brokers_are_told(proxy, ask):
    [listed] = proxy.ask("GET", "/v3/clusters").json["data"]
    assert listed == ask("GET").json
    assert listed["kind"] == "KafkaCluster"
    assert listed["topics"]["related"] == f"{listed['metadata']['self']}/topics"
    [broker] = ask("GET", "/brokers").json["data"]
    assert broker == ask("GET", f"/brokers/{broker['broker_id']}").json
    assert broker["metadata"]["resource_name"] == f"crn:///kafka={listed['cluster_id']}/broker={broker['broker_id']}"
    assert ask("GET", f"/brokers/{broker['broker_id']}/configs/log.retention.ms").json["kind"] == "KafkaBrokerConfig"
    assert ask("GET", "/brokers/-/configs").json["data"]
    assert proxy.ask("GET", "/v3/clusters/another").code == 404
    assert ask("GET", "/brokers/999").code == 404


def test_topics_are_made_changed_and_deleted(ask, unique):
    name = unique("made")
    content = {"topic_name": name, "partitions_count": 2, "configs": [{"name": "retention.ms", "value": "60000"}]}
    only_checked = ask("POST", "/topics", {**content, "validate_only": True})
    assert only_checked.status == 200
    assert ask("GET", f"/topics/{name}").code == 40403
    made = ask("POST", "/topics", content)
    assert (made.status, made.json["partitions_count"], made.json["is_internal"]) == (201, 2, False)
    assert ask("POST", "/topics", content).code == 40002
    assert name in [each["topic_name"] for each in ask("GET", "/topics").json["data"]]
    config = ask("GET", f"/topics/{name}/configs/retention.ms").json
    assert (config["value"], config["source"], config["is_default"]) == ("60000", "DYNAMIC_TOPIC_CONFIG", False)
    assert ask("PUT", f"/topics/{name}/configs/retention.ms", {"value": "5"}).status == 204
    assert ask("GET", f"/topics/{name}/configs/retention.ms").json["value"] == "5"
    assert ask("PUT", f"/topics/{name}/configs/retention.ms", {"value": "x"}).code == 40002
    assert ask("DELETE", f"/topics/{name}/configs/retention.ms").status == 204
    assert ask("GET", f"/topics/{name}/configs/retention.ms").json["value"] == "604800000"
    change = {"data": [{"name": "cleanup.policy", "value": "compact"}, {"name": "retention.ms", "operation": "DELETE"}]}
    assert ask("POST", f"/topics/{name}/configs:alter", change).status == 204
    assert ask("GET", f"/topics/{name}/configs/cleanup.policy").json["value"] == "compact"
    assert ask("GET", f"/topics/{name}/configs/no.such").code == 404
    assert ask("PATCH", f"/topics/{name}", {"partitions_count": 3}).json["partitions_count"] == 3
    assert ask("PATCH", f"/topics/{name}", {"partitions_count": 1}).code == 40002
    [*_, last] = ask("GET", f"/topics/{name}/partitions").json["data"]
    assert last == ask("GET", f"/topics/{name}/partitions/2").json
    [replica] = ask("GET", f"/topics/{name}/partitions/2/replicas").json["data"]
    assert (replica["is_leader"], replica["is_in_sync"]) == (True, True)
    assert replica == ask("GET", f"/topics/{name}/partitions/2/replicas/{replica['broker_id']}").json
    assert ask("GET", f"/topics/{name}/partitions/-/reassignment").json["data"] == []
    assert ask("DELETE", f"/topics/{name}").status == 204
    assert ask("DELETE", f"/topics/{name}").code == 40403


def test_a_record_has_all_that_was_given(ask, bootstrap, topic):
    answer = ask(
        "POST",
        f"/topics/{topic}/records",
        {
            "partition_id": 1,
            "headers": [{"name": "h", "value": "aGVsbG8="}],
            "key": {"type": "STRING", "data": "key"},
            "value": {"type": "JSON", "data": {"a": 1}},
            "timestamp": "2021-02-05T19:14:42Z",
        },
    )
    [told] = lines(answer)
    assert told.pop("cluster_id")
    assert told == {
        "error_code": 200,
        "topic_name": topic,
        "partition_id": 1,
        "offset": 0,
        "timestamp": "2021-02-05T19:14:42Z",
        "key": {"type": "STRING", "size": 3},
        "value": {"type": "JSON", "size": 7},
    }
    consumer = KafkaConsumer(
        topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest", consumer_timeout_ms=60_000
    )
    record = next(iter(consumer))
    consumer.close()
    assert (record.key, record.value, record.headers) == (b"key", b'{"a":1}', [("h", b"hello")])
    assert record.timestamp == 1612552482000
    offset = ask("GET", f"/topics/{topic}/partitions/1/offset").json
    assert (offset["earliest_offset"], offset["latest_offset"]) == (0, 1)


def test_records_follow_each_other_with_their_errors(ask, topic):
    good = {"partition_id": 0, "value": {"type": "BINARY", "data": "aGVs"}}
    bad = {"value": {"type": "BINARY", "data": "*"}}
    nowhere = {**good, "partition_id": 9}
    body = b"\n".join(json.dumps(each).encode() for each in (good, bad, nowhere, good)) + b'{"value":'
    told = lines(ask("POST", f"/topics/{topic}/records", body))
    assert [each["error_code"] for each in told] == [200, 400, 40402, 200, 400]
    assert [each["offset"] for each in told if each["error_code"] == 200] == [0, 1]
    assert ask("POST", f"/topics/{topic}/records", b"").code in (415, 42206)
    assert ask("POST", f"/topics/{topic}/records", b" ").code == 42206
    assert ask("POST", f"/topics/{topic}/records", good, "text/plain").code == 415
    [told] = lines(ask("POST", "/topics/in%20valid/records", good))
    assert told["error_code"] == 40403


def test_a_stream_is_answered_while_it_goes_on(proxy, topic):
    """Each record is sent only when the one before is answered."""
    connection = proxy.connection()
    connection.putrequest("POST", f"{proxy.cluster_path()}/topics/{topic}/records")
    connection.putheader("Content-Type", JSON)
    connection.putheader("Transfer-Encoding", "chunked")
    connection.endheaders()
    reader = connection.sock.makefile("rb")
    told = []
    for index in range(5):
        piece = json.dumps({"partition_id": 0, "value": {"type": "STRING", "data": str(index)}}).encode()
        connection.send(b"%x\r\n%b\r\n" % (len(piece), piece))
        while index == 0 and reader.readline().strip():
            pass
        size = int(reader.readline(), 16)
        told.append(json.loads(reader.read(size)))
        reader.readline()
    assert [each["offset"] for each in told] == list(range(5))
    connection.send(b"0\r\n\r\n")
    assert reader.readline().strip() == b"0"
    connection.close()


def test_a_batch_has_successes_and_failures(ask, topic):
    entries = [
        {"id": "a", "value": {"type": "STRING", "data": "x"}, "partition_id": 0},
        {"id": "b", "value": {"type": "BINARY", "data": "*"}},
    ]
    answer = ask("POST", f"/topics/{topic}/records:batch", {"entries": entries})
    assert answer.status == 207
    assert [(each["id"], each["offset"]) for each in answer.json["successes"]] == [("a", 0)]
    assert [(each["id"], each["error_code"]) for each in answer.json["failures"]] == [("b", 400)]
    for bad in ([], [entries[0], entries[0]], [{"value": None}], [{"id": str(each)} for each in range(11)]):
        assert ask("POST", f"/topics/{topic}/records:batch", {"entries": bad}).code == 42208


def test_groups_members_and_lags_are_told(ask, bootstrap, topic, unique):
    group = unique("group")
    producer = KafkaProducer(bootstrap_servers=bootstrap)
    for _ in range(7):
        producer.send(topic, b"x", partition=0).get(60)
    producer.close()
    consumer = KafkaConsumer(
        topic, bootstrap_servers=bootstrap, group_id=group, auto_offset_reset="earliest", enable_auto_commit=False
    )
    wait_until(lambda: consumer.poll(5_000, max_records=5), "some are read")
    consumer.commit()
    told = ask("GET", f"/consumer-groups/{group}").json
    assert (told["state"], told["type"], told["is_simple"]) == ("STABLE", "CLASSIC", False)
    assert group in [each["consumer_group_id"] for each in ask("GET", "/consumer-groups").json["data"]]
    [member] = ask("GET", f"/consumer-groups/{group}/consumers").json["data"]
    path = f"/consumer-groups/{group}/consumers/{member['consumer_id']}"
    assert ask("GET", path).json == member
    assigned = ask("GET", f"{path}/assignments").json["data"]
    assert [each["partition_id"] for each in assigned] == [0, 1]
    assert ask("GET", f"{path}/assignments/{topic}/partitions/1").json == assigned[1]
    lags = ask("GET", f"/consumer-groups/{group}/lags").json["data"]
    assert sum(each["lag"] for each in lags) == 2
    assert ask("GET", f"/consumer-groups/{group}/lags/{topic}/partitions/0").json in lags
    summary = ask("GET", f"/consumer-groups/{group}/lag-summary").json
    assert (summary["max_lag"], summary["total_lag"], summary["max_lag_consumer_id"]) == (2, 2, member["consumer_id"])
    consumer.close()
    assert ask("GET", "/consumer-groups/no-such-group").code == 404


def test_rules_are_made_found_and_deleted(start_broker, start_proxy):
    broker = start_broker(
        {
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
        }
    )
    proxy = start_proxy(broker.bootstrap)
    acls = f"{proxy.cluster_path()}/acls"
    assert proxy.ask("POST", acls, RULE, JSON).status == 201
    assert proxy.ask("POST", f"{acls}:batch", {"data": [{**RULE, "resource_name": "b"}]}, JSON).status == 201
    assert proxy.ask("POST", acls, {**RULE, "operation": "FLY"}, JSON).code == 400
    found = proxy.ask("GET", f"{acls}?principal=User:alice&resource_type=topic").json["data"]
    assert sorted(each["resource_name"] for each in found) == ["b", "orders"]
    assert all(RULE.items() <= {**each, "resource_name": "orders"}.items() for each in found)
    assert proxy.ask("DELETE", acls).code == 400
    deleted = proxy.ask("DELETE", f"{acls}?resource_name=b&pattern_type=LITERAL").json["data"]
    assert [each["resource_name"] for each in deleted] == ["b"]
    [left] = proxy.ask("GET", acls).json["data"]
    assert left["resource_name"] == "orders"
