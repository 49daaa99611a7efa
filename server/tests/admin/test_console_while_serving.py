"""The console works while clients are served: not before the logs are loaded, and nothing of it is under way when they close."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
import trio.testing

from ottla.server.admin.console import learning
from ottla.server.broker import Broker
from ottla.server.serving_state import NotServing, ServingState
from ottla.server.tests.console_client import ask, make_topic, running

TOKEN = "a-token-of-an-operator"
RECORD = {"topic": "t", "partition": 0, "value": "v"}


async def test_nothing_is_written_once_the_logs_are_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, int] = {}
    async with running(tmp_path, http_console_write="true", http_console_token=TOKEN) as broker:
        await make_topic(broker, "t")
        assert (await ask(broker, "/api/produce", body=RECORD, token=TOKEN)).status == 200
        close = broker.replicas._close_logs

        async def closed() -> object:
            left = await close()
            for path, body in {
                "/api/produce": RECORD,
                "/api/alter": {"kind": "topic", "name": "t", "setting": "retention.ms", "value": "5"},
                "/api/load": {"action": "start"},
            }.items():
                seen[path] = (await ask(broker, path, body=body, token=TOKEN)).status
            for path in (
                "/api/records?topic=t",
                "/api/groups",
                "/api/settings",
                "/api/overview",
                "/healthz",
                "/metrics",
            ):
                seen[path] = (await ask(broker, path, token=TOKEN)).status
            return left

        monkeypatch.setattr(broker.replicas, "_close_logs", closed)
    assert broker.partition("t", 0).log.log_end_offset == 1
    assert {seen.pop("/api/overview"), seen.pop("/healthz"), seen.pop("/metrics")} == {200}
    assert set(seen.values()) == {503}


async def test_the_load_of_the_learn_tab_has_ended_before_the_logs_are_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(learning, "RECORDS_PER_S", 1000)
    ends: list[list[int]] = []
    async with running(tmp_path, http_console_write="true", http_console_token=TOKEN) as broker:
        await ask(broker, "/api/load", body={"action": "start"}, token=TOKEN)
        with trio.fail_after(60):
            while (await ask(broker, "/api/load", token=TOKEN)).json["written"] < 10:
                await trio.sleep(0.01)
        close = broker.replicas._close_logs

        def written() -> list[int]:
            return [each.log.log_end_offset for each in broker.replicas.partitions_of(learning.TOPIC)]

        async def closed() -> object:
            left = await close()
            ends.append(written())
            # Longer than it would take the load to write some more.
            for _ in range(200):
                await trio.sleep(0.0005)
            ends.append(written())
            return left

        monkeypatch.setattr(broker.replicas, "_close_logs", closed)
    assert ends[0] == ends[1]


async def test_nothing_is_asked_of_a_broker_that_loads_its_logs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: dict[str, int] = {}
    opened = Broker.open

    async def opening(broker: Broker, sessions: trio.Nursery) -> None:
        for path in (
            "/api/records?topic=t",
            "/api/groups",
            "/api/group?id=g",
            "/api/settings",
            "/api/overview",
            "/api/topics",
        ):
            seen[path] = (await ask(broker, path, token=TOKEN)).status
        seen["/api/produce"] = (await ask(broker, "/api/produce", body=RECORD, token=TOKEN)).status
        await opened(broker, sessions)

    monkeypatch.setattr(Broker, "open", opening)
    async with running(tmp_path, http_console_write="true", http_console_token=TOKEN) as broker:
        assert (await ask(broker, "/api/groups", token=TOKEN)).status == 200
    assert {seen.pop("/api/overview"), seen.pop("/api/topics")} == {200}
    assert set(seen.values()) == {503}


async def test_work_is_cancelled_when_serving_ends_which_waits_for_it() -> None:
    state, told = ServingState(), []

    async def work() -> None:
        try:
            with state.work():
                try:
                    await trio.sleep_forever()
                finally:
                    with trio.CancelScope(shield=True):
                        await trio.lowlevel.checkpoint()
                    told.append("ended")
        except NotServing:
            told.append("not serving")

    async with trio.open_nursery() as nursery:
        async with state.until_left():
            with pytest.raises(NotServing), state.work():
                raise AssertionError
            state.begin()
            nursery.start_soon(work)
            nursery.start_soon(work)
            await trio.testing.wait_all_tasks_blocked()
        assert told.count("ended") == 2
    assert told.count("not serving") == 2
    state.begin()  # too late
    with pytest.raises(NotServing), state.work():
        raise AssertionError
