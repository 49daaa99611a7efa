"""TLS as a transport: what OpenSSL holds back, repeats, or wants to wait for."""

import contextlib
import math
import os
import select
import socket
import ssl
import time
from types import SimpleNamespace

import pytest
import trio

from ottla.replication import system
from ottla.replication.log.storage import FileRegion, OsFile
from ottla.server.network import outbox as outbox_module
from ottla.server.network import tls_batches, tls_session, tls_transport
from ottla.server.network.connection import Connection
from ottla.server.network.inbox import Inbox, ReceiveBuffers
from ottla.server.network.outbox import Outbox, Progress
from ottla.server.network.readiness import WAIT_READABLE, WAIT_WRITABLE, Readiness
from ottla.server.network.tls_transport import (
    RECORD_BYTES,
    KernelTlsTransport,
    Pieces,
    TlsTransport,
    kernel_encrypts,
    transport_of,
)
from ottla.server.network.transport import PageMissing
from ottla.server.tests.encrypted import (
    VERSIONS,
    batched_pair,
    client_context,
    encrypted_pair,
    listener,
    pair_of,
    tcp_pair,
)
from ottla.server.tests.routes import listener_of


@pytest.fixture
def socket_pair(monkeypatch):
    """Makes a transport with OpenSSL on the socket, and the client's socket. A send may take as long as a busy machine needs."""
    monkeypatch.setattr(tls_transport, "TURN_S", math.inf)
    monkeypatch.setattr(outbox_module, "TURN_S", math.inf)
    with contextlib.ExitStack() as made:

        def make(version=ssl.TLSVersion.TLSv1_3):
            ours, theirs = map(made.enter_context, encrypted_pair(maximum_version=version))
            return TlsTransport(ours, Pieces()), theirs

        yield make


@pytest.fixture(params=["on the socket", "in batches"])
def pair(request, socket_pair, monkeypatch):
    """The same, of either kind."""
    if request.param == "on the socket":
        yield socket_pair
        return
    monkeypatch.setattr(tls_batches, "TURN_S", math.inf)  # one receive takes all
    with contextlib.ExitStack() as made:

        def make(version=ssl.TLSVersion.TLSv1_3):
            transport, theirs = batched_pair(Pieces(), maximum_version=version)
            made.callback(transport.close)
            return transport, made.enter_context(theirs)

        yield make


def written(directory, content):
    path = directory / "log"
    path.write_bytes(content)
    return path


def received(sock, count):
    """Exactly so many bytes, or fewer if no more are there."""
    found = bytearray()
    while len(found) < count:
        try:
            part = sock.recv(count - len(found))
        except ssl.SSLWantReadError:
            break
        if not part:
            break
        found += part
    return bytes(found)


@VERSIONS
def test_bytes_come_and_go(pair, version):
    transport, client = pair(version)
    client.send(b"question")
    buffer = bytearray(100)
    assert transport.receive_into(buffer) == 8
    assert buffer[:8] == b"question"
    assert transport.send(b"answer") == 6
    assert received(client, 6) == b"answer"
    with pytest.raises(BlockingIOError):
        transport.receive_into(buffer)


def test_one_receive_takes_all_full_records(pair):
    transport, client = pair()
    data = os.urandom(3 * RECORD_BYTES + 5)
    client.setblocking(True)
    client.sendall(data)
    buffer = bytearray(len(data) + 100)
    assert transport.receive_into(buffer) == len(data)
    assert buffer[: len(data)] == data


def test_what_openssl_has_decrypted_is_told_of_although_the_socket_is_empty(pair):
    transport, client = pair()
    client.send(b"x" * 1000)
    assert not transport.holds_input
    assert transport.receive_into(bytearray(10)) == 10
    with pytest.raises(BlockingIOError):
        socket.socket.recv(transport.socket, 1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    assert transport.holds_input
    assert transport.receive_into(bytearray(2000), 500) == 500
    assert transport.receive_into(bytearray(2000)) == 490
    assert not transport.holds_input


def test_a_farewell_behind_bytes_is_told_of(pair):
    transport, client = pair()
    client.sendall(b"x" * RECORD_BYTES)
    with pytest.raises(ssl.SSLWantReadError):
        client.unwrap()  # says farewell, and waits for ours
    buffer = bytearray(2 * RECORD_BYTES)
    assert transport.receive_into(buffer) == RECORD_BYTES
    assert transport.holds_input  # no event will come: the peer keeps the connection open
    assert transport.receive_into(buffer) == 0
    assert transport.receive_into(buffer) == 0


def test_a_stream_without_a_farewell_ends_as_well(pair):
    transport, client = pair()
    assert not transport.peer_has_left()
    client.send(b"last")
    assert not transport.peer_has_left()
    client.close()
    assert transport.receive_into(bytearray(100)) == 4
    assert transport.peer_has_left()
    assert transport.receive_into(bytearray(100)) == 0


@pytest.fixture(params=["on the socket", "in batches"])
def over_tcp(request):
    """Makes a transport and the client's socket."""
    with contextlib.ExitStack() as made:

        def make(version):
            if request.param == "in batches":
                transport, theirs = batched_pair(Pieces(), ends=tcp_pair(), maximum_version=version)
            else:
                ours, theirs = pair_of(listener().context, client_context(maximum_version=version), ends=tcp_pair())
                transport = TlsTransport(ours, Pieces())
            made.callback(transport.close)
            return transport, made.enter_context(theirs)

        yield make


@VERSIONS
def test_a_farewell_is_nothing_that_is_left_to_read(over_tcp, version):
    transport, theirs = over_tcp(version)
    assert not transport.is_at_end()
    theirs.send(b"x")
    until(lambda: transport.receive_into(bytearray(9)) == 1)
    assert not transport.is_at_end()
    with contextlib.suppress(ssl.SSLWantReadError):
        theirs.unwrap()
    select.select([transport.socket], [], [], 20)
    assert not transport.is_at_end(), "it may still read"
    theirs.shutdown(socket.SHUT_WR)
    until(transport.is_at_end)


@VERSIONS
def test_a_request_before_the_farewell_is_left_to_read(over_tcp, version):
    transport, theirs = over_tcp(version)
    theirs.send(b"a request")
    with contextlib.suppress(ssl.SSLWantReadError):
        theirs.unwrap()
    theirs.shutdown(socket.SHUT_WR)
    until(lambda: system.has_closed_its_side(transport.socket))
    assert not transport.is_at_end()


def test_a_connection_in_a_pause_is_looked_at_whatever_its_transport(pair):
    transport, client = pair()
    readiness = SimpleNamespace(turn_end=lambda now: now)
    listener = listener_of(None, readiness, name="SSL", security_protocol="SSL")
    connection = Connection(transport, "127.0.0.1", listener)
    connection._throttling.muted_until = math.inf
    assert not connection.peer_has_left()
    client.close()  # without a farewell
    assert connection.peer_has_left()


def test_a_record_that_was_begun_goes_on_without_those_behind_it(socket_pair, tmp_path, monkeypatch):
    transport, client = socket_pair()
    content = os.urandom(4 << 20)
    region = FileRegion(OsFile(str(written(tmp_path, content))), 0, len(content))
    sent = 0
    with pytest.raises(BlockingIOError):
        while True:
            sent += transport.send_region(region, sent, len(content) - sent)
    got = received(client, 1 << 20)
    read = tls_transport.read_what_is_there
    # The system has taken all other pages back.
    monkeypatch.setattr(tls_transport, "read_what_is_there", lambda file, view, at: read(file, view[:RECORD_BYTES], at))
    sent += transport.send_region(region, sent, len(content) - sent)
    got += received(client, 1 << 20)
    assert len(got) == sent and content.startswith(got)


def test_a_long_answer_is_encrypted_in_turns(pair, monkeypatch):
    monkeypatch.setattr(tls_transport, "TURN_S", -1.0)
    monkeypatch.setattr(tls_batches, "TURN_S", -1.0)
    transport, client = pair()
    data, sent, got = os.urandom(300_000), 0, b""
    piece = tls_session.PIECE_BYTES if isinstance(transport, tls_batches.BatchedTlsTransport) else RECORD_BYTES
    while sent < len(data):
        with contextlib.suppress(BlockingIOError):  # the socket takes less than a record
            count = transport.send(data[sent:])
            assert count == min(piece, len(data) - sent)
            sent += count
        assert transport.send_waits_for is WAIT_WRITABLE
        got += received(client, len(data))
    assert got == data


def test_a_record_that_was_begun_waits_for_its_pages(socket_pair, tmp_path, monkeypatch):
    transport, client = socket_pair()
    size = 4 << 20
    path = written(tmp_path, os.urandom(size))
    region = FileRegion(OsFile(str(path)), 0, size)
    sent = 0
    with pytest.raises(BlockingIOError):
        while True:
            sent += transport.send_region(region, sent, size - sent)
    assert transport._begun == RECORD_BYTES
    got = received(client, 1 << 20)
    with monkeypatch.context() as patched:
        read = tls_transport.read_what_is_there
        patched.setattr(tls_transport, "read_what_is_there", lambda file, view, at: read(file, view[:4096], at))
        # The system has taken the others back.
        with pytest.raises(PageMissing):
            transport.send_region(region, sent, size - sent)
    while sent < size:
        with contextlib.suppress(BlockingIOError):
            sent += transport.send_region(region, sent, size - sent)
        got += received(client, 1 << 20)
    assert got == path.read_bytes()
    # A file that was cut meanwhile ends there.
    transport._begun = RECORD_BYTES
    os.truncate(path, 100)
    assert transport.send_region(region, 0, size) == 0


def until(condition, timeout_s=60.0):
    """Wait for what the kernel does by itself."""
    deadline = time.monotonic() + timeout_s
    while True:
        with contextlib.suppress(BlockingIOError):
            if condition():
                return
        assert time.monotonic() < deadline


def test_bytes_before_a_forged_record_count_and_then_the_connection_is_broken(pair):
    transport, client = pair()
    client.sendall(b"x" * RECORD_BYTES)
    socket.socket.send(client, b"\x17\x03\x03\x00\x20" + b"forged" * 10)
    assert transport.receive_into(bytearray(2 * RECORD_BYTES)) == RECORD_BYTES
    assert transport.holds_input
    with pytest.raises(ConnectionError, match="TLS: "):
        transport.receive_into(bytearray(100))


@VERSIONS
def test_a_send_that_was_refused_goes_on_with_the_same_record(pair, version):
    """By any length from the same byte on, even out of another buffer."""
    transport, client = pair(version)
    transport.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    data = os.urandom(4 << 20)
    sent, got = 0, b""
    while sent < len(data):
        try:
            sent += transport.send(bytes(data[sent : sent + 50_000]))
        except BlockingIOError:
            try:
                # Not the same object, and longer.
                sent += transport.send(memoryview(bytearray(data[sent : sent + 60_000])))
            except BlockingIOError:
                got += received(client, 30_000)
    got += received(client, len(data))
    assert got == data


def test_outbox_sends_buffers_and_regions_through_a_full_socket(pair, tmp_path):
    transport, client = pair()
    transport.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    content = os.urandom(3 << 20)
    file = OsFile(str(written(tmp_path, content)))
    outbox = Outbox()
    outbox.parts = [b"head", FileRegion(file, 100, 1000), b"middle", FileRegion(file, 5000, 2 << 20), b"tail"]
    expected = b"head" + content[100:1100] + b"middle" + content[5000 : 5000 + (2 << 20)] + b"tail"
    got = b""
    while (progress := outbox.send(transport)) is not Progress.DONE:
        assert progress is Progress.BLOCKED
        got += received(client, 100_000)
    got += received(client, len(expected))
    assert got == expected


def test_a_page_that_is_missing_is_left_to_a_thread(pair, tmp_path, monkeypatch):
    transport, client = pair()
    file = OsFile(str(written(tmp_path, b"r" * 100_000)))
    outbox = Outbox()
    outbox.parts = [FileRegion(file, 0, 100_000)]

    def missing(*_):
        raise PageMissing

    with monkeypatch.context() as patched:
        for module in (tls_transport, tls_batches):
            patched.setattr(module, "read_what_is_there", missing)
        assert outbox.send(transport) is Progress.COLD
    outbox.warm()
    assert outbox.send(transport) is Progress.DONE
    assert received(client, 100_000) == b"r" * 100_000


def test_a_file_that_is_too_short_ends_the_connection(pair, tmp_path):
    transport, _ = pair()
    file = OsFile(str(written(tmp_path, b"r" * 100)))
    outbox = Outbox()
    outbox.parts = [FileRegion(file, 0, 100_000)]
    with pytest.raises(ConnectionError, match="ends"):
        while outbox.send(transport) is Progress.COLD:  # a busy machine has taken the page away
            outbox.warm()


def test_frames_are_cut_from_records_of_any_size(pair):
    transport, client = pair()
    inbox = Inbox(ReceiveBuffers(), 1 << 20)
    frames = [bytes([number]) * size for number, size in enumerate((10, 70_000, 3, 200_000))]
    stream = b"".join(len(each).to_bytes(4) + each for each in frames)
    found = []
    for start in range(0, len(stream), 7_001):
        client.send(stream[start : start + 7_001])
        while True:
            try:
                inbox.receive(transport)
            except BlockingIOError:
                break
            while (bounds := inbox.next_frame()) is not None:
                found.append(bytes(inbox.buffer[bounds[0] : bounds[1]]))
            inbox.detach()
    assert found == frames


class Wanting:
    """Stands in for an encrypted socket that says what it wants."""

    def __init__(self, *answers):
        self.answers = list(answers)

    def read(self, count, buffer=None):
        return self._next()

    def write(self, data):
        return self._next()

    def pending(self):
        return 0

    def fileno(self):
        return 99

    def _next(self):
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


class Served:
    """Stands in for `Readiness`."""

    is_inside_the_wait = True

    def __init__(self):
        self.poked = 0

    def poke(self, sock):
        self.poked += 1

    async def serve(self, sock, step):
        return step()


async def directions(transport, result):
    """What is waited for in place of what a step asked for."""
    return await transport.serving(Served())(lambda: result)


async def test_each_direction_may_wait_for_the_other():
    transport = TlsTransport(
        Wanting(ssl.SSLWantWriteError(), ssl.SSLWantReadError(), ssl.SSLWantReadError(), ssl.SSLWantWriteError()),
        Pieces(),
    )
    with pytest.raises(BlockingIOError):
        transport.receive_into(bytearray(10))
    assert await directions(transport, WAIT_READABLE) is WAIT_WRITABLE
    with pytest.raises(BlockingIOError):
        transport.send(b"x")
    assert await directions(transport, WAIT_WRITABLE) is WAIT_READABLE
    with pytest.raises(BlockingIOError):
        transport.receive_into(bytearray(10))
    assert await directions(transport, WAIT_READABLE) is WAIT_READABLE
    with pytest.raises(BlockingIOError):
        transport.send(b"x")
    assert await directions(transport, WAIT_WRITABLE) is WAIT_WRITABLE
    assert await directions(transport, "awake") == "awake"


@pytest.mark.parametrize("is_inside", [True, False])
async def test_a_step_is_called_again_for_what_openssl_holds(pair, is_inside):
    """With and without epoll: nothing happens at the socket any more."""
    transport, client = pair()
    readiness = Readiness()
    if not is_inside:
        readiness.close()
    client.send(b"x" * 50)
    found = []

    def step():
        found.append(transport.receive_into(bytearray(10)))
        return WAIT_READABLE if len(found) < 5 else "all"

    with trio.fail_after(60):
        assert await transport.serving(readiness)(step) == "all"
        assert found == [10] * 5
        # What is left when the task goes to sleep again is seen as well.
        client.send(b"y" * 20)
        while transport.receive_into(bytearray(1)) != 1:
            pass
        found[:] = [0] * 3
        assert await transport.serving(readiness)(step) == "all"
    if is_inside:
        readiness.close()


def test_the_kernel_is_used_where_it_encrypts(socket_pair, monkeypatch):
    asked = []

    def with_keys(level, option, size):
        asked.append((level, option))
        return b"\x04\x03\x34\x00"

    def without(*_):
        raise OSError(92, "Protocol not available")

    assert kernel_encrypts(SimpleNamespace(getsockopt=with_keys)) is True
    assert kernel_encrypts(SimpleNamespace(getsockopt=without)) is False
    assert asked == [(282, 1)]
    ours = socket_pair()[0].socket
    expected = KernelTlsTransport if kernel_encrypts(ours) else TlsTransport
    assert type(transport_of(ours, Pieces())) is expected
    monkeypatch.setattr(tls_transport, "kernel_encrypts", lambda _: True)
    transport = transport_of(ours, Pieces())
    assert type(transport) is KernelTlsTransport
    # The stand-in has no kernel that encrypts, so plain bytes show that sendfile was used.
    sent = []
    monkeypatch.setattr(tls_transport.system, "send_file", lambda *arguments: sent.append(arguments) or 7)
    region = FileRegion(SimpleNamespace(fileno=lambda: 5), 0, 7)
    assert transport.send_region(region, 0, 7) == 7
    assert sent == [(ours.fileno(), 5, 0, 7)]


def test_closing_says_farewell(pair):
    transport, client = pair()
    transport.close()
    assert client.recv(1) == b""
    transport.close()
