"""What the console answers, and to whom."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from ottla.server.admin.console import cluster_view, console, requests
from ottla.server.admin.console.requests import Access
from ottla.server.admin.http.metrics.process import LoopLag
from ottla.server.admin.http.routes import Refused, Request
from ottla.server.broker import Broker
from ottla.server.config.broker_config import ConfigError, load_config
from ottla.server.tests.console_client import ask, make_topic, running, write
from ottla.wire.records import Record

TOKEN = "a-token-of-an-operator"


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    async with running(tmp_path) as broker:
        yield broker


# ---------------------------------------------------------------------- the page


async def test_the_page_runs_no_script_but_its_own_files_and_is_cached_by_etag(broker: Broker) -> None:
    page = await ask(broker, "/")
    assert page.status == 200
    policy = page.headers["content-security-policy"]
    assert "script-src 'self'" in policy and "unsafe" not in policy and "require-trusted-types-for 'script'" in policy
    assert b"<script>" not in page.body and b"style=" not in page.body and b"http://" not in page.body
    script = await ask(broker, "/console/app.js")
    assert script.headers["content-type"].startswith("text/javascript")
    again = await ask(broker, "/console/app.js", headers={"If-None-Match": script.headers["etag"]})
    assert (again.status, again.body) == (304, b"")
    other = await ask(broker, "/console/app.js", headers={"If-None-Match": '"other"'})
    assert other.body == script.body


@pytest.mark.parametrize(
    "path", ["/console/", "/console/../console.py", "/console/..%2fconsole.py", "/console/none.js"]
)
async def test_there_are_no_other_files(broker: Broker, path: str) -> None:
    assert (await ask(broker, path)).status == 404


# ---------------------------------------------------------------------- who may ask


async def test_on_loopback_everybody_may_read_and_nobody_may_write(broker: Broker) -> None:
    overview = (await ask(broker, "/api/overview")).json
    assert not overview["canWrite"]
    assert "writeToken" not in overview
    assert broker.http_token == ""
    assert (await ask(broker, "/api/overview", body={})).status == 405


@pytest.mark.parametrize(
    "settings",
    [
        {"http_listener": "0.0.0.0:0"},
        {"http_console_token": TOKEN},
        {"authorizer_class_name": "kafka.security.authorizer.AclAuthorizer", "super_users": "User:ANONYMOUS"},
    ],
)
async def test_elsewhere_only_the_token_opens_it(tmp_path: Path, settings: dict[str, str]) -> None:
    async with running(tmp_path, **settings) as broker:
        assert (await ask(broker, "/")).status == 200
        refused = await ask(broker, "/api/overview")
        assert refused.status == 401
        assert refused.headers["www-authenticate"] == "Bearer"
        assert (await ask(broker, "/api/overview", token="wrong")).status == 401
        token = settings.get("http_console_token") or broker.http_token
        assert (len(broker.http_token) > 30) == (token != TOKEN)
        assert (await ask(broker, "/api/overview", token=token)).json["nodeId"] == broker.node_id


@pytest.mark.parametrize("name", ["Forwarded", "Via", "X-Forwarded-For", "x-real-ip"])
async def test_behind_a_proxy_on_this_machine_nobody_is_taken_for_local(broker: Broker, name: str) -> None:
    assert (await ask(broker, "/api/overview", headers={name: "192.0.2.1"})).status == 401
    assert (await ask(broker, "/healthz", headers={name: "192.0.2.1"})).status == 200


async def test_an_operator_may_choose_the_token_and_it_is_told_nowhere(tmp_path: Path) -> None:
    async with running(tmp_path, http_listener="0.0.0.0:0", http_console_token=TOKEN) as broker:
        assert broker.http_token == ""
        assert (await ask(broker, "/api/overview", token=TOKEN)).status == 200


def test_a_token_that_could_be_guessed_is_refused() -> None:
    with pytest.raises(ConfigError, match="16 characters"):
        load_config({"http.console.token": "short"})


@given(given=st.text(max_size=40), method=st.sampled_from(["GET", "HEAD", "POST", "PUT"]), is_open=st.booleans())
def test_no_other_token_is_as_good(given: str, method: str, is_open: bool) -> None:
    access = Access(TOKEN, is_open=is_open, may_write=True)
    request = Request(method=method, path="/", headers={"authorization": given})
    if is_open and method in ("GET", "HEAD"):
        access.check(request)
    else:
        with pytest.raises(Refused):
            access.check(request)
        access.check(Request(method=method, path="/", headers={"authorization": f"Bearer {TOKEN}"}))


@given(st.text(max_size=30))
def test_a_number_is_within_its_bounds_or_refused(text: str) -> None:
    request = Request(method="GET", path="/", query={"n": text})
    try:
        assert 3 <= requests.number(request, "n", None, 3, 50) <= 50
    except Refused as refused:
        assert refused.status == 400


@given(st.binary(max_size=200))
def test_a_posted_body_is_an_object_or_refused(body: bytes) -> None:
    try:
        assert isinstance(requests.posted(Request(method="POST", path="/", body=body)), dict)
    except Refused as refused:
        assert refused.status == 400


# ---------------------------------------------------------------------- topics and brokers


async def test_topics_come_with_their_partitions_and_sizes(broker: Broker) -> None:
    await make_topic(broker, "orders", 3)
    write(broker, "orders", [Record(0, 1, b"k", b"v")] * 2, partition=1)
    [topic] = (await ask(broker, "/api/topics")).json["topics"]
    assert (topic["name"], topic["partitions"], topic["records"], topic["offline"]) == ("orders", 3, 2, 0)
    assert topic["size"] == broker.partition("orders", 1).log.size_in_bytes > 0
    one = (await ask(broker, "/api/topic?name=orders")).json
    assert [each["highWatermark"] for each in one["partitions"]] == [0, 2, 0]
    assert all(each["leader"] == broker.node_id and each["isr"] == [broker.node_id] for each in one["partitions"])
    assert (await ask(broker, "/api/topic?name=none")).status == 404
    [here] = (await ask(broker, "/api/brokers")).json["brokers"]
    assert (here["leads"], here["holds"], here["isHere"]) == (3, 3, True)
    assert (await ask(broker, "/api/overview")).json["partitions"] == 3


async def test_a_topic_tells_which_records_were_removed_and_why(broker: Broker) -> None:
    await make_topic(broker, "orders", 2, retention_ms="5000")
    write(broker, "orders", [Record(0, 1000, b"k", b"v"), Record(1, 2000, b"k", b"v")], partition=1)
    assert (await ask(broker, "/api/topic?name=orders")).json["removals"] == []
    before_ms = broker.now_ms()
    await broker.replicas.housekeeping.apply_retention()
    [removal] = (await ask(broker, "/api/topic?name=orders")).json["removals"]
    assert before_ms <= removal.pop("fromMs") == removal.pop("untilMs") <= broker.now_ms()
    found = {"records": 2, "hasGaps": False, "logs": 1, "runs": 1, "oldestMs": 1000, "newestMs": 2000}
    assert removal == {"cause": "retention.ms=5000", **found}


async def test_removals_of_all_topics_outlive_their_topic(broker: Broker) -> None:
    assert (await ask(broker, "/api/removals")).json == {"removals": []}
    await make_topic(broker, "orders")
    write(broker, "orders", [Record(0, 1000, b"k", b"v")])
    await broker.administration.delete_topics(["orders"])
    while not (removals := (await ask(broker, "/api/removals")).json["removals"]):
        await trio.sleep(0.01)
    [removal] = removals
    assert (removal["topic"], removal["cause"], removal["records"]) == ("orders", "deletion of the topic", 1)


async def test_long_lists_come_in_pages(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_view, "TOPICS_PER_PAGE", 2)
    monkeypatch.setattr(cluster_view, "PARTITIONS_PER_PAGE", 2)
    for name in ("a1", "b", "a2", "a3"):
        await make_topic(broker, name, 3)
    first = (await ask(broker, "/api/topics?contains=A")).json
    assert ([each["name"] for each in first["topics"]], first["next"]) == (["a1", "a2"], "a2")
    second = (await ask(broker, f"/api/topics?contains=A&after={first['next']}")).json
    assert ([each["name"] for each in second["topics"]], second["next"]) == (["a3"], None)
    page = (await ask(broker, "/api/topic?name=b")).json
    assert ([each["index"] for each in page["partitions"]], page["next"]) == ([0, 1], 2)
    rest = (await ask(broker, "/api/topic?name=b&from=2")).json
    assert ([each["index"] for each in rest["partitions"]], rest["next"]) == ([2], None)


# ---------------------------------------------------------------------- the log and the event loop


async def test_the_log_needs_the_token_even_where_the_console_is_open(broker: Broker) -> None:
    assert (await ask(broker, "/api/overview")).status == 200
    assert (await ask(broker, "/api/log")).status == 401


async def test_the_log_is_told_only_to_who_has_the_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console, "LINES_PER_PAGE", 3)
    async with running(tmp_path, http_console_token=TOKEN) as broker:
        assert (await ask(broker, "/api/overview", token=TOKEN)).status == 200
        assert (await ask(broker, "/api/log")).status == 401
        logger = logging.getLogger("ottla.test")
        for number in range(5):
            logger.warning("line %d of \x1b[31m<b>", number)
        lines = (await ask(broker, "/api/log", token=TOKEN)).json["lines"]
        assert [each["message"] for each in lines] == [f"line {number} of \x1b[31m<b>" for number in (2, 3, 4)]
        assert (lines[0]["level"], lines[0]["logger"]) == ("WARNING", "ottla.test")
        logger.error("x" * 10_000)
        rest = (await ask(broker, f"/api/log?after={lines[-1]['number']}", token=TOKEN)).json["lines"]
        assert [each["message"] for each in rest] == ["x" * console.LINE_LENGTH_MAX]
    handlers = logging.getLogger("ottla").handlers
    assert not any(isinstance(each, console.LogTail) for each in handlers)


def test_a_line_that_cannot_be_formatted_is_kept_as_it_is_and_the_oldest_go() -> None:
    tail = console.LogTail(Access(TOKEN, is_open=True, may_write=False), LoopLag())
    for each in range(console.LINES_KEPT + 10):
        tail.emit(logging.LogRecord("ottla", logging.ERROR, "", 1, f"{each} %d", ("no number",), None))
    assert len(tail._lines) == console.LINES_KEPT
    assert tail._lines[0]["message"] == "10 %d"


def test_an_error_that_cannot_be_told_is_no_error_of_who_logs_it() -> None:
    class Untold(Exception):
        def __str__(self) -> str:
            raise ValueError("no words")

    tail = console.LogTail(Access(TOKEN, is_open=True, may_write=False), LoopLag())
    error = Untold()
    tail.emit(logging.LogRecord("ottla", logging.ERROR, "", 1, "a bug", (), (Untold, error, None)))
    tail.emit(logging.LogRecord("ottla", logging.ERROR, "", 1, error, (), None))
    assert [each["message"] for each in tail._lines] == ["a bug", "This line cannot be made."]


async def test_the_event_loop_is_looked_at(broker: Broker) -> None:
    with trio.fail_after(60):
        while not (loop := (await ask(broker, "/api/loop")).json)["looks"]:
            await trio.sleep(0.02)
    assert len(loop["buckets"]) == len(loop["bounds"]) + 1
    assert loop["seconds"] >= 0
