"""The options of an accepted socket, and when a connection ends."""

import gc
import socket
import struct
import weakref
from types import SimpleNamespace

import pytest
import trio

from ottla.replication.log.descriptors import Descriptors
from ottla.server.config.server_config import ServerConfig
from ottla.server.network import listener as listeners
from ottla.server.network.calls import Calls
from ottla.server.network.connection_limits import ConnectionLimits
from ottla.server.network.inbox import ReceiveBuffers
from ottla.server.network.large_requests import LARGE_FRAME_BYTES
from ottla.server.network.listener import Listener, bind
from ottla.server.network.readiness import Readiness
from ottla.server.network.transport import SEND_BUFFER_BYTES
from ottla.server.security.quotas.client_quotas import ClientQuotas
from ottla.server.tests.routes import route_of
from ottla.wire.messages.offsets import OffsetFetchRequest, OffsetFetchRequestTopic

BOOKKEEPING = 2  # the kernel adds as much again for its own


async def accepted(**settings):
    """The sizes of the buffers of a connection that a listener with these settings accepted."""
    config = ServerConfig(**settings)
    sock = bind("127.0.0.1", 0, config.socket_receive_buffer_bytes)
    sock.listen()
    broker = SimpleNamespace(config=SimpleNamespace(server=config), now_ms=lambda: 0, quotas=ClientQuotas())
    limits = ConnectionLimits(lambda: config, Descriptors(), ClientQuotas())
    listener = Listener("PLAINTEXT", sock, broker, Calls({}), ReceiveBuffers(), Readiness(), limits)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(listener.run)
        with socket.create_connection(("127.0.0.1", listener.port)):
            while not listener.connections:
                await trio.lowlevel.checkpoint()
            (connection,) = listener.connections
            sizes = {
                name: connection._transport.socket.getsockopt(socket.SOL_SOCKET, option)
                for name, option in (("send", socket.SO_SNDBUF), ("receive", socket.SO_RCVBUF))
            }
        nursery.cancel_scope.cancel()
    return sizes


@pytest.mark.parametrize("given", [20_000, 300_000])
async def test_buffers_are_as_large_as_the_settings_say(given):
    buffers = await accepted(socket_send_buffer_bytes=given, socket_receive_buffer_bytes=given)
    assert buffers == {"send": BOOKKEEPING * given, "receive": BOOKKEEPING * given}


@pytest.mark.parametrize("default", [{}, {"socket_send_buffer_bytes": 102_400}])
async def test_kafkas_default_leaves_the_size_to_this_broker(default):
    assert (await accepted(**default))["send"] == BOOKKEEPING * SEND_BUFFER_BYTES
    assert ServerConfig.__dataclass_fields__["socket_send_buffer_bytes"].default == listeners.UNCHANGED


async def test_the_system_may_choose():
    system = await accepted(socket_send_buffer_bytes=-1, socket_receive_buffer_bytes=-1)
    assert system["send"] != BOOKKEEPING * SEND_BUFFER_BYTES


@pytest.fixture
def without_collections():
    gc.disable()
    yield
    gc.enable()


async def test_a_large_request_that_only_reads_is_given_up_when_its_peer_has_left(monkeypatch, without_collections):
    monkeypatch.setattr(listeners, "HOUSEKEEPING_SECONDS", 0.01)
    begun, given_up = trio.Event(), trio.Event()
    kept = weakref.WeakSet()

    async def without_end():
        part_of_it = Descriptors()
        kept.add(part_of_it)
        begun.set()
        try:
            await trio.sleep_forever()
        finally:
            given_up.set()

    route = route_of(
        OffsetFetchRequest, OffsetFetchRequest.versions, lambda request, context: without_end(), reads_only=True
    )
    sock = bind("127.0.0.1", 0)
    sock.listen()
    broker = SimpleNamespace(config=SimpleNamespace(server=ServerConfig()), now_ms=lambda: 0, quotas=ClientQuotas())
    buffers = ReceiveBuffers()
    limits = ConnectionLimits(lambda: ServerConfig(), Descriptors(), ClientQuotas())
    listener = Listener("PLAINTEXT", sock, broker, Calls({route.api_key: route}), buffers, Readiness(), limits)
    topics = [OffsetFetchRequestTopic(name="topic", partition_indexes=list(range(LARGE_FRAME_BYTES // 4)))]
    body = OffsetFetchRequest(group_id="group", topics=topics).encode(1)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(listener.run)
        with socket.create_connection(("127.0.0.1", listener.port)) as peer:
            await trio.to_thread.run_sync(peer.sendall, framed(route.api_key, 1, body))
            with trio.fail_after(60):
                await begun.wait()
            assert buffers.memory.used >= len(body)
        with trio.fail_after(60):
            await given_up.wait()
            while listener.connections:
                await trio.lowlevel.checkpoint()
        assert buffers.memory.used == 0
        assert not kept, "it is part of a cycle, which is not collected for a long time"
        nursery.cancel_scope.cancel()


def framed(api_key: int, version: int, body: bytes) -> bytes:
    header = struct.pack(">hhih", api_key, version, 1, 0)
    return struct.pack(">i", len(header) + len(body)) + header + body
