"""Connections get memory for large frames in turn: none is refused, and one of them can always go on."""

import gc
import math
import socket
import time
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from ottla.replication.reminders import Reminder
from ottla.server.network.calls import Calls
from ottla.server.network.connection import Connection
from ottla.server.network.inbox import FREE_BUFFER_BYTES, Inbox, ReceiveBuffers
from ottla.server.network.listener import Listener
from ottla.server.network.memory_accounting import PROMISED_BYTES, STALLED_S, MemoryBudget
from ottla.server.network.readiness import Readiness
from ottla.server.network.transport import PlainTransport
from ottla.server.tests.network.test_connection import Peer, heartbeat, request
from ottla.server.tests.routes import listener_of, route_of
from ottla.server.tests.settling import settled
from ottla.wire.answers import PendingAnswer
from ottla.wire.messages.classic_group import HeartbeatRequest, HeartbeatResponse
from ottla.wire.messages.groups import ListGroupsRequest, ListGroupsResponse
from ottla.wire.messages.produce import ProduceRequest, ProduceResponse

LARGE = 400_000
LATER = 2
WITHOUT_A_TASK = 2


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


async def test_a_connection_that_gives_up_waiting_leaves_its_place_to_others(nursery: trio.Nursery) -> None:
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


async def test_nobody_takes_what_those_in_line_wait_for(nursery: trio.Nursery) -> None:
    memory = MemoryBudget(10)
    memory.take(10)
    line = [object() for _ in range(3)]
    admitted: list[int] = []

    async def want(number: int) -> None:
        await memory.wait(line[number])
        admitted.append(number)

    await memory.wait("beyond")
    for number in range(3):
        nursery.start_soon(want, number)
        await trio.testing.wait_all_tasks_blocked()
    memory.give_back(5)
    assert not memory.may_take("newcomer")
    # A small frame, which needs no leave, is quicker than the first in line.
    memory.take(5)
    await trio.testing.wait_all_tasks_blocked()
    assert admitted == [0] and not memory.may_take(line[0])
    nursery.start_soon(want, 0)
    await trio.testing.wait_all_tasks_blocked()
    memory.give_back(5)
    await trio.testing.wait_all_tasks_blocked()
    assert admitted == [0, 0], "it has kept its place"
    assert [memory.may_take(each) for each in (line[1], line[2], line[0])] == [False, False, True]
    memory.take(5)
    memory.release("beyond")
    await trio.testing.wait_all_tasks_blocked()
    assert admitted == [0, 0, 1] and memory.is_beyond(line[1])
    memory.give_back(5)
    await trio.testing.wait_all_tasks_blocked()
    assert admitted == [0, 0, 1, 2] and not memory.is_short


async def test_who_is_admitted_and_takes_nothing_holds_nobody_up(nursery: trio.Nursery) -> None:
    memory = MemoryBudget(10)
    memory.take(10)
    admitted: list[int] = []

    async def want(number: int) -> None:
        await memory.wait(number)
        admitted.append(number)

    await memory.wait("beyond")
    for number in range(3):
        nursery.start_soon(want, number)
        await trio.testing.wait_all_tasks_blocked()
    memory.give_back(9)
    await trio.testing.wait_all_tasks_blocked()
    before = list(admitted)
    for _ in range(2):
        memory.look_again()
        await trio.testing.wait_all_tasks_blocked()
    assert (before, admitted) == ([0], [0, 1, 2])
    # All of them have leave, and come back in the order in which they came.
    memory.take(9)
    for number in (2, 1, 0):
        nursery.start_soon(want, number)
        await trio.testing.wait_all_tasks_blocked()
    for _ in range(3):
        memory.give_back(1)
        await trio.testing.wait_all_tasks_blocked()
    assert admitted[3:] == [0, 1, 2]


async def test_many_who_take_nothing_hold_nobody_up_while_there_is_room_for_all(nursery: trio.Nursery) -> None:
    memory = MemoryBudget(100 * PROMISED_BYTES)
    memory.take(100 * PROMISED_BYTES)
    admitted: list[int] = []

    async def want(number: int) -> None:
        await memory.wait(number)
        admitted.append(number)

    await memory.wait("beyond")
    for number in range(250):
        nursery.start_soon(want, number)
        await trio.testing.wait_all_tasks_blocked()
    memory.give_back(2 * PROMISED_BYTES)
    await trio.testing.wait_all_tasks_blocked()
    assert sorted(admitted) == [0, 1], "more would only find out that there is no room"
    memory.give_back(98 * PROMISED_BYTES)
    counts = []
    for _ in range(3):
        await trio.testing.wait_all_tasks_blocked()
        counts.append(len(admitted))
        memory.look_again()
    assert counts == [100, 200, 250]


async def test_addresses_take_turns_in_line(nursery: trio.Nursery) -> None:
    """Each connection that goes beyond the limit and stalls keeps all others waiting for BEYOND_S."""
    memory = MemoryBudget(10)
    memory.take(10)
    admitted: list[str] = []

    async def want(name: str, address: str) -> None:
        await memory.wait(name, address)
        admitted.append(name)

    await memory.wait("beyond")
    leaving = trio.CancelScope()

    async def leave() -> None:
        with leaving:
            await memory.wait("leaving", "another")

    nursery.start_soon(leave)
    for name, address in [
        *((f"many{each}", "m") for each in range(50)),
        ("one", "o"),
        ("two", "t"),
        ("of many", "m"),
        ("of one", "o"),
    ]:
        nursery.start_soon(want, name, address)
        await trio.testing.wait_all_tasks_blocked()
    leaving.cancel()
    before = "beyond"
    for _ in range(6):
        memory.release(before)
        await trio.testing.wait_all_tasks_blocked()
        before = admitted[-1]
    assert admitted == ["many0", "one", "two", "many1", "of one", "many2"]
    memory.release(before)
    memory.give_back(10)
    while memory.is_short:
        await trio.testing.wait_all_tasks_blocked()
        memory.look_again()
    await trio.testing.wait_all_tasks_blocked()
    assert admitted[-1] == "of many" and len(admitted) == 54


@pytest.mark.parametrize("is_still_in_wait", [True, False])
async def test_who_was_admitted_and_leaves_admits_the_next_one(nursery: trio.Nursery, is_still_in_wait: bool) -> None:
    memory = MemoryBudget(10)
    memory.take(10)
    first, scope = trio.Event(), trio.CancelScope()

    async def want_and_leave() -> None:
        with scope:
            await memory.wait("first")
            first.set()

    await memory.wait("beyond")
    nursery.start_soon(want_and_leave)
    await trio.testing.wait_all_tasks_blocked()
    nursery.start_soon(memory.wait, "second")
    await trio.testing.wait_all_tasks_blocked()
    if is_still_in_wait:
        scope.cancel()
    memory.give_back(5)
    await trio.testing.wait_all_tasks_blocked()
    assert first.is_set() is not is_still_in_wait
    if not is_still_in_wait:
        memory.release("first")
    assert not memory.is_short


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(1, 20)), max_size=40))
def test_in_any_order_all_who_wait_are_admitted(wishes: list[tuple[str, int]]) -> None:
    async def serve(memory: MemoryBudget, holder: tuple[str, object], count: int) -> None:
        while not memory.may_take(holder):
            await memory.wait(holder, address=holder[0])
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


class PendingHeartbeat(PendingAnswer[HeartbeatResponse]):
    """An answer for which no task waits, such as that of a commit."""

    def response(self) -> HeartbeatResponse:
        return HeartbeatResponse(error_code=0)

    def abandon(self) -> None:
        """Nobody knows of it."""


class Broker:
    """Connections that share a little memory."""

    def __init__(self, nursery: trio.Nursery, total: int) -> None:
        self.memory = MemoryBudget(total)
        routes = {
            0: route_of(ProduceRequest, ProduceRequest.versions, self._answer_produce, pipelined=True),
            12: route_of(HeartbeatRequest, HeartbeatRequest.versions, self._answer_heartbeat),
            16: route_of(
                ListGroupsRequest, ListGroupsRequest.versions, self._list_groups, few_at_once=True, reads_only=True
            ),
        }
        self.gate = trio.Event()
        self.readiness = Readiness()
        self.pending: list[PendingHeartbeat] = []
        self.listings = 0  # under way
        self._listener = listener_of(Calls(routes), self.readiness, buffers=ReceiveBuffers(self.memory))
        self._nursery = nursery
        self.connections: list[Connection] = []

    def _answer_produce(self, request: ProduceRequest, _: object) -> Any:
        return self._append_later() if request.timeout_ms == LATER else ProduceResponse(responses=[])

    async def _append_later(self) -> ProduceResponse:
        await self.gate.wait()
        return ProduceResponse(responses=[])

    def _answer_heartbeat(self, request: HeartbeatRequest, _: object) -> Any:
        if request.generation_id == WITHOUT_A_TASK:
            pending = PendingHeartbeat()
            self.pending.append(pending)
            if self.gate.is_set():
                pending.become_ready()
            return pending
        return self._answer_later() if request.generation_id else HeartbeatResponse(error_code=0)

    def open(self) -> None:
        """Let those who wait be answered from now on."""
        self.gate.set()
        for each in self.pending:
            each.become_ready()

    async def _answer_later(self) -> HeartbeatResponse:
        await self.gate.wait()
        return HeartbeatResponse(error_code=0)

    async def _list_groups(self, request: ListGroupsRequest, _: object) -> ListGroupsResponse:
        self.listings += 1
        await self.gate.wait()
        self.listings -= 1
        return ListGroupsResponse(error_code=0, groups=[])

    def keep_a_buffer_of(self, size: int) -> None:
        """A buffer that is larger than a frame takes what follows the frame, too."""
        buffers = self._listener.buffers
        buffers.give_back(buffers.take(size, size))

    def connect(self) -> Peer:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        connection = Connection(PlainTransport(ours), "127.0.0.1", self._listener)
        self.connections.append(connection)
        self._nursery.start_soon(connection.run)
        return Peer(trio.SocketStream(trio.socket.from_stdlib_socket(theirs)))


def large(correlation_id: int, timeout_ms: int = 1) -> bytes:
    body = ProduceRequest(acks=1, timeout_ms=timeout_ms, topic_data=[]).encode(8)
    return request(0, 8, correlation_id, body + bytes(LARGE))


def large_without_records(correlation_id: int, generation_id: int) -> bytes:
    body = HeartbeatRequest(group_id="g", generation_id=generation_id, member_id="m").encode(1)
    return request(12, 1, correlation_id, body + bytes(LARGE))


@pytest.fixture
async def broker(nursery: trio.Nursery) -> AsyncIterator[Broker]:
    broker = Broker(nursery, FREE_BUFFER_BYTES)
    yield broker
    broker.readiness.worker.close()


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
    nursery.start_soon(waiting.send, large(1))
    await trio.testing.wait_all_tasks_blocked()
    await small.send(heartbeat(7, 0))
    assert (await small.frame() or b"")[:4] == b"\0\0\0\7"
    assert broker.memory.used > FREE_BUFFER_BYTES
    assert min(each.stalled_since for each in broker.connections) <= time.monotonic()
    broker.connections[0].cancel_scope.cancel()
    assert (await waiting.frame() or b"")[:4] == b"\0\0\0\1"
    for peer in (stalled, waiting, small):
        await peer.stream.aclose()


async def test_whether_those_in_line_are_still_there_is_looked_at(broker: Broker) -> None:
    peers = [broker.connect() for _ in range(3)]
    async with trio.open_nursery() as sending:
        for peer in peers:
            sending.start_soon(peer.send, large(1)[:-1])
        await _settled()
        in_line = [each for each in broker.connections if each.is_held_up]
        assert in_line and all(each.is_parked for each in in_line)  # the listener looks whether their peers are there
        sending.cancel_scope.cancel()
    for peer in peers:
        await peer.stream.aclose()


@pytest.mark.parametrize("is_short", [False, True])
async def test_a_peer_that_keeps_memory_others_wait_for_is_closed_in_time(
    nursery: trio.Nursery, is_short: bool
) -> None:
    memory = MemoryBudget(10)
    memory.take(10)
    if is_short:
        await memory.wait(object())
        nursery.start_soon(memory.wait, object())
        await trio.testing.wait_all_tasks_blocked()
    ages = (STALLED_S + 1, STALLED_S - 20, -math.inf)
    ended: list[float] = []
    connections = [
        SimpleNamespace(stalled_since=time.monotonic() - age, end=lambda reason, age=age: ended.append(age))
        for age in ages
    ]
    listener: Any = SimpleNamespace(buffers=ReceiveBuffers(memory), connections=connections, _stalled=Reminder())
    await Listener._end_stalled(listener)
    assert ended == ([STALLED_S + 1] if is_short else [])
    nursery.cancel_scope.cancel()


async def test_memory_that_was_needed_once_goes_back_when_little_is_left_in_use(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls: list[str] = []
    monkeypatch.setattr("ottla.replication.system.give_free_memory_back", lambda: calls.append("given back"))
    buffers = ReceiveBuffers(MemoryBudget(1 << 30))
    listener: Any = SimpleNamespace(buffers=buffers)
    large_ones = [buffers.take(1 << 20, 1 << 20) for _ in range(20)]
    await Listener._give_memory_back(listener)
    assert not calls
    for each in large_ones:
        buffers.give_back(each)
    await Listener._give_memory_back(listener)
    assert calls == ["given back"] and len(buffers.take(1 << 20, 10)) == 10, "no buffer is kept for a large frame"
    await Listener._give_memory_back(listener)
    assert calls == ["given back"]


@pytest.mark.parametrize(
    "frame",
    [large(1, LATER), large_without_records(1, 1), large_without_records(1, WITHOUT_A_TASK)],
    ids=["records", "no records", "without a task"],
)
async def test_large_requests_that_wait_for_something_are_counted(
    broker: Broker, nursery: trio.Nursery, frame: bytes
) -> None:
    peers = [broker.connect() for _ in range(8)]
    for peer in peers:
        nursery.start_soon(peer.send, frame)
    await _settled()
    assert sum(each.is_held_up for each in broker.connections) >= 6  # one found room, and one goes beyond the limit
    assert broker.memory.used >= LARGE
    broker.open()
    for peer in peers:
        assert (await peer.frame() or b"")[:4] == b"\0\0\0\1"
        await peer.stream.aclose()
    await _settled()
    assert broker.memory.used == 0 and not broker.memory.is_short


LIST_GROUPS = request(16, 0, 1, b"")


async def test_few_long_answers_are_made_at_once(broker: Broker) -> None:
    """A request of a few bytes may have an answer of megabytes, and each of a crowd may ask for it."""
    peers = [broker.connect() for _ in range(8)]
    for peer in peers:
        await peer.send(LIST_GROUPS)
    await _settled()
    assert broker.listings == 2
    assert all(each.is_parked for each in broker.connections)  # the listener looks whether their peers are there
    broker.gate.set()
    for peer in peers:
        assert (await peer.frame() or b"")[:4] == b"\0\0\0\1"
        await peer.stream.aclose()


async def test_what_is_not_begun_when_its_peer_leaves_is_closed(
    broker: Broker, recwarn: pytest.WarningsRecorder
) -> None:
    peers = [broker.connect() for _ in range(8)]
    for peer in peers:
        await peer.send(LIST_GROUPS)
    await _settled()
    for connection in broker.connections:
        connection.cancel_scope.cancel()
    await _settled()
    gc.collect()
    assert not [each for each in recwarn if "never awaited" in str(each.message)]


async def test_a_produce_is_carried_out_although_its_peer_closes_its_side_while_codecs_are_loaded(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = trio.Event()

    async def slowly(function: Any, *arguments: Any, **_: Any) -> Any:
        await gate.wait()
        return function(*arguments)

    monkeypatch.setattr(trio.to_thread, "run_sync", slowly)
    peer = broker.connect()
    await peer.send(large(1))
    await peer.stream.send_eof()
    await _settled()
    assert not broker.connections[0].is_parked  # so the listener does not look whether its peer is there
    gate.set()
    assert (await peer.frame() or b"")[:4] == b"\0\0\0\1"
    await peer.stream.aclose()


async def test_a_large_request_comes_through_although_the_next_one_has_begun(
    broker: Broker, nursery: trio.Nursery
) -> None:
    broker.keep_a_buffer_of(2 * LARGE)
    broker.memory.take(FREE_BUFFER_BYTES)
    first, second = broker.connect(), broker.connect()
    await first.send(large_without_records(1, 0) + heartbeat(2, 0)[:3])
    assert (await first.frame() or b"")[:4] == b"\0\0\0\1"
    await second.send(large(1))
    assert (await second.frame() or b"")[:4] == b"\0\0\0\1"
    for peer in (first, second):
        await peer.stream.aclose()


async def test_answers_that_are_not_read_are_counted_until_they_are(broker: Broker, nursery: trio.Nursery) -> None:
    peer = broker.connect()
    count = 40_000
    nursery.start_soon(peer.send, b"".join(heartbeat(each, 0) for each in range(count)))
    (connection,) = broker.connections
    while connection.stalled_since != connection.last_active:
        await trio.testing.wait_all_tasks_blocked()
    assert broker.memory.used > 0
    for each in range(count):
        assert (await peer.frame() or b"")[:4] == each.to_bytes(4, "big")
    await _settled()
    assert broker.memory.used == 0 and connection.stalled_since == math.inf
    await peer.stream.aclose()


async def test_answers_that_nobody_will_read_are_given_up_with_their_connection(
    broker: Broker, nursery: trio.Nursery
) -> None:
    peer = broker.connect()

    async def send() -> None:
        with pytest.raises(trio.BrokenResourceError):
            await peer.send(b"".join(heartbeat(each, 0) for each in range(100_000)))

    nursery.start_soon(send)
    (connection,) = broker.connections
    while connection.stalled_since != connection.last_active:
        await trio.testing.wait_all_tasks_blocked()
    connection.cancel_scope.cancel()
    await _settled()
    assert broker.memory.used == 0
    await peer.stream.aclose()


async def test_the_time_in_line_does_not_count_as_the_peers(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    stalled, waiting, third = broker.connect(), broker.connect(), broker.connect()
    await stalled.send(large(1)[:-1])
    async with trio.open_nursery() as sending:
        for peer in (waiting, third):
            sending.start_soon(peer.send, large(1)[:-1])
        await _settled()
        real = time.monotonic
        monkeypatch.setattr(time, "monotonic", lambda: real() + 2 * STALLED_S)
        broker.connections[0].cancel_scope.cancel()
        await _settled()
        left = [each for each in broker.connections[1:] if not each.is_held_up]
        (admitted,) = left
        assert time.monotonic() - admitted.stalled_since < STALLED_S
        sending.cancel_scope.cancel()
    for peer in (stalled, waiting, third):
        await peer.stream.aclose()


@pytest.mark.parametrize("claimed", [100, 3_000_000])
def test_a_few_bytes_that_keep_a_large_buffer_are_noticed(claimed: int) -> None:
    buffers = ReceiveBuffers()
    buffers.give_back(buffers.take(4 << 20, 4 << 20))
    inbox = Inbox(buffers, 100 << 20)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.send(claimed.to_bytes(4, "big") + b"few")
        inbox.receive(PlainTransport(ours))
        assert inbox.next_frame() is None
        inbox.detach()
    assert (len(inbox.buffer) <= FREE_BUFFER_BYTES) or inbox.large_since < math.inf
    inbox.close()
    assert buffers.memory.used == 0 and inbox.large_since == math.inf


def test_a_large_buffer_of_which_little_is_left_is_noticed_anew() -> None:
    buffers = ReceiveBuffers()
    buffers.give_back(buffers.take(200_000, 200_000))
    inbox = Inbox(buffers, 100 << 20)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.send((1 << 17).to_bytes(4, "big") + bytes(1000))
        inbox.receive(PlainTransport(ours))
        assert inbox.next_frame() is None
        inbox.detach()
        theirs.send(bytes((1 << 17) - 1000) + bytes([0, 0, 1]))
        inbox.receive(PlainTransport(ours))
        began = time.monotonic()
        assert inbox.next_frame() is not None
        inbox.detach()
    assert (inbox.end - inbox.start, len(inbox.buffer)) == (3, 200_000)
    assert began <= inbox.large_since < math.inf


async def _settled() -> None:
    """Until nothing more happens, threads and sockets included."""
    await settled(0.05)
