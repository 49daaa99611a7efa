"""How many connections are accepted, which wait, which are closed, and what the log says of that."""

import socket
import time
from types import SimpleNamespace

import pytest
import trio
import trio.testing

from ottla.replication.log.descriptors import LIMIT_MIN, Descriptors
from ottla.server.config.broker_config import ConfigError, load_config
from ottla.server.config.server_config import ServerConfig
from ottla.server.network import connection_limits
from ottla.server.network.calls import Calls
from ottla.server.network.connection_limits import ConnectionLimits
from ottla.server.network.inbox import ReceiveBuffers
from ottla.server.network.listener import Listener, bind
from ottla.server.network.readiness import Readiness
from ottla.server.security.quotas.client_quotas import ClientQuotas


class Door:
    """Listeners that share their limits, without a broker behind them. The first is the one among brokers."""

    def __init__(self, *names, descriptors=None, own=None, **settings):
        self.settings = ServerConfig(**settings)
        self.budget = descriptors or Descriptors()
        protected = names[0] if len(names) > 1 else None
        self.quotas = ClientQuotas()
        self.limits = ConnectionLimits(
            lambda: self.settings, self.budget, self.quotas, protected=protected, of_listener=own and own.get
        )
        self.peers = []
        self.listeners = []
        readiness = Readiness()
        for name in names:
            sock = bind("127.0.0.1", 0)
            sock.listen()
            broker = SimpleNamespace(
                config=SimpleNamespace(server=self.settings), now_ms=lambda: 0, quotas=ClientQuotas()
            )
            self.listeners.append(Listener(name, sock, broker, Calls({}), ReceiveBuffers(), readiness, self.limits))

    async def __aenter__(self):
        self._manager = trio.open_nursery()
        self._nursery = await self._manager.__aenter__()
        for listener in self.listeners:
            self._nursery.start_soon(listener.run)
        return self

    async def __aexit__(self, *error):
        self._nursery.cancel_scope.cancel()
        for peer in self.peers:
            peer.close()
        return await self._manager.__aexit__(*error)

    def connect(self, listener=0, host="127.0.0.1"):
        peer = socket.create_connection(("127.0.0.1", self.listeners[listener].port), source_address=(host, 0))
        peer.setblocking(False)
        self.peers.append(peer)
        return peer

    async def settle(self, *counts):
        """Until the listeners have as many connections, and for a while longer."""
        while [len(listener.connections) for listener in self.listeners] != list(counts):
            await trio.sleep(0.001)
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert [len(listener.connections) for listener in self.listeners] == list(counts)


def is_closed(peer):
    try:
        return peer.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


async def test_at_max_connections_others_wait_until_one_ends(caplog):
    async with Door("PLAINTEXT", max_connections=2) as door:
        peers = [door.connect() for _ in range(5)]
        await door.settle(2)
        assert not any(map(is_closed, peers))
        assert len(caplog.messages) == 1
        assert "max.connections is 2" in caplog.messages[0]
        peers[0].close()
        peers[1].close()
        await door.settle(2)
        assert door.limits.count == 2
        assert len(caplog.messages) == 1  # one line a minute


async def test_all_listeners_together_have_max_connections():
    async with Door("INTERNAL", "CLIENTS", "OTHERS", max_connections=3) as door:
        for _ in range(2):
            door.connect(1)
        await door.settle(0, 2, 0)
        for _ in range(2):
            door.connect(2)
        await door.settle(0, 2, 1)


async def test_for_the_listener_among_brokers_the_one_that_was_silent_longest_makes_room(monkeypatch):
    async with Door("INTERNAL", "CLIENTS", max_connections=2) as door:
        silent, lively = door.connect(1), door.connect(1)
        await door.settle(0, 2)
        for connection in door.listeners[1].connections:
            is_lively = connection._transport.socket.getpeername() == lively.getsockname()
            connection.last_active = time.monotonic() - (1 if is_lively else 2)
        door.connect(0)
        await door.settle(1, 2)
        door.listeners[1]._make_room()
        await door.settle(1, 1)
        assert (is_closed(silent), is_closed(lively)) == (True, False)


async def test_an_address_that_has_its_share_is_closed_at_once(caplog):
    async with Door("PLAINTEXT", max_connections_per_ip=2) as door:
        peers = [door.connect() for _ in range(4)]
        await door.settle(2)
        assert [is_closed(peer) for peer in peers] == [False, False, True, True]
        other = door.connect(host="127.0.0.2")
        await door.settle(3)
        assert not is_closed(other)
        assert [message for message in caplog.messages if "max.connections.per.ip" in message] == caplog.messages
        assert len(caplog.messages) == 1
        peers[0].close()
        await door.settle(2)
        door.connect()
        await door.settle(3)


async def test_single_addresses_and_names_may_have_other_numbers():
    overrides = "127.0.0.2:1, localhost:3"
    async with Door("PLAINTEXT", max_connections_per_ip=0, max_connections_per_ip_overrides=overrides) as door:
        for host in ("127.0.0.1", "127.0.0.2", "127.0.0.3"):
            for _ in range(5):
                door.connect(host=host)
        await door.settle(4)


async def test_limits_that_are_changed_while_the_broker_runs_take_effect():
    async with Door("PLAINTEXT", max_connections=1) as door:
        for _ in range(3):
            door.connect()
        await door.settle(1)
        door.settings = ServerConfig(max_connections=3, max_connections_per_ip_overrides="127.0.0.1:2")
        await door.limits.look_up_overrides()
        await door.settle(2)


async def test_connections_leave_the_descriptors_that_others_need():
    budget = Descriptors(LIMIT_MIN)
    async with Door("PLAINTEXT", descriptors=budget) as door:
        budget.connections = budget.connections_max - 1
        for _ in range(3):
            door.connect()
        await door.settle(1)
        assert budget.connections == budget.connections_max


async def test_a_silent_connection_ends_whatever_waits_on_it(monkeypatch):
    monkeypatch.setattr("ottla.server.network.connection.Connection.is_parked", property(lambda self: True))
    async with Door("PLAINTEXT", connections_max_idle_ms=60_000) as door:
        silent, lively = door.connect(), door.connect()
        silent.send(b"\0")  # which came, long ago
        await door.settle(2)
        for connection in door.listeners[0].connections:
            if connection._transport.socket.getpeername() == silent.getsockname():
                connection.last_active -= 61
        await door.listeners[0]._end_idle_connections()
        await door.settle(1)
        assert (is_closed(silent), is_closed(lively)) == (True, False)


async def test_who_was_quick_and_is_slow_now_is_not_silent():
    async with Door("PLAINTEXT", connections_max_idle_ms=60_000) as door:
        peer, listener = door.connect(), door.listeners[0]
        await door.settle(1)
        (connection,) = listener.connections
        inbox = connection._inbox

        async def send(count):
            peer.send(bytes(count))
            until = inbox.end + count
            while inbox.end < until:
                await trio.sleep(0.001)

        peer.send((1_000_000).to_bytes(4, "big"))
        await send(1)
        await send(40_000)
        while not inbox.expected:  # the rest comes quickly, it seems
            await send(40_000)
        ended = inbox.end
        connection.last_active -= 61
        peer.send(b"slow")
        await trio.testing.wait_all_tasks_blocked(0.01)
        await listener._end_idle_connections()
        while inbox.end == ended:
            await trio.sleep(0.001)
        await listener._end_idle_connections()
        await door.settle(1)
        connection.last_active -= 61  # and now nothing comes
        await listener._end_idle_connections()
        await door.settle(0)


async def test_a_negative_limit_of_silence_is_none():
    async with Door("PLAINTEXT", connections_max_idle_ms=-1) as door:
        door.connect()
        await door.settle(1)
        (connection,) = door.listeners[0].connections
        connection.last_active = 0
        await door.listeners[0]._end_idle_connections()
        await door.settle(1)


async def test_a_dead_machine_is_noticed_by_the_kernel():
    async with Door("PLAINTEXT") as door:
        door.connect()
        await door.settle(1)
        (connection,) = door.listeners[0].connections
        assert connection._transport.socket.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1


@pytest.mark.parametrize("overrides", ["a" * 64 + ".com:5, 127.0.0.1:1", "127.0.0.1:" + "9" * 5000])
async def test_overrides_that_cannot_be_used_end_nothing(overrides: str):
    """They may have been stored by a broker that did not look so closely."""
    async with Door("PLAINTEXT", max_connections_per_ip_overrides=overrides) as door:
        door.connect()
        await door.settle(1)
        await door.limits.look_up_overrides()


def test_overrides_are_addresses_with_numbers():
    with pytest.raises(ConfigError):
        load_config({"max.connections.per.ip.overrides": "127.0.0.1"})
    with pytest.raises(ConfigError):
        load_config({"max.connections.per.ip.overrides": "127.0.0.1:" + "9" * 5000})
    config = load_config({"max.connections.per.ip.overrides": "127.0.0.1:4"})
    assert not config.ignored_settings


def test_an_address_that_no_host_can_have_is_left_aside(caplog):
    assert connection_limits._rates_by_address({"no\0host": 1.0, "1.2.3.4": 2.0}) == {"1.2.3.4": 2.0}
    assert "the address of no\0host is not known" in caplog.text
