"""What kazoo runs on: the thread of its connection, and for everything it calls back the event loop.

kazoo's own handler runs results and watch events on two threads of their own, so that data can arrive before the watch
event of its change. Here both go, with the changes of state, through trio's one queue in the order in which kazoo's
connection produced them, and no thread is needed but the connection's.

The handler also makes the connections. It bounds each attempt so that the session survives a server that does not answer,
can cut a connection that is stuck, refuses new ones after the session, and reads off the wire what kazoo keeps to
itself: the session timeout that the server granted.
"""

import contextlib
import logging
import select
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import trio
from kazoo.handlers.threading import AsyncResult, KazooTimeoutError

logger = logging.getLogger("ottla.zookeeper")

# A frame's length, the protocol's version, and the session timeout in ms: how a server's first answer begins.
_granted = struct.Struct(">iii")


class LoopQueue:
    """The queue of kazoo's callbacks: what is put in is called on the event loop, in this order."""

    def __init__(self, token: trio.lowlevel.TrioToken) -> None:
        self._token = token

    def put(self, callback: Callable[[], object]) -> None:
        # Without the loop there is nobody left who could wait for this.
        with contextlib.suppress(trio.RunFinishedError):
            # trio keeps the order of these calls, which is the order of what kazoo's connection received.
            self._token.run_sync_soon(_guarded, callback)


class ServerConnection:
    """The socket of a connection, as kazoo uses one."""

    def __init__(self, sock: socket.socket, on_granted: Callable[[int], None]) -> None:
        self._socket = sock
        self._on_granted = on_granted
        self._head = b""
        self.is_greeted = False
        self._closing = threading.Lock()
        self.setblocking, self.getpeername = sock.setblocking, sock.getpeername
        self.fileno, self.send = sock.fileno, sock.send

    def recv(self, size: int) -> bytes:
        chunk = self._socket.recv(size)
        # TLS and TCP may hand over the greeting in pieces.
        if not self.is_greeted:
            self._head += chunk
            if len(self._head) >= _granted.size:
                self.is_greeted = True
                self._on_granted(_granted.unpack_from(self._head)[2])
        return chunk

    def pending(self) -> int:
        """What TLS has decrypted but not handed over: select does not tell."""
        return self._socket.pending() if isinstance(self._socket, ssl.SSLSocket) else 0

    def close(self) -> None:
        """On kazoo's thread."""
        # Not while another thread is about to cut it: the descriptor's number may be another socket's by then.
        with self._closing:
            self._socket.close()

    def cut(self) -> None:
        """End the connection from another thread; kazoo sees that its peer is gone."""
        with self._closing, contextlib.suppress(OSError):  # it has ended already
            socket.socket.shutdown(self._socket, socket.SHUT_RDWR)  # not SSLSocket's, which drops the TLS state at once


class LoopHandler:
    """kazoo's IHandler for one session."""

    name = "ottla_loop_handler"
    timeout_exception = KazooTimeoutError
    sleep_func = staticmethod(time.sleep)
    running = True  # or else kazoo would call back on its own thread

    def __init__(self, token: trio.lowlevel.TrioToken, tls: ssl.SSLContext | None, attempt_s: float) -> None:
        """`attempt_s` bounds the wait for one server to take the connection, and then for its first answer."""
        self.completion_queue = self.callback_queue = LoopQueue(token)
        self.granted_ms = 0
        self.last_problem = self.last_server = ""
        self._tls = tls
        self._attempt_s = attempt_s
        self._connection: ServerConnection | None = None
        self._refusing = False

    # ------------------------------------------------------------------ for the adapter

    def refuse_connections(self) -> None:
        """The session is over; kazoo must not begin another."""
        self._refusing = True

    def cut_connection(self) -> None:
        """Let kazoo try another server, if the present one does not answer."""
        if self._connection is not None:
            self._connection.cut()

    # ------------------------------------------------------------------ for kazoo, on its thread

    def create_connection(self, address: tuple[str, int], hostname: str | None = None, **_: Any) -> ServerConnection:
        # kazoo takes the error for a failed attempt and never begins a session.
        if self._refusing:
            raise ConnectionAbortedError("the session has ended")
        try:
            sock = self._connected(address, hostname)
        except OSError as error:  # which ssl.SSLError is
            self.last_problem = error.strerror or str(error)
            self.last_server = f"{hostname or address[0]}:{address[1]}"
            raise
        # `cut_connection` is called on the event loop, and finds this
        # one only from here on. So the refusal is looked at again.
        self._connection = ServerConnection(sock, self._granted)
        if self._refusing:  # since this began
            self._connection.cut()
        return self._connection

    def _connected(self, address: tuple[str, int], hostname: str | None) -> socket.socket:
        # The time limit stays on the socket and holds for the TLS handshake, too.
        sock = socket.create_connection(address, self._attempt_s)
        try:
            # Requests are small, and a probe must not wait until there is more to send.
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return sock if self._tls is None else self._tls.wrap_socket(sock, server_hostname=hostname or address[0])
        except OSError:
            sock.close()
            raise

    def _granted(self, timeout_ms: int) -> None:
        self.granted_ms = timeout_ms or self.granted_ms  # 0 says that the session has expired
        self.last_problem = ""

    def select(
        self, readers: Sequence[Any], writers: Sequence[Any], _: Sequence[Any] = (), timeout: float | None = None
    ) -> tuple[list[Any], list[Any], list[Any]]:
        # TLS decrypts a whole record at a time. What is left of it is in memory, where no descriptor shows it.
        decrypted = [each for each in readers if isinstance(each, ServerConnection) and each.pending()]
        # `select.select` cannot look at descriptors from 1,024 on, which a broker with many connections has.
        poll = select.poll()
        for each in readers:
            poll.register(each, select.POLLIN)
        for each in writers:
            poll.register(each, select.POLLOUT)
        # A server that is starting may accept a connection and stay silent.
        # The attempt is bounded, so that other servers are tried in time.
        if any(isinstance(each, ServerConnection) and not each.is_greeted for each in readers):
            timeout = self._attempt_s if timeout is None else min(timeout, self._attempt_s)
        # With bytes at hand, only a look at the others.
        wait_ms = 0 if decrypted else None if timeout is None else max(0, round(timeout * 1000))
        ready = {descriptor for descriptor, _ in poll.poll(wait_ms)}
        readable = [each for each in readers if each in decrypted or each.fileno() in ready]
        return readable, [each for each in writers if each.fileno() in ready], []

    def spawn(self, function: Callable[..., object], *arguments: Any, **named: Any) -> threading.Thread:
        call = partial(_guarded, partial(function, *arguments, **named))
        # As a daemon it does not keep a process alive that ends without a goodbye.
        thread = threading.Thread(target=call, name="zookeeper", daemon=True)
        thread.start()
        return thread

    def dispatch_callback(self, callback: Any) -> None:
        self.callback_queue.put(partial(callback.func, *callback.args))

    def async_result(self) -> Any:
        return AsyncResult(self)

    def create_socket_pair(self) -> tuple[socket.socket, socket.socket]:
        return socket.socketpair()

    event_object = staticmethod(threading.Event)
    lock_object = staticmethod(threading.Lock)
    rlock_object = staticmethod(threading.RLock)

    def start(self) -> None:
        """There are no threads to start."""

    def stop(self) -> None:
        """Nor to stop."""


def _guarded(call: Callable[[], object]) -> None:
    try:
        call()
    # On the event loop an exception here would end the whole program, and on kazoo's thread the session.
    except Exception:
        logger.exception("A bug in the connection to ZooKeeper")
