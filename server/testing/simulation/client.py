"""Clients of the simulation: connections to brokers, and where partitions and groups are led.

A `Channel` is one connection to one broker: requests go out in the order in which they are asked and are answered in that
order; when it is lost, or an answer is late, all that is asked on it fails, and nobody knows what was done. Nothing in it is
a task, so that a request costs little.
"""

import struct
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

import trio

from ottla.server.network.readiness import WAIT_READABLE, Wait
from ottla.server.peers.connection import exchange_of
from ottla.server.testing.simulation.network import Network, SimSocket
from ottla.wire.errors import ErrorCode
from ottla.wire.headers import RequestHeader, decode_response_header, encode_request_header
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest
from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.wire.schema import Message

REQUEST_TIMEOUT_S = 8.0
CONNECT_TIMEOUT_S = 3.0
BACKOFF_S = 0.1
METADATA_VERSION, FIND_COORDINATOR_VERSION = 12, 3
_size = struct.Struct(">i")

Answered = Callable[[Any], None]
"""Called with the response, or None if there will be none."""


class _Asked:
    __slots__ = ("answered", "correlation_id", "due", "exchange")

    def __init__(self, exchange: Any, correlation_id: int, due: float, answered: Answered) -> None:
        self.exchange = exchange
        self.correlation_id = correlation_id
        self.due = due
        self.answered = answered


class Channel:
    """A connection to a broker. Its requests are answered in their order, or all of them fail."""

    def __init__(self, network: Network, sock: SimSocket, client_id: str) -> None:
        self.is_lost = False
        self._network = network
        self._socket = sock
        self._client_id = client_id
        self._asked: deque[_Asked] = deque()
        self._received = bytearray()
        self._last_id = 0
        sock.watch(self._receive)

    def send(self, request: Message, version: int, answered: Answered, timeout_s: float = REQUEST_TIMEOUT_S) -> None:
        if self.is_lost:
            answered(None)
            return
        exchange = exchange_of(type(request), version)
        self._last_id += 1
        header = RequestHeader(exchange.api_key, version, self._last_id, self._client_id)
        parts: list[Any] = [b"", encode_request_header(header, exchange.request_header_version)]
        exchange.encode(request, parts.append)
        parts[0] = _size.pack(sum(map(len, parts)))
        asked = _Asked(exchange, self._last_id, trio.current_time() + timeout_s, answered)
        self._asked.append(asked)
        self._network.agenda.at(asked.due, partial(self._expire, asked))
        try:
            self._socket.send(b"".join(parts))
        except OSError:
            self.lose()

    def lose(self) -> None:
        if self.is_lost:
            return
        self.is_lost = True
        self._socket.close()
        asked, self._asked = self._asked, deque()
        for each in asked:
            each.answered(None)

    def _expire(self, asked: _Asked) -> None:
        if self._asked and self._asked[0].due <= asked.due and not self.is_lost and asked in self._asked:
            self.lose()

    def _receive(self) -> Wait:
        buffer = bytearray(65536)
        try:
            count = self._socket.recv_into(buffer)
        except BlockingIOError:
            return WAIT_READABLE
        except OSError:
            count = 0
        if not count:
            self.lose()
            return WAIT_READABLE
        self._received += buffer[:count]
        while len(self._received) >= 4 and len(self._received) >= (end := 4 + _size.unpack_from(self._received)[0]):
            frame = bytes(self._received[4:end])
            del self._received[:end]
            self._answer(frame)
        return WAIT_READABLE

    def _answer(self, frame: bytes) -> None:
        if self.is_lost:
            return
        asked = self._asked.popleft()
        correlation_id, body = decode_response_header(frame, 0, len(frame), asked.exchange.response_header_version)
        assert correlation_id == asked.correlation_id, "answers come in the order of the requests"
        asked.answered(asked.exchange.decode(frame, body, len(frame)))


class Client:
    """A host with one channel to each broker, and what metadata say."""

    def __init__(self, network: Network, nursery: trio.Nursery, host: int, name: str, brokers: tuple[int, ...]) -> None:
        self.network = network
        self.nursery = nursery
        self.host = host
        self.name = name
        self.brokers = brokers
        self._channels: dict[int, Channel] = {}
        self._connecting: dict[int, trio.Event] = {}
        self.leaders: dict[tuple[str, int], tuple[int, int]] = {}
        """Leader and its epoch."""

        self.topic_ids: dict[str, bytes] = {}
        self._seen_epochs: dict[tuple[str, int], int] = {}  # of leaders; what is told of earlier ones is old

        self._refreshing: trio.Event | None = None

    async def channel(self, broker: int) -> Channel | None:
        """The connection to a broker; None if there is none to be had."""
        while (ongoing := self._connecting.get(broker)) is not None:
            await ongoing.wait()
        known = self._channels.get(broker)
        if known is not None and not known.is_lost:
            return known
        self._connecting[broker] = trio.Event()
        try:
            with trio.move_on_after(CONNECT_TIMEOUT_S):
                sock = await self.network.connect(self.host, broker)
                made = self._channels[broker] = Channel(self.network, sock, self.name)
                return made
        except OSError:
            await trio.sleep(BACKOFF_S)
        finally:
            self._connecting.pop(broker).set()
        return None

    def open_channel(self, broker: int) -> Channel | None:
        """The connection to a broker if there is one now."""
        known = self._channels.get(broker)
        return known if known is not None and not known.is_lost else None

    async def ask(self, broker: int, request: Message, version: int, timeout_s: float = REQUEST_TIMEOUT_S) -> Any:
        """The response, or None if nobody knows."""
        channel = await self.channel(broker)
        return None if channel is None else await self.ask_on(channel, request, version, timeout_s)

    @staticmethod
    async def ask_on(channel: Channel, request: Message, version: int, timeout_s: float = REQUEST_TIMEOUT_S) -> Any:
        """The response to what is asked on one connection, or None if nobody knows."""
        answers: list[Any] = []
        arrived = trio.Event()

        def answered(response: Any) -> None:
            answers.append(response)
            arrived.set()

        channel.send(request, version, answered, timeout_s)
        await arrived.wait()
        return answers[0]

    async def ask_any(self, request: Message, version: int) -> Any:
        """Ask a broker by chance; None if nobody knows."""
        return await self.ask(self.network.chance.choice(self.brokers), request, version)

    # ------------------------------------------------------------------ who leads

    async def leader(self, topic: str, partition: int) -> tuple[int, int]:
        """Leader and its epoch, as last heard; asks until somebody knows."""
        while (known := self.leaders.get((topic, partition))) is None:
            await self.refresh(topic)
        return known

    def forget_leader(self, topic: str, partition: int) -> None:
        self.leaders.pop((topic, partition), None)

    async def refresh(self, topic: str) -> None:
        """Ask for metadata once; several who want that share it."""
        if self._refreshing is not None:
            await self._refreshing.wait()
            return
        self._refreshing = trio.Event()
        try:
            request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
            response = await self.ask_any(request, METADATA_VERSION)
            if response is not None:
                self._take(response)
            await trio.sleep(BACKOFF_S)
        finally:
            self._refreshing.set()
            self._refreshing = None

    def _take(self, response: Any) -> None:
        alive = {each.node_id for each in response.brokers}
        for topic in response.topics:
            if not topic.error_code:
                self.topic_ids[topic.name] = bytes(topic.topic_id)
            for each in topic.partitions:
                where = (topic.name, each.partition_index)
                if each.leader_epoch >= self._seen_epochs.get(where, -1):
                    self._seen_epochs[where] = each.leader_epoch
                    if each.leader_id in alive:
                        self.leaders[where] = (each.leader_id, each.leader_epoch)

    async def topic_id(self, topic: str) -> bytes:
        """The id of a topic; asks until somebody knows."""
        while topic not in self.topic_ids:
            await self.refresh(topic)
        return self.topic_ids[topic]

    async def coordinator(self, group: str) -> int:
        """The broker that coordinates a group; asks until somebody knows."""
        while True:
            response = await self.ask_any(FindCoordinatorRequest(key=group), FIND_COORDINATOR_VERSION)
            if response is not None and response.error_code == ErrorCode.NONE:
                return int(response.node_id)
            await trio.sleep(BACKOFF_S)
