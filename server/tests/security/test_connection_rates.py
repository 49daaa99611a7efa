"""How many connections a listener, the broker and an address may make in a second."""

from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
import trio
from hypothesis import given

from ottla.replication.cluster import znodes
from ottla.replication.log.descriptors import Descriptors
from ottla.server.config.broker_config import ConfigError, load_config
from ottla.server.config.server_config import ServerConfig
from ottla.server.network.connection_limits import ConnectionLimits, OwnLimits
from ottla.server.security.quotas import meters
from ottla.server.security.quotas.client_quotas import UNLIMITED, ClientQuotas, ConnectionRates
from ottla.server.security.quotas.meters import Windows
from ottla.server.tests.network.test_connection_limits import Door, is_closed

WINDOWS = Windows(11, 1000)
BURST = 10  # so many windows are let through at once


def rates(**by_address: float) -> ConnectionRates:
    made = ConnectionRates(WINDOWS)
    made.put({{"others": None}.get(name, name): rate for name, rate in by_address.items()})
    return made


def test_a_listener_pauses_beyond_its_own_rate_or_the_broker_s() -> None:
    counted = rates()
    pauses = [counted.accepted("A", 2, UNLIMITED, 0) for _ in range(2 * BURST + 1)]
    assert not any(pauses[:-1]) and pauses[-1] == 500
    assert counted.accepted("B", UNLIMITED, 5, 0) == 0
    for _ in range(5 * BURST - 1):
        assert counted.accepted("C", UNLIMITED, 5, 0) == 0
    assert counted.accepted("B", UNLIMITED, 5, 0) == 200


def test_no_pause_is_longer_than_a_window() -> None:
    counted = rates()
    assert max(counted.accepted("A", 1, UNLIMITED, 0) for _ in range(100)) == 1000
    assert counted.accepted("B", 0, UNLIMITED, 0) == 1000


def test_an_address_pauses_alone_and_its_connection_does_not_count() -> None:
    counted = rates(a=1, others=2)
    for _ in range(BURST):
        assert counted.come_from("a", "A", UNLIMITED, UNLIMITED, 0) == 0
    for _ in range(3):
        counted.accepted("A", 1, 1, 0)
        assert counted.come_from("a", "A", 1, 1, 0) == 1000
    assert counted.accepted("A", 1, 1, 0) == 0
    assert not any(counted.come_from("b", "A", UNLIMITED, UNLIMITED, 0) for _ in range(2 * BURST))
    assert counted.come_from("b", "A", UNLIMITED, UNLIMITED, 0) > 0
    assert counted.come_from("c", "A", UNLIMITED, UNLIMITED, 0) == 0
    assert counted.come_from("a", "A", UNLIMITED, UNLIMITED, 11_000) == 0


def test_what_is_put_replaces_what_was() -> None:
    counted = rates(a=1)
    for _ in range(BURST):
        counted.come_from("a", "A", UNLIMITED, UNLIMITED, 0)
    assert counted.come_from("a", "A", UNLIMITED, UNLIMITED, 0) > 0
    counted.put({"a": 100.0})
    assert counted.come_from("a", "A", UNLIMITED, UNLIMITED, 0) == 0
    counted.put({})
    assert (counted.come_from("a", "A", UNLIMITED, UNLIMITED, 0), counted.remembered) == (0, 0)


def test_addresses_without_a_quota_are_not_remembered() -> None:
    counted = rates(a=1)
    for number in range(100):
        counted.come_from(f"b{number}", "A", UNLIMITED, UNLIMITED, 0)
    assert counted.remembered == 0


def test_of_very_many_addresses_the_last_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meters, "METERS_MAX", 10)
    counted = rates(others=1)
    for number in range(100):
        counted.come_from(f"a{number}", "A", UNLIMITED, UNLIMITED, 0)
    assert counted.remembered == 10


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 2000), st.integers(0, 3))))
def test_a_pause_is_never_negative_nor_too_long(comings: list[tuple[str, int, int]]) -> None:
    counted, now_ms = rates(a=1, others=0.5), 0
    for address, step_ms, bound in comings:
        now_ms += step_ms
        assert 0 <= counted.accepted("A", bound, 2, now_ms) <= 1000
        assert 0 <= counted.come_from(address, "A", bound, 2, now_ms) <= 1000


# ---------------------------------------------------------------------- at the door


def quota(host: str, rate: str | None) -> tuple[str, dict[str, str]]:
    return f"ips/{host}", {} if rate is None else {"connection_creation_rate": rate}


async def test_who_connects_too_often_is_closed_after_the_pause(autojump_clock: Any) -> None:
    async with Door("PLAINTEXT") as door:
        door.quotas.take(*quota("127.0.0.2", "0.1"))
        await door.limits.look_up_quotas()
        peers = [door.connect(host="127.0.0.2") for _ in range(3)]
        other = door.connect()
        await door.settle(2)
        assert sum(map(is_closed, peers)) == 0 or trio.current_time() >= 1
        await trio.sleep(2)
        assert sum(map(is_closed, peers)) == 2
        assert not is_closed(other)


async def heard(door: Door, *, is_limited: bool) -> None:
    """Until the door itself has looked its quotas up. A thread asks the resolver, and this clock does not wait for it."""
    while bool(door.quotas.connections._by_address) is not is_limited:
        await trio.sleep(0.25)


async def test_quotas_of_addresses_are_heard_of_while_the_broker_runs(autojump_clock: Any) -> None:
    async with Door("PLAINTEXT") as door:
        door.quotas.take(*quota("localhost", "0.1"))
        await heard(door, is_limited=True)
        peers = [door.connect() for _ in range(3)]
        await trio.sleep(3)
        assert sum(map(is_closed, peers)) == 2
        door.quotas.take(*quota("localhost", None))
        await heard(door, is_limited=False)
        peers = [door.connect() for _ in range(3)]
        await trio.sleep(3)
        assert sum(map(is_closed, peers)) == 0


async def test_a_name_without_an_address_harms_nobody(autojump_clock: Any) -> None:
    async with Door("PLAINTEXT") as door:
        door.quotas.take(*quota("a" * 64 + ".invalid", "1"))
        door.quotas.take(*quota(znodes.DEFAULT_ENTITY, "100"))
        await door.limits.look_up_quotas()
        door.connect()
        await door.settle(1)


async def test_a_listener_that_accepts_too_many_lets_the_next_one_wait(autojump_clock: Any) -> None:
    async with Door("PLAINTEXT", max_connection_creation_rate=1) as door:
        peers = [door.connect() for _ in range(BURST + 5)]
        await trio.sleep(0.5)
        assert len(door.listeners[0].connections) == BURST
        await trio.sleep(10)
        assert len(door.listeners[0].connections) == BURST + 5
        assert not any(map(is_closed, peers))


async def test_what_waits_is_closed_when_the_listener_ends(autojump_clock: Any) -> None:
    async with Door("PLAINTEXT", max_connection_creation_rate=1) as door:
        peers = [door.connect() for _ in range(BURST + 2)]
        await trio.sleep(0.5)
        door._nursery.cancel_scope.cancel()
        with trio.CancelScope(shield=True):
            await trio.sleep(0.5)
            assert all(map(is_closed, peers))


async def test_of_peers_that_connect_too_often_only_some_wait(
    autojump_clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ottla.server.network.listener.DELAYED_MAX", 2)
    async with Door("PLAINTEXT") as door:
        door.quotas.take(*quota("127.0.0.1", "0.1"))
        await door.limits.look_up_quotas()
        for _ in range(10):
            door.connect()
        await trio.sleep(0.5)
        assert door.listeners[0]._delayed <= 2
        await trio.sleep(2)
        assert (door.listeners[0]._delayed, len(door.listeners[0].connections)) == (0, 1)


async def test_a_listener_may_have_a_number_of_its_own() -> None:
    own = {"CLIENTS": OwnLimits(1, UNLIMITED), "INTERNAL": OwnLimits(2, UNLIMITED)}
    async with Door("INTERNAL", "CLIENTS", own=own, max_connections=100) as door:
        for _ in range(4):
            door.connect(0)
            door.connect(1)
        await door.settle(2, 1)
        own["CLIENTS"] = OwnLimits(3, UNLIMITED)
        door.limits.changed()
        await door.settle(2, 3)


async def test_the_broker_s_rate_does_not_concern_the_listener_among_brokers() -> None:
    quotas = ClientQuotas()
    limits = ConnectionLimits(
        lambda: ServerConfig(max_connection_creation_rate=1),
        Descriptors(),
        quotas,
        protected="INTERNAL",
        of_listener=lambda _: OwnLimits(UNLIMITED, UNLIMITED),
    )
    assert not any(limits.pause_of_listener("INTERNAL") for _ in range(100))
    assert any(limits.pause_of_listener("CLIENTS") for _ in range(BURST + 1))


@pytest.mark.parametrize("text", ["x", "-1", str(1 << 31)])
@pytest.mark.parametrize("name", ["max.connections", "max.connection.creation.rate"])
def test_numbers_that_cannot_be_are_refused_at_start(tmp_path: Path, name: str, text: str) -> None:
    with pytest.raises(ConfigError):
        load_config({f"listener.name.plaintext.{name}": text, "log.dirs": str(tmp_path)})
