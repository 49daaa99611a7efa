"""A connection of a SASL listener: what is served before authentication, how it fails, and how it is done anew."""

import socket
import struct
from collections.abc import AsyncIterator, Callable
from types import SimpleNamespace

import pytest
import trio
import trio.testing
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ottla.server.api.handlers.sasl import sasl_authenticate, sasl_handshake
from ottla.server.config.broker_config import load_config
from ottla.server.config.repository import ConfigRepository, Overrides
from ottla.server.config.sasl_rules import sasl_of_listener
from ottla.server.dispatch.dispatch import CloseConnection
from ottla.server.network import authentication
from ottla.server.network.calls import Calls
from ottla.server.network.connection import Connection
from ottla.server.network.readiness import Readiness
from ottla.server.network.transport import PlainTransport
from ottla.server.security.sasl_exchange import AuthenticationFailed, SaslExchange, State
from ottla.server.security.sasl_listener import (
    ADDRESSES_MAX,
    ALL_MAX,
    OF_ONE_ADDRESS_MAX,
    FailedLogins,
    SaslListener,
    UnauthenticatedPeers,
)
from ottla.server.security.scram import ScramClient
from ottla.server.security.scram_credentials import credential_of, encode_credential, salted_password
from ottla.server.security.scram_users import ScramUsers
from ottla.server.tests.network.test_connection import Peer, heartbeat, request
from ottla.server.tests.routes import listener_of, route_of
from ottla.wire.errors import ErrorCode
from ottla.wire.happenings import LOGIN_FAILED, Happenings
from ottla.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.wire.messages.classic_group import HeartbeatRequest, HeartbeatResponse
from ottla.wire.messages.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from ottla.wire.schema import Message
from ottla.wire.settings import InvalidSetting
from ottla.wire.tests.effort import examples

PASSWORD = "alices-secret"
SETTINGS = {
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
    "connection.failed.authentication.delay.ms": "0",
    "plain.sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule required"
    f' user_alice="{PASSWORD}" user_bob="bobs-secret";',
}


class Served:
    """One connection with the peer at its other end, and what its requests were answered with."""

    def __init__(self, texts: dict[str, str]) -> None:
        self.principals: list[str] = []
        self.users = ScramUsers()
        salted = salted_password("SCRAM-SHA-256", PASSWORD, b"salt", 4096)
        kept = encode_credential(credential_of("SCRAM-SHA-256", salted, b"salt", 4096))
        self.users.put("alice", {"SCRAM-SHA-256": kept})
        config = sasl_of_listener({**SETTINGS, **texts}, "SASL")
        self.listener = SaslListener(config, self.users, FailedLogins(), UnauthenticatedPeers())
        routes = {
            12: route_of(HeartbeatRequest, HeartbeatRequest.versions, self.heartbeat),
            17: route_of(SaslHandshakeRequest, SaslHandshakeRequest.versions, sasl_handshake),
            18: route_of(ApiVersionsRequest, ApiVersionsRequest.versions, self.api_versions),
            36: route_of(SaslAuthenticateRequest, SaslAuthenticateRequest.versions, sasl_authenticate),
        }
        self.calls = Calls(routes)

    def heartbeat(self, request, context):
        self.principals.append(context.principal)
        return HeartbeatResponse(error_code=request.generation_id)

    def api_versions(self, request, context):
        known = context.api_version in ApiVersionsRequest.versions
        return ApiVersionsResponse(error_code=0 if known else 35, api_keys=[])

    def connect(self, nursery: trio.Nursery, readiness: Readiness) -> "Client":
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        secured = {"name": "SASL", "security_protocol": "SASL_PLAINTEXT", "sasl": self.listener}
        listener = listener_of(self.calls, readiness, **secured)
        nursery.start_soon(Connection(PlainTransport(ours), "10.0.0.1", listener).run)
        return Client(trio.SocketStream(trio.socket.from_stdlib_socket(theirs)))


class Client(Peer):
    """The other end, in messages."""

    async def ask(self, message: Message, version: int) -> Message | None:
        cls = type(message)
        flexible = version in cls.flexible
        await self.send(request(cls.api_key, version, 7, message.encode(version), flexible=flexible))
        frame = await self.frame()
        if frame is None:
            return None
        response = RESPONSES[cls]
        assert struct.unpack(">i", frame[:4]) == (7,)
        return response.decode(frame[5 if flexible and cls is not ApiVersionsRequest else 4 :], version)

    async def choose(self, mechanism: str, version: int = 1) -> SaslHandshakeResponse | None:
        return await self.ask(SaslHandshakeRequest(mechanism=mechanism), version)

    async def tell(self, token: bytes, version: int = 2) -> SaslAuthenticateResponse | None:
        return await self.ask(SaslAuthenticateRequest(auth_bytes=token), version)

    async def log_in(self, name: str = "alice", password: str = PASSWORD) -> SaslAuthenticateResponse:
        assert (await self.choose("PLAIN")).error_code == 0
        return await self.tell(f"\0{name}\0{password}".encode())

    async def is_served(self) -> bool:
        await self.send(heartbeat(1, 3))
        return await self.frame() == struct.pack(">iih", 1, 0, 3)


RESPONSES = {
    SaslHandshakeRequest: SaslHandshakeResponse,
    SaslAuthenticateRequest: SaslAuthenticateResponse,
    ApiVersionsRequest: ApiVersionsResponse,
}
VERSIONS = ApiVersionsRequest(client_software_name="a", client_software_version="1")


@pytest.fixture
def texts(request: pytest.FixtureRequest) -> dict[str, str]:
    return getattr(request, "param", {})


@pytest.fixture
def served(texts: dict[str, str]) -> Served:
    return Served(texts)


@pytest.fixture
async def connect(served: Served, nursery: trio.Nursery) -> AsyncIterator[Callable[[], Client]]:
    readiness, clients = Readiness(), []

    def connect() -> Client:
        clients.append(served.connect(nursery, readiness))
        return clients[-1]

    yield connect
    for client in clients:
        await client.stream.aclose()


@pytest.fixture
def client(connect: Callable[[], Client]) -> Client:
    return connect()


WITH_END = pytest.mark.parametrize("texts", [{"connections.max.reauth.ms": "60000"}], indirect=True)


async def test_a_client_asks_for_versions_chooses_and_logs_in(client: Client, served: Served):
    assert (await client.ask(VERSIONS, 3)).error_code == 0
    chosen = await client.choose("PLAIN")
    assert (chosen.error_code, chosen.mechanisms) == (0, ["PLAIN", "SCRAM-SHA-256"])
    told = await client.tell(f"\0alice\0{PASSWORD}".encode(), 1)
    assert (told.error_code, told.auth_bytes, told.session_lifetime_ms) == (0, b"", 0)
    assert await client.is_served()
    assert served.principals == ["User:alice"]


async def test_scram_takes_two_tokens(client: Client, served: Served):
    await client.choose("SCRAM-SHA-256")
    scram = ScramClient("SCRAM-SHA-256", "alice", PASSWORD, "nonce")
    answer = b""
    while not scram.is_complete:
        if token := scram.step(answer):
            answer = (await client.tell(token)).auth_bytes
    assert await client.is_served() and served.principals == ["User:alice"]


async def test_old_clients_send_bare_tokens(client: Client, served: Served):
    assert (await client.choose("PLAIN", 0)).error_code == 0
    token = f"\0alice\0{PASSWORD}".encode()
    await client.send(struct.pack(">i", len(token)) + token)
    assert await client.frame() == b""
    assert await client.is_served() and served.principals == ["User:alice"]


async def test_a_bare_token_that_is_wrong_ends_without_an_answer(client: Client, caplog: pytest.LogCaptureFixture):
    await client.choose("PLAIN", 0)
    await client.send(struct.pack(">i", 8) + b"\0alice\0x")
    assert await client.frame() is None
    assert "failed authentication of 10.0.0.1: Authentication failed: Invalid username" in caplog.text


async def test_requests_right_behind_the_login_are_answered(client: Client):
    await client.choose("PLAIN")
    body = SaslAuthenticateRequest(auth_bytes=f"\0alice\0{PASSWORD}".encode()).encode(1)
    await client.send(request(36, 1, 1, body) + heartbeat(2, 5) + heartbeat(3, 6))
    assert (await client.frame())[:6] == struct.pack(">ih", 1, 0)
    assert await client.frame() == struct.pack(">iih", 2, 0, 5)
    assert await client.frame() == struct.pack(">iih", 3, 0, 6)


async def test_a_wrong_password_is_told_in_kafkas_words(client: Client, caplog: pytest.LogCaptureFixture):
    told = await client.log_in("alice", "hunter2")
    assert told.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert told.error_message == "Authentication failed: Invalid username or password"
    assert await client.frame() is None
    assert "hunter2" not in caplog.text and PASSWORD not in caplog.text and "alice" not in caplog.text


async def test_why_scram_failed_is_not_told(client: Client):
    await client.choose("SCRAM-SHA-256")
    told = await client.tell(b"nonsense")
    assert told.error_message == (
        "Authentication failed during authentication due to invalid credentials with SASL mechanism SCRAM-SHA-256"
    )


async def test_failures_are_logged_once_a_minute(connect: Callable[[], Client], caplog: pytest.LogCaptureFixture):
    for _ in range(5):
        await connect().log_in("alice", "wrong")
    assert caplog.text.count("failed authentication") == 1


async def test_another_mechanism_is_refused_with_the_list(client: Client):
    told = await client.choose("GSSAPI")
    assert (told.error_code, told.mechanisms) == (ErrorCode.UNSUPPORTED_SASL_MECHANISM, ["PLAIN", "SCRAM-SHA-256"])
    assert await client.frame() is None


async def test_nothing_else_is_served_before(client: Client, served: Served):
    assert not await client.is_served()
    assert served.principals == []


async def test_versions_are_told_once_and_as_often_as_they_are_refused(client: Client):
    for _ in range(3):
        assert (await client.ask(ApiVersionsRequest(), 0)) is not None
        break
    assert await client.ask(ApiVersionsRequest(), 0) is None


async def test_an_unknown_version_of_api_versions_may_be_followed_by_another(client: Client):
    await client.send(request(18, 99, 1, b"", flexible=True))
    assert (await client.frame())[4:6] == struct.pack(">h", ErrorCode.UNSUPPORTED_VERSION)
    assert (await client.ask(VERSIONS, 3)).error_code == 0
    assert (await client.log_in()).error_code == 0


@pytest.mark.parametrize("again", [SaslHandshakeRequest(mechanism="PLAIN"), ApiVersionsRequest()])
async def test_in_place_of_a_token_others_are_illegal(client: Client, again: Message):
    await client.choose("PLAIN")
    assert (await client.ask(again, 0)).error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert await client.frame() is None


@pytest.mark.parametrize(
    "frame",
    [
        struct.pack(">i", 600_000),
        struct.pack(">i", -1),
        struct.pack(">i", 2) + b"ab",
        request(36, 0, 1, struct.pack(">i", 0)),
        request(17, 9, 1, b"\0\5PLAIN"),
        request(17, 1, 1, b"\0\x7fPLAIN"),
        request(999, 1, 1, b""),
        b"GET / HTTP/1.1\r\n\r\n",
    ],
)
async def test_what_is_out_of_place_ends_the_connection(client: Client, frame: bytes):
    await client.send(frame)
    assert await client.frame() is None


async def test_after_authentication_both_are_illegal(client: Client):
    await client.log_in()
    assert (await client.choose("PLAIN")).error_code == ErrorCode.ILLEGAL_SASL_STATE
    told = await client.tell(b"")
    assert (told.error_code, told.error_message) == (
        ErrorCode.ILLEGAL_SASL_STATE,
        "SaslAuthenticate request received after successful authentication",
    )
    assert await client.is_served()


# ---------------------------------------------------------------------- sessions with an end


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Both clocks of authentications."""
    clock = SimpleNamespace(s=1_000.0)
    shifted = SimpleNamespace(monotonic=lambda: clock.s, time_ns=lambda: int(clock.s * 1e9))
    monkeypatch.setattr(authentication, "time", shifted)
    return clock


@WITH_END
async def test_a_session_is_told_its_lifetime_and_renewed(client: Client, clock: SimpleNamespace, served: Served):
    assert (await client.log_in()).session_lifetime_ms == 60_000
    for _ in range(3):
        clock.s += 59
        assert await client.is_served()
        assert (await client.log_in()).session_lifetime_ms == 60_000
    assert await client.is_served() and set(served.principals) == {"User:alice"}


@WITH_END
async def test_an_expired_session_ends_with_its_next_request(client: Client, clock: SimpleNamespace):
    await client.log_in()
    clock.s += 60
    assert await client.is_served()
    clock.s += 0.1
    assert not await client.is_served()


@WITH_END
async def test_an_expired_session_can_be_renewed(client: Client, clock: SimpleNamespace):
    await client.log_in()
    clock.s += 61
    assert (await client.log_in()).error_code == 0
    assert await client.is_served()


@WITH_END
async def test_twice_in_a_second_is_illegal(client: Client, clock: SimpleNamespace):
    await client.log_in()
    await client.log_in()
    assert (await client.choose("PLAIN")).error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert await client.is_served()


@WITH_END
async def test_the_principal_stays(client: Client, clock: SimpleNamespace):
    await client.log_in()
    told = await client.log_in("bob", "bobs-secret")
    assert told.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert told.error_message == "Cannot change principals during re-authentication from User.alice: User.bob"
    assert await client.frame() is None


@WITH_END
async def test_the_mechanism_stays(client: Client, clock: SimpleNamespace, caplog: pytest.LogCaptureFixture):
    await client.log_in()
    assert (await client.choose("SCRAM-SHA-256")).error_code == 0
    assert await client.tell(b"n,,n=alice,r=c") is None
    assert (
        "'SCRAM-SHA-256' requested by client is not supported for re-authentication of mechanism 'PLAIN'" in caplog.text
    )


@WITH_END
async def test_nothing_else_is_served_while_it_is_done_anew(client: Client, clock: SimpleNamespace):
    await client.log_in()
    await client.choose("PLAIN")
    assert not await client.is_served()


# ---------------------------------------------------------------------- strangers


async def test_who_does_not_get_on_is_ended(
    client: Client, served: Served, autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
):
    await client.send(b"\0")
    assert await client.frame() is None
    assert trio.current_time() == pytest.approx(authentication.AUTHENTICATION_S)
    assert "not complete after 30 s" in caplog.text


@pytest.mark.parametrize("texts", [{"connection.failed.authentication.delay.ms": "5000"}], indirect=True)
async def test_the_answer_to_a_failure_is_kept_back(
    connect: Callable[[], Client], served: Served, autojump_clock: trio.testing.MockClock
):
    # Code is made in a thread, for which this clock does not wait.
    await served.calls.make(SaslHandshakeRequest.api_key, 1)
    await served.calls.make(SaslAuthenticateRequest.api_key, 2)
    began = trio.current_time()
    told = await connect().log_in("alice", "wrong")
    assert told.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert trio.current_time() - began == pytest.approx(5)


def test_beyond_a_limit_the_oldest_has_to_go():
    strangers, ended = UnauthenticatedPeers(), []
    places = [
        strangers.counted("a", lambda each=number: ended.append(each)) for number in range(OF_ONE_ADDRESS_MAX + 2)
    ]
    for place in places:
        place.__enter__()
    assert ended == [0, 1]
    for place in places:
        place.__exit__(None, None, None)
    assert not strangers._all and not strangers._of_address
    many = [strangers.counted(str(number), lambda each=number: ended.append(each)) for number in range(ALL_MAX + 1)]
    for place in many:
        place.__enter__()
    assert ended == [0, 1, 0]


def test_failed_logins_are_counted_by_address(caplog):
    now = [0.0]
    happenings = Happenings(lambda: int(now[0] * 1000))
    failures = FailedLogins(lambda: now[0], happenings.note)
    for address, reason, now[0] in (("a", "x", 0), ("a", "x", 1), ("a", "x", 59), ("b", "y", 59.5), ("a", "z", 60)):
        failures.note(address, reason)
    assert caplog.messages == [
        "failed authentication of a: x",
        "failed authentication of b: y",
        "failed authentication of a: z (2 more like this since the last line)",
    ]
    assert [(each.kind, each.cause, each.count) for each in happenings] == [
        (LOGIN_FAILED, "a login of a failed: x", 3),
        (LOGIN_FAILED, "a login of b failed: y", 1),
        (LOGIN_FAILED, "a login of a failed: z", 1),
    ]
    for number in range(2 * ADDRESSES_MAX):
        failures.note(str(number), "x")
    assert len(caplog.messages) <= ADDRESSES_MAX + 4


# ---------------------------------------------------------------------- any order of anything


ANY = Served({})


@given(
    st.lists(
        st.sampled_from(
            [12, 17, 18, 36, 3, "PLAIN", "SCRAM-SHA-256", "X", b"\0alice\0" + PASSWORD.encode(), b"", b"n,,n=a,r=c"]
        ),
        max_size=12,
    ),
    st.integers(0, 1),
)
@settings(suppress_health_check=[HealthCheck.too_slow], max_examples=examples(300))
def test_nobody_gets_in_without_a_password(events: list[int | str | bytes], version: int):
    exchange: SaslExchange = ANY.listener.exchange()
    try:
        for event in events:
            if isinstance(event, int):
                exchange.expect(event)
                if event == 18 and not exchange.takes_tokens:
                    exchange.on_versions(is_error=version == 0)
            elif isinstance(event, str) and not exchange.is_complete:
                exchange.expect(17)
                exchange.on_handshake(event, version)
            elif isinstance(event, bytes) and exchange.takes_bare_tokens:
                exchange.on_bare_token(event, 0)
            elif isinstance(event, bytes) and exchange.takes_tokens:
                exchange.on_token(event, 0)
    except (AuthenticationFailed, CloseConnection):
        assert exchange.state is State.FAILED
    assert exchange.is_complete <= (b"\0alice\0" + PASSWORD.encode() in events and "PLAIN" in events)


def repository_of_listener() -> ConfigRepository:
    prefix = "listener.name.sasl."
    given = {"listeners": "SASL://127.0.0.1:0", "listener.security.protocol.map": "SASL:SASL_PLAINTEXT"}
    given |= {"inter.broker.listener.name": "SASL"}
    return ConfigRepository(load_config({**given, **{prefix + name: text for name, text in SETTINGS.items()}}))


async def test_changed_settings_hold_for_the_next_login(connect: Callable[[], Client], served: Served, caplog):
    configs = repository_of_listener()
    served.listener.follow(configs, "SASL")
    first, second = connect(), connect()
    assert (await first.log_in()).error_code == 0
    line = SETTINGS["plain.sasl.jaas.config"].replace("user_alice", "user_carol")
    changed = {"listener.name.sasl.plain.sasl.jaas.config": line, "listener.name.sasl.sasl.enabled.mechanisms": "PLAIN"}
    configs.check({}, changed)
    configs.put_broker(Overrides(changed, 1), for_all=False)
    assert await first.is_served()
    assert (await second.log_in("alice")).error_code == 58
    assert (await connect().log_in("carol")).error_code == 0
    assert (await connect().choose("SCRAM-SHA-256")).mechanisms == ["PLAIN"]
    with pytest.raises(InvalidSetting) as refused:
        configs.check({}, {"listener.name.sasl.plain.sasl.jaas.config": PASSWORD})
    configs.put_broker(Overrides({"listener.name.sasl.plain.sasl.jaas.config": PASSWORD}, 2), for_all=False)
    assert (await connect().log_in("carol")).error_code == 0
    assert "keeps its SASL settings as they were" in caplog.text
    assert PASSWORD not in caplog.text + str(refused.value)
    configs.put_broker(Overrides({}, 3), for_all=False)
    assert (await connect().log_in("alice")).error_code == 0
