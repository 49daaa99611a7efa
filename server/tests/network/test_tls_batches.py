"""TLS in batches: sessions that share OpenSSL's buffers, what waits, and what the kernel is asked to wait for."""

import contextlib
import errno
import os
import socket
import ssl
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.server.network import tls_batches, tls_handshakes, tls_transport
from ottla.server.network.inbox import Inbox, ReceiveBuffers
from ottla.server.network.readiness import WAIT_READABLE, WAIT_WRITABLE, Readiness
from ottla.server.network.tls_batches import DATALESS_BYTES_MAX, SMALL_CHUNK_BYTES, BatchedTlsTransport
from ottla.server.network.tls_handshakes import Handshakes
from ottla.server.network.tls_session import Bios
from ottla.server.network.tls_transport import Pieces, TlsTransport
from ottla.server.security.tls_listener import COSTLY_S, MEASURED_HANDSHAKES
from ottla.server.tests.encrypted import VERSIONS, batched_pair, client_context, listener, tcp_pair
from ottla.wire.tests.effort import examples

Pair = tuple[BatchedTlsTransport, ssl.SSLSocket]


@contextlib.contextmanager
def pair(pieces: Pieces, **more: Any) -> Iterator[Pair]:
    transport, client = batched_pair(pieces, **more)
    with client, contextlib.closing(transport):
        yield transport, client


def received(transport: BatchedTlsTransport, room: int) -> bytes:
    buffer = bytearray(room)
    try:
        return bytes(buffer[: transport.receive_into(buffer)])
    except BlockingIOError:
        return b""


def are_empty(bios: Bios) -> bool:
    return not bios.incoming.pending and not bios.outgoing.pending


@settings(max_examples=examples(60), deadline=None)
@given(
    talk=st.lists(
        st.tuples(st.integers(0, 2), st.booleans(), st.integers(1, 70_000), st.integers(1, 40_000)),
        min_size=1,
        max_size=25,
    )
)
def test_sessions_that_share_buffers_do_not_mix(talk: list[tuple[int, bool, int, int]]) -> None:
    """Each item: who speaks, whether that is the client, how much, and how much the other end reads at a time."""
    pieces = Pieces()
    with contextlib.ExitStack() as kept:
        pairs = [kept.enter_context(pair(pieces)) for _ in range(3)]
        for transport, _ in pairs:
            transport.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        sent = [[b"", b""] for _ in pairs]
        got = [[b"", b""] for _ in pairs]
        waiting = [b""] * 3  # answers that the socket has not taken

        def send_on(number: int) -> None:
            transport = pairs[number][0]
            with contextlib.suppress(BlockingIOError):
                while waiting[number]:
                    waiting[number] = waiting[number][transport.send(waiting[number]) :]
            assert are_empty(pieces.bios)

        def read_on(number: int, room: int) -> None:
            transport, client = pairs[number]
            got[number][0] += received(transport, room)
            assert are_empty(pieces.bios)
            with contextlib.suppress(ssl.SSLWantReadError):
                got[number][1] += client.recv(room)

        for number, is_client, size, room in talk:
            data = os.urandom(size)
            if is_client:
                with contextlib.suppress(ssl.SSLWantWriteError):
                    sent[number][0] += data[: pairs[number][1].send(data[:16_000])]
            else:
                sent[number][1] += data
                waiting[number] += data
            send_on(number)
            read_on(number, room)
        for number in range(3):
            for _ in range(100_000):
                if sent[number] == got[number]:
                    break
                send_on(number)
                read_on(number, 20_000)
        assert sent == got


@VERSIONS
@settings(max_examples=examples(60), deadline=None)
@given(
    records=st.lists(st.integers(1, 400), min_size=1, max_size=20),
    rooms=st.lists(st.integers(1, 600), min_size=1, max_size=40),
)
def test_what_there_was_no_room_for_is_received_later(
    version: ssl.TLSVersion, records: list[int], rooms: list[int]
) -> None:
    """However large the records are and the rooms that they are received into, one after the other."""
    pieces = Pieces()
    with pair(pieces, maximum_version=version) as (transport, client):
        data = os.urandom(sum(records))
        stream = memoryview(data)
        for size in records:
            client.sendall(stream[:size])
            stream = stream[size:]
        # As if it had come together with the end of the handshake.
        transport._session.unread = transport.socket.recv(1 << 16)
        got = b""
        for room in [*rooms, len(data)]:
            got += received(transport, room) if len(got) < len(data) else b""
            assert are_empty(pieces.bios)
        while transport.holds_input and len(got) < len(data):
            got += received(transport, len(data))
        assert got == data


def test_a_short_room_behind_a_full_one_loses_nothing() -> None:
    """The rest of a frame has little room, and the beginning of the next one has come with it."""
    with pair(Pieces()) as (transport, client):
        data = os.urandom(15_400 + 10 * 50)
        client.sendall(data[:15_400])
        for start in range(15_400, len(data), 50):
            client.sendall(data[start : start + 50])
        got = received(transport, 15_400)
        for _ in range(10):
            got += received(transport, 50)
        assert got == data


@settings(max_examples=examples(60), deadline=None)
@given(noise=st.binary(min_size=1, max_size=400), is_record=st.booleans())
def test_noise_breaks_the_connection_that_sent_it_and_no_other(noise: bytes, is_record: bool) -> None:
    pieces = Pieces()
    with pair(pieces) as (bad, its_client), pair(pieces) as (good, client):
        socket.socket.send(its_client, b"\x17\x03\x03" + len(noise).to_bytes(2) + noise if is_record else noise)
        client.send(b"question")
        # A record that is not complete is waited for, and any other is refused.
        with pytest.raises((BlockingIOError, ConnectionError)):
            bad.receive_into(bytearray(100))
        assert received(good, 100) == b"question"
        assert good.send(b"answer") == 6
        assert client.recv(100) == b"answer"
        assert are_empty(pieces.bios)


@VERSIONS
def test_an_answer_that_waits_stops_what_is_received(version: ssl.TLSVersion) -> None:
    """Else what OpenSSL answers to the peer's messages could grow without end."""
    with pair(Pieces(), maximum_version=version) as (transport, client):
        transport.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        data = os.urandom(1 << 20)
        sent = 0
        with pytest.raises(BlockingIOError):
            while True:
                sent += transport.send(data[sent:])
        client.send(b"more")
        assert received(transport, 100) == b""
        assert transport._receive_waits_for is WAIT_WRITABLE
        got = b""
        while sent < len(data):
            with contextlib.suppress(ssl.SSLWantReadError):
                got += client.recv(1 << 16)
            with contextlib.suppress(BlockingIOError):
                sent += transport.send(data[sent:])
        while len(got) < len(data):
            got += client.recv(1 << 16)
        assert got == data
        assert received(transport, 100) == b"more"
        assert transport._receive_waits_for is WAIT_READABLE


def test_records_without_data_end_the_connection(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A stand-in for OpenSSL, that takes everything and gives nothing."""
    with pair(Pieces()) as (transport, client):

        def nothing(count: int, view: memoryview) -> int:
            transport._incoming.read()
            raise ssl.SSLWantReadError

        monkeypatch.setattr(tls_batches, "DEAR_S", -1)
        transport._read = nothing
        total = 0
        with pytest.raises(ConnectionError, match="without data"):
            while True:
                total += socket.socket.send(client, bytes(1000))
                with contextlib.suppress(BlockingIOError):
                    transport.receive_into(bytearray(50_000))
        assert DATALESS_BYTES_MAX < total <= DATALESS_BYTES_MAX + 1000
        with pytest.raises(ConnectionError):
            transport.receive_into(bytearray(50_000))
    assert caplog.text.count("without data") == 1


def test_a_peer_that_is_dear_gets_small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    with pair(Pieces()) as (transport, client):
        monkeypatch.setattr(tls_batches, "DEAR_S", -1)
        for _ in range(200):
            client.send(b"x")  # nearly all of it is not data
        got = received(transport, 10_000)
        assert transport._chunk_bytes == SMALL_CHUNK_BYTES
        while len(got) < 200:
            got += received(transport, 10_000)
        assert got == b"x" * 200


@settings(max_examples=examples(60), deadline=None)
@given(
    version=st.sampled_from([ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3]),
    records=st.lists(st.integers(1, 3000), min_size=1, max_size=12),
    cuts=st.lists(st.integers(1, 4000), max_size=12),
    empty_frames=st.integers(0, 50),
)
def test_never_is_more_expected_than_comes(
    version: ssl.TLSVersion, records: list[int], cuts: list[int], empty_frames: int
) -> None:
    """However a frame is cut into records, and these into packets: else its rest would be waited for without end."""
    pieces = Pieces()
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = client_context(maximum_version=version)
    client = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
    ours, theirs = socket.socketpair()  # what one end has sent is at the other one at once
    ours.setblocking(False)
    with ours, theirs:
        session = tls_handshakes.TlsSession(listener().context, ours, pieces.bios)
        shake_hands(session, client, incoming, outgoing, theirs)
        transport = BatchedTlsTransport(session, pieces)
        # Empty frames come first.
        before = 4 * min(empty_frames, (sum(records) - 1) // 4)
        frame = sum(records) - before
        stream = bytes(before) + frame.to_bytes(4) + bytes(frame)
        position = 0
        for size in [*records, 4]:
            client.write(stream[position : position + size])
            position += size
        ciphertext = outgoing.read()
        inbox = Inbox(ReceiveBuffers(), 1 << 20)
        for size in [*cuts, len(ciphertext)]:
            part, ciphertext = ciphertext[:size], ciphertext[size:]
            theirs.sendall(part)
            drain(inbox, transport)
            transport._expect(inbox.missing())
            if ciphertext:
                assert transport._expected <= len(ciphertext)
        transport.close()


def shake_hands(session: Any, client: ssl.SSLObject, incoming: Any, outgoing: Any, theirs: socket.socket) -> None:
    theirs.settimeout(60)
    is_done = False
    while not is_done:
        with contextlib.suppress(ssl.SSLWantReadError):
            client.do_handshake()
            is_done = True
        theirs.sendall(outgoing.read())
        with contextlib.suppress(ssl.SSLWantReadError):
            session.do_handshake()
        if not is_done:
            incoming.write(theirs.recv(1 << 16))


def drain(inbox: Inbox, transport: BatchedTlsTransport) -> None:
    with contextlib.suppress(BlockingIOError):
        while True:
            inbox.receive(transport)
            while inbox.next_frame() is not None:
                pass
            inbox.detach()


@pytest.mark.parametrize("buffer_bytes", [None, 1])  # as the system has it, and as small as it lets it be
async def test_a_frame_of_small_records_wakes_few_times(buffer_bytes: int | None) -> None:
    pieces, ends = Pieces(), tcp_pair()
    if buffer_bytes is not None:
        ends[0].setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer_bytes)
    with pair(pieces, ends=ends) as (transport, client):
        inbox, frame = Inbox(ReceiveBuffers(), 1 << 20), os.urandom(30_000)
        readiness = Readiness()
        steps = 0

        def step() -> Any:
            nonlocal steps
            steps += 1
            with contextlib.suppress(BlockingIOError):
                inbox.receive(transport)
            bounds = inbox.next_frame()
            if bounds is not None:
                return bytes(inbox.buffer[bounds[0] : bounds[1]])
            inbox.detach()
            return WAIT_READABLE

        async def send() -> None:
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            stream = memoryview(len(frame).to_bytes(4) + frame)
            while stream:
                try:
                    stream = stream[client.send(stream[:100]) :]
                    for _ in range(3):
                        await trio.lowlevel.checkpoint()  # the other end looks after each
                except ssl.SSLWantWriteError:
                    await trio.lowlevel.wait_writable(client)

        serve = transport.serving(readiness, inbox.missing)
        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(send)
                assert await serve(step) == frame
            if readiness.is_inside_the_wait and buffer_bytes is None:
                assert steps < 60, "it was woken for records of a hundred bytes"
            # The next frame begins with a byte.
            inbox.detach()
            client.send((1).to_bytes(4) + b"x")
            assert await serve(step) == b"x"
        assert ours_low_water(transport) == 1
        readiness.close()


@pytest.mark.parametrize("is_inside_the_wait", [True, False])
async def test_what_is_held_while_the_socket_is_full_is_not_asked_for_again_and_again(is_inside_the_wait: bool) -> None:
    """A peer that sends and does not read would keep the event loop busy."""
    with pair(Pieces()) as (transport, client):
        transport.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        answer = os.urandom(1 << 20)
        with pytest.raises(BlockingIOError):
            while True:
                transport.send(answer)
        client.send(b"question")
        transport._session.unread = transport.socket.recv(1 << 16)  # as a receive leaves it that had no room for it
        readiness = Readiness()
        steps = 0

        def step() -> Any:
            nonlocal steps
            steps += 1
            return received(transport, 100) or WAIT_READABLE

        async def look() -> None:
            for _ in range(100):
                await trio.lowlevel.checkpoint()
            assert steps < 10
            while True:  # until the question has come
                await trio.lowlevel.checkpoint()
                with contextlib.suppress(ssl.SSLWantReadError):
                    client.recv(1 << 16)

        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(look)
                serve = transport.serving(readiness) if is_inside_the_wait else transport.serve_in_task
                assert await serve(step) == b"question"
                nursery.cancel_scope.cancel()
        readiness.close()


def ours_low_water(transport: BatchedTlsTransport) -> int:
    return transport.socket.getsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT)


# --- who encrypts -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("by_kernel", [True, False])
async def test_openssl_is_on_the_socket_only_for_the_kernel(by_kernel: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tls_handshakes, "kernel_may_encrypt", lambda context: by_kernel)
    those, to = Handshakes(), listener()
    for _ in range(MEASURED_HANDSHAKES + 1):
        ours, theirs = tcp_pair()
        ours.setblocking(False)
        with theirs:
            client = client_context().wrap_bio(
                incoming := ssl.MemoryBIO(), outgoing := ssl.MemoryBIO(), server_hostname="localhost"
            )
            async with trio.open_nursery() as nursery:
                nursery.start_soon(shake_hands_awake, client, incoming, outgoing, theirs)
                welcomed = await those.welcome(ours, "192.0.2.1", to)
            assert welcomed is not None
            transport = welcomed.transport
            assert isinstance(transport, TlsTransport if by_kernel else BatchedTlsTransport)
            transport.close()
        to.cost._least_s = min(to.cost._least_s, COSTLY_S)  # on a slow machine, too
    if isinstance(transport, BatchedTlsTransport):
        assert transport._session.bios is those._pieces.bios, "each would have buffers of its own"


async def shake_hands_awake(client: ssl.SSLObject, incoming: Any, outgoing: Any, theirs: socket.socket) -> None:
    theirs.setblocking(False)
    with trio.fail_after(60):
        while True:
            is_done = True
            try:
                client.do_handshake()
            except ssl.SSLWantReadError:
                is_done = False
            if outgoing.pending:
                theirs.sendall(outgoing.read())
            if is_done:
                return
            await trio.lowlevel.wait_readable(theirs)
            incoming.write(theirs.recv(1 << 16))


@pytest.mark.parametrize(("code", "expected"), [(None, True), (errno.ENOTCONN, True), (errno.ENOENT, False)])
def test_whether_the_kernel_may_encrypt(code: int | None, expected: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    class Probe(socket.socket):
        def setsockopt(self, *_: Any) -> None:
            if code is not None:
                raise OSError(code, "")

    tls_transport._kernel_has_tls.cache_clear()
    monkeypatch.setattr(tls_transport, "KERNEL_TLS", 8)
    monkeypatch.setattr(tls_transport.socket, "socket", Probe)
    monkeypatch.setattr(tls_transport.system, "IS_LINUX", True)
    try:
        assert tls_transport.kernel_may_encrypt(SimpleNamespace(options=8)) is expected  # type: ignore[arg-type]
        assert not tls_transport.kernel_may_encrypt(SimpleNamespace(options=1))  # type: ignore[arg-type]
    finally:
        tls_transport._kernel_has_tls.cache_clear()
