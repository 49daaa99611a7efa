"""What an accepted connection's socket is like."""

import socket
from types import SimpleNamespace

import pytest
import trio

from ottla.replication.log.descriptors import Descriptors
from ottla.server import listener as listeners
from ottla.server.config import ServerConfig
from ottla.server.connection import Calls
from ottla.server.connection_limits import ConnectionLimits
from ottla.server.inbox import ReceiveBuffers
from ottla.server.listener import SEND_BUFFER_BYTES, Listener, bind
from ottla.server.readiness import Readiness

BOOKKEEPING = 2  # the kernel adds as much again for its own


async def accepted(**settings):
    """The sizes of the buffers of a connection that a listener with these settings accepted."""
    config = ServerConfig(**settings)
    sock = bind("127.0.0.1", 0, config.socket_receive_buffer_bytes)
    sock.listen()
    broker = SimpleNamespace(config=SimpleNamespace(server=config), now_ms=lambda: 0)
    limits = ConnectionLimits(lambda: config, Descriptors())
    listener = Listener("PLAINTEXT", sock, broker, Calls({}), ReceiveBuffers(), Readiness(), limits)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(listener.run)
        with socket.create_connection(("127.0.0.1", listener.port)):
            while not listener.connections:
                await trio.lowlevel.checkpoint()
            (connection,) = listener.connections
            sizes = {
                name: connection._socket.getsockopt(socket.SOL_SOCKET, option)
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
