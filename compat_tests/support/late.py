"""A way to a broker that keeps requests of a kind, breaks the connection on which they came, and delivers them late.

    way = LateWay(port_of_the_broker)       # clients have to come through: advertised.listeners names way.port
    late = way.keep(EndTxnRequest)          # the next one
    producer.commit_transaction()           # goes over another connection, when the first one has broken
    late.deliver()                          # to the broker, which has never seen the first one go; the broker's answer

With `doubled` the broker gets the request at once, but nobody hears the answer: the client asks again, and `deliver` is the
third time. The broker never sees the end of a connection that has broken on the client's side, as with a network that
forgets it.
"""

import contextlib
import queue
import socket
import struct
import threading
from typing import Any

from compat_tests.support.raw import receive_frame
from compat_tests.support.wire_client import decode_response

from ottla.server.dispatch.dispatch import response_class_of
from ottla.wire.schema import Message

HOST = "127.0.0.1"
PATIENCE_S = 60


class Late:
    """A request to be kept, or one that has been."""

    def __init__(self, kind: type[Message], *, doubled: bool) -> None:
        self.kind, self.doubled = kind, doubled
        self._payload = b""
        self._passage: _Passage | None = None

    @property
    def is_kept(self) -> bool:
        return bool(self._payload)

    @property
    def version(self) -> int:
        (version,) = struct.unpack_from(">h", self._payload, 2)
        return int(version)

    def keep(self, payload: bytes, passage: "_Passage") -> None:
        self._payload, self._passage = payload, passage
        if self.doubled:
            self.deliver()

    def deliver(self) -> Any:
        """What the broker answers."""
        assert self._passage is not None, f"no {self.kind.__name__} has come"
        answer = self._passage.ask(self._payload)
        return decode_response(answer, response_class_of(self.kind), self.version)[1]


class LateWay:
    def __init__(self, port: int) -> None:
        self.target = HOST, port
        self.versions: dict[int, int] = {}
        """By api key, of the last request that has come."""

        self._wanted: dict[int, Late] = {}
        self._lock = threading.Lock()
        self._listener = socket.create_server((HOST, 0), backlog=100)
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def keep(self, kind: type[Message], *, doubled: bool = False) -> Late:
        """The next request of a kind, and of this kind only."""
        late = Late(kind, doubled=doubled)
        with self._lock:
            self._wanted = {kind.api_key: late}
        return late

    def keeps(self, payload: bytes) -> Late | None:
        """What is waited for, if this request is it."""
        key, version = struct.unpack_from(">hh", payload)
        with self._lock:
            self.versions[key] = version
            return self._wanted.pop(key, None)

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near = self._listener.accept()[0]
                threading.Thread(target=_Passage(self, near).run, daemon=True).start()


class _Passage:
    """One connection of a client, and the one to the broker behind it."""

    def __init__(self, way: LateWay, near: socket.socket) -> None:
        self._way, self._near = way, near
        self._far = socket.create_connection(way.target)
        self._is_broken = threading.Event()
        self._unheard: queue.Queue[bytes] = queue.Queue()
        for end in (self._near, self._far):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def run(self) -> None:
        threading.Thread(target=self._pass_answers_on, daemon=True).start()
        with contextlib.suppress(OSError):
            while payload := receive_frame(self._near):
                if late := self._way.keeps(payload):
                    self._is_broken.set()
                    late.keep(payload, self)
                    break
                self._far.sendall(struct.pack(">i", len(payload)) + payload)
        with contextlib.suppress(OSError):
            self._near.shutdown(socket.SHUT_RDWR)
        if not self._is_broken.is_set():
            self._far.close()

    def ask(self, payload: bytes) -> bytes:
        """The answer to a request that nobody waits for any more; earlier answers are lost."""
        self._far.sendall(struct.pack(">i", len(payload)) + payload)
        while (answer := self._unheard.get(timeout=PATIENCE_S))[:4] != payload[4:8]:
            pass
        return answer

    def _pass_answers_on(self) -> None:
        with contextlib.suppress(OSError):
            while answer := receive_frame(self._far):
                if self._is_broken.is_set():
                    self._unheard.put(answer)
                else:
                    self._near.sendall(struct.pack(">i", len(answer)) + answer)
        with contextlib.suppress(OSError):
            self._near.shutdown(socket.SHUT_RDWR)
