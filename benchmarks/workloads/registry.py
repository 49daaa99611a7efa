"""The schema registry, alone: its start, memory and look-ups with ten thousand schemas. Apache Kafka has none to compare it with."""

import http.client
import json
import time
from collections.abc import Callable, Generator, Mapping
from statistics import median

from benchmarks import machine
from benchmarks.brokers import Broker, Failed, Ottla, http_service
from benchmarks.rows import Metric, Row, Target, within
from benchmarks.session import Session
from benchmarks.wire_client import Client, produce_frame

from ottla.server.registry.records import SchemaPut, SchemaValue, digest_of, encode
from ottla.wire.record_encoding import encode_pairs

TOPIC = "_schemas"
SCHEMAS, BATCH = 10_000, 500
ASKED, QUICK_ASKED = 4_000, 1_000
KIND = "application/vnd.schemaregistry.v1+json"


def rows(session: Session) -> Generator[Row]:
    metrics = (
        Metric("ready_s", "s", within(0.5, "s"), label=f"from the start until {SCHEMAS:,} schemas are served"),
        Metric("mb", "MB", within(60, "MB"), digits=0, label="resident then"),
        Metric("id_ms", "ms", within(1, "ms"), label="median of GET /schemas/ids/N"),
        Metric("known_ms", "ms", within(1, "ms"), label="median of POST of a known schema"),
        Metric("rate", "/s", Target(2000, at_least=True, unit="/s"), more_is_better=True, digits=0, label="GET in a second of its processor"),
        Metric("new_ms", "ms", label="median of POST of a new schema"),
    )  # fmt: skip
    broker = session.new(Ottla)
    yield Row("schema registry", [broker], registry(session), metrics, 2 if session.quick else 3)


def schema(number: int) -> str:
    fields = [{"name": f"field_{index}", "type": ["null", "string"], "default": None} for index in range(8)]
    tree = {"type": "record", "name": f"Record{number}", "namespace": "org.example", "fields": fields}
    return json.dumps(tree, separators=(",", ":"))


def registry(session: Session) -> Callable[[Broker], Mapping[str, float]]:
    asked = QUICK_ASKED if session.quick else ASKED

    def run(template: Broker) -> Mapping[str, float]:
        broker = session.new(type(template))
        broker.start()
        try:
            fill(broker)
            with http_service(broker.bootstrap, "registry", "--alone") as (url, pid, ready_s):
                connection = http.client.HTTPConnection(url.removeprefix("http://"))
                mb = machine.resident_mb(pid)
                before = machine.cpu_seconds(pid)
                ids = [timed(connection, "GET", f"/schemas/ids/{1 + each % SCHEMAS}") for each in range(asked)]
                worked_s = machine.cpu_seconds(pid) - before
                known = [register(connection, each % 50) for each in range(asked // 4)]
                new = [register(connection, SCHEMAS + each) for each in range(asked // 40)]
        finally:
            broker.stop()
        return {
            "ready_s": ready_s,
            "mb": mb,
            "id_ms": median(ids) * 1000,
            "known_ms": median(known) * 1000,
            "rate": len(ids) / worked_s,
            "new_ms": median(new) * 1000,
        }

    return run


def fill(broker: Broker) -> None:
    """Write the records of all schemas."""
    with Client(broker.port) as client:
        client.create_topics([TOPIC])
        for start in range(0, SCHEMAS, BATCH):
            events = []
            for number in range(start, start + BATCH):
                text = schema(number)
                digest = digest_of(text, (), None, None)
                value = SchemaValue(subject=f"s{number}", version=1, id=number + 1, text=text, digest=digest)
                events.append(encode(SchemaPut(value)))
            client.produce(produce_frame(TOPIC, encode_pairs(events, 0)))


def register(connection: http.client.HTTPConnection, number: int) -> float:
    return timed(connection, "POST", f"/subjects/s{number}/versions", json.dumps({"schema": schema(number)}))


def timed(connection: http.client.HTTPConnection, method: str, path: str, body: str | None = None) -> float:
    began = time.perf_counter()
    connection.request(method, path, body, {"content-type": KIND} if body else {})
    answer = connection.getresponse()
    answer.read()
    if answer.status != 200:
        raise Failed(f"{method} {path}: {answer.status}")
    return time.perf_counter() - began
