"""The last hour of figures: rates of what was counted, in rings that do not grow."""

from __future__ import annotations

import json
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock

from ottla.replication.partition.traffic import Traffic
from ottla.server.admin.console import history
from ottla.server.admin.console.history import DIRECTORIES_MAX, FIGURES, POINTS, STEP_S, History, Ring
from ottla.server.admin.http.metrics.page import Meters
from ottla.server.admin.http.metrics.process import RECENT_MAX, LoopLag
from ottla.server.admin.http.metrics.upkeep import DiskRoom, Room
from ottla.server.admin.http.routes import Pace, Request
from ottla.server.dispatch.dispatch import count, no_times
from ottla.server.tests.console_client import ask, make_topic, running, write
from ottla.wire.records import Record


class Counting:
    """Simulated broker with counters, on virtual time."""

    def __init__(self) -> None:
        self.traffic = Traffic()
        self.route = SimpleNamespace(name="Produce", request_count=1, times=no_times())
        self.listeners = [SimpleNamespace(calls=SimpleNamespace(routes=[self.route]))] * 2  # of a worker: one table
        self.committed: dict[str, Any] = {}
        self.begun_groups = SimpleNamespace(all_committed=lambda: iter(self.committed.items()))
        self.replicas = SimpleNamespace(traffic=self.traffic, log_directories=[], partition=self.partition)
        broker: Any = self
        self.meters = Meters(LoopLag(), DiskRoom(broker))
        self.history = History(broker, self.meters, Pace())

    def now_ms(self) -> int:
        return int(trio.current_time() * 1000)

    def partition(self, topic: str, index: int) -> Any:
        return None if topic == "elsewhere" else SimpleNamespace(high_watermark=100)

    async def told(self) -> dict[str, Any]:
        found = await self.history.history(Request(method="GET", path="/api/history"))
        return json.loads(json.dumps(found, allow_nan=False))  # type: ignore[no-any-return]

    async def last(self) -> dict[str, Any]:
        return {name: values[-1] for name, values in (await self.told())["figures"].items()}


@pytest.fixture
async def counting(nursery: trio.Nursery, autojump_clock: MockClock) -> Counting:
    counting = Counting()
    nursery.start_soon(counting.history.run)
    await trio.sleep(STEP_S / 2)
    return counting


async def test_what_is_counted_becomes_rates(counting: Counting) -> None:
    assert await counting.last() == dict.fromkeys(FIGURES)
    topic = counting.traffic.of("orders")
    topic.messages_in, topic.bytes_in, topic.bytes_out = 500, 10_000, 30_000
    await trio.sleep(STEP_S)
    found = await counting.last()
    assert (found["recordsIn"], found["bytesIn"], found["bytesOut"]) == (50, 1000, 3000)
    topic.messages_in += 10
    counting.traffic.forget("orders")  # its counts go on counting
    await trio.sleep(STEP_S)
    assert (await counting.last())["recordsIn"] == 1
    await trio.sleep(STEP_S)
    assert (await counting.last())["recordsIn"] == 0


async def test_times_of_producers_are_those_of_the_last_step(counting: Counting) -> None:
    for _ in range(98):
        count(counting.route.times, 0.001)
    for _ in range(2):
        count(counting.route.times, 0.5)
    await trio.sleep(STEP_S)
    assert (await counting.last())["produceTimeMs"] == pytest.approx(500, rel=0.1)
    await trio.sleep(STEP_S)
    assert (await counting.last())["produceTimeMs"] is None
    count(counting.route.times, 0.001)
    await trio.sleep(STEP_S)
    assert (await counting.last())["produceTimeMs"] == pytest.approx(1, rel=0.1)


async def test_the_delay_of_the_loop_is_its_99th_percentile(counting: Counting) -> None:
    for late_s in (0.001, *[0.002] * 98, 0.3):
        counting.meters.lag.note(late_s)
    await trio.sleep(STEP_S)
    assert (await counting.last())["loopDelayMs"] == 2
    for _ in range(2 * RECENT_MAX):
        counting.meters.lag.note(0.04)
    assert len(counting.meters.lag.take_recent()) == RECENT_MAX


async def test_lag_is_added_up_where_there_is_a_replica(counting: Counting, monkeypatch: pytest.MonkeyPatch) -> None:
    def offsets(*values: int) -> dict[int, Any]:
        return {index: SimpleNamespace(offset=offset) for index, offset in enumerate(values)}

    counting.committed = {"a": {"orders": offsets(90, 101), "elsewhere": offsets(1)}, "b": {"orders": offsets(70)}}
    await trio.sleep(STEP_S)
    assert (await counting.last())["lag"] == 10 + 30
    monkeypatch.setattr(history, "OFFSETS_MAX", 3)
    await trio.sleep(STEP_S)
    assert (await counting.last())["lag"] is None
    counting.committed = {}
    await trio.sleep(STEP_S)
    assert (await counting.last())["lag"] == 0


async def test_free_space_has_a_ring_for_each_directory_up_to_a_bound(counting: Counting) -> None:
    paths = [f"/disk{number}" for number in range(DIRECTORIES_MAX + 3)]
    counting.replicas.log_directories = [SimpleNamespace(path=path, is_online=True) for path in paths]
    counting.meters.room.by_path = {path: Room(100, 40) for path in paths[1:]}
    await trio.sleep(STEP_S)
    directories = (await counting.told())["directories"]
    assert [each["path"] for each in directories] == paths[:DIRECTORIES_MAX]
    assert [(each["totalBytes"], each["free"][-1]) for each in directories[:2]] == [(None, None), (100, 40)]


async def test_an_hour_is_kept_and_a_stop_of_the_clock_leaves_a_gap(
    counting: Counting, autojump_clock: MockClock
) -> None:
    await trio.sleep(2 * POINTS * STEP_S)
    found = await counting.told()
    assert {len(values) for values in found["figures"].values()} == {POINTS}
    assert None not in found["figures"]["recordsIn"]
    assert (found["stepMs"], found["endMs"]) == (10_000, pytest.approx(counting.now_ms(), abs=STEP_S * 1000))
    counting.traffic.of("orders").messages_in += 550
    autojump_clock.jump(5 * STEP_S)  # a machine that slept, or a loop that was held
    await trio.sleep(STEP_S / 4)
    values = (await counting.told())["figures"]["recordsIn"]
    assert values[-6:-1] == [0, None, None, None, None]
    assert values[-1] == 10  # of the 55 s since the value before


async def test_a_bug_ends_the_charts_and_nothing_else(counting: Counting, caplog: pytest.LogCaptureFixture) -> None:
    counting.committed = {"a": None}
    await trio.sleep(3 * STEP_S)
    assert [each.message for each in caplog.records] == ["bug: the console's charts go on no more"]
    assert (await counting.told())["figures"]["lag"] == [None] * POINTS


@given(st.lists(st.floats(allow_infinity=False), max_size=2 * POINTS))
def test_a_ring_has_the_last_values_in_their_order(values: list[float]) -> None:
    ring = Ring()
    for each in values:
        ring.add(each)
    expected = [None if math.isnan(each) else round(each, 3) for each in values[-POINTS:]]
    assert ring.values() == [None] * (POINTS - len(expected)) + expected


async def test_the_console_answers_with_the_history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "STEP_S", 0.05)
    async with running(tmp_path) as broker:
        await make_topic(broker, "orders")
        with trio.fail_after(60):
            while not any((found := (await ask(broker, "/api/history")).json)["figures"]["recordsIn"]):
                write(broker, "orders", [Record(0, 1, b"k", b"v")])
        assert [each["path"] for each in found["directories"]] == [str(tmp_path)]
        (directory,) = (await ask(broker, "/api/brokers")).json["logDirectories"]
        assert (directory["logs"], directory["isOnline"]) == (1, True)
        assert directory["size"] == broker.partition("orders", 0).log.size_in_bytes
