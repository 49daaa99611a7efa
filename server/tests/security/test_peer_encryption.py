"""TLS between brokers: what is encrypted, who is refused and told, and which certificates are used."""

from __future__ import annotations

import logging
import socket
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.replication.cluster.metadata_cache import BrokerEndpoint
from ottla.replication.cluster.peers import PeerUnavailable
from ottla.server.config.broker_config import ConfigError, load_config
from ottla.server.launch.certificates_command import Authority, Certified
from ottla.server.network.readiness import Readiness
from ottla.server.network.tls_handshakes import Handshakes
from ottla.server.peers.encryption import PeerEncryption, words_of
from ottla.server.peers.tcp import TcpPeer, TcpPeers
from ottla.server.security.mechanism import NotEncrypted
from ottla.server.security.tls_listener import TlsListener, handshake_problem, lenient_client
from ottla.server.tests.encrypted import AUTHORITY, BROKER, INLINE
from ottla.server.tests.peers.test_peers import (
    LONG,
    Broker,
    Caller,
    Outcome,
    answer,
    answer_to,
    fetch,
    fetched,
    heartbeat,
)
from ottla.server.tests.security.test_peer_login import PASSWORD, let_in, login
from ottla.wire.messages.classic_group import HeartbeatRequest, HeartbeatResponse
from ottla.wire.messages.fetch import FetchRequest
from ottla.wire.settings import InvalidSetting
from ottla.wire.tests.effort import examples

STRANGER = Authority("stranger", days=2)
VERSIONS = ["TLSv1.2", "TLSv1.3"]


def texts_of(certified: Certified, *trusted: Authority, **more: str) -> dict[str, str]:
    """The settings of a broker that shows this certificate and trusts these authorities."""
    return INLINE | {
        "ssl.keystore.key": certified.key_pem.decode(),
        "ssl.keystore.certificate.chain": certified.certificate_pem.decode(),
        "ssl.truststore.certificates": "".join(each.certified.certificate_pem.decode() for each in trusted),
        **{name.replace("_", "."): text for name, text in more.items()},
    }


def listener(certified: Certified = BROKER, *trusted: Authority, **more: str) -> TlsListener:
    return TlsListener("IN", "SSL", texts_of(certified, *(trusted or (AUTHORITY,)), **more), is_between_brokers=True)


class Encrypted(Broker):
    """The other broker. `shown` is its listener; None: it speaks plaintext."""

    def __init__(self, listening: trio.SocketListener, shown: TlsListener | None) -> None:
        super().__init__(listening)
        self.shown = shown
        self.host = "127.0.0.1"

    @property
    def endpoint(self) -> BrokerEndpoint:
        return BrokerEndpoint(2, self.host, self.port)

    async def accept(self) -> Caller:
        stream = await self._listener.accept()
        if self.shown is None:
            caller = Caller(stream)
        else:
            encrypted = trio.SSLStream(stream, self.shown.context, server_side=True, https_compatible=True)
            caller = Caller(encrypted)  # type: ignore[arg-type]
        self._callers.append(caller)
        return caller

    async def welcome_all(self) -> None:
        """Shake hands with whoever comes, and forget whom that fails with."""
        while True:
            caller = await self.accept()
            try:
                await caller.receive()
            except (trio.BrokenResourceError, EOFError):
                await trio.aclose_forcefully(caller.stream)


@pytest.fixture
async def broker() -> AsyncIterator[Encrypted]:
    (listening,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    async with Encrypted(listening, listener()) as broker:
        yield broker
        for caller in broker._callers:
            await trio.aclose_forcefully(caller.stream)


def peers(own: TlsListener, **options: Any) -> TcpPeers:
    return TcpPeers(encrypt=PeerEncryption(own, None).encrypted, **options)


@pytest.fixture(params=["task", "wait"])
async def peer(request: pytest.FixtureRequest, broker: Encrypted) -> AsyncIterator[TcpPeer]:
    """A peer that is served by its tasks, and one that is served within the event loop's wait."""
    readiness = None if request.param == "task" else Readiness()
    them = TcpPeers(encrypt=PeerEncryption(listener(), readiness).encrypted)
    made = them.to(broker.endpoint, client_id="broker-1-fetcher-0")
    yield made
    await made.aclose()
    if readiness is not None:
        readiness.close()


def asked(nursery: trio.Nursery, peer: TcpPeer, request: Any = None, version: int = 4) -> Outcome:
    outcome = Outcome()
    nursery.start_soon(outcome.of, lambda: peer.ask(request or heartbeat(), version, timeout_s=LONG))
    return outcome


async def failed(nursery: trio.Nursery, peer: TcpPeer) -> str:
    result = await asked(nursery, peer).result()
    assert isinstance(result, PeerUnavailable)
    return str(result)


# --- what is encrypted


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_question_and_its_answer_are_encrypted(
    peer: TcpPeer, broker: Encrypted, nursery: trio.Nursery, version: str
) -> None:
    broker.shown = listener(ssl_client_auth="required", ssl_enabled_protocols=version)
    for number in range(3):
        outcome = asked(nursery, peer, heartbeat(number))
        if not number:
            caller = await broker.accept()
        header, request = await caller.receive()
        assert request.generation_id == number
        await caller.send(answer_to(header, number))
        assert await outcome.result() == HeartbeatResponse(error_code=number)
    stream: Any = caller.stream
    assert stream.version() == version
    assert stream.getpeercert(binary_form=True) == ssl.PEM_cert_to_DER_cert(BROKER.certificate_pem.decode())


async def test_large_answers_come_whole_in_whatever_pieces(
    peer: TcpPeer, broker: Encrypted, nursery: trio.Nursery
) -> None:
    for size in (1, 16_384, 65_536, 3 << 20, (5 << 20) + 7, 10):
        outcome = asked(nursery, peer, fetch(), 17)
        if size == 1:
            caller = await broker.accept()
        header, _ = await caller.receive(FetchRequest)
        records = bytes(range(256)) * (size // 256) + b"r" * (size % 256)
        await caller.send(answer(header, fetched(records)))
        assert (await outcome.result()).responses[0].partitions[0].records == records


async def test_several_answers_in_one_record_reach_all_who_asked(
    peer: TcpPeer, broker: Encrypted, nursery: trio.Nursery
) -> None:
    """OpenSSL holds what it has decrypted, and the socket does not tell of it."""
    outcomes = [asked(nursery, peer, heartbeat(number)) for number in range(5)]
    caller = await broker.accept()
    headers = [await caller.receive() for _ in outcomes]
    await caller.send(b"".join(answer_to(header, request.generation_id) for header, request in headers))
    found = [(await each.result()).error_code for each in outcomes]
    assert found == list(range(5))


async def test_requests_that_the_socket_does_not_take_at_once_go_out_whole(
    peer: TcpPeer, broker: Encrypted, nursery: trio.Nursery
) -> None:
    member = "m" * 30_000
    big = HeartbeatRequest(group_id="g" * 30_000, generation_id=1, member_id=member, group_instance_id=member)
    outcomes = [asked(nursery, peer, big) for _ in range(60)]
    caller = await broker.accept()
    for _ in outcomes:
        header, request = await caller.receive()
        assert request == big
        await caller.send(answer_to(header))
    for each in outcomes:
        assert await each.result() == HeartbeatResponse(error_code=0)


async def test_a_login_follows_the_handshake(broker: Encrypted, nursery: trio.Nursery) -> None:
    made = peers(listener(), log_in=login("PLAIN").log_in).to(broker.endpoint, client_id="c")
    outcome = asked(nursery, made)
    caller = await broker.accept()
    assert await let_in(caller) == b"\0broker\0" + PASSWORD.encode()
    header, _ = await caller.receive()
    await caller.send(answer_to(header))
    assert await outcome.result() == HeartbeatResponse(error_code=0)
    await made.aclose()


async def test_an_idle_connection_is_used_again_unless_the_other_end_has_hung_up(
    mock_clock: trio.testing.MockClock, broker: Encrypted, nursery: trio.Nursery
) -> None:
    made = peers(listener()).to(broker.endpoint, client_id="c")
    caller: Caller | None = None
    for _ in range(3):
        outcome = asked(nursery, made)
        caller = caller or await broker.accept()
        header, _request = await caller.receive()
        await caller.send(answer_to(header))
        assert await outcome.result() == HeartbeatResponse(error_code=0)
        mock_clock.jump(2)
    assert caller is not None
    await caller.stream.aclose()
    outcome = asked(nursery, made)
    again = await broker.accept()
    header, _request = await again.receive()
    await again.send(answer_to(header))
    assert await outcome.result() == HeartbeatResponse(error_code=0)
    await made.aclose()


async def test_a_changed_certificate_is_shown_by_the_next_connection(broker: Encrypted, nursery: trio.Nursery) -> None:
    broker.shown = listener(ssl_client_auth="required")
    own = listener()
    them = peers(own)
    another = AUTHORITY.issue("broker", ["localhost", "127.0.0.1"], is_server=True, organization="Ottla")
    shown = []
    for certified in (BROKER, another):
        changed = own.read_anew(texts_of(certified, AUTHORITY))
        if changed is not None:
            own.take_up(changed)
        made = them.to(broker.endpoint, client_id="c")
        outcome = asked(nursery, made)
        caller = await broker.accept()
        header, _ = await caller.receive()
        await caller.send(answer_to(header))
        assert await outcome.result() == HeartbeatResponse(error_code=0)
        stream: Any = caller.stream
        shown.append(stream.getpeercert(binary_form=True))
        await made.aclose()
    assert shown == [ssl.PEM_cert_to_DER_cert(each.certificate_pem.decode()) for each in (BROKER, another)]


# --- who is refused, and told


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "ottla.peers"]


async def test_a_broker_of_another_authority_is_refused_and_told_of_once_a_minute(
    broker: Encrypted, nursery: trio.Nursery, caplog: pytest.LogCaptureFixture
) -> None:
    broker.shown = listener(STRANGER.issue("broker", ["127.0.0.1"], is_server=True), STRANGER)
    made = peers(listener()).to(broker.endpoint, client_id="c")
    nursery.start_soon(broker.welcome_all)
    for _ in range(3):
        assert "no TLS connection: its certificate is refused" in await failed(nursery, made)
    (line,) = lines(caplog)
    assert line == (
        f"Broker 2 at 127.0.0.1:{broker.port} is unavailable: no TLS connection: its certificate is refused (unable to get local"
        " issuer certificate): ssl.truststore of listener IN has to hold the authority that signed it"
    )
    nursery.cancel_scope.cancel()


async def test_a_certificate_has_to_name_the_host_unless_that_is_not_looked_at(
    broker: Encrypted, nursery: trio.Nursery
) -> None:
    broker.shown = listener(AUTHORITY.issue("broker", ["broker.example"], is_server=True))
    made = peers(listener()).to(broker.endpoint, client_id="c")
    async with trio.open_nursery() as welcoming:
        welcoming.start_soon(broker.welcome_all)
        assert "its certificate is not for 127.0.0.1: give it one that names this host" in await failed(nursery, made)
        welcoming.cancel_scope.cancel()
    made = peers(listener(ssl_endpoint_identification_algorithm="")).to(broker.endpoint, client_id="c")
    outcome = asked(nursery, made)
    caller = await broker.accept()
    header, _ = await caller.receive()
    await caller.send(answer_to(header))
    assert await outcome.result() == HeartbeatResponse(error_code=0)
    await made.aclose()


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("serve", ["task", "wait"])
async def test_who_is_refused_by_the_other_broker_is_told_what_to_do(
    broker: Encrypted, nursery: trio.Nursery, caplog: pytest.LogCaptureFixture, version: str, serve: str
) -> None:
    """With TLS 1.3 its own handshake is done by then, and the alert may be lost with the connection."""
    broker.shown = listener(ssl_client_auth="required", ssl_enabled_protocols=version)
    stranger = STRANGER.issue("broker", ["127.0.0.1"], is_server=True)
    readiness = Readiness() if serve == "wait" else None
    own = listener(stranger, STRANGER, AUTHORITY)
    made = TcpPeers(encrypt=PeerEncryption(own, readiness).encrypted).to(broker.endpoint, client_id="c")
    nursery.start_soon(_welcome_as_a_broker, broker)
    for _ in range(3):
        told = await failed(nursery, made)
        assert (
            "its ssl.truststore has to hold the authority" in told or "does it trust this broker's certificate?" in told
        )
        assert "this broker's" in told and "Its log says why" in told
    assert len(lines(caplog)) == 1
    assert "closing a connection of other to listener IN: its certificate is refused" in caplog.text
    if readiness is not None:
        readiness.close()
    nursery.cancel_scope.cancel()


async def _welcome_as_a_broker(broker: Encrypted) -> None:
    assert broker.shown is not None
    handshakes = Handshakes()
    while True:
        stream = await broker._listener.accept()
        sock = socket.socket(fileno=stream.socket.detach())
        sock.setblocking(False)
        welcomed = await handshakes.welcome(sock, "other", broker.shown)
        assert welcomed is None


@pytest.mark.parametrize("greeting", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\0\0\0\x08" + bytes(8)])
async def test_a_broker_that_speaks_plaintext_is_told_of(
    broker: Encrypted, nursery: trio.Nursery, greeting: bytes
) -> None:
    broker.shown = None
    made = peers(listener()).to(broker.endpoint, client_id="c")
    outcome = asked(nursery, made)
    caller = await broker.accept()
    if greeting:
        await caller.send(greeting)
    await caller.stream.aclose()
    assert "does its listener IN speak TLS" in str(await outcome.result())


async def test_a_broker_that_says_nothing_is_given_up(
    broker: Encrypted, nursery: trio.Nursery, caplog: pytest.LogCaptureFixture
) -> None:
    broker.shown = None
    made = peers(listener(), connect_timeout_s=1).to(broker.endpoint, client_id="c")
    outcome = asked(nursery, made)
    caller = await broker.accept()
    assert "no TLS handshake within 1 s" in str(await outcome.result())
    while await caller.stream.receive_some():
        pass  # its hello, and then it has hung up
    assert len(lines(caplog)) == 1


async def test_a_handshake_that_nobody_waits_for_is_given_up(broker: Encrypted, nursery: trio.Nursery) -> None:
    broker.shown = None
    made = peers(listener()).to(broker.endpoint, client_id="c")
    outcome = asked(nursery, made)
    caller = await broker.accept()
    assert await caller.stream.receive_some()
    await made.aclose()
    assert "closed" in str(await outcome.result())
    while await caller.stream.receive_some():
        pass


async def test_a_host_that_no_certificate_can_name_is_told_of(broker: Encrypted, nursery: trio.Nursery) -> None:
    encryption = PeerEncryption(listener(), None)
    for host in ("", ".x", "a" * 70):
        sock = socket.create_connection(("127.0.0.1", broker.port))
        sock.setblocking(False)
        with pytest.raises(NotEncrypted, match="is no name that a certificate can have"):
            await encryption.encrypted(sock, host)
        assert sock.fileno() == -1


async def test_what_lasts_is_told_though_older_connections_go_on(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    them, endpoint = TcpPeers(), BrokerEndpoint(2, "h", 9092)
    for _ in range(3):
        them.note_lost(endpoint, "its certificate is refused", is_lasting=True)
        them.note_answer(endpoint)
    assert lines(caplog) == [
        "Broker 2 at h:9092 is unavailable: its certificate is refused",
        "Broker 2 at h:9092 answers again",
    ]


def test_reasons_become_words() -> None:
    def words(reason: str) -> str:
        error = ssl.SSLError(1, f"[SSL: {reason}]")
        error.reason = reason
        return words_of(error, "IN", "host")

    assert "set ssl.keystore of listener IN" in words("TLSV13_ALERT_CERTIFICATE_REQUIRED")
    assert "compare ssl.enabled.protocols" in words("TLSV1_ALERT_PROTOCOL_VERSION")
    assert "compare ssl.enabled.protocols" in words("UNSUPPORTED_PROTOCOL")
    assert "its ssl.truststore has to hold" in words("TLSV1_ALERT_UNKNOWN_CA")
    assert "does its listener IN speak TLS?" in words("WRONG_VERSION_NUMBER")
    assert "the connection ended" in words("")


foreign = st.binary(max_size=300) | st.binary(max_size=100).map(
    lambda body: b"\x16\x03\x03" + len(body).to_bytes(2, "big") + body
)


@given(data=foreign)
@settings(max_examples=examples(60), deadline=None)
def test_whatever_bytes_come_the_connection_ends_in_words(data: bytes) -> None:
    async def run() -> None:
        (listening,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        async with Encrypted(listening, None) as broker, trio.open_nursery() as nursery:
            made = peers(OWN).to(broker.endpoint, client_id="c")
            outcome = asked(nursery, made)
            caller = await broker.accept()
            await caller.send(data)
            await caller.stream.aclose()
            assert "no TLS connection: " in str(await outcome.result())

    trio.run(run)


OWN = listener()


# --- a broker that would not let itself in


def test_a_broker_has_to_trust_itself() -> None:
    for certified, trusted, reason in (
        (BROKER, STRANGER, "it does not trust its own certificate (unable to get local issuer certificate)"),
        (_for_servers_only(), AUTHORITY, "as that of a client"),
    ):
        with pytest.raises(InvalidSetting, match="^listener IN: A client SSLEngine created with the") as refused:
            listener(certified, trusted, ssl_client_auth="required")
        assert reason in str(refused.value)
    # Who only listens may trust whom he likes.
    TlsListener("IN", "SSL", texts_of(BROKER, STRANGER, ssl_client_auth="required"))


def _for_servers_only() -> Certified:
    """Its certificate may not be shown by a client."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID

    key, model = ec.generate_private_key(ec.SECP256R1()), BROKER.certificate
    builder = x509.CertificateBuilder(
        issuer_name=model.issuer,
        subject_name=model.subject,
        public_key=key.public_key(),
        serial_number=x509.random_serial_number(),
        not_valid_before=model.not_valid_before_utc,
        not_valid_after=model.not_valid_after_utc,
    ).add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
    return Certified("broker", key, builder.sign(AUTHORITY.certified.key, hashes.SHA256()), AUTHORITY.certificate)


def test_the_names_of_hosts_are_not_looked_at_by_a_broker_that_trusts_itself() -> None:
    listener(AUTHORITY.issue("broker", ["somewhere.example"], is_server=True), ssl_client_auth="required")


def test_an_algorithm_that_is_not_known_is_refused_where_brokers_connect() -> None:
    with pytest.raises(InvalidSetting, match="neither https nor empty"):
        listener(ssl_endpoint_identification_algorithm="ldaps")


def test_new_certificates_have_to_be_trusted_by_the_old_ones_and_the_other_way_round() -> None:
    own = listener(ssl_client_auth="required")
    other = STRANGER.issue("broker", ["localhost", "127.0.0.1"], is_server=True, organization="Ottla")
    wrong = texts_of(other, STRANGER, ssl_client_auth="required")
    with pytest.raises(InvalidSetting, match="it does not trust its own certificate"):
        own.check(wrong)
    # Step by step it can be done: first everybody trusts both.
    both = texts_of(BROKER, AUTHORITY, STRANGER, ssl_client_auth="required")
    for texts in (both, texts_of(other, AUTHORITY, STRANGER, ssl_client_auth="required"), wrong):
        own.check(texts)
        changed = own.read_anew(texts)
        assert changed is not None
        own.take_up(changed)
    assert own.to_others is changed.to_others


def test_a_certificate_that_has_expired_meanwhile_is_no_measure_for_its_successor() -> None:
    fleeting = Authority("test authority", days=0)
    fleeting._key, fleeting.certified = AUTHORITY._key, AUTHORITY.certified
    expired = fleeting.issue("broker", ["localhost"], is_server=True, organization="Ottla")
    own = listener(AUTHORITY.issue("broker", ["localhost"], is_server=True, organization="Ottla"))
    own._in_force = TlsListener("IN", "SSL", texts_of(expired, AUTHORITY))._in_force
    assert "expired" in (own._in_force.cannot_connect_to(own._in_force) or "")
    own.check(texts_of(BROKER, AUTHORITY))
    with pytest.raises(InvalidSetting, match="it does not trust its own certificate"):
        own.check(texts_of(BROKER, STRANGER))


def test_a_rehearsal_without_a_common_version_fails() -> None:
    new, old = (listener(ssl_enabled_protocols=version) for version in VERSIONS)
    assert "the handshake failed" in (handshake_problem(new.context, lenient_client(old.config, old.secrets)) or "")
    assert handshake_problem(new.context, lenient_client(new.config, new.secrets)) is None


# --- settings

MEMBER = {
    "broker.id": "1",
    "zookeeper.connect": "127.0.0.1:2181",
    "listeners": "OUT://127.0.0.1:9092,IN://127.0.0.1:9093,CONTROL://127.0.0.1:9094",
    "inter.broker.listener.name": "IN",
}
LINE = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="b" password="p";'


def member(protocol: str, **more: str) -> dict[str, str]:
    protocols = f"OUT:PLAINTEXT,IN:{protocol},CONTROL:SASL_PLAINTEXT"
    return MEMBER | {
        "listener.security.protocol.map": protocols,
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.in.plain.sasl.jaas.config": LINE,
        "listener.name.control.plain.sasl.jaas.config": LINE.replace('"b"', '"c"'),
        **{name.replace("_", "."): text for name, text in more.items()},
    }


@pytest.mark.parametrize(
    ("protocol", "logins"), [("PLAINTEXT", {}), ("SSL", {}), ("SASL_PLAINTEXT", {"IN": "b"}), ("SASL_SSL", {"IN": "b"})]
)
def test_brokers_speak_every_protocol_among_themselves(protocol: str, logins: dict[str, str]) -> None:
    config = load_config(member(protocol))
    assert {name: each.name for name, each in config.peer_logins.items()} == logins
    assert config.between_brokers == {"IN"}
    assert config.control_plane_listener_name is None


def test_the_controllers_connections_may_have_a_listener_of_their_own() -> None:
    config = load_config(member("SASL_SSL", control_plane_listener_name="control"))
    assert config.control_plane_listener_name == "CONTROL"
    assert config.between_brokers == {"IN", "CONTROL"}
    assert {name: each.name for name, each in config.peer_logins.items()} == {"IN": "b", "CONTROL": "c"}
    alone = {
        name: text for name, text in member("SSL", control_plane_listener_name="CONTROL").items() if "zoo" not in name
    }
    assert load_config(alone).between_brokers == {"IN"}


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (
            {"control_plane_listener_name": "NOWHERE"},
            "Listener with NOWHERE defined in control.plane.listener.name not found in listener.security.protocol.map.",
        ),
        (
            {"control_plane_listener_name": "CONTROL", "advertised_listeners": "OUT://h:9092,IN://h:9093"},
            "control.plane.listener.name must be a listener name defined in advertised.listeners."
            + " The valid options based on currently configured listeners are OUT,IN",
        ),
        (
            {"control_plane_listener_name": "IN"},
            "control.plane.listener.name, when defined, should have a different value from the inter broker listener name."
            + " Currently they both have the value IN",
        ),
    ],
)
def test_a_listener_that_cannot_be_the_controllers_is_refused_in_kafkas_words(more: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError) as refused:
        load_config(member("SSL", **more))
    assert str(refused.value) == words


def test_settings_in_a_file_are_read_for_the_listener_among_brokers(tmp_path: Path) -> None:
    path = tmp_path / "broker.pem"
    path.write_bytes(BROKER.key_pem + BROKER.certificate_pem)
    own = {
        "listener.name.in.ssl.keystore.type": "PEM",
        "listener.name.in.ssl.keystore.location": str(path),
        "listener.name.in.ssl.truststore.type": "PEM",
        "listener.name.in.ssl.truststore.certificates": AUTHORITY.certified.certificate_pem.decode(),
        "listener.name.in.ssl.endpoint.identification.algorithm": "",
        "ssl.endpoint.identification.algorithm": "https",
    }
    made = TlsListener("IN", "SSL", own, is_between_brokers=True)
    assert not made.to_others.context.check_hostname
    assert made.to_others.context.verify_mode is ssl.CERT_REQUIRED
