"""The tap of connections with TLS: requests, rules, pause and capture files are those of plain ones, decrypted."""

from __future__ import annotations

import errno
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.server.testing.errors import LabError
from ottla.server.testing.kafka import Kafka
from ottla.server.testing.wire_tap.tests.test_in_the_lab import FAR_S, LARGE, ORDERS, Client
from ottla.server.testing.wire_tap.tests.wire_talk import fetch, produce
from ottla.wire.messages.fetch import FetchResponse
from ottla.wire.messages.metadata import MetadataRequest, MetadataResponse
from ottla.wire.messages.produce import ProduceResponse

SILENCE_S = 2.0


class TlsClient(Client):
    def __init__(self, kafka: Kafka) -> None:
        host, _, port = kafka.bootstrap.partition(":")
        plain = socket.create_connection((host, int(port)), FAR_S)
        self.socket = ssl.create_default_context(cadata=kafka.authority).wrap_socket(plain, server_hostname="127.0.0.1")


@pytest.fixture
def kafka() -> Iterator[Kafka]:
    with Kafka(tls=True) as made:
        made.topic("orders")
        yield made


def test_brokers_without_tls_have_no_authority() -> None:
    with Kafka() as kafka, pytest.raises(LabError, match=r"These brokers have no TLS; use Kafka\(tls=True\)"):
        assert kafka.authority


@pytest.fixture
def client(kafka: Kafka) -> Iterator[TlsClient]:
    made = TlsClient(kafka)
    with made.socket:
        yield made


def test_a_connection_without_a_free_descriptor_ends_and_the_broker_serves_others(
    kafka: Kafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse() -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as patched:
        patched.setattr("ottla.server.testing.wire_tap.decrypted.socket.socketpair", refuse)
        with TlsClient(kafka).socket as refused:
            assert refused.recv(1) == b""
    client = TlsClient(kafka)
    with client.socket:
        client.send(produce(ORDERS, records=LARGE), 9)
        assert error_of(client) == 0


def error_of(client: TlsClient) -> int:
    return ProduceResponse.decode(client.read(), 9, 5).responses[0].partition_responses[0].error_code


def test_requests_are_seen_and_saved(kafka: Kafka, client: TlsClient, tmp_path: Path) -> None:
    client.send(produce(ORDERS, records=LARGE), 9)
    assert error_of(client) == 0
    client.send(fetch(ORDERS), 12)
    answer = FetchResponse.decode(client.read(), 12, 5)
    assert bytes(answer.responses[0].partitions[0].records)[61:] == LARGE[61:]  # type: ignore[arg-type]
    produced, fetched = kafka.wire.requests()
    assert kafka.wire.saw("Produce", acks=-1, topic="orders") and fetched.places == (ORDERS,)
    assert produced.connection.address == client.socket.getsockname()
    kafka.wire.save_pcap(tmp_path / "wire.pcap")
    assert b"orders" in (tmp_path / "wire.pcap").read_bytes()


def test_rules_change_what_a_client_hears(kafka: Kafka, client: TlsClient) -> None:
    rule = kafka.on("Produce", topic="orders").fail("NOT_LEADER_OR_FOLLOWER")
    for error in (6, 0):
        client.send(produce(ORDERS, records=LARGE), 9)
        assert error_of(client) == error
    assert rule.hits == 1
    kafka.on("Metadata").half()
    client.send(MetadataRequest(topics=None), 9)
    with pytest.raises((ConnectionResetError, ssl.SSLEOFError)):
        client.read()


def test_a_paused_broker_answers_nobody(kafka: Kafka, client: TlsClient) -> None:
    kafka.broker(0).pause()
    client.send(MetadataRequest(topics=None), 9)
    kafka.wire.wait_for("Metadata")
    kafka.clock.advance(SILENCE_S)
    assert kafka.wire.requests("Metadata")[-1].duration is None
    kafka.broker(0).resume()
    with pytest.raises((ConnectionResetError, ssl.SSLEOFError)):
        client.read()
    again = TlsClient(kafka)
    with again.socket:
        again.send(MetadataRequest(topics=None), 9)
        assert MetadataResponse.decode(again.read(), 9, 5).brokers


def test_a_connection_ends_with_its_client_and_with_its_broker(kafka: Kafka, client: TlsClient) -> None:
    gone = TlsClient(kafka)
    gone.send(MetadataRequest(topics=None), 9)
    assert gone.read()
    gone.socket.close()
    client.send(MetadataRequest(topics=None), 9)
    assert client.read()
    kafka.broker(0).kill()
    with pytest.raises((ConnectionResetError, ssl.SSLEOFError)):
        client.read()
    assert all(each.connection.closed_ms is not None for each in kafka.wire.requests())


def test_brokers_of_a_cluster_with_tls_follow_each_other() -> None:
    with Kafka(3, tls=True) as kafka:
        kafka.topic("orders")
        kafka.produce("orders", "one")
        kafka.shrink_isr("orders")
        assert len(kafka.partition("orders").isr) == 1
        kafka.expand_isr("orders")
        assert kafka.partition("orders").isr == [1, 2, 3]
        assert any(each.is_of_broker for each in kafka.wire.requests("Fetch", of_brokers=True))
