"""This broker logs in at another one before it asks anything."""

import logging
from collections.abc import AsyncIterator

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from ottla.replication.cluster.peers import PeerUnavailable
from ottla.server.config.broker_config import ConfigError, load_config
from ottla.server.config.sasl_rules import PeerLoginConfig
from ottla.server.peers.tcp import TcpPeer, TcpPeers
from ottla.server.security.mechanism import LoginFailed, LoginRefused, PlainServer, PlainUsers
from ottla.server.security.peer_login import PeerLogin
from ottla.server.security.sasl_exchange import AuthenticationFailed, OfferedMechanism, SaslExchange
from ottla.server.security.scram import ScramServer
from ottla.server.security.scram_credentials import credential_of, encode_credential, salted_password
from ottla.server.security.scram_users import ScramUsers
from ottla.server.tests.administered import at_once
from ottla.server.tests.peers.test_peers import LONG, Broker, Caller, Outcome, answer, answer_to, heartbeat
from ottla.wire.messages.classic_group import HeartbeatResponse
from ottla.wire.messages.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)

MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
PASSWORD = "brokers-secret"


def mechanism(name: str, max_reauth_ms: int = 0) -> OfferedMechanism:
    if name == "PLAIN":
        users = PlainUsers({"user_broker": PASSWORD})
        return OfferedMechanism(lambda: PlainServer(users), max_reauth_ms)
    scram = ScramUsers()
    salted = salted_password(name, PASSWORD, b"salt", 4096)
    scram.put("broker", {name: encode_credential(credential_of(name, salted, b"salt", 4096))})
    return OfferedMechanism(lambda: ScramServer(name, scram, lambda: "s"), max_reauth_ms)


def login(name: str, password: str = PASSWORD) -> PeerLogin:
    return PeerLogin(PeerLoginConfig(mechanism=name, name="broker", password=password), at_once)


class Asked:
    """The other broker's side of one login, without a network."""

    def __init__(self, *names: str, max_reauth_ms: int = 0) -> None:
        self.exchange = SaslExchange({name: mechanism(name, max_reauth_ms) for name in names})

    async def ask(self, request, version):
        kind = SaslHandshakeRequest if isinstance(request, SaslHandshakeRequest) else SaslAuthenticateRequest
        self.exchange.expect(kind.api_key)
        try:
            if isinstance(request, SaslHandshakeRequest):
                return self.exchange.on_handshake(request.mechanism, version)
            return self.exchange.on_token(bytes(request.auth_bytes), 0)
        except AuthenticationFailed as failed:
            return failed.answer


@pytest.mark.parametrize("name", MECHANISMS)
async def test_it_logs_in(name: str):
    there = Asked(*MECHANISMS, max_reauth_ms=7_000)
    assert await login(name).log_in(there.ask) == 7_000
    assert there.exchange.login.principal == "User:broker"
    there = Asked(name)
    assert await login(name).log_in(there.ask) == 0


@pytest.mark.parametrize("name", MECHANISMS)
async def test_it_is_refused(name: str):
    with pytest.raises(LoginRefused, match=f"the login by {name} is refused: SASL_AUTHENTICATION_FAILED") as refused:
        await login(name, "wrong-secret").log_in(Asked(name).ask)
    assert "wrong-secret" not in str(refused.value)
    with pytest.raises(LoginRefused, match=f"mechanism {name} is refused: UNSUPPORTED_SASL_MECHANISM"):
        await login(name).log_in(Asked(*({*MECHANISMS} - {name})).ask)


async def test_a_broker_that_does_not_know_the_password_is_found_out():
    async def ask(request, version):
        if isinstance(request, SaslHandshakeRequest):
            return SaslHandshakeResponse(error_code=0, mechanisms=[])
        nonce = bytes(request.auth_bytes).split(b"r=")[1].split(b",")[0]
        first = b"r=" + nonce + b"x,s=c2FsdA==,i=4096"
        told = first if bytes(request.auth_bytes).startswith(b"n,,") else b"v=AAAA"
        return SaslAuthenticateResponse(error_code=0, error_message=None, auth_bytes=told)

    with pytest.raises(LoginFailed, match="signature"):
        await login("SCRAM-SHA-256").log_in(ask)


@given(st.sampled_from(MECHANISMS), st.lists(st.binary(max_size=100) | st.just(b"r=x,s=c2FsdA==,i=4096"), max_size=5))
def test_whatever_it_is_answered_it_comes_to_an_end(name: str, tokens: list[bytes]):
    given_ = iter([*tokens, *[b""] * 5])

    async def ask(request, version):
        if isinstance(request, SaslHandshakeRequest):
            return SaslHandshakeResponse(error_code=0, mechanisms=[])
        return SaslAuthenticateResponse(error_code=0, error_message=None, auth_bytes=next(given_))

    async def run():
        try:
            await login(name).log_in(ask)
        except (LoginFailed, LoginRefused):
            return

    trio.run(run)


# ---------------------------------------------------------------------- over a connection


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    async with Broker(listener) as broker:
        yield broker


@pytest.fixture
async def peer(broker: Broker) -> AsyncIterator[TcpPeer]:
    made = TcpPeers(log_in=login("PLAIN").log_in).to(broker.endpoint, client_id="c")
    yield made
    await made.aclose()


async def let_in(caller: Caller, **answered: object) -> bytes:
    """The token that came."""
    header, _ = await caller.receive(SaslHandshakeRequest)
    await caller.send(answer(header, SaslHandshakeResponse(error_code=0, mechanisms=["PLAIN"])))
    header, request = await caller.receive(SaslAuthenticateRequest)
    values = {"error_code": 0, "error_message": None, "auth_bytes": b""} | answered
    await caller.send(answer(header, SaslAuthenticateResponse(**values)))
    return bytes(request.auth_bytes)


async def test_a_connection_begins_with_the_login(peer: TcpPeer, broker: Broker, nursery: trio.Nursery):
    outcomes = [Outcome(), Outcome()]
    for number, outcome in enumerate(outcomes):
        nursery.start_soon(outcome.of, lambda number=number: peer.ask(heartbeat(number), 4, timeout_s=LONG))
    caller = await broker.accept()
    assert await let_in(caller) == b"\0broker\0" + PASSWORD.encode()
    for _ in outcomes:
        header, request = await caller.receive()
        await caller.send(answer_to(header, request.generation_id))
    for number, outcome in enumerate(outcomes):
        assert await outcome.result() == HeartbeatResponse(error_code=number)


async def test_a_refusal_is_told_and_the_next_request_tries_again(
    peer: TcpPeer, broker: Broker, nursery: trio.Nursery, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.INFO)
    outcome = Outcome()
    nursery.start_soon(outcome.of, lambda: peer.ask(heartbeat(), 4, timeout_s=LONG))
    caller = await broker.accept()
    await let_in(caller, error_code=58, error_message="no\nbody" + "x" * 30_000)
    refused = await outcome.result()
    assert isinstance(refused, PeerUnavailable) and "cannot log in: the login by PLAIN is refused" in str(refused)
    assert len(caplog.text) < 1_000 and PASSWORD not in caplog.text and await caller.has_hung_up()
    nursery.start_soon(Outcome().of, lambda: peer.ask(heartbeat(1), 4, timeout_s=LONG))
    await let_in(await broker.accept())


async def test_who_hangs_up_during_the_login_is_lost(peer: TcpPeer, broker: Broker, nursery: trio.Nursery):
    outcome = Outcome()
    nursery.start_soon(outcome.of, lambda: peer.ask(heartbeat(), 4, timeout_s=LONG))
    caller = await broker.accept()
    await caller.receive(SaslHandshakeRequest)
    await caller.stream.aclose()
    assert "cannot log in: the broker hung up" in str(await outcome.result())


async def test_a_login_that_nobody_waits_for_is_given_up(peer: TcpPeer, broker: Broker, nursery: trio.Nursery):
    outcome = Outcome()
    nursery.start_soon(outcome.of, lambda: peer.ask(heartbeat(), 4, timeout_s=LONG))
    caller = await broker.accept()
    await caller.receive(SaslHandshakeRequest)
    await peer.aclose()
    assert "closed" in str(await outcome.result()) and await caller.has_hung_up()


async def test_another_connection_takes_over_before_the_session_ends(
    mock_clock: trio.testing.MockClock, peer: TcpPeer, broker: Broker, nursery: trio.Nursery
):
    async def ask() -> Outcome:
        outcome = Outcome()
        nursery.start_soon(outcome.of, lambda: peer.ask(heartbeat(), 4, timeout_s=10 * LONG))
        await trio.lowlevel.checkpoint()
        return outcome

    async def answered(caller: Caller, outcome: Outcome) -> None:
        header, _ = await caller.receive()
        await caller.send(answer_to(header))
        assert await outcome.result() == HeartbeatResponse(error_code=0)

    outcome = await ask()
    first = await broker.accept()
    await let_in(first, session_lifetime_ms=100_000)
    await answered(first, outcome)
    mock_clock.jump(84)
    await answered(first, await ask())
    mock_clock.jump(2)
    outcome = await ask()
    second = await broker.accept()
    await let_in(second)
    await answered(second, outcome)
    assert await first.has_hung_up()


# ---------------------------------------------------------------------- settings

MEMBER = {
    "broker.id": "1",
    "zookeeper.connect": "127.0.0.1:2181",
    "listeners": "OUT://127.0.0.1:9092,IN://127.0.0.1:9093",
    "listener.security.protocol.map": "OUT:PLAINTEXT,IN:SASL_PLAINTEXT",
    "inter.broker.listener.name": "IN",
    "sasl.enabled.mechanisms": "SCRAM-SHA-512,PLAIN",
    "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
    "listener.name.in.plain.sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule required;",
}
LINE = "listener.name.in.scram-sha-512.sasl.jaas.config"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"


def test_the_line_of_the_listener_says_who_logs_in():
    config = load_config({**MEMBER, LINE: f'{SCRAM_MODULE} required username="b" password="hunter2";'})
    assert config.peer_logins == {"IN": PeerLoginConfig(mechanism="SCRAM-SHA-512", name="b", password="hunter2")}
    assert "hunter2" not in repr(config.peer_logins)
    assert load_config({**MEMBER, "inter.broker.listener.name": "OUT"}).peer_logins == {}


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        ({}, f"{LINE}: brokers log in at each other"),
        ({LINE: f'{SCRAM_MODULE} required username="hunter2";'}, f"{LINE}: brokers log in at each other"),
        (
            {"sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-256"},
            "sasl.mechanism.inter.broker.protocol=SCRAM-SHA-256: must be one of the mechanisms enabled on listener IN",
        ),
    ],
)
def test_what_is_missing_is_named(texts: dict[str, str], words: str):
    with pytest.raises(ConfigError) as refused:
        load_config({**MEMBER, **texts})
    assert words in str(refused.value) and "hunter2" not in str(refused.value)
