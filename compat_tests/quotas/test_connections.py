"""Connections beyond what an address, a listener or the broker may make: both brokers serve as many, and end the others alike."""

import contextlib
import itertools
import socket
import time
from collections.abc import Callable, Iterator

import pytest
from compat_tests.differential.scenarios.client_quotas import alter, entry
from compat_tests.support.brokers import BrokerProcess
from compat_tests.support.wire_client import WireClient

from ottla.wire.messages.alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalConfig,
    IncrementalConfigsResource,
)

TELLINGS = 10
PATIENCE_S = 60
addresses = (f"127.0.0.{number}" for number in itertools.count(5))
API_VERSIONS = b"\0\0\0\x0a\0\x12\0\0\0\0\0\x01\0\0"


def knock(broker: BrokerProcess, address: str = "127.0.0.4") -> socket.socket:
    peer = socket.create_connection((broker.host, broker.port), source_address=(address, 0), timeout=PATIENCE_S)
    with contextlib.suppress(ConnectionError):
        peer.sendall(API_VERSIONS)
    return peer


def fate(peer: socket.socket, seconds: float) -> str:
    peer.settimeout(seconds)
    try:
        return "served" if peer.recv(1) else "closed"
    except TimeoutError:
        return "waits"
    except ConnectionError:
        return "closed"


@contextlib.contextmanager
def limited(broker: BrokerProcess, change: Callable[[WireClient, bool], None]) -> Iterator[None]:
    with WireClient((broker.host, broker.port), client_id="stage hand") as stage_hand:
        change(stage_hand, True)
        time.sleep(1)  # until both obey
        try:
            yield
        finally:
            change(stage_hand, False)


def of_the_address(address: str) -> Callable[[WireClient, bool], None]:
    def change(stage_hand: WireClient, is_on: bool) -> None:
        rate = 1.0 if is_on else None
        answer = stage_hand.ask(alter(entry([("ip", address)], ("connection_creation_rate", rate))), 1)
        assert answer.entries[0].error_code == 0, answer

    return change


def setting(name: str, value: str) -> Callable[[WireClient, bool], None]:
    def change(stage_hand: WireClient, is_on: bool) -> None:
        config = IncrementalConfig(name=name, config_operation=0 if is_on else 1, value=value if is_on else None)
        resource = IncrementalConfigsResource(resource_type=4, resource_name="", configs=[config])
        answer = stage_hand.ask(IncrementalAlterConfigsRequest(resources=[resource], validate_only=False), 1)
        assert answer.responses[0].error_code == 0, answer

    return change


FATES_AT_A_NUMBER = ["served"] * 3 + ["waits"] * 3
FATES = [["served"] * 10, ["waits"] * 4, ["closed"] * 4]


def told_of_an_address(broker: BrokerProcess) -> list[list[str]]:
    """What becomes of the first ten, and of four more at first and in the end.

    All has to come within one window, and the broker has to obey by then. A busy machine may take longer; then the next
    address is tried.
    """
    told: list[list[str]] = []
    for address in itertools.islice(addresses, TELLINGS):
        with limited(broker, of_the_address(address)):
            began = time.monotonic()
            peers = [knock(broker, address) for _ in range(14)]
            told = [[fate(peer, PATIENCE_S) for peer in peers[:10]], [fate(peer, 0.01) for peer in peers[10:]]]
            is_in_time = time.monotonic() - began < 0.9
            told.append([fate(peer, PATIENCE_S) for peer in peers[10:]])
            for peer in peers:
                peer.close()
        if is_in_time and told == FATES:
            break
    return told


def test_an_address_beyond_its_rate(brokers: list[BrokerProcess]) -> None:
    for broker in brokers:
        assert told_of_an_address(broker) == FATES, broker


@pytest.mark.parametrize(
    "name", ["max.connection.creation.rate", "listener.name.plaintext.max.connection.creation.rate"]
)
def test_a_listener_beyond_its_rate(brokers: list[BrokerProcess], name: str) -> None:
    for broker in brokers:
        # Until the broker obeys: the last two have to wait. What came before, when nobody counted, was counted by Kafka.
        served_s = next((each for each in tellings(broker, name) if each[-2] > 0.3), None)
        assert served_s, broker


def tellings(broker: BrokerProcess, name: str) -> Iterator[list[float]]:
    """When each of thirteen was served (seconds), again and again."""
    for _ in range(TELLINGS):
        with limited(broker, setting(name, "1")):
            began = time.monotonic()
            peers = [knock(broker) for _ in range(13)]
            served_s = []
            for peer in peers:
                assert fate(peer, PATIENCE_S) == "served"
                served_s.append(time.monotonic() - began)
            for peer in peers:
                peer.close()
        yield served_s


def test_a_listener_with_a_number_of_its_own(brokers: list[BrokerProcess]) -> None:
    for broker in brokers:
        assert fates_at_a_number(broker) == FATES_AT_A_NUMBER, broker


def fates_at_a_number(broker: BrokerProcess) -> list[str]:
    """Of six connections where four may be: one is the stage hand's. Until the broker obeys, again and again."""
    fates: list[str] = []
    for _ in range(TELLINGS):
        with limited(broker, setting("listener.name.plaintext.max.connections", "4")):
            peers = [knock(broker) for _ in range(6)]
            fates = [fate(peer, PATIENCE_S) for peer in peers[:3]] + [fate(peer, 0.3) for peer in peers[3:]]
            if fates == FATES_AT_A_NUMBER:
                peers[0].close()
                assert fate(peers[3], PATIENCE_S) == "served"  # the first that waits
            for peer in peers:
                peer.close()
        if fates == FATES_AT_A_NUMBER:
            break
    return fates
