"""The control port: operations by HTTP, their description, refusals, and who may ask."""

from __future__ import annotations

import contextlib
import http.client
import inspect
import json
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.server.admin.http.routes import Refused
from ottla.server.testing.control import operations
from ottla.server.testing.control.control import Control, arguments_of, openapi
from ottla.server.testing.control.operations import OPERATIONS
from ottla.server.testing.errors import LabError
from ottla.server.testing.kafka import Kafka

TOKEN = "0123456789abcdef"


class Client:
    """Client of a control port; a call returns status and JSON."""

    def __init__(self, port: int, token: str | None = None) -> None:
        self._port, self._headers = port, {"Content-Type": "application/json"}
        if token is not None:
            self._headers["Authorization"] = f"Bearer {token}"

    def __call__(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=30)
        try:
            sent = body if isinstance(body, bytes) else None if body is None else json.dumps(body).encode()
            connection.request(method, path, sent, self._headers)
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())
        finally:
            connection.close()


@pytest.fixture(scope="module")
def kafka() -> Iterator[Kafka]:
    with Kafka(3) as made:
        yield made


@pytest.fixture(scope="module")
def ask(kafka: Kafka) -> Iterator[Client]:
    control = Control(kafka, "127.0.0.1", 0)
    yield Client(control.port)
    control.close()
    control.close()


def done(ask: Client, method: str, path: str, body: Any = None) -> Any:
    status, answer = ask(method, path, body)
    assert status == 200, answer
    return answer


def test_a_test_is_written_by_http_alone(ask: Client, kafka: Kafka):
    told = done(ask, "GET", "/kafka")
    assert told["bootstrap"] == kafka.bootstrap and [each["id"] for each in told["brokers"]] == [1, 2, 3]
    assert done(ask, "POST", "/topics", {"name": "orders", "partitions": 2}) == {"name": "orders"}
    made = done(ask, "POST", "/records", {"topic": "orders", "value": "é", "key": "k", "headers": {"h": "1"}})
    assert made["value"] == "é" and made["value_base64"] == "w6k=" and made["headers"][0]["name"] == "h"
    raw = done(ask, "POST", "/records", {"topic": "orders", "value_base64": "/w==", "partition": made["partition"]})
    assert raw["value"] is None and raw["value_base64"] == "/w=="
    assert [each["offset"] for each in done(ask, "GET", "/records?topic=orders")] == [0, 1]
    assert done(ask, "GET", f"/records?topic=orders&partition={1 - made['partition']}&read_committed=true") == []
    assert done(ask, "GET", "/topics") == {"orders": 2}
    before = done(ask, "GET", "/kafka")["now_ms"]
    assert done(ask, "POST", "/clock/advance", {"minutes": 2})["now_ms"] >= before + 120_000
    done(ask, "POST", "/group/commit", {"group": "g", "topic": "orders", "partition": 0, "offset": 0})
    assert done(ask, "GET", "/group?name=g")["offsets"] == [{"topic": "orders", "partition": 0, "offset": 0}]
    assert done(ask, "GET", "/groups") == ["g"] and done(ask, "GET", "/transactions") == []


def test_a_snapshot_is_kept_under_a_name_and_put_back(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(operations, "SNAPSHOTS_MAX", 2)
    with Kafka() as kafka, contextlib.closing(Control(kafka, "127.0.0.1", 0)) as control:
        ask = Client(control.port)
        assert ask("POST", "/restore", {"name": "first"}) == (
            400,
            {"error": "There is no snapshot first; the snapshots are: none."},
        )
        done(ask, "POST", "/topics", {"name": "orders"})
        assert done(ask, "POST", "/snapshot", {"name": "first"}) == ["first"]
        done(ask, "POST", "/records", {"topic": "orders", "value": "one"})
        assert done(ask, "POST", "/snapshot") == ["first", "snapshot"]
        assert done(ask, "POST", "/restore", {"name": "first", "connections": "kept"})["bootstrap"] == kafka.bootstrap
        assert done(ask, "GET", "/records?topic=orders") == []
        done(ask, "POST", "/restore")
        assert len(done(ask, "GET", "/records?topic=orders")) == 1
        assert done(ask, "POST", "/snapshot", {"name": "first"}) == ["first", "snapshot"]
        status, answer = ask("POST", "/snapshot", {"name": "third"})
        assert status == 400 and answer["error"].startswith("There are 2 snapshots")


def test_brokers_are_killed_and_started(ask: Client, kafka: Kafka):
    running = {each["id"]: each["is_running"] for each in done(ask, "POST", "/broker/kill", {"broker": 2})["brokers"]}
    assert running == {1: True, 2: False, 3: True} and not kafka.broker(2).is_running
    running = {each["id"]: each["is_running"] for each in done(ask, "POST", "/broker/start", {"broker": 2})["brokers"]}
    assert running[2]
    seed = done(ask, "POST", "/chaos/begin", {"seed": 5, "faults": ["disconnect"]})["seed"]
    done(ask, "POST", "/clock/advance", {"seconds": 2})
    assert {each["seed"] for each in done(ask, "POST", "/chaos/end")} == {seed} == {5}


def test_requests_are_seen_and_answered_with_errors(ask: Client, kafka: Kafka):
    rule = {"action": "fail", "api": "Metadata", "error": "LEADER_NOT_AVAILABLE", "topic": "nobody-asks", "times": None}
    made = [{"on": "Metadata, topic='nobody-asks'", "action": "fail LEADER_NOT_AVAILABLE", "hits": 0, "times": None}]
    assert ask("POST", "/wire/rules", rule) == (200, made) == ask("GET", "/wire/rules")
    for action in ("half", "twice", "drop", "disconnect"):
        assert ask("POST", "/wire/rules", {"action": action, "group": "nobody"})[0] == 200
    assert ask("POST", "/wire/rules", {"action": "delay", "seconds": 5, "group": "nobody"})[0] == 200
    assert len(kafka.wire.rules.active) == 6
    for wrong in (
        {"action": "fail"},
        {"action": "delay"},
        {"action": "dropp"},
        {"action": "fail", "error": "NOT_LEADER"},
    ):
        status, told = ask("POST", "/wire/rules", wrong)
        assert status == 400 and any(each in told["error"] for each in ("needs", "no action", "did you mean")), told
    assert ask("POST", "/wire/rules/clear") == (200, [])
    status, seen = ask("GET", "/wire/requests?api=Fetch&topic=nobody-asks")
    assert (status, seen) == (200, [])
    assert ask("GET", "/wire/requests?last=0") == (200, [])


def test_causes_and_offsets_are_told(ask: Client) -> None:
    done(ask, "POST", "/topics", {"name": "asked", "settings": {"max.message.bytes": 100}})
    assert ask("POST", "/records", {"topic": "asked", "value": "x" * 200})[0] == 409
    told = done(ask, "GET", "/why?topic=asked")
    assert [(each["kind"], each["facts"]["error"]) for each in told["causes"]] == [
        ("write refused", "MESSAGE_TOO_LARGE")
    ]
    assert "MESSAGE_TOO_LARGE" in told["text"]
    assert done(ask, "GET", "/why/offset?topic=asked&offset=3")["state"] == "unwritten"


def test_brokers_pause_and_groups_freeze(ask: Client):
    for path in ("/broker/pause", "/broker/resume"):
        done(ask, "POST", path, {"broker": 1})
    for path in ("/group/freeze", "/group/thaw"):
        done(ask, "POST", path, {"group": "g"})


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "told"),
    [
        ("GET", "/nothing", None, 404, "There is nothing at this path"),
        ("GET", "/reset", None, 405, "POST only"),
        ("POST", "/topics", {"nane": "x"}, 400, "no parameter nane; did you mean 'name'?"),
        ("POST", "/topics", {}, 400, "/topics needs name."),
        ("POST", "/topics", {"name": 1}, 400, "name has to be a string."),
        ("POST", "/topics", {"name": "x", "partitions": True}, 400, "partitions has to be a whole number."),
        ("POST", "/topics", b"{", 400, "The body is no JSON"),
        ("POST", "/topics", [], 400, "The body has to be a JSON object"),
        ("POST", "/topics", b"[" * 60_000, 400, "The body is no JSON"),
        ("POST", "/topics", {"name": "a b"}, 409, "INVALID_TOPIC_EXCEPTION"),
        ("POST", "/clock/advance", {"seconds": -1}, 400, "only goes forward"),
        ("POST", "/clock/advance", {"seconds": 1e300}, 400, "100 years is the most"),
        ("POST", "/clock/advance", {"days": 10**400}, 400, "days has to be a number."),
        ("POST", "/clock/speed", {"factor": 1e300}, 400, "clock.advance() jumps"),
        ("POST", "/records", {"topic": "t", "value": "\ud800"}, 400, "value has to be a string."),
        ("POST", "/records", {"topic": "t", "headers": {"\ud800": ""}}, 400, "headers has to be an object."),
        ("POST", "/records", {"topic": "t", "value": "x", "timestamp": 2**63}, 400, "timestamp has to be a whole"),
        ("POST", "/records", b'{"topic": [' + b"{}," * 25_000 + b"{}]}", 400, "more than 20000 elements"),
        ("POST", "/topics", {"name": "n" * 65_536}, 413, "65536 bytes"),
        ("POST", "/broker/kill", {"broker": 9}, 400, "no broker 9"),
        ("POST", "/records", {"topic": "t", "value": "a", "value_base64": "YQ=="}, 400, "not both"),
        ("POST", "/records", {"topic": "t", "value_base64": "="}, 400, "no base64"),
        (
            "POST",
            "/partition/move",
            {"topic": "t", "partition": 0, "replicas": ["a"]},
            400,
            "replicas has to be an array",
        ),
        ("GET", "/records?topic=none", None, 400, "no topic none"),
        ("GET", "/records?topic=t&partition=x", None, 400, "partition has to be a whole number."),
        ("GET", "/records?topic=t&read_committed=yes", None, 400, "true or false"),
        ("GET", "/group?name=none", None, 400, "no group none"),
        ("POST", "/transactions/fence", {"transactional_id": "t"}, 400, "No producer has used"),
    ],
)
def test_wrong_requests_get_one_sentence(ask: Client, method: str, path: str, body: Any, status: int, told: str):
    answer = ask(method, path, body)
    assert answer[0] == status and told in answer[1]["error"], answer


@pytest.mark.parametrize("body", [{"topic": "n " * 50_000, "value": "x"}, {"n" * 100_000: ""}])
def test_a_refusal_repeats_no_long_name(ask: Client, body: Any):
    status, answer = ask("POST", "/records", body)
    assert status == 400 and len(answer["error"]) < 25_000


def test_a_long_answer_holds_the_interpreter_lock_for_a_record_at_a_time(
    ask: Client, kafka: Kafka, monkeypatch: pytest.MonkeyPatch
):
    kafka.topic("long")
    kafka.produce("long", *["x" * 1000] * 100)
    encoded, dumps = [], json.dumps

    def noting(value: Any, **options: Any) -> str:
        encoded.append((threading.current_thread().name, len(dumps(value))))
        return dumps(value, **options)

    monkeypatch.setattr(json, "dumps", noting)
    assert len(done(ask, "GET", "/records?topic=long")) == 100
    assert len(encoded) == 100 and max(size for _, size in encoded) < 5000
    assert "ottla-control port" not in {name for name, _ in encoded}


def test_beyond_loopback_and_with_a_token_everybody_needs_it(kafka: Kafka):
    with pytest.raises(LabError, match="give a token, or listen on 127.0.0.1"):
        Control(kafka, "0.0.0.0", 0)
    for token in ("", " ", "guessed", "two words and more", "tökén" * 4, "a\nb" * 6, "\ud800" * 16):
        with pytest.raises(LabError, match="The token of the control port must have 16 characters at least"):
            Control(kafka, "0.0.0.0", 0, token=token)
    control = Control(kafka, "0.0.0.0", 0, token=TOKEN)
    try:
        for token, status in ((None, 401), ("wrong", 401), ("é", 401), ("", 401), (TOKEN, 200)):
            for method, path in (("GET", "/kafka"), ("GET", "/openapi.json"), ("POST", "/chaos/end")):
                assert Client(control.port, token)(method, path)[0] == status
    finally:
        control.close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", control.port))


def test_pages_of_other_sites_are_refused(kafka: Kafka):
    control = Control(kafka, "127.0.0.1", 0)
    form = {"Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document", "Content-Type": "text/plain"}
    try:
        for headers in (
            {"Sec-Fetch-Site": "cross-site"},
            {"Host": "evil.example"},
            {"Origin": "http://evil.example"},
            {**form, "Sec-Fetch-Site": "cross-site", "Origin": "http://evil.example"},
            {**form, "Sec-Fetch-Site": "cross-site", "Content-Type": "application/json"},
            {"Content-Type": "text/plain"},  # a browser of old says no more
            {"Content-Type": "application/x-www-form-urlencoded"},
        ):
            connection = http.client.HTTPConnection("127.0.0.1", control.port)
            connection.request("POST", "/reset", b"{}", {"Content-Type": "application/json", **headers})
            assert connection.getresponse().status in (403, 415, 421), headers
            connection.close()
    finally:
        control.close()


def test_every_operation_is_described(ask: Client):
    told = done(ask, "GET", "/openapi.json")
    assert told == openapi() and told["openapi"] == "3.1.0"
    described = {(method.upper(), path) for path, methods in told["paths"].items() for method in methods}
    assert described == {(each.method, each.path) for each in OPERATIONS}
    ids = [method["operationId"] for methods in told["paths"].values() for method in methods.values()]
    assert len({*ids}) == len(ids)
    for operation in OPERATIONS:
        assert inspect.getdoc(operation.run)
    advance = told["paths"]["/clock/advance"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert advance["properties"]["minutes"] == {"type": "number", "default": 0}


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@settings(max_examples=200)
@given(st.sampled_from(OPERATIONS), st.data())
def test_any_json_gives_arguments_or_a_refusal(operation: Any, data: st.DataObject):
    names = [*list(inspect.signature(operation.run).parameters)[1:], "other"]
    body = data.draw(st.dictionaries(st.sampled_from(names), json_values, max_size=4))
    try:
        arguments = arguments_of(operation, body, are_texts=False)
    except Refused as refused:
        assert refused.status == 400
    else:
        assert arguments == body
