"""Connections of a client over trio's streams: TCP, TLS, or anything else that has their methods."""

import random
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

import trio

from ottla.server.testing.memory.agenda import Agenda

RECEIVE_BYTES = 65536
Address = tuple[str, int]


class Stream(Protocol):
    """Interface of trio's streams."""

    async def send_all(self, data: Any, /) -> None:
        """Send all bytes."""

    async def receive_some(self, max_bytes: int, /) -> bytes | bytearray:
        """Receive some bytes; none at the end."""

    async def aclose(self) -> None:
        """Close it."""


OpenStream = Callable[[str, int], Awaitable[Stream]]


class StreamNetwork:
    """A client's way to brokers by streams. `addresses` by broker; `open_stream` is given host and port."""

    def __init__(
        self,
        nursery: trio.Nursery,
        addresses: Mapping[int, Address],
        open_stream: OpenStream = trio.open_tcp_stream,
        chance: random.Random | None = None,
    ) -> None:
        self.agenda = Agenda()
        self.chance = chance or random.Random()
        self._nursery = nursery
        self._addresses = dict(addresses)
        self._open_stream = open_stream

    def locate(self, broker: int, host: str, port: int) -> None:
        """Learn where a broker is."""
        self._addresses[broker] = (host, port)

    async def connect(self, host: int, to: int) -> "StreamSocket":
        """Connect to a broker. Raises OSError."""
        if to not in self._addresses:
            raise ConnectionRefusedError(f"nobody says where broker {to} is")
        return StreamSocket(await self._open_stream(*self._addresses[to]), self._nursery)


class StreamSocket:
    """A stream as a channel wants it: two tasks receive and send, and nobody waits."""

    def __init__(self, stream: Stream, nursery: trio.Nursery) -> None:
        self._stream = stream
        self._nursery = nursery
        self._scope = trio.CancelScope()
        self._received: deque[bytes | bytearray] = deque()
        self._to_send: deque[bytes] = deque()
        self._has_something = trio.Event()
        self._has_ended = False

    def watch(self, step: Callable[[], Any]) -> None:
        self._nursery.start_soon(self._run, step)

    def recv_into(self, buffer: Any) -> int:
        if not self._received:
            if self._has_ended:
                return 0
            raise BlockingIOError
        chunk = self._received.popleft()
        buffer[: len(chunk)] = chunk
        return len(chunk)

    def send(self, data: bytes) -> int:
        if self._has_ended:
            raise BrokenPipeError("the connection has ended")
        self._to_send.append(data)
        self._has_something.set()
        return len(data)

    def close(self) -> None:
        self._has_ended = True
        self._scope.cancel()

    async def _run(self, step: Callable[[], Any]) -> None:
        try:
            with self._scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._send)
                    await self._receive(step)
                    nursery.cancel_scope.cancel()
        finally:
            self._has_ended = True
            with trio.CancelScope(shield=True), trio.move_on_after(1):
                await self._stream.aclose()

    async def _receive(self, step: Callable[[], Any]) -> None:
        while not self._has_ended:
            try:
                data = await self._stream.receive_some(RECEIVE_BYTES)
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                data = b""
            if data:
                self._received.append(data)
            else:
                self._has_ended = True
            step()

    async def _send(self) -> None:
        while True:
            await self._has_something.wait()
            self._has_something = trio.Event()
            while self._to_send:
                data = b"".join(self._to_send)
                self._to_send.clear()
                try:
                    await self._stream.send_all(data)
                except (trio.BrokenResourceError, trio.ClosedResourceError):
                    return  # the receiving task hears of it, too
