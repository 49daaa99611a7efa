"""What kazoo runs on, without ZooKeeper: sockets and threads."""

import socket
import struct
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import trio
import trio.testing

from ottla.replication.cluster.coordination import CoordinationUnavailable
from ottla.server.cluster.coordination.kazoo_handler import LoopHandler, LoopQueue, ServerConnection
from ottla.server.cluster.coordination.zookeeper import WAIT_TOLD_S, ZooKeeperCoordination
from ottla.server.config.coordination_config import ZooKeeperConfig

GREETING = struct.pack(">iii", 37, 0, 4_000)


class DecryptedConnection(ServerConnection):
    def pending(self) -> int:
        return 1


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


@pytest.fixture
async def handler() -> LoopHandler:
    return LoopHandler(trio.lowlevel.current_trio_token(), None, 0.01)


async def test_callbacks_are_called_on_the_loop_in_order_and_survive_a_bug(caplog: pytest.LogCaptureFixture) -> None:
    queue = LoopQueue(trio.lowlevel.current_trio_token())
    called: list[int] = []
    done, here = trio.Event(), threading.get_ident()

    def put_all() -> None:
        queue.put(lambda: 1 // 0)
        for number in range(100):
            queue.put(lambda number=number: called.append(number if threading.get_ident() == here else -1))
        queue.put(done.set)

    await trio.to_thread.run_sync(put_all)
    await done.wait()
    assert called == list(range(100))
    assert "ZeroDivisionError" in caplog.text


def test_callbacks_after_the_loop_are_dropped() -> None:
    async def token() -> trio.lowlevel.TrioToken:
        return trio.lowlevel.current_trio_token()

    called: list[int] = []
    LoopQueue(trio.run(token)).put(lambda: called.append(1))
    assert called == []


def test_the_granted_timeout_is_read_in_passing(pair: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = pair
    granted: list[int] = []
    connection = ServerConnection(ours, granted.append)
    theirs.sendall(GREETING + b"rest")
    assert (connection.recv(4), granted, connection.is_greeted) == (GREETING[:4], [], False)
    assert connection.recv(8) == GREETING[4:]
    assert (granted, connection.is_greeted) == ([4_000], True)
    assert (connection.recv(8), granted) == (b"rest", [4_000])


async def test_what_tls_has_decrypted_counts_as_readable(
    handler: LoopHandler, pair: tuple[socket.socket, socket.socket]
) -> None:
    connection = DecryptedConnection(pair[0], lambda timeout_ms: None)
    assert handler.select([connection], [], [], None) == ([connection], [], [])


async def test_a_server_that_does_not_greet_is_not_waited_for(
    handler: LoopHandler, pair: tuple[socket.socket, socket.socket]
) -> None:
    ours, theirs = pair
    connection = ServerConnection(ours, lambda timeout_ms: None)
    assert handler.select([connection], [], [], None) == ([], [], [])  # returns, although told to wait for ever
    assert handler.select([], [connection], [], 1.0) == ([], [connection], [])
    theirs.sendall(GREETING)
    assert handler.select([connection, theirs], [], [], 1.0) == ([connection], [], [])


async def test_no_connection_outlives_the_session(handler: LoopHandler) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        connection = handler.create_connection(listener.getsockname(), hostname="zk", timeout=60)
        peer, _ = listener.accept()
        with peer:
            handler.cut_connection()
            handler.cut_connection()  # harmless
            assert (connection.recv(1), peer.recv(1)) == (b"", b"")
        handler.refuse_connections()
        with pytest.raises(OSError, match="ended"):
            handler.create_connection(listener.getsockname(), hostname="zk", timeout=60)
        connection.close()


async def test_why_there_is_no_connection_is_remembered(handler: LoopHandler) -> None:
    with socket.socket() as held:  # which does not listen, and keeps the port from others
        held.bind(("127.0.0.1", 0))
        address = held.getsockname()
        with pytest.raises(ConnectionRefusedError):
            handler.create_connection(address, hostname="zk", timeout=60)
    assert (handler.last_server, handler.last_problem) == (f"zk:{address[1]}", "Connection refused")


def test_whoever_has_the_number_of_a_closed_connection_is_not_cut(
    pair: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loop cuts slowly: kazoo's thread has time to close the connection meanwhile, and to make another one."""
    connection = ServerConnection(pair[0], lambda timeout_ms: None)
    shutdown, was_open = socket.socket.shutdown, list[bool]()
    kazoo = threading.Thread(target=connection.close)

    def slowly(sock: socket.socket, how: int) -> None:
        kazoo.start()
        kazoo.join(1)  # as long as it waits for this thread
        was_open.append(sock.fileno() >= 0)
        shutdown(sock, how)

    monkeypatch.setattr(socket.socket, "shutdown", slowly)
    connection.cut()
    kazoo.join()
    assert was_open == [True] and pair[0].fileno() < 0


@pytest.mark.parametrize(
    ("connect", "trouble"),
    [("127.0.0.1:1/kafka", "Connection refused"), ("127.0.0.1:1,127.0.0.1:1", "Connection refused (127.0.0.1:1)")],
)
async def test_a_zookeeper_that_is_not_there_is_told_of_soon_and_in_plain_words(
    connect: str,
    trouble: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    mock_clock: trio.testing.MockClock,
) -> None:
    token, attempted = trio.lowlevel.current_trio_token(), trio.Event()
    create_connection = LoopHandler.create_connection

    def attempt(handler: LoopHandler, *arguments: Any, **named: Any) -> ServerConnection:
        try:
            return create_connection(handler, *arguments, **named)
        finally:
            token.run_sync_soon(attempted.set)

    async def let_time_pass() -> None:
        # kazoo's thread takes its time on a busy machine, so the clock stands still until its attempt has failed.
        await attempted.wait()
        mock_clock.jump(WAIT_TOLD_S)
        await trio.testing.wait_all_tasks_blocked()
        mock_clock.jump(config.connection_timeout_s)

    monkeypatch.setattr(LoopHandler, "create_connection", attempt)
    config = ZooKeeperConfig(zookeeper_connect=connect, zookeeper_connection_timeout_ms=1_500)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(let_time_pass)
        with pytest.raises(CoordinationUnavailable) as failure:
            await ZooKeeperCoordination(config).run()
    told = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert told == [f"This broker waits for ZooKeeper at {connect}: {trouble}"]
    assert str(failure.value) == f"ZooKeeper at {connect}: {trouble}"
