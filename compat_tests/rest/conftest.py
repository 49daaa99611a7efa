"""REST proxies as processes of their own, and a plain client over HTTP."""

import http.client
import json
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import pytest
from compat_tests.support.brokers import wait_until

READY_S, WAIT_S = 60, 60
V2 = "application/vnd.kafka.v2+json"
BINARY, JSON = "application/vnd.kafka.binary.v2+json", "application/vnd.kafka.json.v2+json"


class Answer(NamedTuple):
    status: int
    content_type: str
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> int:
        return self.json["error_code"]


class RestProxy:
    """A running `ottla rest`."""

    def __init__(self, bootstrap: str, *arguments: str) -> None:
        command = [sys.executable, "-m", "ottla", "rest", "--listen", "127.0.0.1:0", "-b", bootstrap, *arguments]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.log: list[str] = []
        self._lines: queue.Queue[str] = queue.Queue()
        self._readers = [
            threading.Thread(target=_read, args=(stream, take), daemon=True)
            for stream, take in ((self.process.stdout, self._lines.put), (self.process.stderr, self.log.append))
        ]
        for each in self._readers:
            each.start()
        line = self._lines.get(timeout=READY_S)
        assert line.startswith("rest proxy at "), (line, self.log)
        self.url = line.split()[-1]

    def connection(self) -> http.client.HTTPConnection:
        address = urlsplit(self.url)
        return http.client.HTTPConnection(address.hostname, address.port, timeout=WAIT_S)

    def ask(
        self, method: str, path: str, content: Any = None, kind: str | None = V2, accept: str | None = None
    ) -> Answer:
        """One request. `content` is put into JSON unless it is bytes."""
        headers = {"Accept": accept} if accept else {}
        body = content if content is None or isinstance(content, bytes) else json.dumps(content).encode()
        if body is not None and kind is not None:
            headers["Content-Type"] = kind
        connection = self.connection()
        try:
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            return Answer(response.status, response.headers.get("content-type", ""), response.read())
        finally:
            connection.close()

    def cluster_path(self) -> str:
        [cluster] = self.ask("GET", "/v3/clusters").json["data"]
        return f"/v3/clusters/{cluster['cluster_id']}"

    def stop(self) -> None:
        """End it as a service manager does."""
        self.process.terminate()
        assert self.process.wait(READY_S) == 0, self.log
        for each in self._readers:
            each.join(READY_S)
        assert not [line for line in self.log if "Traceback" in line or "bug:" in line], self.log


def _read(stream, take: Callable[[str], object]) -> None:
    with stream:
        for line in stream:
            take(line)


@pytest.fixture(scope="module", params=["ottla", "kafka_4"])
def bootstrap(request: pytest.FixtureRequest) -> str:
    """The address of each make in turn."""
    broker = request.getfixturevalue("broker" if request.param == "ottla" else "apache_kafka_4")
    return broker.bootstrap


@pytest.fixture(scope="module")
def proxy(bootstrap: str) -> Iterator[RestProxy]:
    """The proxy that tests share: use topics and groups of your own."""
    running = RestProxy(bootstrap)
    yield running
    running.stop()


@pytest.fixture
def start_proxy() -> Iterator[Callable[..., RestProxy]]:
    """Starts proxies of the test's own."""
    started: list[RestProxy] = []

    def start(bootstrap: str, *arguments: str) -> RestProxy:
        started.append(RestProxy(bootstrap, *arguments))
        return started[-1]

    yield start
    for each in started:
        each.stop()


class Instance:
    """A consumer instance over HTTP."""

    def __init__(self, proxy: RestProxy, group: str, **config: Any) -> None:
        self.proxy, self.group = proxy, group
        self.kind = config.get("format", "binary")
        made = proxy.ask("POST", f"/consumers/{group}", config)
        assert made.status == 200, made
        self.name = made.json["instance_id"]
        self.path = f"/consumers/{group}/instances/{self.name}"

    def ask(self, method: str, below: str = "", content: Any = None, **options: Any) -> Answer:
        return self.proxy.ask(method, self.path + below, content, **options)

    def records(self, query: str = "") -> list[dict[str, Any]]:
        answer = self.ask("GET", f"/records{query}", accept=f"application/vnd.kafka.{self.kind}.v2+json")
        assert answer.status == 200, answer
        return answer.json

    def until(self, count: int) -> list[dict[str, Any]]:
        """Read until there are so many records."""
        found: list[dict[str, Any]] = []
        end = time.monotonic() + WAIT_S
        while len(found) < count and time.monotonic() < end:
            found += self.records()
        return found

    def refusal(self) -> Answer:
        """What is said to a read that is refused because of a record, which a read may end before."""

        def read() -> Answer | None:
            answer = self.ask("GET", "/records", accept=f"application/vnd.kafka.{self.kind}.v2+json")
            if answer.status != 200:
                return answer
            assert answer.json == []
            return None

        return wait_until(read, "a read is refused", WAIT_S)


@pytest.fixture
def instance(proxy: RestProxy, unique: Callable[[str], str]) -> Iterator[Callable[..., Instance]]:
    """Creates consumer instances, which are deleted at the end."""
    made: list[Instance] = []

    def create(group: str | None = None, **config: Any) -> Instance:
        made.append(Instance(proxy, group or unique("group"), **config))
        return made[-1]

    yield create
    for each in made:
        each.ask("DELETE")
