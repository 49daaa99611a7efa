"""Bodies over HTTP: streams are answered while they come, and whole bodies share a room."""

from __future__ import annotations

import json
import socket
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import cast

import pytest
import trio
import trio.testing

from ottla.replication.log.descriptors import Descriptors
from ottla.server.admin.http import server
from ottla.server.admin.http.routes import Guard, Refused, Request, Response, Routes
from ottla.server.admin.http.server import HttpConnection, HttpServer, Room
from ottla.server.admin.http.standalone import ApiGuard, FreePace
from ottla.server.rest.api import Answer, Call, RestApi
from ottla.server.rest.client.cluster import KafkaCluster
from ottla.server.rest.errors import RestError
from ottla.server.rest.v2.consumers import Consumers
from ottla.server.rest.v2.instances import Instances

FAR_S = 600.0
CHUNKED = b"POST /s HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


class Streaming(Routes):
    """Answers each piece with its length."""

    def __init__(self) -> None:
        super().__init__()
        self.bodies: list[bytes] = []
        self.go_on = trio.Event()
        self.post("/s", self.answer, body_bytes_max=100)
        self.post("/whole", self.whole, body_bytes_max=100)
        self._exact["/s"]["POST"] = self._exact["/s"]["POST"]._replace(streams=True)

    async def answer(self, request: Request) -> Response:
        if request.pieces is None:
            return Response(b"whole:" + request.body)
        return Response(self._lengths(request.pieces))

    async def _lengths(self, pieces: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
        async for piece in pieces:
            yield b"%d;" % len(piece)

    async def whole(self, request: Request) -> Response:
        self.bodies.append(request.body)
        await self.go_on.wait()
        return Response(b"done")


@asynccontextmanager
async def conversing(routes: Routes, guard: Guard | None = None, bodies: Room | None = None):
    """The client's side of one connection in memory."""
    ours, theirs = trio.testing.memory_stream_pair()
    async with trio.open_nursery() as nursery:
        talk = HttpConnection(theirs, "127.0.0.1", routes, guard or ApiGuard("0.0.0.0"), FreePace(), None, bodies)

        async def run() -> None:
            await talk.run()
            await theirs.aclose()

        nursery.start_soon(run)
        yield ours
        nursery.cancel_scope.cancel()


async def received(stream: trio.abc.ReceiveStream, until: bytes) -> bytes:
    found = b""
    with trio.fail_after(FAR_S):
        while until not in found:
            data = await stream.receive_some()
            if not data:
                raise AssertionError(f"it ends with {found!r}")
            found += data
    return found


async def test_a_stream_is_answered_piece_by_piece_and_another_request_follows() -> None:
    async with conversing(Streaming()) as stream:
        await stream.send_all(CHUNKED)
        for size in (3, 90, 200):  # together more than a whole body may have
            await stream.send_all(chunk(bytes(size)))
            await received(stream, b"\r\n%d;\r\n" % size)
        await stream.send_all(b"0\r\n\r\n")
        await received(stream, b"0\r\n\r\n")
        await stream.send_all(
            b"POST /s HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\nab"
        )
        assert b"whole:ab" in await received(stream, b"whole:ab")


async def test_who_expects_leave_to_stream_gets_it() -> None:
    async with conversing(Streaming()) as stream:
        await stream.send_all(CHUNKED[:-2] + b"Expect: 100-continue\r\n\r\n")
        assert b"100" in await received(stream, b"\r\n\r\n")


async def test_a_stream_that_breaks_off_or_says_nonsense_is_ended(
    autojump_clock: trio.abc.Clock, caplog: pytest.LogCaptureFixture
) -> None:
    for end in (b"zz\r\n", b""):
        async with conversing(Streaming()) as stream:
            await stream.send_all(CHUNKED + chunk(b"abc"))
            await received(stream, b"3;")
            if end:
                await stream.send_all(end)
            with trio.fail_after(server.STREAM_IDLE_S + server.SEND_S):
                try:
                    while await stream.receive_some():
                        pass
                except trio.BrokenResourceError:
                    pass
    assert "bug" not in caplog.text


async def test_bodies_share_a_room_which_answers_give_back() -> None:
    routes, room = Streaming(), Room(50)
    request = (
        b"POST /whole HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 40\r\n\r\n" + bytes(40)
    )
    async with conversing(routes, bodies=room) as first:
        await first.send_all(request)
        await trio.testing.wait_all_tasks_blocked()
        assert routes.bodies == [bytes(40)]
        async with conversing(routes, bodies=room) as second:
            await second.send_all(request)
            assert b"503" in await received(second, b"try again")
        async with conversing(routes, bodies=room) as second:
            await second.send_all(request.replace(b"Content-Length: 40", b"Transfer-Encoding: chunked")[:-40])
            await second.send_all(chunk(bytes(40)))
            assert b"503" in await received(second, b"try again")
        routes.go_on.set()
        await received(first, b"done")
        await first.send_all(request)
        await received(first, b"done")
        await first.send_all(request)
        await received(first, b"done")


@asynccontextmanager
async def serving(routes: Routes):
    """A server on loopback, and a function that connects to it."""
    sock = socket.create_server(("127.0.0.1", 0))
    address = sock.getsockname()
    running = HttpServer(routes, ApiGuard("0.0.0.0"), Descriptors(1_000), FreePace())
    async with AsyncExitStack() as stack, trio.open_nursery() as nursery:

        async def connect() -> trio.SocketStream:
            return await stack.enter_async_context(await trio.open_tcp_stream(*address))

        nursery.start_soon(running.run, sock)
        yield running, connect


WHOLE = b"POST /whole HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n"


async def test_a_server_that_stops_answers_what_is_in_flight(mock_clock: trio.testing.MockClock) -> None:
    routes = Streaming()
    async with serving(routes) as (running, connect):
        idle, stream, asking, late = [await connect() for _ in range(4)]
        await stream.send_all(CHUNKED + chunk(b"abc"))
        await received(stream, b"3;")
        await asking.send_all(WHOLE)  # without its body
        while running.connection_count < 4:
            await trio.lowlevel.checkpoint()
        running.stop()
        await late.send_all(WHOLE + b"ab")
        # The stream ends with what was answered.
        await received(stream, b"0\r\n\r\n")
        with pytest.raises(OSError):
            await connect()
        await asking.send_all(b"ab")
        while len(routes.bodies) < 2:
            await trio.lowlevel.checkpoint()
        mock_clock.jump(server.LEAVE_S)
        assert await idle.receive_some() == b""
        routes.go_on.set()
        for each in (asking, late):
            assert b"connection: close" in (await received(each, b"done")).lower()
            assert await each.receive_some() == b""
            await each.aclose()
        await stream.aclose()
    # `run` has returned.
    assert running.connection_count == 0


async def test_a_server_cuts_off_what_it_cannot_answer() -> None:
    routes = Streaming()
    async with serving(routes) as (running, connect):
        asking = await connect()
        await asking.send_all(WHOLE + b"ab")
        while not routes.bodies:
            await trio.lowlevel.checkpoint()
        running.stop()
        running.cut_off()
        with suppress(trio.BrokenResourceError):
            assert await asking.receive_some() == b""


class Api(RestApi):
    def __init__(self) -> None:
        super().__init__("http")
        self.add("GET", "/a/{}", self.parts)
        self.add("GET", "/a/-", self.dash)
        self.add("POST", "/a/{}", self.refuse)

    async def parts(self, call: Call) -> object:
        return [*call.parts, call.base_url]

    async def dash(self, call: Call) -> object:
        raise AssertionError("the first path that fits is taken")

    async def refuse(self, call: Call) -> object:
        raise RestError(40901, "no") if call.parts[0] == "no" else ZeroDivisionError


@pytest.mark.parametrize(
    ("request_line", "status", "content"),
    [
        ("GET /a/b%2Fc", 200, ["b/c", "http://h"]),
        ("GET /a/-", 200, ["-", "http://h"]),
        ("GET /b", 404, 404),
        ("GET /a/b/c", 404, 404),
        ("PUT /a/b", 405, 405),
        ("POST /a/no", 409, 40901),
    ],
)
async def test_paths_are_found(request_line: str, status: int, content: object) -> None:
    async with conversing(Api()) as stream:
        await stream.send_all(f"{request_line} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n".encode())
        head, _, body = (await received(stream, b"\r\n\r\n")).partition(b"\r\n\r\n")
        assert int(head.split()[1]) == status
        told = json.loads(body)
        assert (told["error_code"] if isinstance(told, dict) else told) == content


async def test_a_bug_is_answered_in_json(caplog: pytest.LogCaptureFixture) -> None:
    async with conversing(Api()) as stream:
        await stream.send_all(b"POST /a/b HTTP/1.1\r\nHost: h\r\n\r\n")
        assert b'"error_code": 500' in await received(stream, b"}")
    assert "bug" in caplog.text


def test_pages_of_other_sites_are_refused_and_a_loopback_listener_has_no_other_names() -> None:
    guard = ApiGuard("127.0.0.1")
    with pytest.raises(Refused):
        guard.check_host("evil.example")
    with pytest.raises(Refused):
        guard.check_change({"origin": "http://evil.example", "host": "localhost"})
    by_form = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
    guard.check_read(by_form)  # as a link
    with pytest.raises(Refused):
        guard.check_change(by_form)
    guard.check_change({"host": "localhost"})
    ApiGuard("0.0.0.0").check_host("proxy.example")


async def test_a_link_of_another_site_reads_no_records_of_an_instance() -> None:
    consumers = Consumers(cast("KafkaCluster", None), Instances(cast("KafkaCluster", None)))
    by_link = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
    for headers, status in ((by_link, 403), ({}, 404)):
        with pytest.raises(RestError) as refused:
            await consumers._records(Call(Request(method="GET", path="/", headers=headers), ("g", "i"), ""))
        assert refused.value.status == status


def test_answers_are_json_with_a_status() -> None:
    assert Answer({}).status == 200
