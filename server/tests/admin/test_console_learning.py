"""The load of the Learn tab: it writes, its readers are members of a group, and it ends when it is told to."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from ottla.replication.cluster.metadata_cache import UNKNOWN_STATE, MetadataCache, TopicState
from ottla.server.admin.console import learning
from ottla.server.broker import Broker
from ottla.server.tests.console_client import ask, running
from ottla.wire.messages.consumer_protocol import ConsumerProtocolAssignment, TopicPartition


@pytest.fixture
async def broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Broker]:
    monkeypatch.setattr(learning, "RECORDS_PER_S", 100)
    monkeypatch.setattr(learning, "TURN_S", 0.01)
    settings = {"http_console_write": "true", "group_min_session_timeout_ms": "1000"}
    async with running(tmp_path, **settings) as broker:
        yield broker


async def change(broker: Broker, action: str) -> Any:
    token = (await ask(broker, "/api/overview")).json["writeToken"]
    return await ask(broker, "/api/load", body={"action": action}, token=token)


async def until(broker: Broker, path: str, is_so: Callable[[Any], bool]) -> Any:
    answer = None
    with trio.move_on_after(60):
        while True:
            answer = await ask(broker, path)
            if answer.status == 200 and is_so(answer.json):
                return answer.json
            await trio.sleep(0.02)
    raise AssertionError(f"not within 60 s; the last answer is {answer}")


def assigned(group: Any) -> list[list[int]]:
    return sorted([index for _, partitions in each["assigned"] for index in partitions] for each in group["members"])


async def test_readers_come_and_go_and_share_the_partitions(broker: Broker) -> None:
    assert (await ask(broker, "/api/load")).json["isRunning"] is False
    assert (await change(broker, "start")).json["isRunning"] is True
    load = await until(broker, "/api/load", lambda load: load["written"] > 20 and load["readers"][0]["read"] > 5)
    path = f"/api/group?id={load['group']}"
    await until(broker, path, lambda group: assigned(group) == [[0, 1, 2]])
    await change(broker, "add-reader")
    group = await until(broker, path, lambda group: assigned(group) == [[0, 2], [1]])
    assert "is new" in group["lastRebalance"]["reason"]
    await change(broker, "remove-reader")
    await until(broker, path, lambda group: assigned(group) == [[0, 1, 2]])
    for _ in range(2):
        await change(broker, "add-reader")
    assert (await change(broker, "add-reader")).status == 409
    await until(broker, path, lambda group: assigned(group) == [[0], [1], [2]])
    await change(broker, "stop")
    await until(broker, "/api/load", lambda load: not load["isRunning"] and not load["problem"])
    left = await until(broker, path, lambda group: group["memberCount"] == 0)
    assert {each["topic"] for each in left["offsets"]} == {learning.TOPIC}
    assert all(0 <= each["committed"] <= each["end"] for each in left["offsets"])


@pytest.mark.thorough
async def test_a_reader_that_is_lost_is_missed_when_its_session_ends(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(learning, "SESSION_MS", 3000)
    await change(broker, "start")
    load = await until(broker, "/api/load", lambda load: load["written"] > 0)
    path = f"/api/group?id={load['group']}"
    await until(broker, path, lambda group: assigned(group) == [[0, 1, 2]])
    await change(broker, "add-reader")
    await until(broker, path, lambda group: assigned(group) == [[0, 2], [1]])
    await change(broker, "lose-reader")
    group = await until(broker, path, lambda group: assigned(group) == [[0, 1, 2]])
    assert "silent for too long" in group["lastRebalance"]["reason"]


async def test_a_load_that_cannot_go_on_says_why(broker: Broker) -> None:
    await change(broker, "start")
    await until(broker, "/api/load", lambda load: load["written"] > 0)
    assert await broker.administration.delete_topics([learning.TOPIC]) == [None]
    load = await until(broker, "/api/load", lambda load: not load["isRunning"])
    assert load["problem"]
    assert (await change(broker, "add-reader")).status == 409
    assert (await change(broker, "dance")).status == 400
    assert (await change(broker, "start")).json["isRunning"]
    await until(broker, "/api/load", lambda load: load["written"] > 0 and load["readers"] and not load["problem"])


async def test_without_the_option_nobody_starts_it(tmp_path: Path) -> None:
    async with running(tmp_path, http_console_token="a-token-of-an-operator") as broker:
        assert (await ask(broker, "/api/load", token="a-token-of-an-operator")).json["mayStart"] is False
        assert (await ask(broker, "/api/load", body={"action": "start"}, token="a-token-of-an-operator")).status == 405


@given(st.binary(max_size=60))
def test_whatever_another_leader_assigns_a_reader_reads_only_what_there_is(assignment: bytes) -> None:
    broker = SimpleNamespace(cluster=MetadataCache())
    broker.cluster.put_topic(TopicState("t", bytes(16), (UNKNOWN_STATE,) * 2))
    reader = learning.Reader(broker, None, "g", "t")  # type: ignore[arg-type]
    assert reader._assigned(assignment) <= {0, 1}
    whole = [TopicPartition(topic="t", partitions=[1, 2, -1]), TopicPartition(topic="other", partitions=[0])]
    assert reader._assigned(b"\0\0" + ConsumerProtocolAssignment(assigned_partitions=whole).encode(0)) == {1}


def test_a_key_is_always_in_the_same_partition_and_all_partitions_get_records() -> None:
    placed: dict[bytes, set[int]] = {}
    for number in range(200):
        key, _ = learning.record_of(number)
        placed.setdefault(key, set()).add(learning.partition_of_key(key, learning.PARTITIONS))
    assert len(placed) == len(learning.KEYS)
    assert all(len(each) == 1 for each in placed.values())
    assert set.union(*placed.values()) == set(range(learning.PARTITIONS))
