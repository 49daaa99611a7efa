"""Who wants memory for a large frame gets it in turn; nobody is refused, and somebody always gets on."""

import math
import socket
import time
from types import SimpleNamespace
from typing import Any

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from ottla.server.connection import Calls, Connection
from ottla.server.dispatch import Route
from ottla.server.inbox import FREE_BUFFER_BYTES, ReceiveBuffers
from ottla.server.listener import Listener
from ottla.server.memory_budget import STALLED_S, MemoryBudget
from ottla.server.readiness import Readiness
from ottla.server.tests.test_connection import Peer, heartbeat, request
from ottla.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.wire.messages.produce import ProduceRequest, ProduceResponse

LARGE = 400_000


async def test_there_is_room_up_to_the_limit() -> None:
    memory = MemoryBudget(10)
    memory.take(9)
    assert memory.may_take("a")
    memory.take(9)
    assert not memory.may_take("a")
    memory.give_back(9)
    assert memory.may_take("a")


async def test_the_first_in_line_goes_beyond_the_limit_and_then_the_next(nursery: trio.Nursery) -> None:
    memory = MemoryBudget(10)
    memory.take(10)
    admitted: list[object] = []
    a, b, c = object(), object(), object()

    async def want(holder: object) -> None:
        await memory.wait(holder)
        admitted.append(holder)

    for holder in (a, b, c):
        nursery.start_soon(want, holder)
        await trio.testing.wait_all_tasks_blocked()
    assert admitted == [a]
    assert (memory.may_take(a), memory.may_take(b), memory.is_short) == (True, False, True)
    memory.release(b)
    await trio.testing.wait_all_tasks_blocked()
    assert admitted == [a]
    memory.release(a)
    await trio.testing.wait_all_tasks_blocked()
    assert admitted == [a, b]
    memory.give_back(10)
    await trio.testing.wait_all_tasks_blocked()
    assert admitted == [a, b, c]
    assert not memory.is_short


async def test_who_gives_up_waiting_leaves_the_line_to_others(nursery: trio.Nursery) -> None:
    memory = MemoryBudget(10)
    memory.take(10)
    first, third = object(), object()
    await memory.wait(first)
    with trio.move_on_after(0) as scope:
        await memory.wait("second")
    assert scope.cancelled_caught and not memory.is_short
    memory.release(first)
    await memory.wait(third)
    assert memory.may_take(third)


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(1, 20)), max_size=40))
def test_in_any_order_all_who_wait_are_admitted(wishes: list[tuple[str, int]]) -> None:
    async def serve(memory: MemoryBudget, holder: object, count: int) -> None:
        while not memory.may_take(holder):
            await memory.wait(holder)
        memory.take(count)
        await trio.lowlevel.checkpoint()
        memory.give_back(count)
        memory.release(holder)

    async def all_of_them() -> None:
        memory = MemoryBudget(10)
        async with trio.open_nursery() as nursery:
            for name, count in wishes:
                nursery.start_soon(serve, memory, (name, object()), count)
        assert memory.used == 0 and not memory.is_short

    trio.run(all_of_them)


class Broker:
    """Connections that share a little memory."""

    def __init__(self, nursery: trio.Nursery, total: int) -> None:
        self.memory = MemoryBudget(total)
        routes = {
            0: Route(ProduceRequest, ProduceRequest.versions, lambda *_: ProduceResponse(responses=[]), pipelined=True),
            12: Route(HeartbeatRequest, HeartbeatRequest.versions, lambda *_: HeartbeatResponse(error_code=0)),
        }
        self._listener: Any = SimpleNamespace(
            name="PLAINTEXT",
            broker=None,
            calls=Calls(routes),
            buffers=ReceiveBuffers(self.memory),
            readiness=Readiness(),
            frame_bytes_max=1 << 23,
        )
        self._nursery = nursery
        self.connections: list[Connection] = []

    def connect(self) -> Peer:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        connection = Connection(ours, "127.0.0.1", self._listener)
        self.connections.append(connection)
        self._nursery.start_soon(connection.run)
        return Peer(trio.SocketStream(trio.socket.from_stdlib_socket(theirs)))


def large(correlation_id: int) -> bytes:
    body = ProduceRequest(acks=1, timeout_ms=1, topic_data=[]).encode(8)
    return request(0, 8, correlation_id, body + bytes(LARGE))


@pytest.fixture
def broker(nursery: trio.Nursery) -> Broker:
    return Broker(nursery, FREE_BUFFER_BYTES)


async def test_large_requests_of_many_connections_come_through_one_after_the_other(
    broker: Broker, nursery: trio.Nursery
) -> None:
    peers = [broker.connect() for _ in range(8)]
    for peer in peers:
        nursery.start_soon(peer.send, large(1) + large(2) + heartbeat(3, 0))
    for peer in peers:
        assert [(await peer.frame() or b"")[:4] for _ in range(3)] == [bytes([0, 0, 0, each]) for each in (1, 2, 3)]
        await peer.stream.aclose()
    await trio.testing.wait_all_tasks_blocked()
    assert broker.memory.used == 0 and not broker.memory.is_short


async def test_an_unfinished_large_request_holds_up_no_small_one(broker: Broker, nursery: trio.Nursery) -> None:
    stalled, waiting, small = broker.connect(), broker.connect(), broker.connect()
    await stalled.send(large(1)[:-1])
    nursery.start_soon(waiting.send, large(1)[:-1])
    await trio.testing.wait_all_tasks_blocked()
    await small.send(heartbeat(7, 0))
    assert (await small.frame() or b"")[:4] == b"\0\0\0\7"
    assert broker.memory.used > FREE_BUFFER_BYTES
    assert min(each.large_since for each in broker.connections) <= time.monotonic()
    broker.connections[0].cancel_scope.cancel()
    nursery.start_soon(waiting.send, large(1)[-1:])
    assert (await waiting.frame() or b"")[:4] == b"\0\0\0\1"
    for peer in (stalled, waiting, small):
        await peer.stream.aclose()


@pytest.mark.parametrize("is_short", [False, True])
async def test_who_keeps_memory_that_others_wait_for_is_closed_in_time(nursery: trio.Nursery, is_short: bool) -> None:
    memory = MemoryBudget(10)
    memory.take(10)
    if is_short:
        await memory.wait(object())
        nursery.start_soon(memory.wait, object())
        await trio.testing.wait_all_tasks_blocked()
    ages = (STALLED_S + 1, STALLED_S - 20, -math.inf)
    connections = [
        SimpleNamespace(large_since=time.monotonic() - age, cancel_scope=trio.CancelScope()) for age in ages
    ]
    listener: Any = SimpleNamespace(buffers=ReceiveBuffers(memory), connections=connections)
    Listener._end_stalled_frames(listener)
    assert [each.cancel_scope.cancel_called for each in connections] == [is_short, False, False]
    nursery.cancel_scope.cancel()
