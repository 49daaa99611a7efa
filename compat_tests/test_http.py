"""The HTTP endpoint of a broker's process: what scrapers, probes and hostile readers get, while a producer goes on."""

import json
import os
import re
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from contextlib import ExitStack
from datetime import UTC, datetime

import pytest
from compat_tests.support.brokers import OttlaProcess, wait_until
from confluent_kafka import Consumer, Producer
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_metrics
from prometheus_client.parser import text_string_to_metric_families as prometheus

from ottla.server.tests.dashboards import ALERTS, names_in, queries

OPEN_METRICS = "application/openmetrics-text; version=1.0.0"
STRANGER = "127.0.0.2"
RECORDS = 200


class Scraped(OttlaProcess):
    """A broker with two log directories and the endpoint."""

    @property
    def http(self):
        found = re.search(r"console +http://([\d.]+):(\d+)/", self.log)
        return found[1], int(found[2])

    def get(self, path, **headers):
        """Status and text."""
        host, port = self.http
        request = urllib.request.Request(f"http://{host}:{port}{path}", headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as refusal:
            with refusal:
                return refusal.status, refusal.read().decode()

    def samples(self):
        """(name, topic or nothing) -> value, summed over all other labels."""
        found = {}
        for family in prometheus(self.get("/metrics")[1]):
            for sample in family.samples:
                key = sample.name, sample.labels.get("topic", "")
                found[key] = found.get(key, 0) + sample.value
        return found


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    settings = {
        "http.listener": "127.0.0.1:0",
        "log.dirs": "first,second",
        "num.partitions": "2",
        "log.retention.check.interval.ms": "200",
    }
    process = Scraped(tmp_path_factory.mktemp("scraped"), settings)
    yield process.start()
    process.stop()


@pytest.fixture(scope="module")
def busy(broker):
    """The same after some work: a topic with records, and a group that has read some of them."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True})
    for number in range(RECORDS):
        producer.produce("seen", b"%05d" % number, partition=number % 2)
    assert producer.flush(60) == 0
    settings = {"group.id": 'a "group"\n', "auto.offset.reset": "earliest", "enable.auto.commit": False}
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, **settings})
    consumer.subscribe(["seen"])
    message = wait_until(lambda: consumer.poll(1), "a record arrives", 60)
    consumer.commit(message, asynchronous=False)
    consumer.close()
    return broker


def test_what_was_written_and_read_is_in_a_scrape(busy):
    samples = busy.samples()
    assert samples["kafka_server_brokertopicmetrics_messagesin_total", "seen"] == RECORDS
    assert samples["kafka_log_log_logendoffset", "seen"] == RECORDS
    assert samples["kafka_server_brokertopicmetrics_bytesin_total", "seen"] == samples["kafka_log_log_size", "seen"]
    assert samples["kafka_server_brokertopicmetrics_bytesout_total", "seen"] > 0
    assert samples["kafka_consumergroup_lag", "seen"] == RECORDS // 2 - 1
    assert samples["kafka_server_replicamanager_produceridcount", ""] == 2
    assert samples["kafka_network_requestmetrics_requests_total", ""] > 5
    assert samples["ottla_request_bytes_total", ""] > RECORDS * 5
    assert samples["ottla_request_seconds_sum", ""] > 0


def test_each_request_is_timed_once_however_it_was_answered(busy):
    def counts():
        families = list(prometheus(busy.get("/metrics")[1]))
        found = {
            name: {
                each.labels["request"]: each.value
                for family in families
                for each in family.samples
                if each.name == name
            }
            for name in ("ottla_request_seconds_count", "kafka_network_requestmetrics_requests_total")
        }
        # The consumer has left while its last fetch waited.
        return [{api: count for api, count in each.items() if api != "Fetch"} for each in found.values()]

    timed, taken_in = wait_until(lambda: found if (found := counts())[0] == found[1] else None, "all are answered", 60)
    assert {"Produce", "JoinGroup", "InitProducerId", "ApiVersions"} <= timed.keys() == taken_in.keys()


def test_openmetrics_says_the_same(busy):
    families = list(open_metrics(busy.get("/metrics", Accept=OPEN_METRICS)[1]))
    labels = [
        sample.labels for family in families if family.name == "kafka_consumergroup_lag" for sample in family.samples
    ]
    assert labels[0]["consumergroup"] == 'a "group"\n'


def test_the_dashboard_and_the_alerts_find_what_they_ask_for(busy):
    told = {name for name, _ in busy.samples()}
    asked = {name for query in queries() for name in names_in(query)}
    # No request has failed, no listener has certificates, and only on Linux the broker tells its memory.
    absent = {"kafka_network_requestmetrics_errors_total", "ottla_certificate_expiry_timestamp_seconds"} | (
        {"process_resident_memory_bytes"} if os.environ.get("OTTLA_PORTABLE") == "1" else set()
    )
    assert asked - told <= absent


def test_the_log_and_the_console_tell_why_records_of_last_year_were_removed(busy):
    producer = Producer({"bootstrap.servers": busy.bootstrap})
    last_year = int(time.time() - 365 * 86_400) * 1000
    for number in range(30):
        producer.produce("old", b"x", partition=1, timestamp=last_year + number * 1000)
    assert producer.flush(60) == 0
    # Retention may run between two batches, and logs a line for each run.
    line = re.compile(
        r"INFO \S+ old-1: retention\.ms=604800000 removed (\d+) records?, offsets .*, of (\S+)Z to (\S+)Z"
    )

    def told():
        found = line.findall(busy.log)
        return found if sum(int(count) for count, _, _ in found) == 30 else None

    lines = wait_until(told, "all records are told of", 60)
    oldest, newest = (datetime.fromtimestamp(last_year / 1000 + each, UTC).isoformat()[:19] for each in (0, 29))
    assert (lines[0][1], lines[-1][2]) == (oldest, newest)
    removed = [each for each in json.loads(busy.get("/api/removals")[1])["removals"] if each["topic"] == "old"]
    assert sum(each["records"] for each in removed) == 30
    assert {each["cause"] for each in removed} == {"retention.ms=604800000"}


def test_strangers_that_send_nonsense_read_slowly_or_come_in_crowds_hold_up_nobody(busy):
    producer = Producer({"bootstrap.servers": busy.bootstrap, "linger.ms": 0})
    failed, host = [], busy.http
    requests = (
        b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n" * 50,
        b"GET / HTTP/1.1\r\nHo",
        b"\x16\x03\x01" * 9999,
        b"",
    )
    with ExitStack() as open_sockets:
        for number in range(200):
            stranger = open_sockets.enter_context(socket.socket())
            stranger.bind((STRANGER, 0))
            stranger.settimeout(60)
            try:
                stranger.connect(host)
                stranger.sendall(requests[number % len(requests)])
            except OSError:  # it has ended the connection already, which is what it should do
                continue
            producer.produce(
                "seen", b"%d" % number, on_delivery=lambda error, _: failed.append(error) if error else None
            )
            producer.poll(0)
        assert producer.flush(60) == 0
        assert failed == []
        # The strangers have their share of connections, and others have theirs.
        assert busy.get("/readyz")[0] == 200
        assert busy.samples()["ottla_http_connections", ""] <= 64 + 2
    assert wait_until(lambda: busy.samples()["ottla_http_connections", ""] <= 2, "the strangers' connections end", 60)


def test_pages_of_other_sites_get_nothing(busy):
    assert busy.get("/metrics", Host="rebound.example")[0] == 421
    assert busy.get("/healthz", Host="localhost:1")[0] == 200


def alerts_of(text, query, expected, folder):
    """Have promtool judge the alerts by a scrape, as if it had been so for two hours. `expected`: what the query gives then."""
    if shutil.which("promtool") is None:  # of Debian's prometheus
        return
    asked = {name for query in queries() for name in names_in(query)}
    series = [
        {"series": f"{sample.name}{json.dumps(sample.labels)}", "values": f"{sample.value}x120"}
        for family in prometheus(text)
        for sample in family.samples
        if sample.name in asked
    ]
    for each in series:  # from JSON's way to write labels to that of Prometheus
        each["series"] = re.sub(r'"(\w+)": "', r'\1="', each["series"])
    test = {"input_series": series, "promql_expr_test": [{"expr": query, "eval_time": "100m", "exp_samples": expected}]}
    whole = {"rule_files": [str(ALERTS)], "evaluation_interval": "1m", "tests": [{"interval": "1m", **test}]}
    (folder / "test.yml").write_text(json.dumps(whole))  # JSON is YAML
    done = subprocess.run(
        ["promtool", "test", "rules", "test.yml"], cwd=folder, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_disk_that_is_gone_is_in_health_and_metrics(busy, tmp_path):
    assert busy.get("/healthz") == (200, "log directories: ok\n")
    alerts_of(busy.get("/metrics")[1], 'count(ALERTS{alertstate="firing"})', [], tmp_path)
    (busy.directory / "second").rename(busy.directory / "taken away")
    producer = Producer({"bootstrap.servers": busy.bootstrap})

    def is_offline():
        for partition in (0, 1):
            producer.produce("seen", b"x", partition=partition)
        producer.poll(0.2)
        return busy.get("/healthz")[0] == 503

    wait_until(is_offline, "the directory is offline", 60)
    producer.purge()
    samples = busy.samples()
    assert samples["kafka_log_logmanager_offlinelogdirectorycount", ""] == 1
    assert samples["kafka_server_replicamanager_offlinereplicacount", ""] >= 1
    query = 'count(ALERTS{alertname="OttlaLogDirectoryOffline",alertstate="firing"})'
    alerts_of(busy.get("/metrics")[1], query, [{"labels": "{}", "value": 1}], tmp_path)
    assert busy.get("/readyz")[0] == 200
