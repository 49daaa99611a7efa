"""The HTTP endpoint: what it answers, whom it refuses, and what ends a connection."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from itertools import pairwise

import h11
import pytest
import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.replication.log.descriptors import Descriptors
from ottla.server.admin.http import server
from ottla.server.admin.http import server as limits
from ottla.server.admin.http.routes import (
    EVENT_STREAM,
    LOGIN_S,
    REQUEST_S,
    REST,
    Guard,
    Pace,
    Refused,
    Request,
    Response,
    Routes,
)
from ottla.server.admin.http.server import HttpConnection, HttpServer, Room
from ottla.server.config.server_config import parse_http_listener
from ottla.server.network.listener import bind
from ottla.wire.tests.effort import examples

GET = b"GET /echo HTTP/1.1\r\nHost: localhost\r\n\r\n"
JSON_POST = b"POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
EMBEDDED = b"GET /echo HTTP/1.1\r\nHost: localhost\r\nSec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate\r\n"
FAR_S = 600.0


class Rooms:
    """Handlers for tests, and what they have seen."""

    def __init__(self) -> None:
        self.ended: list[str] = []
        self.pieces = 0

    async def echo(self, request: Request) -> Response:
        seen = {"method": request.method, "path": request.path, "query": request.query, "body": request.body.decode()}
        return Response(json.dumps(seen).encode())

    async def bug(self, request: Request) -> Response:
        raise ZeroDivisionError

    async def no(self, request: Request) -> Response:
        raise Refused(409, "Not now.")

    async def long(self, request: Request) -> Response:
        return Response(self._pieces(1000))

    async def whole(self, request: Request) -> Response:
        return Response(bytes(100_000))

    async def live(self, request: Request) -> Response:
        return Response(self._events(), content_type=EVENT_STREAM, is_lasting=True)

    async def _pieces(self, count: int) -> AsyncGenerator[bytes, None]:
        try:
            for _ in range(count):
                self.pieces += 1
                yield bytes(100_000)
        finally:
            self.ended.append("long")

    async def _events(self) -> AsyncGenerator[bytes, None]:
        try:
            yield b"data: 1\n\n"
            await trio.sleep_forever()
        finally:
            self.ended.append("live")

    def routes(self) -> Routes:
        routes = Routes()
        for name in ("echo", "bug", "no", "long", "whole", "live"):
            routes.get(f"/{name}", getattr(self, name))
        routes.get("/below/", self.echo)
        routes.post("/echo", self.echo, body_bytes_max=100)
        routes.post("/locked", self.echo, body_bytes_max=100, check=self.refuse)
        return routes

    def refuse(self, request: Request) -> None:
        raise Refused(401, "A token is missing.")


@asynccontextmanager
async def conversing(rooms: Rooms | None = None) -> AsyncIterator[trio.StapledStream]:
    """The client's side of one connection in memory."""
    ours, theirs = trio.testing.memory_stream_pair()
    async with trio.open_nursery() as nursery:
        talk = HttpConnection(theirs, "127.0.0.1", (rooms or Rooms()).routes(), Guard("127.0.0.1"), Pace())

        async def run() -> None:
            await talk.run()
            await theirs.aclose()

        nursery.start_soon(run)
        yield ours
        nursery.cancel_scope.cancel()


async def answered(stream: trio.abc.ReceiveStream) -> bytes:
    """All bytes until the end."""
    received = b""
    with trio.fail_after(FAR_S):
        try:
            async for piece in stream:
                received += piece
        except trio.BrokenResourceError:
            pass
    return received


async def asked(request: bytes) -> tuple[int, dict[str, str], bytes]:
    """Status, headers and body of one answer."""
    async with conversing() as stream:
        await stream.send_all(request)
        client = h11.Connection(h11.CLIENT)
        client.send(h11.Request(method="GET", target="/", headers=[("Host", "x")]))
        client.send(h11.EndOfMessage())
        status, headers, body = 0, {}, b""
        with trio.fail_after(FAR_S):
            while True:
                event = client.next_event()
                if event is h11.NEED_DATA:
                    client.receive_data(bytes(await stream.receive_some()))
                elif isinstance(event, h11.Response):
                    status = event.status_code
                    headers = {name.decode(): value.decode() for name, value in event.headers}
                elif isinstance(event, h11.Data):
                    body += event.data
                elif isinstance(event, h11.EndOfMessage):
                    return status, headers, body


async def test_a_request_comes_to_its_handler_and_is_answered() -> None:
    status, headers, body = await asked(b"GET /echo?a=1&b= HTTP/1.1\r\nHost: localhost:1\r\n\r\n")
    assert status == 200
    assert json.loads(body) == {"method": "GET", "path": "/echo", "query": {"a": "1", "b": ""}, "body": ""}
    assert headers["x-content-type-options"] == "nosniff"
    assert "access-control-allow-origin" not in headers


async def test_requests_follow_each_other_on_one_connection() -> None:
    async with conversing() as stream:
        await stream.send_all(GET + JSON_POST + b"Content-Length: 2\r\n\r\n{}" + GET)
        await stream.send_eof()
        received = await answered(stream)
    assert received.count(b"HTTP/1.1 200") == 3
    assert b'"body": "{}"' in received


async def test_head_has_the_headers_of_get_and_no_body() -> None:
    for path in (b"/echo", b"/long", b"/nothing"):
        async with conversing() as stream:
            await stream.send_all(b"HEAD " + path + b" HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            head, _, rest = (await answered(stream)).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 404" if path == b"/nothing" else b"HTTP/1.1 200")
        assert rest == b""


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"GET /nothing HTTP/1.1\r\nHost: localhost\r\n\r\n", 404),
        (b"GET http://localhost/echo HTTP/1.1\r\nHost: localhost\r\n\r\n", 404),
        (b"DELETE /echo HTTP/1.1\r\nHost: localhost\r\n\r\n", 405),
        (b"OPTIONS /echo HTTP/1.1\r\nHost: localhost\r\n\r\n", 405),
        (b"GET /no HTTP/1.1\r\nHost: localhost\r\n\r\n", 409),
        (b"GET /echo HTTP/1.1\r\nHost: evil.example\r\n\r\n", 421),
        (b"GET /echo HTTP/1.1\r\nHost: 192.0.2.1\r\n\r\n", 421),
        (b"GET /echo HTTP/1.1\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400),
        (b"GET /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\n\r\nx", 413),
        (JSON_POST + b"Content-Length: 101\r\n\r\n", 413),
        (JSON_POST + b"Content-Length: 99999999999999999999\r\n\r\n", 413),
        (JSON_POST + b"Transfer-Encoding: chunked\r\n\r\n65\r\n" + bytes(0x65) + b"\r\n0\r\n\r\n", 413),
        (b"GET /" + b"a" * 9000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", 414),
        (b"GET /echo?" + b"&".join([b"a=1"] * 101) + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        (b"GET /echo HTTP/1.1\r\nHost: localhost\r\n" + b"a: b\r\n" * 100 + b"\r\n", 431),
        (b"GET /echo HTTP/1.1\r\nHost: localhost\r\nA: " + b"b" * 40_000, 431),
        (b"POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}", 415),
        (JSON_POST + b"Origin: http://evil.example\r\nContent-Length: 2\r\n\r\n{}", 403),
        (JSON_POST + b"Origin: null\r\nContent-Length: 2\r\n\r\n{}", 403),
        (JSON_POST + b"Sec-Fetch-Site: cross-site\r\nContent-Length: 2\r\n\r\n{}", 403),
        (JSON_POST + b"Origin: http://localhost\r\nSec-Fetch-Site: same-origin\r\nContent-Length: 2\r\n\r\n{}", 200),
        (JSON_POST + b"Expect: 100-continue\r\nContent-Length: 2\r\n\r\n{}", 200),
        (b"GET /echo HTTP/1.1\r\nHost: localhost\r\nOrigin: http://evil.example\r\n\r\n", 403),
        (
            b"GET /echo HTTP/1.1\r\nHost: localhost\r\nSec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: no-cors\r\n\r\n",
            403,
        ),
        (EMBEDDED + b"Sec-Fetch-Dest: iframe\r\n\r\n", 403),
        (EMBEDDED + b"Sec-Fetch-Dest: document\r\n\r\n", 200),  # a link
        (b"GET /echo HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 413),
        (b"GET /echo HTTP/1.1\r\nHost: localhost\r\n" + b"a:\r\n" * 99 + b"\r\n", 200),
        (b"GET /echo HTTP/1.1\nHost: localhost\n" + b"a:\n" * 99 + b"\n", 200),
        (
            b"POST /locked HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n",
            401,
        ),
        (b"GET /below/all/of/it HTTP/1.1\r\nHost: [::1]:9644\r\n\r\n", 200),
    ],
)
async def test_what_is_refused_and_how(request_bytes: bytes, status: int) -> None:
    assert (await asked(request_bytes))[0] == status


async def test_a_bug_in_a_handler_is_logged_and_ends_nothing_else(caplog: pytest.LogCaptureFixture) -> None:
    status, _, body = await asked(b"GET /bug HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert status == 500
    assert b"ZeroDivisionError" not in body
    assert "ZeroDivisionError" in caplog.text


def test_a_refusal_may_repeat_what_is_no_text() -> None:
    assert Refused(400, "Not \ud800.").response.body == b"Not ?.\n"


def test_a_listener_for_others_takes_addresses_but_not_the_names_of_strangers() -> None:
    open_to_all = Guard("0.0.0.0", ["broker.example"])
    for host in ("192.0.2.1:9644", "[2001:db8::1]:9644", "BROKER.example.", "localhost", None):
        open_to_all.check_host(host)
    for host in ("evil.example", "broker.example.evil.example", "", "::1"):
        with pytest.raises(Refused):
            open_to_all.check_host(host)


# ---------------------------------------------------------------------- limits


async def test_who_does_not_finish_a_request_or_sends_none_is_ended(autojump_clock: trio.abc.Clock) -> None:
    async with conversing() as stream:
        await stream.send_all(b"GET /echo HTTP/1.1\r\nHo")
        assert (await answered(stream)).startswith(b"HTTP/1.1 408")
    async with conversing() as stream:
        assert await answered(stream) == b""


@pytest.mark.parametrize("is_whole", [False, True])
async def test_a_head_of_very_many_lines_is_refused_before_it_is_parsed(
    is_whole: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    parsed: list[bytes] = []
    next_event = h11.Connection.next_event

    def noted(connection: h11.Connection) -> object:
        if connection.our_role is h11.SERVER:
            parsed.append(connection.trailing_data[0])
        return next_event(connection)

    monkeypatch.setattr(h11.Connection, "next_event", noted)
    head = b"GET /echo HTTP/1.1\r\nHost: localhost\r\n" + b"a:\r\n" * 4000 + (b"\r\n" if is_whole else b"")
    assert (await asked(head))[0] == 431
    assert parsed == []


async def test_what_it_takes_to_read_a_body_is_paid_for(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    next_event = h11.Connection.next_event

    def slow(connection: h11.Connection) -> object:
        if connection.our_role is h11.SERVER:
            autojump_clock.jump(0.001)
        return next_event(connection)

    monkeypatch.setattr(h11.Connection, "next_event", slow)
    async with conversing() as stream:
        begun = trio.current_time()
        await stream.send_all(JSON_POST + b"Transfer-Encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * 90 + b"0\r\n\r\n")
        await stream.send_eof()
        assert (await answered(stream)).startswith(b"HTTP/1.1 200")
        # 90 ms of work, and twice as much rest, but for the last turn.
        assert trio.current_time() - begun > 0.09 * (1 + REST) - 0.03


async def test_a_reader_that_stops_is_ended_and_so_is_the_work_for_it(autojump_clock: trio.abc.Clock) -> None:
    rooms = Rooms()
    ours, theirs = trio.testing.lockstep_stream_pair()  # which takes nothing that is not read
    talk = HttpConnection(theirs, "127.0.0.1", rooms.routes(), Guard("127.0.0.1"), Pace())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(talk.run)
        await ours.send_all(b"GET /long HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await ours.receive_some(1000)
    assert rooms.ended == ["long"]
    assert rooms.pieces < 3


async def test_answers_that_are_not_read_have_a_limit_together() -> None:
    room, rooms = Room(150_000), Rooms()

    def connection() -> tuple[HttpConnection, trio.abc.HalfCloseableStream]:
        ours, theirs = trio.testing.lockstep_stream_pair()
        return HttpConnection(theirs, "127.0.0.1", rooms.routes(), Guard("127.0.0.1"), Pace(), room), ours

    async def head(stream: trio.abc.HalfCloseableStream) -> bytes:
        await stream.send_all(b"GET /whole HTTP/1.1\r\nHost: localhost\r\n\r\n")
        return bytes(await stream.receive_some(12))

    async with trio.open_nursery() as nursery:
        streams = []
        for _ in range(3):
            talk, ours = connection()
            nursery.start_soon(talk.run)
            streams.append(ours)
        with trio.fail_after(FAR_S):
            assert await head(streams[0]) == b"HTTP/1.1 200"
            assert await head(streams[1]) == b"HTTP/1.1 503"
            await streams[0].aclose()
            await trio.testing.wait_all_tasks_blocked()
            assert await head(streams[2]) == b"HTTP/1.1 200"
        nursery.cancel_scope.cancel()


async def test_a_reader_that_trickles_has_a_limit_for_the_whole_answer(autojump_clock: trio.abc.Clock) -> None:
    rooms = Rooms()
    ours, theirs = trio.testing.lockstep_stream_pair()
    talk = HttpConnection(theirs, "127.0.0.1", rooms.routes(), Guard("127.0.0.1"), Pace())

    async def trickle() -> None:
        while await ours.receive_some(limits.PIECE_BYTES):
            await trio.sleep(limits.SEND_S / 2)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(talk.run)
        await ours.send_all(b"GET /long HTTP/1.1\r\nHost: localhost\r\n\r\n")
        nursery.start_soon(trickle)
        with trio.fail_after(limits.ANSWER_S * 2):
            while not rooms.ended:
                await trio.sleep(1)
        nursery.cancel_scope.cancel()
    assert rooms.pieces < 1000


async def test_a_handler_that_takes_too_long_has_an_answer(autojump_clock: trio.abc.Clock) -> None:
    async def never(_: Request) -> Response:
        await trio.sleep_forever()
        raise AssertionError

    routes = Routes()
    routes.get("/never", never)
    ours, theirs = trio.testing.lockstep_stream_pair()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(HttpConnection(theirs, "127.0.0.1", routes, Guard("127.0.0.1"), Pace()).run)
        await ours.send_all(b"GET /never HTTP/1.1\r\nHost: localhost\r\n\r\n")
        with trio.fail_after(limits.ANSWER_S * 2):
            assert (await ours.receive_some(12)) == b"HTTP/1.1 504"
        nursery.cancel_scope.cancel()


async def test_a_lasting_answer_outlives_the_limit_and_ends_with_its_reader(autojump_clock: trio.abc.Clock) -> None:
    rooms = Rooms()
    async with conversing(rooms) as stream:
        await stream.send_all(b"GET /live HTTP/1.1\r\nHost: localhost\r\n\r\n")
        received = b""
        while b"data: 1" not in received:
            received += bytes(await stream.receive_some())
        await trio.sleep(limits.ANSWER_S * 10)
        assert rooms.ended == []
        await stream.send_eof()
        await answered(stream)
    assert rooms.ended == ["live"]


@settings(max_examples=examples(150), deadline=None)
@given(
    st.lists(
        st.one_of(
            st.binary(max_size=300),
            st.sampled_from(
                [
                    GET,
                    JSON_POST,
                    b"\r\n",
                    b"\r\n\r\n",
                    b"Content-Length: 5\r\n",
                    b"Transfer-Encoding: chunked\r\n",
                    b"5\r\n",
                ]
            ),
        ),
        max_size=12,
    )
)
def test_whatever_bytes_come_there_is_an_answer_or_an_end(pieces: list[bytes]) -> None:
    async def talk() -> bytes:
        async with conversing() as stream:
            with trio.fail_after(FAR_S):
                for piece in pieces:
                    try:
                        await stream.send_all(piece)
                    except (trio.BrokenResourceError, trio.ClosedResourceError):
                        break
                await stream.send_eof()
            return await answered(stream)

    received = trio.run(talk, clock=trio.testing.MockClock(autojump_threshold=0.001))
    assert received == b"" or received.startswith(b"HTTP/1.1 ")


# ---------------------------------------------------------------------- the server


@asynccontextmanager
async def serving(
    descriptors: Descriptors | None = None,
) -> AsyncIterator[tuple[HttpServer, Callable[..., Awaitable[trio.SocketStream]]]]:
    """A server on a free port, and what connects to it."""
    with bind("127.0.0.1", 0) as sock:
        sock.listen()
        connect = partial(trio.open_tcp_stream, "127.0.0.1", sock.getsockname()[1])
        http = HttpServer(Rooms().routes(), Guard("127.0.0.1"), descriptors or Descriptors(), Pace())
        async with trio.open_nursery() as nursery, AsyncExitStack() as streams:
            nursery.start_soon(http.run, sock)
            await trio.testing.wait_all_tasks_blocked()

            async def connected(address: str = "127.0.0.1") -> trio.SocketStream:
                return await streams.enter_async_context(await connect(local_address=address))

            yield http, connected
            nursery.cancel_scope.cancel()


async def ask(stream: trio.SocketStream) -> bytes:
    """One answer; nothing if the connection ends instead."""
    received = b""
    with trio.fail_after(FAR_S):
        try:
            await stream.send_all(GET)
            while not received.endswith(b"}"):
                if not (piece := bytes(await stream.receive_some())):
                    return b""
                received += piece
        except trio.BrokenResourceError:
            return b""
    return received


async def test_idle_connections_make_room_and_busy_ones_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "CONNECTIONS_MAX", 3)
    async with serving() as (http, connect):
        streams = [await connect() for _ in range(3)]
        for stream in streams:
            assert await ask(stream)
        fourth = await connect()
        assert await ask(fourth)
        # The first has idled longest.
        assert await ask(streams[0]) == b""
        for stream in (streams[1], streams[2], fourth):
            await stream.send_all(b"GET /echo HTT")
        with trio.fail_after(FAR_S):
            while any(each.is_idle for each in http._connections):
                await trio.sleep(0.01)
        assert await ask(await connect()) == b""


async def test_slow_requests_of_few_addresses_do_not_keep_others_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "CONNECTIONS_MAX", 6)
    crowd = ["127.0.0.2"] * 3 + ["127.0.0.3"] * 3
    async with serving() as (http, connect):

        def busy(address: str) -> int:
            here = [each for each in http._connections if each.peer == address]
            return sum(not each.is_idle and not each.cancel_scope.cancel_called for each in here)

        async def begin(address: str) -> trio.SocketStream:
            """A request that does not end."""
            before, stream = busy(address), await connect(address)
            await stream.send_all(b"GET /echo HTT")
            with trio.fail_after(FAR_S):
                while busy(address) == before:
                    await trio.sleep(0.01)
            return stream

        slow = [await begin(address) for address in crowd]
        others = [await begin("127.0.0.1"), await begin("127.0.0.1")]
        # One of each address of the crowd has made room, and now all have the same.
        assert await ask(await connect("127.0.0.2")) == b""
        assert await ask(await connect("127.0.0.1")) == b""
        # What is next to come has less than they.
        assert await ask(await connect("127.0.0.4"))
        served = [each for each in (*slow, *others) if await is_served(each)]
        assert len(served) == 5 and set(others) & set(served)


async def test_the_request_that_began_first_makes_room_however_long_others_idled_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(server, "CONNECTIONS_MAX", 2)
    async with serving() as (http, connect):

        async def until_idle(count: int) -> None:
            with trio.fail_after(FAR_S):
                while sum(each.is_idle for each in http._connections) != count:
                    await trio.sleep(0.01)

        async def idle(number: int) -> trio.SocketStream:
            stream = await connect("127.0.0.2")
            assert await ask(stream)
            await until_idle(number)  # the answer is here before the other side has begun to wait
            return stream

        patient, hasty = await idle(1), await idle(2)
        for stream, left in ((hasty, 1), (patient, 0)):
            await stream.send_all(b"GET /echo HTT")
            await until_idle(left)
        assert await ask(await connect("127.0.0.1"))
        assert not await is_served(hasty)
        assert await is_served(patient)


async def is_served(stream: trio.SocketStream) -> bool:
    """Whether the rest of a request that `begin` began is answered."""
    with trio.fail_after(FAR_S):
        try:
            await stream.send_all(b"P/1.1\r\nHost: localhost\r\n\r\n")
            return bool(await stream.receive_some())
        except trio.BrokenResourceError:
            return False


async def test_one_address_has_a_share_in_which_its_own_idle_connections_make_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(server, "CONNECTIONS_PER_ADDRESS", 2)
    async with serving() as (http, connect):

        async def until_idle(count: int) -> None:
            with trio.fail_after(FAR_S):
                while sum(each.is_idle for each in http._connections) != count:
                    await trio.sleep(0.01)

        other = await connect("127.0.0.2")
        assert await ask(other)
        silent, kept = await connect(), await connect()
        await until_idle(3)
        assert await ask(kept)
        await until_idle(3)
        # As a probe and a scraper behind a proxy have them: the first has never said anything.
        third = await connect()
        assert await ask(third)
        await until_idle(3)
        assert await ask(silent) == b""
        assert await ask(await connect())
        await until_idle(3)
        assert await ask(kept) == b""
        assert await ask(other)


async def test_what_is_busy_makes_no_room_for_its_own_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "CONNECTIONS_PER_ADDRESS", 2)
    async with serving() as (http, connect):
        first, second = await connect(), await connect()
        for stream in (first, second):
            await stream.send_all(b"GET /echo HTT")
        with trio.fail_after(FAR_S):
            while len(http._connections) < 2 or any(each.is_idle for each in http._connections):
                await trio.sleep(0.01)
        assert await ask(await connect()) == b""
        await first.aclose()
        with trio.fail_after(FAR_S):
            while http.connection_count > 1:
                await trio.sleep(0.01)
        assert await ask(await connect())


async def test_connections_count_as_descriptors() -> None:
    descriptors = Descriptors(256)
    async with serving(descriptors) as (http, connect):
        stream = await connect()
        assert await ask(stream)
        assert descriptors.connections == 1
        await stream.send_all(b"GET /echo HTT")
        with trio.fail_after(FAR_S):
            while any(each.is_idle for each in http._connections):
                await trio.sleep(0.01)
        descriptors.connections += descriptors.connections_max + descriptors.reserve
        assert await ask(await connect()) == b""
        descriptors.connections -= descriptors.connections_max + descriptors.reserve
    assert descriptors.connections == 0


async def test_idle_connections_make_room_when_descriptors_are_scarce() -> None:
    descriptors = Descriptors(256)
    async with serving(descriptors) as (_, connect):
        first = await connect()
        assert await ask(first)
        # Clients of the broker have taken all, and the first connection the last of the reserve.
        taken = descriptors.connections_max + descriptors.reserve // server.RESERVE_PART - descriptors.connections
        descriptors.connections += taken
        assert await ask(await connect())
        assert await ask(first) == b""
        descriptors.connections -= taken


async def test_long_answers_take_turns_and_rest_after_each(autojump_clock: trio.testing.MockClock) -> None:
    pace, turns = Pace(), []

    async def work(name: str) -> None:
        for _ in range(3):
            async with pace.piece():
                begun = trio.current_time()
                autojump_clock.jump(Pace.PIECE_S)
            turns.append((name, begun, trio.current_time()))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(work, "a")
        nursery.start_soon(work, "b")
    turns.sort(key=lambda turn: turn[1])
    assert sorted(name for name, _, _ in turns) == ["a"] * 3 + ["b"] * 3
    assert {name for name, _, _ in turns[:2]} == {"a", "b"}
    for (_, _, ended), (_, begun, _) in pairwise(turns):
        assert begun - ended == pytest.approx(Pace.PIECE_S * REST)


async def test_wrong_logins_are_refused_slowly_one_after_the_other(autojump_clock: trio.abc.Clock) -> None:
    """However many connections guess a password, they make few guesses. Who has sent none is told so at once."""
    pace, waited = Pace(), []

    async def guess(headers: bytes) -> None:
        ours, theirs = trio.testing.memory_stream_pair()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(HttpConnection(theirs, "127.0.0.1", Rooms().routes(), Guard("127.0.0.1"), pace).run)
            await ours.send_all(POST_LOCKED + headers + b"\r\n")
            assert (await ours.receive_some(1000)).startswith(b"HTTP/1.1 401 ")
            waited.append(trio.current_time() - begun)
            nursery.cancel_scope.cancel()

    begun = trio.current_time()
    async with trio.open_nursery() as nursery:
        for _ in range(10):
            nursery.start_soon(guess, b"Authorization: Basic YTpi\r\n")
    assert max(waited) == pytest.approx(10 * LOGIN_S, abs=LOGIN_S)
    begun = trio.current_time()
    await guess(b"")
    assert waited[-1] < LOGIN_S


POST_LOCKED = b"POST /locked HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 0\r\n"


async def test_requests_share_what_time_there_is_for_them(autojump_clock: trio.abc.Clock) -> None:
    begun, pace = trio.current_time(), Pace()
    for _ in range(1000):
        await pace.request()
    assert trio.current_time() - begun >= 999 * REQUEST_S * (1 + REST) - 1e-6


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:9644", ("127.0.0.1", 9644)),
        (":0", ("127.0.0.1", 0)),
        ("[::1]:80", ("::1", 80)),
        ("0.0.0.0:80", ("0.0.0.0", 80)),
        ("9644", None),
        ("host:65536", None),
        ("a b:1", None),
        ("::1:80", None),
    ],
)
def test_the_listener_is_host_and_port(text: str, address: tuple[str, int] | None) -> None:
    assert parse_http_listener(text) == address
