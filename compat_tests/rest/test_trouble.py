"""Bad input, brokers that are away, and many at a time: nobody is held up, and nothing is lost silently."""

import concurrent.futures
import itertools
import json
import socket
import threading
import time
from urllib.parse import urlsplit

from compat_tests.rest.conftest import BINARY, JSON, V2, Instance
from compat_tests.support.brokers import free_port, wait_until
from kafka import KafkaConsumer, TopicPartition

MIB = 1 << 20


def test_a_cluster_that_is_away_is_said_at_once_and_used_when_it_comes(start_broker, start_proxy):
    port = free_port()
    proxy = start_proxy(f"127.0.0.1:{port}")
    for method, path, content in (
        ("GET", "/topics", None),
        ("POST", "/topics/t", {"records": [{"value": 1}]}),
        ("GET", "/v3/clusters", None),
    ):
        answer = proxy.ask(method, path, content, JSON)
        assert (answer.status, answer.code) == (500, 50003)
    start_broker(port=port)
    wait_until(lambda: proxy.ask("POST", "/topics/t", {"records": [{"value": 1}]}, JSON).status == 200, "it is written")


def test_records_survive_a_broker_that_is_killed_and_each_answer_holds(start_broker, start_proxy):
    broker = start_broker({"num.partitions": "1", "log.flush.interval.messages": "1"})
    proxy = start_proxy(broker.bootstrap)
    proxy.ask("POST", "/topics/t", {"records": [{"value": "first"}]}, JSON)
    told: dict[int, bytes] = {}
    indexes, stopping = itertools.count(), threading.Event()

    def write() -> None:
        """One record after the other, with a pause where none is written. Each has a value of its own."""
        while not stopping.is_set():
            index = next(indexes)
            answer = proxy.ask("POST", "/topics/t", {"records": [{"value": f"{index}"}]}, JSON)
            written = [each["offset"] for each in answer.json.get("offsets", ()) if each["error_code"] is None]
            told.update(dict.fromkeys(written, f'"{index}"'.encode()))
            if not written:
                stopping.wait(0.05)

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        writing = [pool.submit(write) for _ in range(8)]
        try:
            wait_until(lambda: len(told) > 20, "some are written")
            broker.kill()
            before = len(told)
            broker.start()
            wait_until(lambda: len(told) > before + 100, "some are written again")
        finally:
            stopping.set()
        for each in writing:
            each.result()
    partition = TopicPartition("t", 0)
    consumer = KafkaConsumer(
        bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest", consumer_timeout_ms=60_000
    )
    consumer.assign([partition])
    end = consumer.end_offsets([partition])[partition]
    found = {record.offset: record.value for record in itertools.islice(consumer, end)}
    consumer.close()
    assert len(found) == end
    assert {offset: found[offset] for offset in told} == told
    values = list(found.values())
    assert len(values) == len(set(values)), "a record was written twice"


def test_a_large_body_is_written_and_a_larger_one_refused(proxy, unique):
    topic = unique("large")
    records = [{"value": "x" * 500_000} for _ in range(20)]
    answer = proxy.ask("POST", f"/topics/{topic}", {"records": records}, JSON)
    assert {each["error_code"] for each in answer.json["offsets"]} == {None}
    too_large = proxy.ask("POST", f"/topics/{topic}", {"records": [{"value": "x" * 2 * MIB}, {"value": 1}]}, JSON)
    assert [each["error_code"] for each in too_large.json["offsets"]] == [50002, None]
    connection = proxy.connection()
    connection.putrequest("POST", f"/topics/{topic}")
    connection.putheader("Content-Type", JSON)
    connection.putheader("Content-Length", str(17 * MIB))
    connection.endheaders()
    response = connection.getresponse()
    assert response.status == 413
    assert json.loads(response.read())["error_code"] == 413
    connection.close()


def test_a_body_of_many_small_values_holds_nobody_up(proxy, unique):
    topic = unique("small")
    body = b'{"records": [' + b",".join([b'{"value":1}'] * 100_000) + b"]}"
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        asked = pool.submit(proxy.ask, "POST", f"/topics/{topic}", body, JSON)
        others = 0
        while not asked.done():
            assert proxy.ask("GET", "/brokers").status == 200
            others += 1
        assert len(asked.result().json["offsets"]) == 100_000
    assert others > 5


def test_slow_clients_hold_nobody_up(proxy, unique):
    address = urlsplit(proxy.url)
    slow = [socket.create_connection((address.hostname, address.port)) for _ in range(100)]
    for each in slow:
        each.sendall(b"POST /topics/a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n{")
    assert proxy.ask("POST", f"/topics/{unique('slow')}", {"records": [{"value": "aGVs"}]}, BINARY).status == 200
    for each in slow:
        each.close()


def test_a_thousand_instances_are_kept_and_time_out(bootstrap, start_proxy, unique):
    proxy = start_proxy(bootstrap, "--instance-timeout-ms", "8000")
    group = unique("many")
    for index in range(1_000):
        assert proxy.ask("POST", f"/consumers/{group}", {"name": str(index)}).status == 200
    last = Instance(proxy, group, name="last", format="json", **{"auto.offset.reset": "earliest"})
    topic = unique("many")
    proxy.ask("POST", f"/topics/{topic}", {"records": [{"value": 1}]}, JSON)
    last.ask("POST", "/subscription", {"topics": [topic]})
    assert [each["value"] for each in last.until(1)] == [1]
    # One that is asked stays, and the others go.
    wait_until(
        lambda: (
            last.records("?timeout=100") == [] and proxy.ask("DELETE", f"/consumers/{group}/instances/0").status == 404
        ),
        "an instance has timed out",
    )
    assert last.ask("GET", "/subscription").status == 200


def test_a_proxy_that_stops_leaves_its_groups(bootstrap, start_proxy, unique):
    topic, group = unique("left"), unique("left")
    first, second = start_proxy(bootstrap), start_proxy(bootstrap)
    first.ask("POST", f"/topics/{topic}", {"records": [{"value": 1}]}, JSON)
    held = Instance(first, group)
    held.ask("POST", "/subscription", {"topics": [topic]})
    wait_until(lambda: held.ask("GET", "/assignments").json["partitions"], "it is assigned partitions")
    first.stop()
    path = f"{second.cluster_path()}/consumer-groups/{group}"
    assert second.ask("GET", path, kind=V2).json["state"] == "EMPTY"


def test_a_proxy_that_stops_answers_first(bootstrap, start_proxy, unique):
    found = []
    for pause_s in (1, 4, 16):  # until the read has what there is, and waits for more
        found = read_until_stopped(start_proxy(bootstrap), unique, pause_s)
        if found == [1, 2]:
            break
    assert found == [1, 2]


def read_until_stopped(proxy, unique, pause_s):
    """The values that a read answers with when the proxy is stopped after a pause. A stream of a record ends, too."""
    topic = unique("answered")
    proxy.ask("POST", f"/topics/{topic}", {"records": [{"value": 1}]}, JSON)
    reader = Instance(
        proxy, unique("g"), format="json", **{"auto.offset.reset": "earliest", "consumer.request.timeout.ms": 50_000}
    )
    reader.ask("POST", "/subscription", {"topics": [topic]})
    wait_until(lambda: reader.ask("GET", "/assignments").json["partitions"], "it is assigned partitions")
    stream = proxy.connection()
    stream.putrequest("POST", f"{proxy.cluster_path()}/topics/{topic}/records")
    stream.putheader("Content-Type", "application/json")
    stream.putheader("Transfer-Encoding", "chunked")
    stream.endheaders()
    record = b'{"value": {"type": "JSON", "data": 2}}'
    stream.send(b"%x\r\n%b\r\n" % (len(record), record))
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        reading = pool.submit(reader.records)
        streamed = stream.getresponse()
        assert json.loads(streamed.readline())["error_code"] == 200
        time.sleep(pause_s)
        proxy.process.terminate()
        found = [each["value"] for each in reading.result()]
        assert streamed.read() == b""  # with a last chunk
    assert proxy.process.wait(60) == 0
    return found


def test_a_group_of_hundreds_of_instances_shares_its_partitions(bootstrap, start_proxy, unique):
    """All have to join at a time, each over a connection that waits."""
    proxy = start_proxy(bootstrap)
    topic, group = unique("shared"), unique("shared")
    path = f"{proxy.cluster_path()}/topics"
    assert proxy.ask("POST", path, {"topic_name": topic, "partitions_count": 300}, "application/json").status == 201
    instances = [Instance(proxy, group, name=str(index)) for index in range(300)]
    for each in instances:
        assert each.ask("POST", "/subscription", {"topics": [topic]}).status == 204

    def are_shared():
        told = [each.ask("GET", "/assignments").json["partitions"] for each in instances]
        return [len(each) for each in told] == [1] * 300 and len({each["partition"] for [each] in told}) == 300

    wait_until(are_shared, "each has a partition of its own", 200)
    proxy.ask("POST", f"/topics/{topic}", {"records": [{"value": 1}]}, JSON)
