"""Handshakes of accepted connections: who gets in, what is told, and what a crowd may take."""

import logging
import socket
import ssl
from contextlib import ExitStack
from types import SimpleNamespace

import pytest
import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.server.network.listener import Listener
from ottla.server.network.listener_context import Complaints
from ottla.server.network.protocol_detection import HTTP_ANSWER, detect_protocol
from ottla.server.network.tls_handshakes import Handshakes
from ottla.server.security.tls_listener import COSTLY_S, MEASURED_HANDSHAKES, KeyCost
from ottla.server.tests.encrypted import AUTHORITY, VERSIONS, client_context, listener
from ottla.wire.happenings import Happenings


class Crowd:
    """Peers that connect, and what became of them."""

    def __init__(self, nursery, handshakes, to=None):
        self.nursery, self.handshakes = nursery, handshakes
        self.listener = to or listener()
        self.results = []
        self.kept = ExitStack()

    def connect(self, host="192.0.2.1"):
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        self.kept.enter_context(theirs)
        self.nursery.start_soon(self._welcome, ours, host)
        return theirs

    async def _welcome(self, ours, host):
        welcomed = await self.handshakes.welcome(ours, host, self.listener)
        self.results.append(welcomed)
        if welcomed is not None:
            self.kept.callback(welcomed.transport.close)
        elif ours.fileno() >= 0:
            self.results.append("a socket is still open")

    async def shake_hands(self, context, host="192.0.2.1"):
        """The client's side, in a thread."""
        theirs = self.connect(host)

        def handshake():
            with context.wrap_socket(theirs, server_hostname="localhost") as encrypted:
                encrypted.settimeout(60)
                encrypted.read(1)

        def quietly():
            try:
                handshake()
            except OSError as error:
                return error

        return await trio.to_thread.run_sync(quietly)


@pytest.fixture
async def crowd():
    async with trio.open_nursery() as nursery:
        made = Crowd(nursery, Handshakes(handshake_s=60, handshakes_max=6, per_address_max=4))
        yield made
        nursery.cancel_scope.cancel()
    made.kept.close()


async def until(condition):
    with trio.fail_after(60):
        while not condition():
            await trio.lowlevel.checkpoint()


async def connected(crowd, context, count=1):
    """The principals of so many clients that shake hands at the same time."""
    before = len(crowd.results)
    async with trio.open_nursery() as nursery:
        for _ in range(count):
            nursery.start_soon(crowd.shake_hands, context)
        await until(lambda: len(crowd.results) == before + count)
        for each in crowd.results[before:]:
            if each is not None:
                each.transport.close()
    return [each and each.principal for each in crowd.results[before:]]


@VERSIONS
async def test_a_client_without_a_certificate_is_anonymous(crowd, version):
    assert await connected(crowd, client_context(maximum_version=version)) == ["User:ANONYMOUS"]


@VERSIONS
@pytest.mark.parametrize("auth", ["requested", "required"])
async def test_a_certificate_says_who_a_client_is(crowd, tmp_path, version, auth):
    crowd.listener = listener(ssl_client_auth=auth)
    context = client_context(tmp_path, maximum_version=version)
    assert await connected(crowd, context) == ["User:CN=client,O=Ottla"]
    crowd.listener = listener(ssl_client_auth=auth, ssl_principal_mapping_rules="RULE:^CN=(.*?),.*$/$1/U")
    assert await connected(crowd, context) == ["User:CLIENT"]


async def test_handshakes_go_on_on_the_loop_when_the_key_is_known_to_be_cheap(crowd):
    for count in (1, MEASURED_HANDSHAKES, 4):
        assert await connected(crowd, client_context(), count) == ["User:ANONYMOUS"] * count
    # On a machine that is very busy even ECDSA may have been measured as dear.
    assert crowd.listener.cost.is_known


def test_the_least_of_some_handshakes_says_what_a_key_costs():
    cheap, dear = KeyCost(), KeyCost()
    for number in range(MEASURED_HANDSHAKES):
        assert not cheap.is_low
        cheap.note(COSTLY_S * (number + 0.5))
        dear.note(COSTLY_S * 2)
    assert cheap.is_low
    assert not dear.is_low
    assert dear.is_known


async def test_a_client_without_the_certificate_that_is_required_is_refused_and_told_of_once(crowd, caplog):
    crowd.listener = listener(ssl_client_auth="required")
    assert await connected(crowd, client_context()) == [None]
    assert await connected(crowd, client_context()) == [None]
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "shown no certificate" in caplog.text
    assert "192.0.2.1" in caplog.text


async def test_a_client_of_another_authority_is_refused(crowd, caplog, tmp_path):
    stranger = type(AUTHORITY)("stranger", days=2).issue("client", is_server=False)
    path = tmp_path / "stranger.pem"
    path.write_bytes(stranger.key_pem + stranger.certificate_pem)
    context = client_context()
    context.load_cert_chain(path)
    crowd.listener = listener(ssl_client_auth="requested")
    assert await connected(crowd, context) == [None]
    assert "its certificate is refused: unable to get local issuer certificate" in caplog.text


async def test_a_client_that_no_rule_names_is_refused(crowd, caplog, tmp_path):
    crowd.listener = listener(ssl_client_auth="required", ssl_principal_mapping_rules="RULE:^CN=nobody$/x/")
    assert await connected(crowd, client_context(tmp_path)) == [None]
    assert "names no user" in caplog.text


async def test_a_client_that_does_not_trust_the_broker_is_told_of(crowd, caplog):
    assert await connected(crowd, ssl.create_default_context()) == [None]
    assert "perhaps because it does not trust this broker's certificate" in caplog.text


@pytest.mark.parametrize(
    ("first", "what"),
    [
        (b"\0\0\0\x20\0\x12\0\3", "it speaks Kafka's protocol without TLS"),
        (b"GET / HTTP/1.1\r\n\r\n", "it speaks HTTP"),
        (b"SSH-2.0-x\r\n", "it speaks neither TLS nor Kafka's protocol"),
    ],
)
async def test_other_languages_are_recognised(crowd, caplog, first, what):
    clients = [crowd.connect(), crowd.connect()]
    for client in clients:
        client.send(first)
    await until(lambda: len(crowd.results) == 2)
    assert crowd.results == [None, None]
    assert len(caplog.records) == 1
    assert what in caplog.text
    if what.endswith("HTTP"):
        assert [client.recv(65536) for client in clients] == [HTTP_ANSWER] * 2


async def test_a_peer_that_leaves_at_once_is_nothing_to_tell(crowd, caplog):
    crowd.connect().close()
    await until(lambda: crowd.results == [None])
    assert not caplog.records


@pytest.mark.parametrize("first", [b"", b"\x16", b"\x16\x03\x01\x02\x00"])
async def test_a_handshake_that_stalls_ends_in_time(caplog, first, autojump_clock):
    async with trio.open_nursery() as nursery:
        happenings = Happenings(lambda: 1)
        crowd = Crowd(nursery, Handshakes(handshake_s=5, note=happenings.note))
        crowd.connect().send(first)
        while not crowd.results:
            await trio.sleep(1)
        assert crowd.results == [None]
    crowd.kept.close()
    assert "was not done within 5 s" in caplog.text
    (closed,) = happenings
    assert closed.cause.endswith("was closed in its TLS handshake: its handshake was not done within 5 s")


async def test_an_address_with_too_many_loses_its_oldest(crowd):
    peers = await one_after_the_other(crowd, ["192.0.2.1"] * 4)
    assert crowd.results == []
    peers += await one_after_the_other(crowd, ["192.0.2.1"] * 2)
    await until(lambda: crowd.results == [None, None])
    assert [is_open(each) for each in peers] == [False] * 2 + [True] * 4


async def test_of_too_many_the_address_with_most_loses_its_oldest(crowd):
    others = await one_after_the_other(crowd, ["192.0.2.1"] * 2)
    many = await one_after_the_other(crowd, ["198.51.100.7"] * 4)
    newcomer = crowd.connect("203.0.113.9")
    await until(lambda: crowd.results == [None])
    assert [is_open(each) for each in many] == [False, True, True, True]
    assert all(map(is_open, [*others, newcomer]))
    # Who comes with a crowd around it gets in, and pushes out one more of the many.
    async with trio.open_nursery() as nursery:
        nursery.start_soon(crowd.shake_hands, client_context(), "203.0.113.10")
        await until(lambda: len(crowd.results) == 3)
        (welcomed,) = filter(None, crowd.results)
        welcomed.transport.close()
    assert welcomed.principal == "User:ANONYMOUS"
    assert sum(map(is_open, many)) == 2


async def one_after_the_other(crowd, hosts):
    peers = []
    for host in hosts:
        peers.append(crowd.connect(host))
        await trio.testing.wait_all_tasks_blocked()
    return peers


def is_open(sock):
    try:
        return sock.recv(1, socket.MSG_DONTWAIT) != b""
    except BlockingIOError:
        return True


@settings(deadline=None)  # some handshakes go through a thread
@given(st.binary(max_size=300), st.booleans())
def test_any_bytes_in_place_of_a_handshake_end_it_in_order(data, looks_like_tls):
    sent = b"\x16\x03\x01" + data if looks_like_tls else data

    async def main():
        async with trio.open_nursery() as nursery:
            crowd = Crowd(nursery, Handshakes(handshake_s=5), LISTENER)
            peer = crowd.connect()
            peer.send(sent)
            peer.shutdown(socket.SHUT_WR)
            await until(lambda: crowd.results)
            assert crowd.results == [None]
        crowd.kept.close()

    trio.run(main)


LISTENER = listener()


@given(st.binary(max_size=8))
def test_what_is_spoken_can_always_be_said(data):
    assert detect_protocol(data) in {"TLS", "HTTP", "Kafka's protocol without TLS", "neither TLS nor Kafka's protocol"}


async def test_a_bug_in_a_handshake_ends_one_connection(caplog):
    async def welcome(*_: object):
        raise RuntimeError("a bug")

    released = []
    door = Listener.__new__(Listener)
    door.complaints = Complaints("SSL")
    door.name, door.limits = "SSL", SimpleNamespace(release=lambda *given: released.append(given))
    await door._serve_encrypted(
        SimpleNamespace(handshakes=SimpleNamespace(welcome=welcome), listener=None), None, "host"
    )
    assert released == [("host", "SSL")]
    assert "bug: closing the connection of host" in caplog.text
