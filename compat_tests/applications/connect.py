"""A distributed worker of Kafka Connect as a process."""

import contextlib
import json
import subprocess
import urllib.error
import urllib.request

from compat_tests.support.brokers import free_port

STRINGS = "org.apache.kafka.connect.storage.StringConverter"


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


def running_on(worker, connector):
    """The name of the worker on which the only task of a connector runs; None if it runs nowhere."""
    status = worker.ask(f"/connectors/{connector}/status") or {"tasks": []}
    return next((task["worker_id"] for task in status["tasks"] if task["state"] == "RUNNING"), None)
