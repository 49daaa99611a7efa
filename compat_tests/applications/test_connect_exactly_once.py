"""Kafka Connect: two workers share connectors and pass them on, and a source writes each line exactly once."""

import contextlib
import json
import subprocess
import urllib.error
import urllib.request

import pytest
from compat_tests.applications.streams import take
from compat_tests.support.brokers import free_port

STRINGS = "org.apache.kafka.connect.storage.StringConverter"
FILE = "org.apache.kafka.connect.file.FileStream"


class Worker:
    """A distributed worker in a process of its own."""

    def __init__(self, java, bootstrap, name, folder):
        port = free_port()
        properties = {
            "bootstrap.servers": bootstrap,
            "group.id": name,
            "key.converter": STRINGS,
            "value.converter": STRINGS,
            "listeners": f"http://127.0.0.1:{port}",
            "exactly.once.source.support": "enabled",
            "offset.flush.interval.ms": "500",
            "session.timeout.ms": "6000",
            "heartbeat.interval.ms": "500",
            "scheduled.rebalance.max.delay.ms": "0",
            "offset.storage.partitions": "2",
            "status.storage.partitions": "1",
            **{f"{kind}.storage.topic": f"{name}-{kind}" for kind in ("config", "offset", "status")},
            **{f"{kind}.storage.replication.factor": "1" for kind in ("config", "offset", "status")},
        }
        folder.mkdir()
        config = folder / "worker.properties"
        config.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
        self.address = f"http://127.0.0.1:{port}"
        self.name = f"127.0.0.1:{port}"
        self._command = [*java, "org.apache.kafka.connect.cli.ConnectDistributed", str(config)]
        self._log = folder / "log.txt"

    def start(self):
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(self._command, stdout=log, stderr=log)

    def ask(self, path, body=None):
        """The worker's answer to GET, or to POST where there is a body; None while it has none."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.address + path, data, {"Content-Type": "application/json"})
        with (
            contextlib.suppress(urllib.error.URLError, ConnectionError, TimeoutError),
            urllib.request.urlopen(request, timeout=30) as answer,
        ):
            return json.loads(answer.read())
        return None

    def close(self):
        self.process.kill()
        self.process.wait()


@pytest.fixture
def workers(java_with_tools, bootstrap, unique, tmp_path, wait_until):
    """Two workers of one group."""
    name = unique("connect")
    with contextlib.ExitStack() as stack:
        started = [Worker(java_with_tools, bootstrap, name, tmp_path / f"worker-{number}") for number in range(2)]
        for worker in started:
            worker.start()
            stack.enter_context(contextlib.closing(worker))
        for worker in started:
            wait_until(lambda worker=worker: worker.ask("/connectors") == [], "the worker serves", timeout_s=180)
        yield started


def running_on(worker, connector):
    """The name of the worker on which the only task of a connector runs; None if it runs nowhere."""
    status = worker.ask(f"/connectors/{connector}/status") or {"tasks": []}
    return next((task["worker_id"] for task in status["tasks"] if task["state"] == "RUNNING"), None)


@pytest.mark.timeout(900)  # each of its waits may take minutes on a busy machine
def test_a_source_writes_each_line_once_while_its_worker_is_killed(
    workers, bootstrap, make_topic, unique, tmp_path, wait_until
):
    topic, source, sink = make_topic(), tmp_path / "source.txt", tmp_path / "sink.txt"
    reading, writing = unique("source"), unique("sink")
    source.touch()
    first = workers[0]
    configs = {
        reading: {"connector.class": f"{FILE}SourceConnector", "file": str(source), "topic": topic},
        writing: {"connector.class": f"{FILE}SinkConnector", "file": str(sink), "topics": topic,
                  "consumer.override.isolation.level": "read_committed"},
    }  # fmt: skip
    for name, config in configs.items():
        wait_until(lambda name=name, config=config: first.ask("/connectors", {"name": name, "config": config | {"tasks.max": "1"}}),
                   "the connector is made", timeout_s=180)  # fmt: skip
    wait_until(lambda: all(running_on(first, name) for name in configs), "the tasks run", timeout_s=180)
    lines = []

    def write_more():
        more = [f"line {i}" for i in range(len(lines), len(lines) + 300)]
        lines.extend(more)
        with source.open("a") as file:
            file.writelines(f"{line}\n" for line in more)

    write_more()
    take(bootstrap, topic, lambda found: len(found) >= 100)
    victim = next(worker for worker in workers if worker.name == running_on(first, reading))
    survivor = next(worker for worker in workers if worker is not victim)
    write_more()
    victim.close()
    write_more()
    wait_until(lambda: running_on(survivor, reading) == survivor.name, "the source has moved", timeout_s=180)
    found = take(bootstrap, topic, lambda found: len(found) >= len(lines))
    assert [value.decode() for _, value in found] == lines
    wait_until(lambda: set(lines) <= set(sink.read_text().splitlines()), "the sink has all", timeout_s=180)
