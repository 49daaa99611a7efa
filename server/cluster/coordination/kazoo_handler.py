"""Event handler for kazoo: a thread for its connection, the event loop for its callbacks; and lasting watches.

kazoo's own handler runs results and watch events on two threads of their own, so that data can arrive before the watch
event of its change. Here both go, with the changes of state, through trio's one queue in the order in which kazoo's
connection produced them, and no thread is needed but the connection's.

The handler also makes the connections. It bounds each attempt so that the session survives a server that does not answer,
can cut a connection that is stuck, refuses new ones after the session, and reads off the wire what kazoo keeps to
itself: the session timeout that the server granted.
"""

from __future__ import annotations

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
from kazoo import exceptions as kazoo_errors
from kazoo.handlers.threading import AsyncResult, KazooTimeoutError
from kazoo.protocol.states import EventType

from ottla.replication.cluster.coordination import OnChange

logger = logging.getLogger("ottla.zookeeper")


# A frame's length, the protocol's version, and the session timeout in ms: how a server's first answer begins.
_granted = struct.Struct(">iii")


class LoopQueue:
    """Queue that runs kazoo's callbacks on the event loop, in order."""

    def __init__(self, token: trio.lowlevel.TrioToken) -> None:
        self._token = token

    def put(self, callback: Callable[[], object]) -> None:
        # Without the loop no task is left that could wait for this.
        with contextlib.suppress(trio.RunFinishedError):
            # trio keeps the order of these calls, which is the order of what kazoo's connection received.
            self._token.run_sync_soon(_guarded, callback)


class ServerConnection:
    """Connection to a ZooKeeper server, with the socket methods that kazoo calls."""

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
        """Return the number of bytes that TLS has decrypted but not returned; select does not report them."""
        return self._socket.pending() if isinstance(self._socket, ssl.SSLSocket) else 0

    def close(self) -> None:
        """Close the socket; called on kazoo's thread."""
        # Not while another thread is about to cut it: the descriptor's number may be another socket's by then.
        with self._closing:
            self._socket.close()

    def cut(self) -> None:
        """End the connection from another thread than kazoo's. kazoo sees it as closed by the peer."""
        with self._closing, contextlib.suppress(OSError):  # it has ended already
            socket.socket.shutdown(self._socket, socket.SHUT_RDWR)  # not SSLSocket's, which drops the TLS state at once


class LoopHandler:
    """Handler of one kazoo session (kazoo's IHandler). It runs kazoo's callbacks on the event loop."""

    name = "ottla_loop_handler"
    timeout_exception = KazooTimeoutError
    sleep_func = staticmethod(time.sleep)
    running = True  # or else kazoo would call back on its own thread

    def __init__(self, token: trio.lowlevel.TrioToken, tls: ssl.SSLContext | None, attempt_s: float) -> None:
        """Create the handler. `attempt_s`: limit in seconds for connecting, and then again for the first response."""
        self.completion_queue = self.callback_queue = LoopQueue(token)
        self.granted_ms = 0
        self.last_problem = self.last_server = ""
        self._tls, self._attempt_s = tls, attempt_s
        self._connection: ServerConnection | None = None
        self._refusing = False

    # ------------------------------------------------------------------ for the adapter

    def refuse_connections(self) -> None:
        """Refuse all further connections. Call this when the session is over."""
        self._refusing = True

    def cut_connection(self) -> None:
        """Close the connection, so that kazoo tries another server."""
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
        """No-op: there are no threads to start."""

    def stop(self) -> None:
        """No-op: there are no threads to stop."""


def _guarded(call: Callable[[], object]) -> None:
    try:
        call()
    # On the event loop an exception here would end the whole program, and on kazoo's thread the session.
    except Exception:
        logger.exception("A bug in the connection to ZooKeeper")


_UNKNOWN = object()


class _Watch:
    """Lasting watch on a node or its children; it renews ZooKeeper's one-shot watch after each event.

    kazoo calls this object with events, and identifies the watch by this object. No reference cycle contains the
    object, so it is freed when it is dropped.
    """

    __slots__ = ("_on_event", "is_set", "listeners", "of_children", "path", "seen", "was_cut_off")

    def __init__(self, path: str, of_children: bool, on_event: Callable[[_Watch, Any], None]) -> None:
        self.path, self.of_children, self._on_event = path, of_children, on_event
        self.listeners: dict[object, OnChange] = {}
        self.is_set = False
        self.was_cut_off = False
        self.seen: object = _UNKNOWN  # the transactions that a change would replace, when the watch was last set

    def __call__(self, event: Any) -> None:
        self._on_event(self, event)

    def call(self) -> None:
        # A listener may cancel others, or add some. The copy keeps
        # the loop safe, the look spares those that were cancelled.
        for token, listener in list(self.listeners.items()):
            if token in self.listeners:
                listener(self.path)


class Watches:
    """Watches that last as long as the session; ZooKeeper's own watches fire once and end with the connection.

    A ZooKeeper watch is set for the first listener. When it fires, it is set again before the listeners are called, so
    that no later change is missed. After a lost connection all watches are set again, and listeners of changed nodes
    are called. A watch without listeners stays until it fires. If a node is missing, its children are watched after the
    node was created.
    """

    def __init__(self, absolute: Callable[[str], str]) -> None:
        """Create the watches; `absolute` turns a path of the `Coordination` port into the node's path in ZooKeeper."""
        self._absolute = absolute
        self._client: Any = None  # while connected
        self._known: dict[tuple[bool, str], _Watch] = {}

    def resume(self, client: Any) -> None:
        """Set the watches again on a new connection, before any other request is sent."""
        self._client = client
        # kazoo throws its watches away with the connection, so each one is set again.
        for watch in self._known.values():
            self._set(watch)

    def cut_off(self) -> None:
        self._client = None
        # These have no listeners any more, and without a connection
        # they can never fire: the last chance to forget them.
        self._known = {key: watch for key, watch in self._known.items() if watch.listeners}
        for watch in self._known.values():
            # Events may be missing from here on. `_compare` finds out by the numbers of transactions.
            watch.was_cut_off, watch.is_set = True, False

    def watch(self, path: str, of_children: bool, on_change: OnChange) -> Callable[[], None]:
        path = "" if path == "/" else path
        watch = self._known.get((of_children, path))
        if watch is None:
            watch = self._known[of_children, path] = _Watch(path, of_children, self._fired)
        # The same function may listen twice, so that the function itself cannot be the key.
        token = object()
        watch.listeners[token] = on_change
        if not watch.is_set:
            self._set(watch)

        def cancel() -> None:
            watch.listeners.pop(token, None)
            # A watch that is set stays known: kazoo will call it, and whoever listens by then needs no second request.
            if not watch.listeners and not watch.is_set and self._known.get((of_children, path)) is watch:
                del self._known[of_children, path]

        return cancel

    def _set(self, watch: _Watch) -> None:
        if self._client is None:
            return
        path = self._absolute(watch.path)
        # When it is sent, not when it is answered: those who come meanwhile share it.
        watch.is_set = True
        if watch.of_children:
            # `include_data` brings the transaction of the last change of children, which `_compare` needs.
            request = self._client.get_children_async(path, watch, include_data=True)
        else:
            # `exists` sets the watch even where there is no node, and then hears of its creation.
            request = self._client.exists_async(path, watch)
        request.rawlink(partial(self._was_set, watch))

    def _set_for_creation(self, watch: _Watch) -> None:
        """Watch for the creation of a node that does not exist yet and whose children have listeners."""
        request = self._client.exists_async(self._absolute(watch.path), watch)
        request.rawlink(partial(self._was_set_for_creation, watch))

    def _was_set(self, watch: _Watch, answer: Any) -> None:
        # This answers a request of a connection that is lost. The watch was lost with it.
        if self._client is None:
            return
        if answer.successful():
            stat = answer.value[1] if watch.of_children else answer.value
            self._compare(
                watch, None if stat is None else (stat.czxid, stat.pzxid if watch.of_children else stat.mzxid)
            )
        elif isinstance(answer.exception, kazoo_errors.NoNodeError):
            self._set_for_creation(watch)
        else:
            self._could_not_set(watch, answer)

    def _was_set_for_creation(self, watch: _Watch, answer: Any) -> None:
        if self._client is None:
            return
        if not answer.successful():
            self._could_not_set(watch, answer)
        elif answer.value is None:
            self._compare(watch, None)
        else:  # it was made in between
            # The children can be watched now. Readers have to check, because no event reported the creation.
            self._set(watch)
            watch.call()

    def _could_not_set(self, watch: _Watch, answer: Any) -> None:
        # A lost connection is no news here: `resume` sets every watch again.
        if not isinstance(answer.exception, kazoo_errors.ConnectionLoss):
            logger.error("Cannot watch %s in ZooKeeper: %r", watch.path, answer.exception)

    def _compare(self, watch: _Watch, seen: object) -> None:
        """Call the listeners if `seen` shows that the node changed while the connection was lost."""
        # A first answer only says where things stand. A listener reads by itself after it has set its watch.
        missed = watch.was_cut_off and seen != watch.seen
        watch.was_cut_off, watch.seen = False, seen
        if missed:
            watch.call()

    def _fired(self, watch: _Watch, event: Any) -> None:
        if event.type == EventType.NONE:
            return  # the connection is lost
        watch.is_set = False
        # It is not set any more, so nothing will call it again.
        if not watch.listeners:
            self._known.pop((watch.of_children, watch.path), None)
            return
        # Set before the listeners read: a change between their read and a later watch would be missed.
        self._set(watch)
        watch.call()
