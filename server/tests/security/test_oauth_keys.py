"""Where keys are read, when they are read anew, and what a server that gives them out may do."""

import json
import os
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import h11
import pytest
import trio
import trio.testing

from ottla.server.config.token_rules import KeyEndpoint
from ottla.server.launch.certificates_command import Authority
from ottla.server.security.oauth import fetching, key_sources
from ottla.server.security.oauth.fetching import FailedRead, Limits, fetch
from ottla.server.security.oauth.key_sources import EXPEDITED_S, FILE_LOOKED_AT_S, MISSED_S, KeySource, KeySources
from ottla.server.tests.oauth_issuer import curve, published, rsa

KEYS = published(rsa())


def endpoint(address: str, **changed: Any) -> KeyEndpoint:
    usual: dict[str, Any] = {
        "is_file": False,
        "refresh_ms": 3_600_000,
        "retry_backoff_ms": 100,
        "retry_backoff_max_ms": 1_000,
    }
    return KeyEndpoint(address=address, **usual | changed)


def answer(body: bytes = KEYS, status: str = "200 OK", *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers, "", ""]
    return "\r\n".join(lines).encode() + body


@asynccontextmanager
async def serving(answering: Callable[[trio.SocketStream], Awaitable[None]]) -> AsyncIterator[str]:
    """The address of a server on this machine."""
    async with trio.open_nursery() as nursery:
        (listener,) = await nursery.start(partial(trio.serve_tcp, answering, 0, host="127.0.0.1"))
        yield f"http://127.0.0.1:{listener.socket.getsockname()[1]}"
        nursery.cancel_scope.cancel()


async def asked(stream: trio.SocketStream) -> bytes:
    request = b""
    while not request.endswith(b"\r\n\r\n"):
        request += await stream.receive_some()
    return request


async def test_others_have_turns_while_very_small_chunks_are_read(nursery: trio.Nursery) -> None:
    class Received:
        """All at once, and without waiting."""

        async def receive_some(self, bytes_max: int) -> bytes:
            return b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1\r\na\r\n" * 500 + b"0\r\n\r\n"

    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await trio.lowlevel.checkpoint()

    nursery.start_soon(other)
    connection = h11.Connection(h11.CLIENT)
    connection.send(h11.Request(method="GET", target="/", headers=[("Host", "a")]))
    connection.send(h11.EndOfMessage())
    received: Any = Received()
    answered = await fetching._answer(received, connection, Limits())
    assert answered == (200, b"a" * 500) and turns >= 499


def saying(*pieces: bytes) -> Callable[[trio.SocketStream], Awaitable[None]]:
    async def say(stream: trio.SocketStream) -> None:
        await asked(stream)
        for piece in pieces:
            try:
                await stream.send_all(piece)
            except trio.BrokenResourceError:
                return
        await stream.aclose()

    return say


async def test_a_document_is_read():
    heard = []

    async def server(stream: trio.SocketStream) -> None:
        heard.append(await asked(stream))
        await stream.send_all(answer())

    async with serving(server) as address:
        assert await fetch(f"{address}/a/b?c=d", None) == KEYS
    lines = heard[0].decode().split("\r\n")
    assert lines[0] == "GET /a/b?c=d HTTP/1.1" and f"Host: {address[7:]}" in lines


@pytest.mark.parametrize(
    "pieces",
    [
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\n", b"abcd\r\n0\r\n\r\n"),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nabcd",),
        (b"HTTP/1.0 200 OK\r\n\r\nab", b"cd"),
    ],
)
async def test_each_way_to_send_it(pieces: tuple[bytes, ...]):
    async with serving(saying(*pieces)) as address:
        assert await fetch(address, None) == b"abcd"


@pytest.mark.parametrize(
    ("pieces", "words"),
    [
        ((), "leaves before"),
        ((b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nab",), "leaves before"),
        ((b"\x16\x03\x01garbage\r\n\r\n",), "speaks no HTTP"),
        ((b"220 mail.example ESMTP\r\n",), "speaks no HTTP"),
        ((b"HTTP/1.1 200 OK\r\n" + b"X: " + b"x" * 100_000 + b"\r\n\r\n",), "speaks no HTTP"),
        ((answer(b"", "302 Found", "Location: http://127.0.0.1:1/"),), "status 302"),
        ((answer(b"", "404 Not Found"),), "status 404"),
        ((answer(b"", "204 No Content"),), "status 204"),
        ((b"HTTP/1.1 200 OK\r\n\r\n", *([b"x" * 65536] * 40)), "more than 1048576 bytes"),
        ((answer(b"x" * (1 << 21)),), "more than 1048576 bytes"),
    ],
)
async def test_what_is_no_document(pieces: tuple[bytes, ...], words: str):
    async with serving(saying(*pieces)) as address:
        with pytest.raises(FailedRead, match=words):
            await fetch(address, None)


async def test_a_server_that_says_nothing():
    async def drip(stream: trio.SocketStream) -> None:
        await asked(stream)
        await stream.send_all(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            await stream.send_all(b"x")
            await trio.sleep(0.01)

    async def silence(stream: trio.SocketStream) -> None:
        await trio.sleep_forever()

    for server in (silence, drip):
        async with serving(server) as address:
            with pytest.raises(FailedRead, match="no whole answer"):
                await fetch(address, None, limits=Limits(all_s=0.1))


@pytest.mark.parametrize("address", ["http://127.0.0.1:1/", "http://nobody.invalid/", f"http://{'a' * 70}.invalid/"])
async def test_nobody_there(address: str):
    with pytest.raises(FailedRead, match="cannot be asked: ."):
        await fetch(address, None)


async def test_https(tmp_path: Path):
    authority = Authority("test", days=1)
    leaf = authority.issue("localhost", ["localhost"], is_server=True)
    certificate = tmp_path / "server.pem"
    certificate.write_bytes(leaf.key_pem + leaf.certificate_pem)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate)

    async def server(stream: trio.SocketStream) -> None:
        try:
            secured = trio.SSLStream(stream, context, server_side=True)
            await asked(secured)  # type: ignore[arg-type]
            await secured.send_all(answer())
        except trio.BrokenResourceError:
            pass

    trusting = ssl.create_default_context(cadata=authority.certified.certificate_pem.decode())
    async with serving(server) as address:
        port = address.rpartition(":")[2]
        assert await fetch(f"https://localhost:{port}/", trusting) == KEYS
        with pytest.raises(FailedRead, match="IP address mismatch|not valid for"):
            await fetch(f"https://127.0.0.1:{port}/", trusting)
        with pytest.raises(FailedRead, match="self-signed|unable to get local issuer"):
            await fetch(f"https://localhost:{port}/", ssl.create_default_context())


# ---------------------------------------------------------------------- sources


class Server:
    """Answers in place of the network, on virtual time. `answers`: what comes next; the last goes on."""

    def __init__(self, *answers: bytes | Exception) -> None:
        self.answers = list(answers)
        self.asked_s: list[float] = []

    async def fetch(self, url: str, context: ssl.SSLContext | None) -> bytes:
        self.asked_s.append(trio.current_time())
        found = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(found, Exception):
            raise found
        return found


@pytest.fixture
def clock(mock_clock: trio.testing.MockClock) -> trio.testing.MockClock:
    return mock_clock


async def settle(source: KeySource, seen: Callable[[], bool]) -> None:
    """Wait for what a thread does."""
    for _ in range(60_000):
        if seen():
            return
        await rested()
    raise AssertionError("it does not come")


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    server = Server(KEYS)
    monkeypatch.setattr(key_sources, "fetch", server.fetch)
    return server


async def rested() -> None:
    """Until every task waits, and none of them for a thread, which has its own time."""
    threads = trio.to_thread.current_default_thread_limiter()
    while True:
        await trio.testing.wait_all_tasks_blocked(0.001)
        if not threads.borrowed_tokens:
            return


async def started(nursery: trio.Nursery, made: KeySource) -> KeySource:
    nursery.start_soon(made.run)
    await settle(made, lambda: made._tried.is_set())
    return made


async def test_keys_are_read_now_and_then(server: Server, nursery: trio.Nursery, clock: trio.testing.MockClock):
    server.answers = [KEYS, published(rsa("second"))]
    source = await started(nursery, KeySource(endpoint("http://x/", refresh_ms=60_000)))
    assert source.current is not None and source.current.find("second", "RS256") is None
    clock.jump(EXPEDITED_S)
    await rested()
    clock.jump(60 - EXPEDITED_S)
    await settle(source, lambda: source.current.find("second", "RS256") is not None)
    assert len(server.asked_s) == 2 and source.current.find("first", "RS256") is None


async def test_a_key_that_is_missed_is_asked_for(server: Server, nursery: trio.Nursery, clock: trio.testing.MockClock):
    server.answers = [KEYS, published(rsa("second"))]
    source = await started(nursery, KeySource(endpoint("http://x/")))
    source.miss("second")
    clock.jump(EXPEDITED_S)
    await settle(source, lambda: source.current.find("second", "RS256") is not None)
    assert len(server.asked_s) == 2


async def test_made_up_key_ids_do_not_make_it_ask_all_the_time(
    server: Server, nursery: trio.Nursery, clock: trio.testing.MockClock
):
    source = await started(nursery, KeySource(endpoint("http://x/")))
    for second in range(100):
        for number in range(50):
            source.miss(f"{second}-{number}")
        clock.jump(1)
        await rested()
    assert 2 <= len(server.asked_s) <= 1 + 100 / EXPEDITED_S
    assert len(source._missed) <= key_sources.MISSED_MAX


async def test_one_key_id_counts_once_a_minute_and_a_long_one_never(
    server: Server, nursery: trio.Nursery, clock: trio.testing.MockClock
):
    source = await started(nursery, KeySource(endpoint("http://x/")))
    for _ in range(int(MISSED_S) + 5):
        source.miss("nobodys")
        source.miss("x" * 1_001)
        clock.jump(1)
        await rested()
    assert len(server.asked_s) == 3


@pytest.mark.parametrize("wrong", [FailedRead("it is away"), b"no keys"])
async def test_while_reading_fails_the_old_keys_stay(
    server: Server,
    nursery: trio.Nursery,
    clock: trio.testing.MockClock,
    wrong: bytes | Exception,
    caplog: pytest.LogCaptureFixture,
):
    server.answers = [KEYS, wrong]
    source = await started(nursery, KeySource(endpoint("http://x/", refresh_ms=5_000)))
    for _ in range(20):
        clock.jump(5)
        await rested()
    assert len(server.asked_s) > 4 and source.current is not None and len(source.current) == 1
    assert caplog.text.count("cannot be read") == 1
    server.answers = [published(rsa(), curve("P-256", "p256"))]
    clock.jump(5)
    await settle(source, lambda: len(source.current) == 2)


async def test_a_bug_ends_neither_the_source_nor_the_broker(
    server: Server, nursery: trio.Nursery, clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
):
    server.answers = [RuntimeError("a bug"), KEYS]
    source = await started(nursery, KeySource(endpoint("http://x/")))
    assert source.current is None and "a bug" in caplog.text
    clock.jump(1)
    await settle(source, lambda: source.current is not None)


async def test_pauses_double_up_to_a_limit(
    server: Server, nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
):
    server.answers = [FailedRead("it is away")]
    source = KeySource(endpoint("http://x/", retry_backoff_ms=100, retry_backoff_max_ms=700))
    nursery.start_soon(source.run)
    await trio.sleep(5)
    pauses = [after - before for before, after in zip(server.asked_s, server.asked_s[1:], strict=False)]
    assert pauses[:6] == pytest.approx([0.1, 0.2, 0.4, 0.7, 0.7, 0.7]) and source.current is None
    await source.until_tried()


async def test_a_file_that_changes_is_read_anew(
    tmp_path: Path, nursery: trio.Nursery, clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
):
    path = tmp_path / "keys.json"
    path.write_bytes(KEYS)
    source = await started(nursery, KeySource(endpoint(str(path), is_file=True)))
    first = source.current
    clock.jump(FILE_LOOKED_AT_S)
    await rested()
    assert source.current is first

    async def look_until(seen: Callable[[], bool]) -> None:
        for _ in range(1_000):
            if seen():
                return
            clock.jump(FILE_LOOKED_AT_S)
            await rested()
        raise AssertionError("it does not come")

    path.write_bytes(b"half of it")
    await look_until(lambda: "cannot be read" in caplog.text)
    assert source.current is first
    os.remove(path)
    await look_until(lambda: "No such file" in caplog.text)
    path.write_bytes(published(rsa("second")))
    await look_until(lambda: source.current.find("second", "RS256") is not None)
    path.write_bytes(json.dumps({"keys": []}).encode())
    await look_until(lambda: len(source.current) == 0)
    assert "no key for tokens" in caplog.text


async def test_one_address_has_one_source(server: Server, nursery: trio.Nursery):
    sources = KeySources()
    early = sources.of(endpoint("http://x/"))
    sources.start_in(nursery)
    await sources.until_tried()
    assert sources.of(endpoint("http://x/")) is early
    late = sources.of(endpoint("http://y/"))
    await sources.until_tried()
    assert late is not early and late.current is not None and len(server.asked_s) == 2
