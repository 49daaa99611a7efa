"""Asking another broker over a real socket: what is sent, whose answer is whose, and what becomes of all that goes wrong."""

from __future__ import annotations

import logging
import socket
import struct
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Self

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.replication.cluster.metadata_cache import BrokerEndpoint, PartitionState
from ottla.replication.cluster.peers import PeerUnavailable
from ottla.replication.controller.decisions import ControlBatch, Sender
from ottla.replication.system import IS_LINUX
from ottla.replication.tests.controlled import at_once
from ottla.server.network.readiness import Readiness, serve_in_task
from ottla.server.peers import connection as peer_connection
from ottla.server.peers import tcp as peers
from ottla.server.peers.connection import (
    BUFFER_BYTES,
    LARGE_BUFFER_BYTES,
    LONG_PARTITIONS,
    Exchange,
    FrameBuffer,
    PeerConnection,
    PlainPeerTransport,
    exchange_of,
)
from ottla.server.peers.tcp import TcpPeer, TcpPeers
from ottla.wire import codecs
from ottla.wire.errors import ProtocolViolation
from ottla.wire.headers import (
    RequestHeader,
    decode_request_header,
    encode_response_header,
    request_header_version,
    response_header_version,
)
from ottla.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.wire.messages.classic_group import HeartbeatRequest, HeartbeatResponse
from ottla.wire.messages.controller_requests import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
    UpdateMetadataRequest,
    UpdateMetadataResponse,
)
from ottla.wire.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from ottla.wire.schema import Message
from ottla.wire.tests.effort import examples

LONG = 30.0  # never waited for to its end
REFUSED = "Broker 2 at 127.0.0.1:{} is unavailable: cannot connect: [Errno 111] Connection refused"


def heartbeat(number: int = 0) -> HeartbeatRequest:
    return HeartbeatRequest(group_id="group", generation_id=number, member_id="member")


def fetch() -> FetchRequest:
    return FetchRequest(max_wait_ms=0, min_bytes=0, topics=[])


def fetched(records: bytes) -> FetchResponse:
    data = PartitionData(partition_index=0, error_code=0, high_watermark=0, records=records)
    return FetchResponse(responses=[FetchableTopicResponse(topic_id=bytes(16), partitions=[data])])


def records_of(response: FetchResponse) -> Any:
    return response.responses[0].partitions[0].records


class Caller:
    """The broker's end of one connection."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self.stream = stream
        self._received = b""

    async def receive(self, request_class: type[Message] = HeartbeatRequest) -> tuple[RequestHeader, Any]:
        """The next request."""
        size = struct.unpack(">i", await self._exactly(4))[0]
        frame = await self._exactly(size)
        version = struct.unpack_from(">h", frame, 2)[0]
        header, body = decode_request_header(frame, 0, size, request_header_version(request_class, version))
        return header, request_class.decode(frame, version, body)

    async def _exactly(self, count: int) -> bytes:
        while len(self._received) < count:
            data = await self.stream.receive_some()
            if not data:
                raise EOFError
            self._received += data
        found, self._received = self._received[:count], self._received[count:]
        return found

    async def send(self, data: bytes) -> None:
        await self.stream.send_all(data)

    async def has_hung_up(self) -> bool:
        """Wait for the other end to close."""
        try:
            return await self.stream.receive_some() == b""
        except trio.BrokenResourceError:
            return True


def answer(header: RequestHeader, response: Message) -> bytes:
    body = encode_response_header(header.correlation_id, response_header_version(type(response), header.api_version))
    body += response.encode(header.api_version)
    return struct.pack(">i", len(body)) + body


def answer_to(header: RequestHeader, number: int = 0) -> bytes:
    return answer(header, HeartbeatResponse(error_code=number))


class Broker:
    """Listens, and hands over connections."""

    def __init__(self, listener: trio.SocketListener) -> None:
        self._listener = listener
        self._callers: list[Caller] = []
        self.port: int = listener.socket.getsockname()[1]

    @property
    def endpoint(self) -> BrokerEndpoint:
        return BrokerEndpoint(2, "127.0.0.1", self.port)

    async def accept(self) -> Caller:
        self._callers.append(Caller(await self._listener.accept()))
        return self._callers[-1]

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        await self._listener.aclose()
        for caller in self._callers:
            await caller.stream.aclose()


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    async with Broker(listener) as broker:
        yield broker


@pytest.fixture(params=["task", "wait"])
async def peer(request: pytest.FixtureRequest, broker: Broker) -> AsyncIterator[TcpPeer]:
    """A peer that is served by its tasks, and one that is served within the event loop's wait."""
    them = TcpPeers(serve=serve_in_task if request.param == "task" else Readiness().serve)
    for kind, version in ((HeartbeatRequest, 4), (FetchRequest, 17)):
        await them.exchanges.get(kind, version)  # so that what is asked goes out at once
    made = them.to(broker.endpoint, client_id="broker-1-fetcher-0")
    yield made
    await made.aclose()


async def started(
    nursery: trio.Nursery, ask: Callable[..., Awaitable[Any]], *arguments: Any, **options: Any
) -> Outcome:
    """Begin to ask, and look at the outcome later."""
    outcome = Outcome()
    nursery.start_soon(outcome.of, lambda: ask(*arguments, timeout_s=options.get("timeout_s", LONG)))
    await trio.testing.wait_all_tasks_blocked()
    return outcome


class Outcome:
    """What an `ask` came to."""

    def __init__(self) -> None:
        self.scope = trio.CancelScope()
        self._done = trio.Event()
        self._result: Any = None

    async def of(self, ask: Callable[[], Awaitable[Any]]) -> None:
        with self.scope:
            try:
                self._result = await ask()
            except PeerUnavailable as error:
                self._result = error
        self._done.set()

    async def result(self) -> Any:
        with trio.fail_after(LONG):
            await self._done.wait()
        return self._result


# --- asking


async def test_a_request_goes_out_with_its_header_and_its_answer_comes_back(peer, broker, nursery):
    for version in (0, 3, 4):
        asked = await started(nursery, peer.ask, heartbeat(version), version)
        if version == 0:
            caller = await broker.accept()
        header, request = await caller.receive()
        assert (header.api_key, header.api_version, header.client_id) == (12, version, "broker-1-fetcher-0")
        assert request == heartbeat(version)
        await caller.send(answer_to(header, version))
        assert await asked.result() == HeartbeatResponse(error_code=version)


@pytest.mark.parametrize(
    ("request_", "version", "response"),
    [
        (ControlledShutdownRequest(broker_id=1), 0, ControlledShutdownResponse(error_code=9, remaining_partitions=[])),
        (ControlledShutdownRequest(broker_id=1), 3, ControlledShutdownResponse(error_code=9, remaining_partitions=[])),
        (ApiVersionsRequest(), 3, ApiVersionsResponse(error_code=35, api_keys=[])),
    ],
)
async def test_headers_with_exceptions(peer, broker, nursery, request_, version, response):
    asked = await started(nursery, peer.ask, request_, version)
    caller = await broker.accept()
    header, received = await caller.receive(type(request_))
    assert received == request_
    await caller.send(answer(header, response))
    assert await asked.result() == response


async def test_codecs_are_loaded_in_a_thread(peer, broker, nursery, monkeypatch):
    """They may have to come from a disk that is busy."""
    load, loaded, loop_thread = codecs._load, [], threading.get_ident()

    def noted(cls, version, kind):
        loaded.append(threading.get_ident())
        return load(cls, version, kind)

    monkeypatch.setattr(codecs, "_codecs", {})
    monkeypatch.setattr(codecs, "_load", noted)
    peer_connection.exchange_of.cache_clear()
    scope = trio.CancelScope()
    await peer._exchange_of(ControlledShutdownRequest, 3, scope)
    await peer._exchange_of(ControlledShutdownRequest, 3, scope)
    assert len(loaded) == 2 and loop_thread not in loaded


def update_metadata(count: int) -> UpdateMetadataRequest:
    """What a controller says of so many partitions."""
    batch = ControlBatch()
    for index in range(count):
        batch.announce([7], ("t", index), PartitionState(leader=2, leader_epoch=3, replicas=(2,), isr=(2,)), ())
    sender = Sender(controller_id=1, controller_epoch=1, listener="PLAINTEXT", brokers={}, topic_ids={})
    [request] = at_once(sender.requests(batch, 7))
    assert isinstance(request, UpdateMetadataRequest)
    return request


async def test_a_request_about_very_many_partitions_is_encoded_in_a_thread(peer, broker, nursery, monkeypatch):
    threads = []

    def encoded(exchange, request):
        threads.append(threading.get_ident())
        return before(exchange, request)

    before = Exchange.encoded
    monkeypatch.setattr(Exchange, "encoded", encoded)
    for count in (3, LONG_PARTITIONS + 1):
        request = update_metadata(count)
        asked = await started(nursery, peer.ask, request, 8)
        if count == 3:
            caller = await broker.accept()
        header, found = await caller.receive(UpdateMetadataRequest)
        assert found == request
        await caller.send(answer(header, UpdateMetadataResponse(error_code=0)))
        assert await asked.result() == UpdateMetadataResponse(error_code=0)
    assert len(threads) == 1
    assert threads[0] != threading.get_ident()


async def test_for_a_broker_that_is_not_there_nothing_is_encoded(peer, broker, monkeypatch):
    encoded = []
    monkeypatch.setattr(Exchange, "encoded", lambda exchange, request: encoded.append(request) or b"")
    await broker.aclose()
    for _ in range(3):
        with pytest.raises(PeerUnavailable, match="cannot connect"):
            await peer.ask(update_metadata(LONG_PARTITIONS + 1), 8, timeout_s=LONG)
    assert not encoded


@pytest.mark.parametrize("is_closed", [False, True])
async def test_what_is_abandoned_while_a_thread_encodes_it_is_not_sent(peer, broker, nursery, monkeypatch, is_closed):
    begun, may_end, before = threading.Event(), threading.Event(), Exchange.encoded

    def encoded(exchange, request):
        begun.set()
        may_end.wait(LONG)
        return before(exchange, request)

    monkeypatch.setattr(Exchange, "encoded", encoded)
    asked = await started(nursery, peer.ask, update_metadata(LONG_PARTITIONS + 1), 8)
    with trio.fail_after(LONG):
        caller = await broker.accept()
    while not begun.is_set():
        await trio.sleep(0.01)
    if is_closed:
        await peer.aclose()
    else:
        asked.scope.cancel()
    may_end.set()
    outcome = await asked.result()
    assert isinstance(outcome, PeerUnavailable) if is_closed else outcome is None
    if not is_closed:
        # The connection is as good as before, and this is the first that comes on it.
        other = await started(nursery, peer.ask, heartbeat(1), 4)
        header, found = await caller.receive()
        assert found == heartbeat(1)
        await caller.send(answer_to(header, 1))
        assert await other.result() == HeartbeatResponse(error_code=1)


@pytest.mark.parametrize("piece_bytes", [1, 7, 1000])
async def test_several_requests_are_answered_in_order_however_the_bytes_come(peer, broker, nursery, piece_bytes):
    asked = [await started(nursery, peer.ask, heartbeat(number), 4) for number in range(5)]
    caller = await broker.accept()
    headers = []
    for number in range(5):
        header, request = await caller.receive()
        assert request.generation_id == number
        headers.append(header)
    data = b"".join(answer_to(header, number) for number, header in enumerate(headers))
    for start in range(0, len(data), piece_bytes):
        await caller.send(data[start : start + piece_bytes])
        await trio.testing.wait_all_tasks_blocked()
    assert [(await each.result()).error_code for each in asked] == [0, 1, 2, 3, 4]


async def test_requests_that_the_socket_does_not_take_at_once_go_out_whole(peer, broker, nursery):
    member = "m" * 30_000
    big = HeartbeatRequest(group_id="g" * 30_000, generation_id=1, member_id=member, group_instance_id=member)
    asked = [await started(nursery, peer.ask, big, 4) for _ in range(100)]
    caller = await broker.accept()
    for each in asked:
        header, request = await caller.receive()
        assert request == big
        await caller.send(answer_to(header))
        assert await each.result() == HeartbeatResponse(error_code=0)


async def test_records_hold_until_the_next_call(peer, broker, nursery):
    first = await started(nursery, peer.ask, fetch(), 17)
    caller = await broker.accept()
    header, _ = await caller.receive(FetchRequest)
    await caller.send(answer(header, fetched(b"1" * 100)))
    records = records_of(await first.result())
    assert isinstance(records, memoryview)
    assert records == b"1" * 100
    second = await started(nursery, peer.ask, fetch(), 17)
    header, _ = await caller.receive(FetchRequest)
    await caller.send(answer(header, fetched(b"2" * 100)))
    assert records_of(await second.result()) == b"2" * 100
    assert records.obj is records_of(await second.result()).obj  # the buffer is used again


async def test_records_hold_while_others_read_their_answers(peer, broker, nursery):
    asked = [await started(nursery, peer.ask, fetch(), 17) for _ in range(3)]
    caller = await broker.accept()
    for number in range(3):
        header, _ = await caller.receive(FetchRequest)
        data = answer(header, fetched(bytes([number]) * 100_000))
        await caller.send(data[:150])
        await trio.testing.wait_all_tasks_blocked()
        await caller.send(data[150:])
        await asked[number].result()
    assert [records_of(await each.result()) == bytes([n]) * 100_000 for n, each in enumerate(asked)] == [True] * 3


async def test_large_answers(peer, broker, nursery):
    for size in (BUFFER_BYTES - 40, BUFFER_BYTES, 3 << 20, 5 << 20, 10):
        asked = await started(nursery, peer.ask, fetch(), 17)
        if size == BUFFER_BYTES - 40:
            caller = await broker.accept()
        header, _ = await caller.receive(FetchRequest)
        await caller.send(answer(header, fetched(b"r" * size)))
        assert records_of(await asked.result()) == b"r" * size


async def test_the_sockets_buffer_is_as_large_as_asked_for_and_nothing_waits_for_more_to_send(broker, nursery):
    asked = await started(
        nursery, TcpPeers(receive_buffer_bytes=150_000).to(broker.endpoint, client_id="c").ask, heartbeat(), 4
    )
    await broker.accept()
    assert not asked._done.is_set()
    for wanted, least in ((150_000, 300_000), (1, 100_000)):  # the system doubles what it is told
        sock = await peers._connect_to_any("127.0.0.1", broker.port, wanted)
        with sock:
            assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) >= least
            assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    nursery.cancel_scope.cancel()


# --- what goes wrong


async def test_it_is_said_once_that_a_broker_is_lost_and_once_that_it_is_back(broker, nursery, caplog):
    caplog.set_level(logging.INFO, "ottla.peers")
    made = TcpPeers()
    one, other = (made.to(broker.endpoint, client_id=name) for name in "ab")
    await broker.aclose()
    for _ in range(2):
        for peer in (one, other):
            with pytest.raises(PeerUnavailable, match="refused"):
                await peer.ask(heartbeat(), 4, timeout_s=LONG)
    assert caplog.messages == [REFUSED.format(broker.port)]
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    async with Broker(listener) as again:
        for peer in (one, other):
            peer.endpoint = again.endpoint  # restarted on another port
            asked = await started(nursery, peer.ask, heartbeat(), 4)
            caller = await again.accept()
            await caller.send(answer_to((await caller.receive())[0]))
            assert await asked.result() == HeartbeatResponse(error_code=0)
            await peer.aclose()
    assert caplog.messages[1:] == [f"Broker 2 at 127.0.0.1:{again.port} answers again"]


async def test_an_answer_that_is_late_ends_the_connection_for_all(peer, broker, nursery, caplog):
    patient = await started(nursery, peer.ask, heartbeat(), 4)
    hasty = await started(nursery, peer.ask, heartbeat(), 4, timeout_s=0.001)
    caller = await broker.accept()
    for asked in (patient, hasty):
        assert "no answer to a HeartbeatRequest in time" in str(await asked.result())
        await caller.receive()
    assert await caller.has_hung_up()
    assert len(caplog.messages) == 1
    asked = await started(nursery, peer.ask, heartbeat(5), 4)  # connects anew
    caller = await broker.accept()
    await caller.send(answer_to((await caller.receive())[0], 5))
    assert (await asked.result()).error_code == 5


async def test_no_connection_in_time(peer, monkeypatch, nursery, caplog):
    async def forever(*_: object) -> None:
        await trio.sleep_forever()

    monkeypatch.setattr(peers, "_connect_to_any", forever)
    with pytest.raises(PeerUnavailable, match="no connection within 0.001 s"):
        await peer.ask(heartbeat(), 4, timeout_s=0.001)
    peer._peers.connect_timeout_s = 0.001
    with pytest.raises(PeerUnavailable, match="no connection within 0.001 s"):
        await peer.ask(heartbeat(), 4, timeout_s=LONG)
    assert len(caplog.messages) == 1
    peer._peers.connect_timeout_s = LONG
    asked = await started(nursery, peer.ask, heartbeat(), 4)
    await peer.aclose()
    assert isinstance(await asked.result(), PeerUnavailable)


async def test_the_time_for_a_connection_doubles_with_each_that_fails(peer, broker, monkeypatch, nursery):
    really, limits = peers._connect_to_any, []

    async def fail(*_: object) -> None:
        limits.append(round(trio.current_effective_deadline() - trio.current_time(), 1))
        raise ConnectionRefusedError("refused")

    monkeypatch.setattr(peers, "_connect_to_any", fail)
    peer._peers.connect_timeout_s, peer._peers.connect_timeout_max_s = 100.0, 350.0
    for _ in range(4):
        with pytest.raises(PeerUnavailable, match="refused"):
            await peer.ask(heartbeat(), 4, timeout_s=10_000)
    monkeypatch.setattr(peers, "_connect_to_any", really)
    asked = await started(nursery, peer.ask, heartbeat(5), 4)
    caller = await broker.accept()
    await caller.send(answer_to((await caller.receive())[0], 5))
    assert (await asked.result()).error_code == 5
    await peer.aclose()
    monkeypatch.setattr(peers, "_connect_to_any", fail)
    with pytest.raises(PeerUnavailable, match="refused"):
        await peer.ask(heartbeat(), 4, timeout_s=10_000)
    assert limits == [pytest.approx(each, abs=5) for each in (100, 200, 350, 350, 100)]


async def test_several_who_ask_first_share_one_connection(peer, broker, nursery, monkeypatch):
    really, calls = peers._connect_to_any, []
    go = trio.Event()

    async def slowly(*arguments: Any) -> Any:
        calls.append(arguments)
        await go.wait()
        return await really(*arguments)

    monkeypatch.setattr(peers, "_connect_to_any", slowly)
    asked = [await started(nursery, peer.ask, heartbeat(number), 4) for number in range(3)]
    go.set()
    caller = await broker.accept()
    for number in range(3):
        await caller.send(answer_to((await caller.receive())[0], number))
    assert [(await each.result()).error_code for each in asked] == [0, 1, 2]
    assert len(calls) == 1


async def test_a_port_that_connects_to_itself_is_nobody(monkeypatch):
    """The system may give a socket the very port that it connects to, if that is free."""
    sock = socket.socket()
    with sock:
        sock.bind(("127.0.0.1", 0))
        with pytest.raises(ConnectionRefusedError, match="itself"):
            await peers._connect_to(sock, sock.getsockname())


async def test_an_address_that_does_not_answer_is_passed_over(broker, monkeypatch):
    async def both(*_: object, **__: object) -> list[Any]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 0, "", ("127.0.0.1", port)) for port in (1, broker.port)]

    monkeypatch.setattr(peers, "_addresses", both)
    (await peers._connect_to_any("somewhere", broker.port, -1)).close()


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost", "no-such-host.invalid"])
async def test_a_host_has_the_addresses_that_the_system_tells(host):
    try:
        known = await trio.socket.getaddrinfo(host, 9092, type=socket.SOCK_STREAM)
    except OSError:
        with pytest.raises(OSError, match="."):
            await peers._addresses(host, 9092)
    else:
        assert await peers._addresses(host, 9092) == known


async def test_an_international_name_is_looked_up_by_its_own_tables(monkeypatch):
    async def asked(host: str, *_: object, **__: object) -> list[Any]:
        return [host]

    monkeypatch.setattr(trio.socket, "getaddrinfo", asked)
    assert await peers._addresses("stra\u00dfe.invalid", 9092) == ["stra\u00dfe.invalid"]


@pytest.mark.parametrize(
    ("lie", "said"),
    [
        (lambda header: b"", "the broker hung up"),
        (lambda header: answer_to(header)[:-1], "the broker hung up"),
        (lambda header: struct.pack(">i", -1), "a frame of -1 bytes"),
        (lambda header: struct.pack(">i", 0x7FFFFFFF), "a frame of 2147483647 bytes"),
        (lambda header: struct.pack(">ib", 1, 0), "too few for a response header"),
        (lambda header: answer_to(header._replace(correlation_id=7)), "an answer to request 7, where 1 was asked"),
        (lambda header: struct.pack(">iixi", 9, header.correlation_id, 0), "HeartbeatResponse"),
        (lambda header: answer_to(header) * 2, "more was answered than was asked"),
    ],
)
async def test_a_broker_that_lies_is_not_available(peer, broker, nursery, caplog, lie, said):
    asked = await started(nursery, peer.ask, heartbeat(), 4)
    caller = await broker.accept()
    await caller.send(lie((await caller.receive())[0]))
    await caller.stream.send_eof()
    error = await asked.result()
    assert isinstance(error, PeerUnavailable)
    assert said in str(error)
    assert len(caplog.messages) == 1
    assert said in caplog.messages[0]
    assert await caller.has_hung_up()


@pytest.mark.parametrize("abandoned", [0, 1, 2])
async def test_who_gives_up_does_not_mix_up_the_answers_of_others(peer, broker, nursery, caplog, abandoned):
    asked = [await started(nursery, peer.ask, heartbeat(number), 4) for number in range(3)]
    caller = await broker.accept()
    header, _ = await caller.receive()
    await caller.send(answer_to(header)[:5])
    await trio.testing.wait_all_tasks_blocked()
    asked[abandoned].scope.cancel()
    for number, each in enumerate(asked):
        result = await each.result()
        assert result is None if number == abandoned else isinstance(result, PeerUnavailable)
    asked = [await started(nursery, peer.ask, heartbeat(7), 4)]
    caller = await broker.accept()
    await caller.send(answer_to((await caller.receive())[0], 7))
    assert (await asked[0].result()).error_code == 7
    assert caplog.messages == []  # the broker is not to blame


async def test_who_gives_up_while_connecting_leaves_the_others_alone(peer, broker, nursery, monkeypatch):
    really, go = peers._connect_to_any, trio.Event()

    async def slowly(*arguments: Any) -> Any:
        await go.wait()
        return await really(*arguments)

    monkeypatch.setattr(peers, "_connect_to_any", slowly)
    first = await started(nursery, peer.ask, heartbeat(1), 4)
    second = await started(nursery, peer.ask, heartbeat(2), 4)
    first.scope.cancel()
    go.set()
    caller = await broker.accept()
    header, request = await caller.receive()
    assert request.generation_id == 2
    await caller.send(answer_to(header, 2))
    assert (await second.result()).error_code == 2
    assert await first.result() is None


async def test_closing_wakes_whoever_waits(peer, broker, nursery, caplog):
    asked = [await started(nursery, peer.ask, heartbeat(), 4) for _ in range(2)]
    caller = await broker.accept()
    await peer.aclose()
    assert [type(await each.result()) for each in asked] == [PeerUnavailable] * 2
    await caller.receive()
    await caller.receive()
    assert await caller.has_hung_up()
    assert caplog.messages == []
    await peer.aclose()


@pytest.mark.parametrize("farewell", [b"", b"x"])
async def test_a_connection_that_ended_while_nobody_asked_is_not_used_again(
    peer, broker, nursery, caplog, monkeypatch, farewell
):
    monkeypatch.setattr(peer_connection, "IDLE_S", 0)
    asked = await started(nursery, peer.ask, heartbeat(), 4)
    caller = await broker.accept()
    await caller.send(answer_to((await caller.receive())[0]))
    await asked.result()
    await caller.send(farewell)
    if not farewell:
        await caller.stream.aclose()
    with trio.fail_after(30):  # a busy kernel may bring it later
        while not peer._connection.is_stale():
            await trio.sleep(0.01)
    asked = await started(nursery, peer.ask, heartbeat(), 4)
    caller = await broker.accept()
    await caller.send(answer_to((await caller.receive())[0], 3))
    assert (await asked.result()).error_code == 3
    assert caplog.messages == []


async def test_an_idle_connection_is_used_again(peer, broker, nursery, monkeypatch):
    monkeypatch.setattr(peer_connection, "IDLE_S", 0)
    for number in range(3):
        asked = await started(nursery, peer.ask, heartbeat(), 4)
        if not number:
            caller = await broker.accept()
        await caller.send(answer_to((await caller.receive())[0], number))
        assert (await asked.result()).error_code == number


# --- frames


def frame(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def test_memory_follows_what_arrived_and_not_what_was_claimed() -> None:
    ours, theirs = socket.socketpair()
    buffer = FrameBuffer(100 << 20)
    with ours, theirs:
        theirs.sendall(struct.pack(">i", 99 << 20) + b"x" * 1000)
        buffer.receive(ours.recv_into)
        assert buffer.next_frame() is None
        for _ in range(100):
            theirs.sendall(b"x" * 1000)
            buffer.receive(ours.recv_into)
        assert len(buffer.data) <= 4 * 101_000


def test_a_large_buffer_is_given_up_after_many_small_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peer_connection, "SMALL_ANSWERS_MAX", 3)
    ours, theirs = socket.socketpair()
    buffer = FrameBuffer(100 << 20)
    with ours, theirs:
        theirs.setblocking(False)
        data = memoryview(frame(b"x" * (2 * LARGE_BUFFER_BYTES)))
        while (found := buffer.next_frame()) is None:
            if data:
                data = data[theirs.send(data[:100_000]) :]
            buffer.receive(ours.recv_into)
        assert found == (4, 2 * LARGE_BUFFER_BYTES + 4)
        sizes = []
        for _ in range(6):
            theirs.send(frame(b"small"))
            buffer.receive(ours.recv_into)
            found = buffer.next_frame()
            assert found is not None
            assert buffer.data[found[0] : found[1]] == b"small"
            sizes.append(len(buffer.data))
        assert sizes[0] > LARGE_BUFFER_BYTES
        assert sizes[-1] == BUFFER_BYTES


async def test_the_rest_of_a_long_answer_is_waited_for() -> None:
    """And after it every byte is heard of again."""
    lowest: list[int] = []

    def receive() -> object:
        result = connection._receive()
        lowest.append(ours.getsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT))
        return result

    with socket.create_server(("127.0.0.1", 0)) as listener:
        ours = socket.create_connection(listener.getsockname())
        theirs, _ = listener.accept()
    ours.setblocking(False)
    connection = PeerConnection(PlainPeerTransport(ours, serve_in_task), "client", 10 << 20)
    with theirs:
        for size in (10, 3_000_000, 20):
            data, lowest[:] = memoryview(frame(b"x" * size)), []

            def send(data: memoryview = data) -> None:
                for start in range(0, len(data), 100_000):
                    theirs.sendall(data[start : start + 100_000])

            async with trio.open_nursery() as nursery:
                nursery.start_soon(trio.to_thread.run_sync, send)
                start, end = await serve_in_task(ours, receive)
            assert connection._buffer.data[start:end] == b"x" * size
            assert lowest[-1] == 1
            assert (max(lowest) > 1) is (size > BUFFER_BYTES and IS_LINUX)
        connection.close("done")


@given(
    bodies=st.lists(st.integers(0, 200_000).map(lambda size: bytes([size % 251]) * size), max_size=5),
    lends=st.lists(st.booleans(), min_size=5, max_size=5),
)
@settings(max_examples=examples(40), deadline=None)
def test_frames_come_out_as_they_went_in(bodies: list[bytes], lends: list[bool]) -> None:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    theirs.setblocking(False)
    buffer = FrameBuffer(1 << 20)
    rest = memoryview(b"".join(map(frame, bodies)))
    lent: list[tuple[memoryview, bytes]] = []
    with ours, theirs:
        for body, is_lent in zip(bodies, lends, strict=False):
            while (found := buffer.next_frame()) is None:
                if rest:
                    rest = rest[theirs.send(rest[:50_000]) :]
                buffer.receive(ours.recv_into)
            assert buffer.data[found[0] : found[1]] == body
            if is_lent:
                buffer.lend()
                lent.append((memoryview(buffer.data)[found[0] : found[1]], body))
        assert all(view == body for view, body in lent)


answers = st.one_of(
    st.binary(max_size=60),
    st.binary(max_size=60).map(frame),
    st.binary(max_size=60).map(lambda body: frame(struct.pack(">ix", 1) + body)),
    st.binary(max_size=60).map(lambda tail: answer(RequestHeader(1, 17, 1), fetched(b"records"))[:-3] + tail),
)


@given(data=answers)
@settings(max_examples=examples(200), deadline=None)
def test_whatever_is_answered_is_an_answer_or_a_lie(data: bytes) -> None:
    async def ask() -> None:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        connection = PeerConnection(PlainPeerTransport(ours, serve_in_task), "client", 1000)
        with theirs:
            theirs.sendall(data)
            theirs.shutdown(socket.SHUT_WR)
            with trio.CancelScope() as scope:
                assert isinstance(await connection.ask(exchange_of(FetchRequest, 17), fetch(), scope), FetchResponse)
            assert scope.cancelled_caught == (connection.closed_because is not None)
            connection.close("done")
        assert ours.fileno() == -1

    trio.run(ask)


def test_a_frame_may_be_as_large_as_allowed_and_no_larger() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        buffer = FrameBuffer(10)
        theirs.sendall(frame(b"x" * 10) + frame(b"x" * 11))
        buffer.receive(ours.recv_into)
        assert buffer.next_frame() == (4, 14)
        with pytest.raises(ProtocolViolation, match="11 bytes, where at most 10"):
            buffer.next_frame()
