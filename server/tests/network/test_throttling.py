"""A client that exceeds its quota is answered at once, and not read until its pause is over (KIP-219)."""

import socket
import struct
from collections.abc import AsyncIterator
from typing import Any

import pytest
import trio
import trio.testing

from ottla.server.network.calls import Call, Calls
from ottla.server.network.connection import Connection
from ottla.server.network.transport import PlainTransport
from ottla.server.security.quotas.client_quotas import ClientQuotas
from ottla.server.tests.network.test_connection import Peer
from ottla.server.tests.routes import IN_THE_TASK, INSIDE_THE_WAIT, listener_of, readiness_of, route_of
from ottla.wire.answers import EncodedAnswer, PendingAnswer
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.wire.messages.classic_group import HeartbeatRequest, HeartbeatResponse
from ottla.wire.messages.metadata import MetadataRequest, MetadataResponse
from ottla.wire.messages.produce import ProduceRequest, ProduceResponse
from ottla.wire.tests.message_values import messages

PRODUCE, METADATA, HEARTBEAT, VERSIONS = 0, 3, 12, 18
BYTES = {"producer_byte_rate": "10"}


class Waits(PendingAnswer[Any]):
    """The answer to a produce request that waits for its commit."""

    def response(self) -> Any:
        return ProduceResponse(responses=[])

    def abandon(self) -> None:
        pass


class Handlers:
    """Of heartbeats the generation says what comes of them, of produce requests the timeout."""

    def __init__(self) -> None:
        self.seen: list[int] = []
        self.waiting: list[Waits] = []

    def heartbeat(self, request: HeartbeatRequest, context: Any) -> Any:
        self.seen.append(request.generation_id)
        if request.generation_id == 100:
            return self._later()
        if request.generation_id == 101:
            raise KafkaError(ErrorCode.NOT_COORDINATOR)
        return HeartbeatResponse(error_code=request.generation_id)

    async def _later(self) -> HeartbeatResponse:
        await trio.lowlevel.checkpoint()
        return HeartbeatResponse(error_code=100)

    def produce(self, request: ProduceRequest, context: Any) -> Any:
        self.seen.append(request.timeout_ms)
        if request.acks == 0:
            return None
        if request.timeout_ms == 50:
            self.waiting.append(Waits())
            return self.waiting[-1]
        return ProduceResponse(responses=[])

    def metadata(self, request: MetadataRequest, context: Any) -> EncodedAnswer:
        return EncodedAnswer(MetadataResponse.zero().encode(context.api_version))

    def api_versions(self, request: ApiVersionsRequest, context: Any) -> ApiVersionsResponse:
        return ApiVersionsResponse(error_code=0, api_keys=[])


@pytest.fixture
def handlers() -> Handlers:
    return Handlers()


@pytest.fixture
def quotas() -> ClientQuotas:
    return ClientQuotas()


class Client(Peer):
    """Sends whole requests, and knows its connection."""

    connection: Connection
    calls: Calls

    async def ask(self, key: int, version: int, body: bytes, *, flexible: bool = False) -> None:
        header = struct.pack(">hhih", key, version, 7, 1) + b"c" + b"\0" * flexible
        await self.send(struct.pack(">i", len(header) + len(body)) + header + body)

    async def heartbeat(self, generation: int, version: int = 1) -> None:
        body = HeartbeatRequest(group_id="g", generation_id=generation, member_id="m").encode(version)
        await self.ask(HEARTBEAT, version, body, flexible=version >= 4)

    async def produce(self, timeout_ms: int = 0, acks: int = 1) -> None:
        body = ProduceRequest(acks=acks, timeout_ms=timeout_ms, topic_data=[]).encode(8)
        await self.ask(PRODUCE, 8, body)

    async def answer(self) -> bytes:
        """The body of the next answer."""
        frame = await self.frame()
        assert frame is not None
        return frame[4:]

    async def hears_nothing(self) -> None:
        await trio.testing.wait_all_tasks_blocked()
        with trio.move_on_after(0), pytest.raises(trio.Cancelled):
            await self.stream.receive_some(1)


@pytest.fixture(params=[INSIDE_THE_WAIT, IN_THE_TASK])
async def client(
    request: Any, handlers: Handlers, quotas: ClientQuotas, mock_clock: Any, nursery: trio.Nursery
) -> AsyncIterator[Client]:
    routes = {
        PRODUCE: route_of(ProduceRequest, ProduceRequest.versions, handlers.produce, pipelined=True),
        METADATA: route_of(MetadataRequest, MetadataRequest.versions, handlers.metadata),
        HEARTBEAT: route_of(HeartbeatRequest, HeartbeatRequest.versions, handlers.heartbeat),
        VERSIONS: route_of(ApiVersionsRequest, ApiVersionsRequest.versions, handlers.api_versions),
    }
    calls = Calls(routes)
    for key, version in ((PRODUCE, 8), (METADATA, 12), (METADATA, 2), (HEARTBEAT, 0), (HEARTBEAT, 1), (VERSIONS, 1)):
        await calls.make(key, version)
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    listener = listener_of(calls, readiness_of(request.param), quotas=quotas)
    connection = Connection(PlainTransport(ours), "127.0.0.1", listener)
    nursery.start_soon(connection.run)
    stream = trio.SocketStream(trio.socket.from_stdlib_socket(theirs))
    client = Client(stream)
    client.connection = connection
    yield client
    await stream.aclose()


def exceeded(quotas: ClientQuotas, **texts: str) -> None:
    """The client's next request is one too many, by a pause that is known."""
    quotas.take("clients/c", texts)


async def test_an_answer_tells_of_the_pause_and_nothing_is_read_until_it_is_over(
    client: Client, quotas: ClientQuotas, handlers: Handlers, mock_clock: Any
) -> None:
    exceeded(quotas, **BYTES)
    quotas.produce.record("ANONYMOUS", "c", 100, int(trio.current_time() * 1000))
    size = 4 + 2 + 2 + 2 + 1 + len(ProduceRequest(acks=1, timeout_ms=1, topic_data=[]).encode(8)) + 0
    await client.produce(1)
    (pause_ms,) = struct.unpack(">i", (await client.answer())[-4:])
    assert pause_ms == size * 100  # the bytes beyond 100, at ten a second
    await client.heartbeat(1)
    await client.produce(2)
    mock_clock.jump(pause_ms / 1000 - 0.01)
    await client.hears_nothing()
    assert handlers.seen == [1]
    mock_clock.jump(0.02)
    assert await client.answer() == struct.pack(">ih", 0, 1), "other requests do not exceed that quota"
    await client.answer()
    assert handlers.seen == [1, 1, 2]


async def test_without_quotas_nobody_pauses(client: Client, quotas: ClientQuotas) -> None:
    for _ in range(3):
        await client.produce()
        assert (await client.answer())[-4:] == bytes(4)
    assert len(quotas.produce) == 0


async def test_a_request_without_an_answer_begins_a_pause(
    client: Client, quotas: ClientQuotas, handlers: Handlers, mock_clock: Any
) -> None:
    exceeded(quotas, producer_byte_rate="1")
    await client.produce(1, acks=0)
    await client.produce(2, acks=0)
    await trio.testing.wait_all_tasks_blocked()
    assert handlers.seen == [1]
    mock_clock.jump(60)
    while handlers.seen != [1, 2]:
        await trio.lowlevel.checkpoint()


@pytest.mark.parametrize("generation", [1, 100, 101])
async def test_time_is_measured_whatever_becomes_of_a_request(
    client: Client, quotas: ClientQuotas, mock_clock: Any, generation: int
) -> None:
    exceeded(quotas, request_percentage="0.0000001")
    await client.heartbeat(generation)
    code = 16 if generation == 101 else generation
    assert await client.answer() == struct.pack(">ih", 1000, code), "one window at most"
    await client.heartbeat(2)
    await client.hears_nothing()
    mock_clock.jump(1.01)
    assert await client.answer() == struct.pack(">ih", 1000, 2)


async def test_versions_without_a_field_for_it_are_answered_at_once_too(
    client: Client, quotas: ClientQuotas, mock_clock: Any
) -> None:
    exceeded(quotas, request_percentage="0.0000001")
    await client.heartbeat(1, version=0)
    assert await client.answer() == struct.pack(">h", 1)
    await client.heartbeat(2, version=0)
    await client.hears_nothing()
    mock_clock.jump(1.01)
    assert await client.answer() == struct.pack(">h", 2)


async def test_a_shared_answer_tells_one_client_of_its_pause(
    client: Client, quotas: ClientQuotas, mock_clock: Any
) -> None:
    exceeded(quotas, request_percentage="0.0000001")
    zero = MetadataResponse.zero()
    await client.ask(METADATA, 12, MetadataRequest.zero().encode(12), flexible=True)
    zero.throttle_time_ms = 1000
    assert await client.answer() == b"\0" + zero.encode(12)
    mock_clock.jump(1.01)
    await client.ask(METADATA, 2, MetadataRequest.zero().encode(2))
    assert await client.answer() == zero.encode(2), "there is no field for it"
    mock_clock.jump(1.01)
    await client.ask(VERSIONS, 1, b"")
    assert await client.answer() == struct.pack(">hii", 0, 0, 1000), "it is not always the first one"


async def test_answers_that_become_ready_in_a_pause_go_out(
    client: Client, quotas: ClientQuotas, handlers: Handlers, mock_clock: Any
) -> None:
    if not client.connection._readiness.is_inside_the_wait:
        pytest.skip("one request after the other is carried out then")
    exceeded(quotas, producer_byte_rate="1000000")
    await client.produce(50)
    await client.produce(50)
    await client.produce(3)
    while len(handlers.seen) < 3:
        await trio.lowlevel.checkpoint()
    exceeded(quotas, producer_byte_rate="1")
    handlers.waiting[0].become_ready()
    (pause_ms,) = struct.unpack(">i", (await client.answer())[-4:])
    assert pause_ms > 10_000
    await client.produce(4)
    handlers.waiting[1].become_ready()
    (longer_ms,) = struct.unpack(">i", (await client.answer())[-4:])
    assert longer_ms > pause_ms, "and may make it longer"
    assert (await client.answer())[-4:] == bytes(4), "it was settled before"
    await client.hears_nothing()
    assert handlers.seen == [50, 50, 3]
    mock_clock.jump(longer_ms / 1000 + 0.01)
    await client.answer()
    assert handlers.seen == [50, 50, 3, 4]


async def test_who_leaves_in_a_pause_is_noticed_unless_there_is_something_to_carry_out(
    client: Client, quotas: ClientQuotas, handlers: Handlers, mock_clock: Any
) -> None:
    exceeded(quotas, producer_byte_rate="1")
    await client.produce(1)
    await client.answer()
    connection = client.connection
    await trio.testing.wait_all_tasks_blocked()
    assert connection.is_parked and not connection.peer_has_left()
    await client.produce(2, acks=0)
    await client.stream.send_eof()
    assert not connection.peer_has_left(), "what was sent before is carried out"
    mock_clock.jump(1000)
    while handlers.seen != [1, 2]:
        await trio.lowlevel.checkpoint()


async def test_who_leaves_nothing_behind_has_left(client: Client, quotas: ClientQuotas) -> None:
    exceeded(quotas, producer_byte_rate="1")
    await client.produce(1)
    await client.answer()
    await client.stream.send_eof()
    assert client.connection.is_parked and client.connection.peer_has_left()


async def test_a_pause_ends_with_the_connection(client: Client, quotas: ClientQuotas) -> None:
    exceeded(quotas, producer_byte_rate="1")
    await client.produce(1)
    await client.answer()
    client.connection.cancel_scope.cancel()
    assert await client.frame() is None


async def test_a_pause_costs_the_event_loop_nothing(
    client: Client, quotas: ClientQuotas, mock_clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    exceeded(quotas, producer_byte_rate="1")
    await client.produce(1)
    await client.answer()
    steps = 0
    answer_frames = Connection._answer_frames

    def counted(connection: Connection) -> Any:
        nonlocal steps
        steps += 1
        return answer_frames(connection)

    monkeypatch.setattr(Connection, "_answer_frames", counted)
    for _ in range(50):  # as much as its socket takes
        await client.heartbeat(1)
    for _ in range(10):
        mock_clock.jump(0.1)
        await trio.testing.wait_all_tasks_blocked()
    assert steps == 0


def test_every_answer_that_has_the_field_tells_of_the_pause() -> None:
    """Which versions have it is read from the declarations."""
    for cls in messages():
        if not cls.__name__.endswith("Response") or "throttle_time_ms" not in cls.wire_fields:
            continue
        for version in range(cls.versions.first, cls.versions.last + 1):
            field = cls.wire_fields["throttle_time_ms"]
            response = cls.zero()
            response.throttle_time_ms = 0x01020304
            has_it = b"\1\2\3\4" in response.encode(version)
            assert has_it == (version in field.version_range), (cls, version)


def test_a_call_knows_where_its_answer_has_the_field() -> None:
    def call(request: Any, version: int) -> Call:
        return Call(route_of(request, request.versions, lambda request, context: None), version)

    assert (call(HeartbeatRequest, 1).tells_throttle_time, call(HeartbeatRequest, 0).tells_throttle_time) == (
        True,
        False,
    )
    assert call(MetadataRequest, 12).starts_with_throttle_time and not call(MetadataRequest, 2).tells_throttle_time
    produce = call(ProduceRequest, 8)
    assert produce.tells_throttle_time and not produce.starts_with_throttle_time
