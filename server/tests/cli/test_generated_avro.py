"""Generated Avro: what another implementation reads is what JSON would have said, and a registry's faults are told."""

import http.server
import io
import json
import struct
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.server.cli.client.output import RequestFailed, UsageError
from ottla.server.cli.generation.arrival import Arrival, Json, Shares, iso
from ottla.server.cli.generation.avro import SCHEMAS, UNKNOWN_ID, Avro, milliseconds, registered
from ottla.server.cli.generation.kinds import KINDS

BEGIN_MS = 1_767_225_600_123


def written(kind: str, encoding: Avro | Json, poison: float = 0.0) -> list[bytes | None]:
    maker = KINDS[kind](lambda row: None, 10, 1)
    return [each.value for each in Arrival(maker, 500, 1, BEGIN_MS, 10, Shares(0.05, 0.05, poison), encoding)]


def read(kind: str, value: bytes) -> dict[str, Any]:
    assert struct.unpack_from(">bI", value) == (0, 7)
    file = io.BytesIO(value[5:])
    found: dict[str, Any] = fastavro.schemaless_reader(file, fastavro.parse_schema(SCHEMAS[kind]))
    assert file.read() == b""
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_avro_says_what_json_says(kind: str) -> None:
    pairs = zip(written(kind, Avro(SCHEMAS[kind], 7)), written(kind, Json()), strict=True)
    for avro, text in pairs:
        if text is None:
            assert avro is None and kind == "changes"
            continue
        wanted = json.loads(text)
        if "time" in wanted:
            wanted["time"] = datetime.fromisoformat(wanted["time"])
        assert avro is not None and read(kind, avro) == wanted


@pytest.mark.parametrize("kind", KINDS)
def test_poison_cannot_be_read(kind: str) -> None:
    unreadable = 0
    for value in written(kind, Avro(SCHEMAS[kind], 7), poison=0.2):
        try:
            assert value is not None
            read(kind, value)
        except (AssertionError, EOFError, IndexError, ValueError):
            unreadable += 1
    assert unreadable > 50


@given(st.integers(0, 1 << 42))
def test_times_are_kept(time_ms: int) -> None:
    assert milliseconds(iso(time_ms)) == time_ms
    assert datetime.fromisoformat(iso(time_ms)) == datetime.fromtimestamp(time_ms / 1000, UTC)


# --- the registry


@pytest.fixture
def registry() -> Iterator[Callable[[int, bytes], tuple[str, list[Any]]]]:
    """Starts a registry that gives one answer; (its address, what it was asked)."""
    servers = []

    def start(status: int, body: bytes) -> tuple[str, list[Any]]:
        asked: list[Any] = []

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                data = self.rfile.read(int(self.headers["Content-Length"]))
                asked.append((self.path, self.headers.get("Authorization"), json.loads(data)))
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
        servers.append((server, threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})))
        servers[-1][1].start()
        return f"127.0.0.1:{server.server_port}", asked

    yield start
    for server, thread in servers:
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_schema_is_registered(registry) -> None:
    address, asked = registry(200, b'{"id": 41}')
    assert registered(f"http://{address}", "a/b-value", {"type": "string"}) == 41
    assert registered(f"http://us%20er:p%40ss@{address}/below/", "t-value", "string") == 41
    body = {"schema": '{"type": "string"}', "schemaType": "AVRO"}
    assert asked[0] == ("/subjects/a%2Fb-value/versions", None, body)
    assert asked[1][:2] == ("/below/subjects/t-value/versions", "Basic dXMgZXI6cEBzcw==")


@pytest.mark.parametrize(
    ("status", "body", "words"),
    [
        (409, b'{"error_code":409,"message":"incompatible"}', 'refuses the schema of t-value: 409, {"error_code":409'),
        (200, b"<html>", "is no schema registry"),
        (200, b"[]", "is no schema registry"),
        (200, b"{}", "is no schema registry"),
        (200, b'{"id": "seven"}', "is no schema registry"),
        (200, b'{"id": 4294967296}', "is no schema registry"),
    ],
)
def test_a_registry_that_refuses_or_is_none(registry, status: int, body: bytes, words: str) -> None:
    address, _ = registry(status, body)
    with pytest.raises(RequestFailed) as failed:
        registered(f"http://{address}", "t-value", "string")
    assert words in str(failed.value)


def test_no_registry_is_told() -> None:
    with pytest.raises(RequestFailed, match="no registry at 127.0.0.1:1: .*`ottla registry` starts one"):
        registered("http://127.0.0.1:1", "t-value", "string")
    for url in ("localhost:8081", "ftp://host", "http://", "http://host:port", "http://[::1"):
        with pytest.raises(UsageError, match="must be http://HOST:PORT"):
            registered(url, "t-value", "string")


def test_an_unknown_schema_has_the_highest_id() -> None:
    assert struct.unpack(">bI", Avro("string", 7).poisonous("unknown_schema", 1, 0)[:5]) == (0, UNKNOWN_ID)
