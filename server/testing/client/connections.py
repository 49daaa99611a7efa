"""Connections of a client to brokers, and where partitions and groups are led.

A `Channel` is one connection to one broker: requests go out in the order in which they are asked and are answered in that
order; when it is lost, or an answer is late, all that is asked on it fails, and nobody knows what was done. Nothing in it is
a task, so that a request costs little.
"""

import random
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

import trio

from ottla import __version__
from ottla.server.network.readiness import WAIT_READABLE, Wait
from ottla.server.testing.client.answers import NOT_COORDINATOR, raise_for
from ottla.server.testing.client.conversation import API_VERSIONS_VERSION, Conversation
from ottla.wire.messages.api_versions import ApiVersionsRequest
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest
from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.wire.schema import Message

REQUEST_TIMEOUT_S = 8.0
CONNECT_TIMEOUT_S = 3.0
BACKOFF_S = 0.1
METADATA_VERSION, FIND_COORDINATOR_VERSION = 12, 3
GROUP, TRANSACTION = 0, 1
"""Kinds of coordinators."""

BUFFER_BYTES = 65536
SOFTWARE_NAME = "ottla-testing"

Answered = Callable[[Any], None]
"""Called with the response, or None if there will be none."""


class Socket(Protocol):
    """Part of a socket's interface that a `Channel` uses; what cannot be done at once raises BlockingIOError."""

    def recv_into(self, buffer: Any, /) -> int:
        """Receive what has arrived; return the number of bytes, 0 at the end."""

    def send(self, data: bytes, /) -> int:
        """Send all of it, or raise OSError."""

    def watch(self, step: Callable[[], Any], /) -> None:
        """Call a function whenever something has arrived."""

    def close(self) -> None:
        """Close the socket."""


class Agenda(Protocol):
    """Calls at their times."""

    def at(self, when: float, call: Callable[[], None], /) -> None:
        """Make a call at a time of trio's clock."""


class ClientNetwork(Protocol):
    """A way to brokers by their ids: of the simulation, or over real sockets (`streams.py`)."""

    @property
    def agenda(self) -> Agenda: ...

    @property
    def chance(self) -> random.Random: ...

    async def connect(self, host: int, to: int, /) -> Socket:
        """Connect a client's host to a broker; raises OSError."""


class _Asked:
    """A request on its way, which is too late at `due`."""

    __slots__ = ("answered", "due", "is_open")

    def __init__(self, due: float, answered: Answered) -> None:
        self.due = due
        self.answered = answered
        self.is_open = True


class Channel:
    """A connection to a broker. Its requests are answered in their order, or all of them fail."""

    def __init__(self, network: ClientNetwork, sock: Socket, client_id: str) -> None:
        self.is_lost = False
        self.conversation = Conversation(client_id)
        self._network = network
        self._socket = sock
        self._asked: deque[_Asked] = deque()
        sock.watch(self._receive)

    def send(self, request: Message, version: int, answered: Answered, timeout_s: float = REQUEST_TIMEOUT_S) -> None:
        """Send a request; `answered` gets the response, or None if the connection is lost or the time is over before."""
        if self.is_lost:
            answered(None)
            return
        asked = _Asked(trio.current_time() + timeout_s, answered)
        data = self.conversation.ask(request, version, asked)
        self._asked.append(asked)
        self._network.agenda.at(asked.due, partial(self._expire, asked))
        try:
            self._socket.send(data)
        except OSError:
            self.lose()

    def lose(self) -> None:
        """Close the connection; nobody knows what became of its open requests."""
        if self.is_lost:
            return
        self.is_lost = True
        self._socket.close()
        asked, self._asked = self._asked, deque()
        for each in asked:
            each.answered(None)

    def _expire(self, asked: _Asked) -> None:
        if asked.is_open and not self.is_lost and self._asked[0].due <= asked.due:
            self.lose()

    def _receive(self) -> Wait:
        buffer = bytearray(BUFFER_BYTES)
        try:
            count = self._socket.recv_into(buffer)
        except BlockingIOError:
            return WAIT_READABLE
        except OSError:
            count = 0
        if not count:
            self.lose()
            return WAIT_READABLE
        for asked, response in self.conversation.receive(memoryview(buffer)[:count]):
            if self.is_lost:
                break
            self._asked.popleft()
            asked.is_open = False
            asked.answered(response)
        return WAIT_READABLE


class Connections:
    """One channel to each broker, and the leaders that metadata name. `host`: number of the host that has them."""

    refresh_pause_s = BACKOFF_S
    """Pause after each question for metadata; 0: only if nobody knows yet."""

    locate: Callable[[int, str, int], None] | None = None
    """Called with the id, host and port of each broker that metadata name; None: the network knows where they are."""

    def __init__(
        self, network: ClientNetwork, nursery: trio.Nursery, host: int, name: str, brokers: tuple[int, ...]
    ) -> None:
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

    def beside(self) -> "Connections":
        """Make other connections of the same client, which know the same leaders.

        A request on one of them does not wait for an answer on one of these.
        """
        made = Connections(self.network, self.nursery, self.host, self.name, self.brokers)
        made.refresh_pause_s, made.locate = self.refresh_pause_s, self.locate
        made.leaders, made.topic_ids, made._seen_epochs = self.leaders, self.topic_ids, self._seen_epochs
        return made

    def close(self) -> None:
        """Close all channels."""
        for channel in self._channels.values():
            channel.lose()

    async def channel(self, broker: int) -> Channel | None:
        """Return a connection to a broker; None if the broker cannot be reached."""
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

    async def ask(
        self,
        broker: int,
        request: Message,
        version: int | None = None,
        timeout_s: float = REQUEST_TIMEOUT_S,
        *,
        at_most: int = 1000,
    ) -> Any:
        """Return a broker's response, or None if nobody knows what became of the request.

        `version`: of the request; None: the newest that the broker serves, up to `at_most`.
        """
        channel = await self.channel(broker)
        if channel is None:
            return None
        if version is None:
            if not channel.conversation.versions and not await self._negotiate(channel, timeout_s):
                return None
            version = channel.conversation.version_of(type(request), at_most)
        return await self.ask_on(channel, request, version, timeout_s)

    async def _negotiate(self, channel: Channel, timeout_s: float) -> bool:
        request = ApiVersionsRequest(client_software_name=SOFTWARE_NAME, client_software_version=__version__)
        return await self.ask_on(channel, request, API_VERSIONS_VERSION, timeout_s) is not None

    async def version_of(self, channel: Channel, request_class: type[Message], at_most: int) -> int | None:
        """Return the newest version of a request that a channel's broker serves; None if the channel is lost."""
        if not channel.conversation.versions and not await self._negotiate(channel, REQUEST_TIMEOUT_S):
            return None
        return channel.conversation.version_of(request_class, at_most)

    @staticmethod
    async def ask_on(channel: Channel, request: Message, version: int, timeout_s: float = REQUEST_TIMEOUT_S) -> Any:
        """Return the response to a request on one connection; None if nobody knows what became of it."""
        answers: list[Any] = []
        arrived = trio.Event()

        def answered(response: Any) -> None:
            answers.append(response)
            arrived.set()

        channel.send(request, version, answered, timeout_s)
        await arrived.wait()
        return answers[0]

    async def ask_any(self, request: Message, version: int | None = None) -> Any:
        """Ask a broker by chance; None if nobody knows."""
        return await self.ask(self.network.chance.choice(self.brokers), request, version)

    # ------------------------------------------------------------------ who leads

    async def leader(self, topic: str, partition: int) -> tuple[int, int]:
        """Return a partition's leader and its epoch, as last heard; ask brokers until one knows."""
        while (known := self.leaders.get((topic, partition))) is None:
            await self.refresh(topic)
            if not self.refresh_pause_s and (topic, partition) not in self.leaders:
                await trio.sleep(BACKOFF_S)
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
            if self.refresh_pause_s:
                await trio.sleep(self.refresh_pause_s)
        finally:
            self._refreshing.set()
            self._refreshing = None

    def _take(self, response: Any) -> None:
        alive = {each.node_id for each in response.brokers}
        if self.locate is not None:
            for each in response.brokers:
                self.locate(each.node_id, each.host, each.port)
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
        """Return the id of a topic; ask brokers until one knows."""
        while topic not in self.topic_ids:
            await self.refresh(topic)
            if not self.refresh_pause_s and topic not in self.topic_ids:
                await trio.sleep(BACKOFF_S)
        return self.topic_ids[topic]

    async def coordinator(self, key: str, kind: int = GROUP) -> int:
        """Return the coordinator of a group or of a transactional id; ask brokers until one knows. Raises KafkaError."""
        while True:
            request = FindCoordinatorRequest(key=key, key_type=kind)
            response = await self.ask_any(request, FIND_COORDINATOR_VERSION)
            if response is not None and response.error_code not in NOT_COORDINATOR:
                raise_for(response.error_code, response.error_message)
                if self.locate is not None:
                    self.locate(response.node_id, response.host, response.port)
                return int(response.node_id)
            await trio.sleep(BACKOFF_S)
