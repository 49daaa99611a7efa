"""A peer cannot keep the event loop inside one read of TLS."""

import contextlib
import ctypes
import ctypes.util
import gc
import select
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from ottla.replication import system
from ottla.replication.reminders import Reminder
from ottla.server.network import tls_session
from ottla.server.network.tls_batches import BatchedTlsTransport
from ottla.server.network.tls_session import READ_S, TlsSession, Watch
from ottla.server.network.tls_transport import Pieces, TlsStream, transport_of
from ottla.server.tests.encrypted import listener, tcp_pair

pytestmark = pytest.mark.skipif(
    not system.CAN_CUT_OFF or not hasattr(time, "pthread_getcpuclockid"), reason="the system cannot do it"
)


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = tcp_pair()
    with ours, theirs:
        ours.setblocking(False)
        yield ours, theirs


def test_what_was_received_goes_with_the_connection(ends: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = ends
    theirs.sendall(b"x" * 1000)
    assert system.cut_off(ours)
    with pytest.raises(OSError):  # ConnectionResetError, and later ENOTCONN
        ours.recv(1)
    with pytest.raises(ConnectionError):
        while True:
            theirs.sendall(b"x" * 1000)


def test_a_read_that_takes_too_much_of_a_processor_is_ended(ends: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = ends
    theirs.sendall(b"x")
    watch = Watch()
    watch.start()
    watch.count += 1
    watch.reading = ours
    deadline = time.monotonic() + 60
    with pytest.raises(OSError):  # ConnectionResetError, and later ENOTCONN
        while time.monotonic() < deadline:
            ours.recv(1, socket.MSG_PEEK)


def test_many_short_reads_are_not(ends: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = ends
    theirs.sendall(b"x")
    watch = Watch()
    watch.start()
    until = time.thread_time() + 10 * READ_S
    while time.thread_time() < until:
        watch.count += 1
        watch.reading = ours
        ours.recv(1, socket.MSG_PEEK)
        watch.reading = None
    assert ours.recv(1) == b"x"


def test_what_the_loop_has_used_before_a_read_does_not_count(
    ends: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between two steps of the thread that looks, the loop may compute for seconds and then begin to read."""
    watch, ended = Watch(), []
    watch.reading = ends[0]
    used_s = iter([0.0, 10.0, 10.0])

    def clock(_: int) -> float:
        watch.count = 1
        return next(used_s)

    looks = iter([watch, watch, None])
    monkeypatch.setattr(tls_session, "time", SimpleNamespace(clock_gettime=clock, sleep=lambda _: None))
    monkeypatch.setattr(tls_session, "_end", lambda *told: ended.append(told[1]))
    tls_session._look(lambda: next(looks), 0)  # type: ignore[arg-type]
    assert ended == []


def test_nobody_watches_for_a_loop_that_is_gone() -> None:
    def watchers() -> int:
        return sum(each.name == "endless reads" for each in threading.enumerate())

    gc.collect()
    watch = Watch()
    watch.start()
    assert watchers() >= 1
    del watch
    deadline = time.monotonic() + 60
    while watchers() and time.monotonic() < deadline:
        threading.Event().wait(0.01)
    assert not watchers()


@pytest.mark.thorough
@pytest.mark.parametrize("in_batches", [False, True])
def test_a_flood_of_new_keys_ends_the_connection(ends: tuple[socket.socket, socket.socket], in_batches: bool) -> None:
    ours, theirs = ends
    try:
        library = ctypes.CDLL(ctypes.util.find_library("ssl") or "")
        for name in ("TLS_client_method", "SSL_CTX_new", "SSL_new"):
            getattr(library, name).restype = ctypes.c_void_p
        update = library.SSL_key_update
    except (OSError, AttributeError):
        pytest.skip("no OpenSSL that can do it")
    client = ctypes.c_void_p(
        library.SSL_new(ctypes.c_void_p(library.SSL_CTX_new(ctypes.c_void_p(library.TLS_client_method()))))
    )
    library.SSL_set_fd(client, theirs.fileno())
    pieces, context = Pieces(), listener().context
    server: ssl.SSLSocket | TlsSession = (
        TlsSession(context, ours, pieces.bios) if in_batches else own_socket(context, ours)
    )
    with contextlib.closing(server):
        shaking = threading.Thread(target=shake_hands, args=(server,))
        shaking.start()
        assert library.SSL_connect(client) == 1
        shaking.join()
        theirs.setblocking(False)
        transport = (
            BatchedTlsTransport(server, pieces) if isinstance(server, TlsSession) else transport_of(server, pieces)
        )
        # To OpenSSL the end is one of the stream or an error.
        has_ended = False
        while not has_ended:
            for _ in range(1_000 if in_batches else 100_000):
                if update(client, 0) != 1 or library.SSL_do_handshake(client) != 1:
                    break
            with contextlib.suppress(BlockingIOError):
                try:
                    has_ended = transport.receive_into(bytearray(100)) == 0
                except ConnectionError:
                    has_ended = True
    library.SSL_free(client)


def own_socket(context: ssl.SSLContext, sock: socket.socket) -> ssl.SSLSocket:
    return context.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)


def shake_hands(server: ssl.SSLSocket | TlsSession) -> None:
    while True:
        try:
            return server.do_handshake()
        except ssl.SSLWantReadError:
            select.select([server], [], [], 20)


@pytest.mark.parametrize("is_closed_before", [False, True])
def test_whoever_has_the_number_of_a_closed_connection_is_not_cut_off(
    ends: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch, is_closed_before: bool
) -> None:
    """The thread that cuts off is slow: it has the number of the descriptor, and the loop closes the connection."""
    ours, _ = ends
    context = ssl.create_default_context()
    sock = context.wrap_socket(ours, server_hostname="h", do_handshake_on_connect=False)
    watch = Watch()
    stream = TlsStream(sock, watch)
    watch.reading = sock
    others: list[tuple[socket.socket, socket.socket]] = []

    def close_and_accept() -> None:
        watch.reading = None
        stream.close()
        others.append(tcp_pair())

    loop = threading.Thread(target=close_and_accept)
    fileno = ssl.SSLSocket.fileno

    def slowly(self: ssl.SSLSocket) -> int:
        number = fileno(self)
        if threading.current_thread() is not loop and loop.ident is None:
            loop.start()
            loop.join(1)  # as long as it waits for this thread
        return number

    monkeypatch.setattr(ssl.SSLSocket, "fileno", slowly)
    if is_closed_before:
        loop.start()
        loop.join()
    tls_session._end(watch, watch.count, Reminder())
    loop.join()
    [(near, far)] = others
    with near, far:
        far.sendall(b"x")
        assert near.recv(1) == b"x"
        near.sendall(b"y")
        assert far.recv(1) == b"y"
