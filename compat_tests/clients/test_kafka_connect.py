"""Kafka Connect: a distributed worker, whose group has a protocol type of its own, copies a file through a topic."""

import contextlib
import json
import subprocess
import urllib.error
import urllib.request

import pytest
from compat_tests.support.brokers import free_port

STRINGS = "org.apache.kafka.connect.storage.StringConverter"
FILE = "org.apache.kafka.connect.file.FileStream"


@pytest.fixture
def worker(java_with_tools, bootstrap, unique, tmp_path, wait_until):
    """The REST address of a worker."""
    port, name = free_port(), unique("connect")
    properties = {
        "bootstrap.servers": bootstrap,
        "group.id": name,
        "key.converter": STRINGS,
        "value.converter": STRINGS,
        "listeners": f"http://127.0.0.1:{port}",
        "offset.flush.interval.ms": "500",
        "offset.storage.partitions": "2",
        "status.storage.partitions": "1",
        **{f"{kind}.storage.topic": f"{name}-{kind}" for kind in ("config", "offset", "status")},
        **{f"{kind}.storage.replication.factor": "1" for kind in ("config", "offset", "status")},
    }
    config = tmp_path / "worker.properties"
    config.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    log = tmp_path / "worker.log"
    command = [*java_with_tools, "org.apache.kafka.connect.cli.ConnectDistributed", str(config)]
    address = f"http://127.0.0.1:{port}"
    with log.open("wb") as output, subprocess.Popen(command, stdout=output, stderr=output) as process:
        try:
            wait_until(lambda: ask(address, "/connectors") == [], "the worker serves", timeout_s=180)
            yield address
        finally:
            process.kill()


def ask(address, path, body=None):
    """The worker's answer to GET, or to PUT where there is a body; None while it has none, as when its group rebalances."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(
        address + path, data, {"Content-Type": "application/json"}, method="PUT" if data else "GET"
    )
    with (
        contextlib.suppress(urllib.error.URLError, ConnectionError, TimeoutError),
        urllib.request.urlopen(request, timeout=30) as answer,
    ):
        return json.loads(answer.read())
    return None


def test_connect_copies_a_file_through_a_topic(worker, topic, tmp_path, wait_until):
    source, sink = tmp_path / "source.txt", tmp_path / "sink.txt"
    lines = [f"line {i}\n" for i in range(200)]
    source.write_text("".join(lines))
    connectors = {
        "source": {"connector.class": f"{FILE}SourceConnector", "file": str(source), "topic": topic},
        "sink": {"connector.class": f"{FILE}SinkConnector", "file": str(sink), "topics": topic},
    }
    for name, config in connectors.items():
        made = wait_until(
            lambda at=name, to=config: ask(worker, f"/connectors/{at}/config", to | {"tasks.max": "1"}), "it is made"
        )
        assert made["name"] == name
    wait_until(lambda: sink.exists() and sink.read_text() == "".join(lines), "the lines are copied")
    with source.open("a") as more:
        more.write("one more\n")
    wait_until(lambda: sink.read_text().endswith("one more\n"), "the new line is copied")
    told = wait_until(lambda: ask(worker, "/connectors/source/status"), "its state is told")
    assert told["tasks"][0]["state"] == "RUNNING"
    assert sorted(wait_until(lambda: ask(worker, "/connectors"), "the connectors are told")) == ["sink", "source"]
