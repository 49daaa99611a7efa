"""A connection answers in order, in one piece, and ends the way Kafka ends it."""

import socket
import struct
import threading
from collections.abc import AsyncIterator, Callable

import pytest
import trio
import trio.testing

from ottla.server.dispatch.dispatch import CloseConnection
from ottla.server.network.calls import Calls, made_call
from ottla.server.network.connection import Connection
from ottla.server.network.sliced_work import WorkQueue
from ottla.server.network.transport import PlainTransport
from ottla.server.tests.routes import IN_THE_TASK, INSIDE_THE_WAIT, listener_of, readiness_of, route_of
from ottla.wire import codecs
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.wire.messages.classic_group import HeartbeatRequest, HeartbeatResponse
from ottla.wire.messages.groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from ottla.wire.messages.metadata import MetadataRequest
from ottla.wire.runtime import encode_varint
from ottla.wire.tests.turns import counted_turns

Exchange = Callable[[bytes], "Peer"]


class Peer:
    """The client's end: sends raw bytes, reads frames."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self.stream = stream
        self.received = b""

    async def send(self, data: bytes) -> None:
        await self.stream.send_all(data)

    async def frame(self) -> bytes | None:
        """The next answer without its size, None at the end of the stream."""
        while len(self.received) < 4 or len(self.received) < 4 + struct.unpack(">i", self.received[:4])[0]:
            try:
                data = await self.stream.receive_some(65536)
            except trio.BrokenResourceError:
                return None
            if not data:
                return None
            self.received += data
        size = struct.unpack(">i", self.received[:4])[0]
        frame, self.received = self.received[4 : 4 + size], self.received[4 + size :]
        return frame


def request(key: int, version: int, correlation_id: int, body: bytes, *, flexible: bool = False) -> bytes:
    header = struct.pack(">hhih", key, version, correlation_id, 4) + b"test" + (b"\0" if flexible else b"")
    return struct.pack(">i", len(header) + len(body)) + header + body


def heartbeat(correlation_id: int, generation_id: int, version: int = 1) -> bytes:
    body = HeartbeatRequest(group_id="g", generation_id=generation_id, member_id="m").encode(version)
    return request(12, version, correlation_id, body, flexible=version >= 4)


class Scripted:
    """Handlers that the tests steer by the generation id of a heartbeat."""

    def __init__(self) -> None:
        self.gate = trio.Event()
        self.contexts: list[tuple[str, int]] = []
        self.left: list[object] = []

    def _fail_to_leave(self, context):
        raise ZeroDivisionError("a bug")

    def heartbeat(self, request, context):
        self.contexts.append((context.client_id, context.api_version))
        if request.generation_id == 100:
            return self._parked()
        if request.generation_id == 105:
            return self._ready()
        if request.generation_id == 101:
            raise KafkaError(ErrorCode.NOT_COORDINATOR, "elsewhere")
        if request.generation_id == 102:
            raise CloseConnection("acks=0")
        if request.generation_id == 103:
            return None
        if request.generation_id == 104:
            raise ZeroDivisionError("a bug")
        if request.generation_id == 106:
            context.on_close(self._fail_to_leave)
            context.on_close(self.left.append)
        return HeartbeatResponse(error_code=request.generation_id)

    async def _parked(self):
        await self.gate.wait()
        return HeartbeatResponse(error_code=100)

    async def _ready(self):
        return HeartbeatResponse(error_code=0)

    def delete_groups(self, request, context):
        return DeleteGroupsResponse(
            results=[DeletableGroupResult(group_id=str(len(request.groups_names)), error_code=0)]
        )

    def api_versions(self, request, context):
        return ApiVersionsResponse(
            error_code=0 if context.api_version in ApiVersionsRequest.versions else 35, api_keys=[]
        )


@pytest.fixture
def scripted() -> Scripted:
    return Scripted()


@pytest.fixture
def calls(scripted: Scripted) -> Calls:
    routes = {
        12: route_of(HeartbeatRequest, HeartbeatRequest.versions, scripted.heartbeat, abandonable=True),
        42: route_of(DeleteGroupsRequest, DeleteGroupsRequest.versions, scripted.delete_groups, abandonable=False),
        18: route_of(ApiVersionsRequest, ApiVersionsRequest.versions, scripted.api_versions, abandonable=False),
    }
    return Calls(routes)


@pytest.fixture(params=[INSIDE_THE_WAIT, IN_THE_TASK])
async def peer(request, calls: Calls, nursery: trio.Nursery) -> AsyncIterator[Peer]:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    readiness = readiness_of(request.param)
    assert readiness.is_inside_the_wait == (request.param == INSIDE_THE_WAIT)
    listener = listener_of(calls, readiness)
    connection = Connection(PlainTransport(ours), "127.0.0.1", listener)
    nursery.start_soon(connection.run)
    stream = trio.SocketStream(trio.socket.from_stdlib_socket(theirs))
    yield Peer(stream)
    await stream.aclose()


async def test_pipelined_requests_are_answered_in_order(peer: Peer):
    await peer.send(b"".join(heartbeat(index, index % 50) for index in range(1000)))
    for index in range(1000):
        answer = await peer.frame()
        assert struct.unpack(">iih", answer) == (index, 0, index % 50)


async def test_a_bug_at_the_end_of_a_connection_ends_nothing_else(
    peer: Peer, scripted: Scripted, caplog: pytest.LogCaptureFixture
):
    """The connection's task runs in the nursery of all: what it raises would end the broker."""
    await peer.send(heartbeat(1, 106))
    assert await peer.frame() == struct.pack(">iih", 1, 0, 106)
    await peer.stream.aclose()
    while not scripted.left:
        await trio.testing.wait_all_tasks_blocked()
    assert "bug: the end of the connection of /127.0.0.1" in caplog.text


async def test_a_flexible_version_has_tagged_headers(peer: Peer, scripted: Scripted):
    await peer.send(heartbeat(5, 7, version=4))
    assert await peer.frame() == struct.pack(">ixihx", 5, 0, 7)
    assert scripted.contexts == [("test", 4)]


async def test_codecs_are_loaded_in_a_thread_once(peer: Peer, scripted: Scripted, monkeypatch: pytest.MonkeyPatch):
    """They may have to come from a disk that is busy."""
    load, loaded = codecs._load, []

    def noted(cls, version, kind):
        loaded.append((cls, version, kind))
        assert threading.get_ident() != loop_thread
        return load(cls, version, kind)

    loop_thread = threading.get_ident()
    first = request(18, 77, 1, b"", flexible=True) + heartbeat(2, 2) + heartbeat(3, 3, version=4)
    sent = first + first + heartbeat(4, 4)
    monkeypatch.setattr(codecs, "_codecs", {})
    monkeypatch.setattr(codecs, "_load", noted)
    await peer.send(sent)
    answers = [await peer.frame() for _ in range(7)]
    assert [answer[3] for answer in answers] == [1, 2, 3, 1, 2, 3, 4]
    assert len(loaded) == len(set(loaded)) == 6


async def test_answers_behind_a_waiting_request_wait_and_those_before_do_not(peer: Peer, scripted: Scripted):
    await peer.send(heartbeat(1, 1) + heartbeat(2, 100) + heartbeat(3, 3))
    assert (await peer.frame())[:4] == b"\0\0\0\1"
    with trio.move_on_after(0.02) as early:
        await peer.frame()
    assert early.cancelled_caught
    scripted.gate.set()
    assert (await peer.frame())[:4] == b"\0\0\0\2"
    assert (await peer.frame())[:4] == b"\0\0\0\3"


@pytest.mark.parametrize("peer", ["inside the loop's wait"], indirect=True)
async def test_small_requests_that_are_awaited_go_on_only_while_there_is_time_left(
    peer: Peer, scripted: Scripted, monkeypatch: pytest.MonkeyPatch
):
    """Sixty of them at once would each do a piece of work between two looks at the sockets."""
    turns, turn = [], WorkQueue.turn

    async def noted(self: WorkQueue) -> None:
        turns.append(self)
        await turn(self)

    monkeypatch.setattr(WorkQueue, "has_time", lambda self: False)
    monkeypatch.setattr(WorkQueue, "turn", noted)
    scripted.gate.set()
    await peer.send(heartbeat(1, 100))
    assert (await peer.frame())[:4] == b"\0\0\0\1"
    assert len(turns) > 1


async def test_who_does_not_know_the_cluster_yet_answers_brokers_and_lets_others_wait(
    peer: Peer, calls: Calls, scripted: Scripted
):
    calls.opened = trio.Event()
    await peer.send(request(18, 0, 1, b"") + heartbeat(2, 2) + heartbeat(3, 3))
    assert (await peer.frame())[:4] == b"\0\0\0\1"
    with trio.move_on_after(0.02) as early:
        await peer.frame()
    assert early.cancelled_caught
    assert scripted.contexts == []
    calls.opened.set()
    assert (await peer.frame())[:4] == b"\0\0\0\2"
    assert (await peer.frame())[:4] == b"\0\0\0\3"


async def test_what_only_brokers_ask_is_answered_before_clients(
    peer: Peer, calls: Calls, scripted: Scripted, monkeypatch: pytest.MonkeyPatch
):
    calls.opened = trio.Event()
    route = route_of(HeartbeatRequest, HeartbeatRequest.versions, scripted.heartbeat, between_brokers=True)
    monkeypatch.setitem(calls._routes, 12, route)
    await peer.send(heartbeat(1, 1))
    assert (await peer.frame())[:4] == b"\0\0\0\1"


async def test_an_error_raised_by_a_handler_is_answered(peer: Peer):
    await peer.send(heartbeat(9, 101))
    assert struct.unpack(">iih", await peer.frame()) == (9, 0, ErrorCode.NOT_COORDINATOR)


async def test_no_answer_is_sent_for_none(peer: Peer):
    await peer.send(heartbeat(1, 103) + heartbeat(2, 2))
    assert (await peer.frame())[:4] == b"\0\0\0\2"


@pytest.mark.parametrize(
    "bad",
    [
        heartbeat(2, 102),
        heartbeat(2, 104),
        struct.pack(">i", -1),
        struct.pack(">i", (1 << 23) + 1),
        struct.pack(">i", 0),
        request(12, 99, 2, b""),
        request(99, 0, 2, b""),
        request(12, 1, 2, b"\0"),
        request(MetadataRequest.api_key, 0, 2, b""),
        struct.pack(">ihhih", 10, 12, 1, 2, -2),
        struct.pack(">ihhih", 10, 12, 1, 2, 5000),
        b"GET / HTTP/1.1\r\n\r\n",
    ],
)
async def test_what_cannot_be_answered_closes_the_connection_after_earlier_answers(peer: Peer, bad: bytes):
    await peer.send(heartbeat(1, 1) + bad)
    assert (await peer.frame())[:4] == b"\0\0\0\1"
    assert await peer.frame() is None


async def test_an_unknown_version_of_api_versions_is_answered_in_format_0(peer: Peer):
    await peer.send(request(18, 99, 3, b"anything", flexible=True))
    assert await peer.frame() == struct.pack(">ihi", 3, 35, 0)


async def test_a_version_below_zero_has_the_first_header(peer: Peer):
    await peer.send(request(18, -1, 3, b""))
    assert await peer.frame() == struct.pack(">ihi", 3, 35, 0)


@pytest.mark.parametrize("length", [-1, -2, -32768])
async def test_a_client_id_of_negative_length_is_none(peer: Peer, scripted: Scripted, length: int):
    body = HeartbeatRequest(group_id="g", generation_id=5, member_id="m").encode(1)
    header = struct.pack(">hhih", 12, 1, 9, length)
    await peer.send(struct.pack(">i", len(header) + len(body)) + header + body)
    assert await peer.frame() == struct.pack(">iih", 9, 0, 5)
    assert scripted.contexts == [("", 1)]


async def test_bytes_that_arrive_one_by_one_make_a_request(peer: Peer):
    for byte in heartbeat(4, 4):
        await peer.send(bytes([byte]))
    assert (await peer.frame())[:4] == b"\0\0\0\4"


def delete_groups(correlation_id: int, count: int) -> bytes:
    return request(42, 1, correlation_id, DeleteGroupsRequest(groups_names=["group"] * count).encode(1))


async def test_a_large_request_is_decoded_aside_and_answered_in_order(peer: Peer):
    await peer.send(heartbeat(1, 1) + delete_groups(2, 20_000) + heartbeat(3, 3))
    assert (await peer.frame())[:4] == b"\0\0\0\1"
    assert DeleteGroupsResponse.decode(await peer.frame(), 1, 4).results[0].group_id == "20000"
    assert (await peer.frame())[:4] == b"\0\0\0\3"


async def test_a_request_without_records_may_not_be_huge(peer: Peer, nursery: trio.Nursery):
    nursery.start_soon(peer.send, heartbeat(1, 1) + delete_groups(2, 700_000))
    assert (await peer.frame())[:4] == b"\0\0\0\1"
    assert await peer.frame() is None


async def test_a_request_without_records_may_not_hold_very_many_elements(peer: Peer):
    names = [""] * 100_001
    body = DeleteGroupsRequest(groups_names=names).encode(2)
    await peer.send(heartbeat(1, 1) + request(42, 2, 2, body, flexible=True))
    assert (await peer.frame())[:4] == b"\0\0\0\1"
    assert await peer.frame() is None


async def test_a_header_may_not_hold_very_many_tagged_fields(peer: Peer):
    def tagged(correlation_id: int, count: int) -> bytes:
        body = HeartbeatRequest(group_id="g", generation_id=7, member_id="m").encode(4)
        header = struct.pack(">hhih", 12, 4, correlation_id, 0) + encode_varint(count) + b"\x63\0" * count
        return struct.pack(">i", len(header) + len(body)) + header + body

    await peer.send(tagged(1, 1_000) + tagged(2, 1_001))
    assert (await peer.frame())[:4] == b"\0\0\0\1"
    assert await peer.frame() is None


async def test_requests_that_are_awaited_and_ready_give_way_to_others(peer, monkeypatch):
    monkeypatch.setattr("ottla.server.network.readiness.ROUND_S", 0)
    monkeypatch.setattr("ottla.server.network.readiness.SHORT_TURN_S", 0)
    count = 200
    async with counted_turns() as turns:
        await peer.send(b"".join(heartbeat(each, 105) for each in range(count)))
        for each in range(count):
            assert (await peer.frame())[:4] == each.to_bytes(4, "big")
    assert turns.count > count // 2


async def test_a_thread_loads_the_codecs_of_a_call_once_in_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    threads = []

    async def run_in_thread(function, *arguments, limiter):
        threads.append(arguments)
        return function(*arguments)

    monkeypatch.setattr(codecs, "_codecs", {})
    monkeypatch.setattr(trio.to_thread, "run_sync", run_in_thread)
    route = route_of(MetadataRequest, MetadataRequest.versions, None, abandonable=False)
    made = [await made_call(route, version) for version in (9, 9, 10, 9)]
    assert [each.version for each in made] == [9, 9, 10, 9] and len({*made}) == 4
    assert threads == [(route, 9), (route, 10)]
