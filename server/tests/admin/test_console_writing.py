"""What the console changes, and who may have it changed."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.server.admin.console import settings_view
from ottla.server.admin.console.settings_view import partition_of_key
from ottla.server.broker import Broker
from ottla.server.tests.console_client import ask, make_topic, running


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    async with running(tmp_path, http_console_write="true") as broker:
        await make_topic(broker, "t", 3)
        yield broker


async def token_of(broker: Broker) -> str:
    token: str = (await ask(broker, "/api/overview")).json["writeToken"]
    return token


async def test_a_record_is_produced_to_the_partition_of_its_key(broker: Broker) -> None:
    token = await token_of(broker)
    body = {"topic": "t", "partition": None, "key": "käse", "value": "<b>", "headers": [["h", "1"], ["n", None]]}
    told = (await ask(broker, "/api/produce", body=body, token=token)).json
    assert told == {"partition": partition_of_key("käse".encode(), 3), "offset": 0}
    [record] = (await ask(broker, f"/api/records?topic=t&partition={told['partition']}")).json["records"]
    assert (record["key"]["text"], record["value"]["text"]) == ("käse", "<b>")
    assert [(name["text"], value and value["text"]) for name, value in record["headers"]] == [("h", "1"), ("n", None)]
    as_hex = {"topic": "t", "partition": 2, "value": "00 ff", "isHex": True}
    offset = (await ask(broker, "/api/produce", body=as_hex, token=token)).json["offset"]
    [record] = (await ask(broker, f"/api/records?topic=t&partition=2&from={offset}")).json["records"]
    assert (record["key"], record["value"]["text"]) == (None, "00 ff")


async def test_a_long_key_does_not_hold_the_event_loop(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    places: list[int] = []

    def noted(key: bytes | None, count: int) -> int:
        places.append(threading.get_ident())
        return partition_of_key(key, count)

    monkeypatch.setattr(settings_view, "partition_of_key", noted)
    body = {"topic": "t", "partition": None, "key": "k" * 500_000}
    assert (await ask(broker, "/api/produce", body=body, token=await token_of(broker))).status == 200
    assert places and threading.get_ident() not in places


async def test_a_setting_is_changed_and_taken_back(broker: Broker) -> None:
    token = await token_of(broker)
    change = {"kind": "topic", "name": "t", "setting": "retention.ms", "value": "12345"}
    assert (await ask(broker, "/api/alter", body=change, token=token)).status == 200
    assert broker.configs.log_config("t").retention_ms == 12345
    assert (await ask(broker, "/api/alter", body=change | {"value": None}, token=token)).status == 200
    assert broker.configs.log_config("t").retention_ms != 12345
    wrong = await ask(broker, "/api/alter", body=change | {"value": "soon"}, token=token)
    assert wrong.status == 409 and b"retention.ms" in wrong.body
    of_broker = {"kind": "broker", "setting": "log.cleaner.threads", "value": "2"}
    assert (await ask(broker, "/api/alter", body=of_broker, token=token)).status == 200
    assert broker.configs.value("log.cleaner.threads") == "2"


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 401),  # no token
        ({"Authorization": "Bearer wrong"}, 401),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Content-Type": "text/plain"}, 415),
        ({"Host": "evil.example"}, 421),
    ],
)
async def test_nothing_is_changed_for_pages_of_other_sites(
    broker: Broker, headers: dict[str, str], status: int
) -> None:
    is_about_tokens = status == 401
    token = "" if is_about_tokens else await token_of(broker)
    body = {"topic": "t", "partition": 0, "value": "v"}
    assert (await ask(broker, "/api/produce", body=body, token=token, headers=headers)).status == status
    assert broker.partition("t", 0).high_watermark == 0


async def test_without_the_option_there_is_nothing_to_write_to(tmp_path: Path) -> None:
    async with running(tmp_path, http_console_token="a-token-of-an-operator") as broker:
        for path in ("/api/produce", "/api/alter"):
            assert (await ask(broker, path, body={}, token="a-token-of-an-operator")).status == 404


@pytest.mark.parametrize(
    "body",
    [
        [],
        {},
        {"topic": 1},
        {"topic": "t", "partition": "0"},
        {"topic": "t", "partition": -1},
        {"topic": "t", "partition": True},
        {"topic": "t", "partition": 0, "value": 5},
        {"topic": "t", "partition": 0, "value": "\ud800"},
        {"topic": "t", "partition": 0, "value": "xy", "isHex": True},
        {"topic": "\ud800", "partition": 0},
        {"topic": "t" * 40_000, "partition": 0},
        {"topic": "t", "partition": 0, "headers": [["a"]]},
        {"topic": "t", "partition": 0, "headers": {"a": "b"}},
    ],
)
async def test_a_wrong_record_is_refused_with_a_sentence(broker: Broker, body: Any) -> None:
    refused = await ask(broker, "/api/produce", body=body, token=await token_of(broker))
    assert (refused.status, refused.body[-2:]) == (400, b".\n")


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "broker", "setting": "\ud800", "value": "1"},
        {"kind": "broker", "setting": "s" * 40_000, "value": "1"},
        {"kind": "broker", "setting": "custom", "value": "ä" * 20_000},
        {"kind": "broker", "setting": "custom", "value": "\udfff"},
        {"kind": "topic", "name": "\ud800", "setting": "retention.ms", "value": "1"},
        {"kind": "group", "name": "\ud800", "setting": "consumer.session.timeout.ms", "value": "1"},
    ],
)
async def test_nothing_is_stored_that_clients_could_not_be_told(broker: Broker, change: dict[str, str]) -> None:
    refused = await ask(broker, "/api/alter", body=change, token=await token_of(broker))
    assert (refused.status, refused.body[-2:]) == (400, b".\n")
    assert broker.configs.value("custom") is None


async def test_what_the_broker_refuses_is_told_by_its_name(broker: Broker) -> None:
    token = await token_of(broker)
    internal = await ask(broker, "/api/produce", body={"topic": "none", "value": "v"}, token=token)
    assert internal.status == 404
    too_many = await ask(broker, "/api/produce", body={"topic": "t", "partition": 7, "value": "v"}, token=token)
    assert b"UNKNOWN_TOPIC_OR_PARTITION" in too_many.body


@given(key=st.binary(max_size=40), count=st.integers(1, 10_000))
def test_any_key_has_a_partition(key: bytes, count: int) -> None:
    assert 0 <= partition_of_key(key, count) < count
