"""Asking the controller while it moves: from broker to broker, and from address to address."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing

from ottla.replication.cluster.metadata_cache import NO_CONTROLLER, BrokerEndpoint
from ottla.replication.cluster.peers import PeerUnavailable
from ottla.server.cluster.controller_channel import MOVE_GRACE_S, ControllerChannel, ask_active_controller
from ottla.wire.messages.classic_group import HeartbeatRequest

REQUEST = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")


class FakePeer:
    def __init__(self, endpoint: BrokerEndpoint) -> None:
        self.endpoint = endpoint
        self.is_open = True

    async def ask(self, request: Any, version: int, *, timeout_s: float) -> Any:
        await trio.lowlevel.checkpoint()
        return self.endpoint.node_id, self.endpoint.port

    async def aclose(self) -> None:
        await trio.lowlevel.checkpoint()
        self.is_open = False


class Stage:
    """Brokers 1 and 2, and the ways that were made to them."""

    def __init__(self) -> None:
        self.ports = {1: 9001, 2: 9002}
        self.made: list[FakePeer] = []
        self.way = ControllerChannel(self._endpoint, self._connect)

    def _endpoint(self, broker_id: int) -> BrokerEndpoint | None:
        port = self.ports.get(broker_id)
        return None if port is None else BrokerEndpoint(broker_id, "host", port, None)

    def _connect(self, broker_id: int) -> FakePeer:
        endpoint = self._endpoint(broker_id)
        if endpoint is None:
            raise PeerUnavailable("not known")
        self.made.append(FakePeer(endpoint))
        return self.made[-1]

    async def ask(self, controller_id: int) -> Any:
        return await self.way.ask(controller_id, REQUEST, 0, timeout_s=1)

    def open_ports(self) -> list[int]:
        return [each.endpoint.port for each in self.made if each.is_open]


async def test_the_way_follows_the_controller() -> None:
    stage = Stage()
    assert [await stage.ask(1) for _ in range(2)] == [(1, 9001)] * 2
    assert await stage.ask(2) == (2, 9002)
    stage.ports[2] = 9012  # it was started again, and is the controller again
    assert await stage.ask(2) == (2, 9012)
    assert len(stage.made) == 3
    assert stage.open_ports() == [9012]


async def test_nobody_knows_the_way() -> None:
    stage = Stage()
    with pytest.raises(PeerUnavailable):
        await stage.ask(NO_CONTROLLER)
    await stage.ask(1)
    del stage.ports[2]
    for _ in range(2):
        with pytest.raises(PeerUnavailable):
            await stage.ask(2)
    assert stage.open_ports() == []
    assert await stage.ask(1) == (1, 9001)


async def test_those_who_ask_at_once_share_a_way() -> None:
    stage = Stage()
    answers = []

    async def ask() -> None:
        answers.append(await stage.ask(2))

    await stage.ask(1)
    async with trio.open_nursery() as nursery:
        for _ in range(5):
            nursery.start_soon(ask)
    assert answers == [(2, 9002)] * 5
    assert stage.open_ports() == [9002]


async def test_after_hanging_up_it_begins_anew() -> None:
    stage = Stage()
    await stage.way.aclose()
    assert await stage.ask(1) == (1, 9001)
    await stage.way.aclose()
    assert stage.open_ports() == []
    assert await stage.ask(1) == (1, 9001)
    assert len(stage.made) == 2


class FakeOffice:
    def __init__(self) -> None:
        self.controller_id = 1
        self.moved = trio.Event()

    def move(self, controller_id: int) -> None:
        self.controller_id = controller_id
        self.moved.set()
        self.moved = trio.Event()


class SlowWay:
    """Answers after some seconds."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    async def ask(self, controller_id: int, request: Any, version: int, *, timeout_s: float) -> Any:
        with trio.move_on_after(timeout_s):
            await trio.sleep(self.seconds)
            return "answer"
        raise PeerUnavailable("no answer in time")

    async def aclose(self) -> None: ...


async def test_a_bug_is_raised_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any, **__: Any) -> Any:
        raise ZeroDivisionError

    monkeypatch.setattr(SlowWay, "ask", fails)
    with pytest.raises(ZeroDivisionError):
        await ask_active_controller(SlowWay(1), FakeOffice(), REQUEST, 0, timeout_s=30)


@pytest.mark.parametrize(
    ("seconds", "end"),
    [(30, "broker 1 is not the controller any more"), (30.01, "no answer in time"), (11.5, "answer")],
)
async def test_a_controller_that_hangs_is_waited_for_while_it_is_in_office(
    seconds: float, end: str, autojump_clock: trio.testing.MockClock
) -> None:
    office, began = FakeOffice(), trio.current_time()
    moves = end != "no answer in time"

    async def election() -> None:
        office.move(1)  # nothing that matters here
        await trio.sleep(10)
        if moves:
            office.move(2)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(election)
        try:
            found = await ask_active_controller(SlowWay(seconds), office, REQUEST, 0, timeout_s=30)
        except PeerUnavailable as unavailable:
            found = str(unavailable)
        took_s = trio.current_time() - began
    assert found == end
    assert took_s == pytest.approx({"answer": seconds, "no answer in time": 30}.get(end, 10 + MOVE_GRACE_S))
