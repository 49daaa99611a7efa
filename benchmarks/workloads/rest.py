"""The REST proxy, alone: its start, memory, and records over HTTP. Apache Kafka has none to compare it with."""

import base64
import http.client
import json
import os
import threading
import time
from collections.abc import Callable, Generator, Mapping
from urllib.parse import urlsplit

from benchmarks import machine
from benchmarks.brokers import Broker, Failed, Ottla, http_service
from benchmarks.rows import Metric, Row, Target, within
from benchmarks.session import Session
from benchmarks.wire_client import Client

TOPIC = "rest"
BINARY, V2 = "application/vnd.kafka.binary.v2+json", "application/vnd.kafka.v2+json"
KIB = 1024
CLIENTS = 4
RECORDS, QUICK_RECORDS = 40_000, 10_000
WANTED = Target(5000, at_least=True, unit="/s")


def rows(session: Session) -> Generator[Row]:
    metrics = (
        Metric("ready_s", "s", within(0.6, "s"), label="start"),
        Metric("mb", "MB", within(60, "MB"), digits=0, label="resident then"),
        Metric("by_10", "/s", WANTED, more_is_better=True, digits=0, label="records of 1 KiB in POSTs of 10, for a second of the proxy's processor"),
        Metric("by_100", "/s", WANTED, more_is_better=True, digits=0, label="in POSTs of 100"),
        Metric("wall_100", "/s", WANTED, more_is_better=True, digits=0, label="in POSTs of 100, for a second"),
        Metric("read", "/s", WANTED, more_is_better=True, digits=0, label="read by one instance, for a second of its processor"),
    )  # fmt: skip
    broker = session.new(Ottla)
    yield Row("REST proxy", [broker], proxy(session), metrics, 1 if session.quick else 3)


def proxy(session: Session) -> Callable[[Broker], Mapping[str, float]]:
    count = QUICK_RECORDS if session.quick else RECORDS

    def run(template: Broker) -> Mapping[str, float]:
        broker = session.new(type(template))
        broker.start()
        try:
            with Client(broker.port) as client:
                client.create_topics([TOPIC])
            with http_service(broker.bootstrap, "rest") as (url, pid, ready_s):
                mb = machine.resident_mb(pid)
                written(url, pid, 1_000, 10)
                by_10, _ = written(url, pid, count // 2, 10)
                by_100, wall_100 = written(url, pid, count, 100)
                read = consumed(url, pid, count)
        finally:
            broker.stop()
        return {"ready_s": ready_s, "mb": mb, "by_10": by_10, "by_100": by_100, "wall_100": wall_100, "read": read}

    return run


def written(url: str, pid: int, count: int, each: int) -> tuple[float, float]:
    """Write records by some clients; records for a second of the proxy's processor, and for a second."""
    value = base64.b64encode(os.urandom(KIB)).decode()
    body = json.dumps({"records": [{"value": value}] * each}).encode()
    failures: list[str] = []

    def client() -> None:
        connection = connected(url)
        for _ in range(count // each // CLIENTS):
            connection.request("POST", f"/topics/{TOPIC}", body, {"Content-Type": BINARY})
            answer = connection.getresponse().read()
            if answer.count(b'"error_code":null') != each:
                failures.append(answer[:200].decode())

    began, cpu = time.perf_counter(), machine.cpu_seconds(pid)
    threads = [threading.Thread(target=client) for _ in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise Failed(f"POST: {failures[0]}")
    return count / (machine.cpu_seconds(pid) - cpu), count / (time.perf_counter() - began)


def consumed(url: str, pid: int, count: int) -> float:
    """Read so many records by one instance; records for a second of the proxy's processor."""
    connection = connected(url)

    def ask(method: str, path: str, content: object = None) -> bytes:
        body = None if content is None else json.dumps(content)
        connection.request(method, path, body, {"Content-Type": V2, "Accept": BINARY})
        return connection.getresponse().read()

    ask("POST", "/consumers/bench", {"name": "i", "auto.offset.reset": "earliest", "fetch.min.bytes": 1})
    here = "/consumers/bench/instances/i"
    ask("POST", f"{here}/assignments", {"partitions": [{"topic": TOPIC, "partition": 0}]})
    left, cpu = count, machine.cpu_seconds(pid)
    while left > 0:
        found = ask("GET", f"{here}/records?max_bytes=1000000").count(b'"offset":')
        if not found:
            raise Failed("GET: no records")
        left -= found
    return count / (machine.cpu_seconds(pid) - cpu)


def connected(url: str) -> http.client.HTTPConnection:
    address = urlsplit(url)
    return http.client.HTTPConnection(address.hostname or "", address.port, timeout=60)
