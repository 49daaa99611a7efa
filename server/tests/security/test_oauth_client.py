"""Tokens by which this broker logs in at others: settings, where they come from, when they are replaced, and the exchange."""

import base64
import contextlib
import json
import logging
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import h11
import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from ottla.server.config.broker_config import ConfigError, load_config
from ottla.server.config.login_rules import ClientCredentials, OAuthLogin, RefreshRules, TokenFile, UnsecuredLogin
from ottla.server.config.sasl_rules import PeerLoginConfig
from ottla.server.config.token_rules import UnsecuredTokenRules
from ottla.server.security.mechanism import LoginFailed, LoginRefused
from ottla.server.security.oauth import login_tokens
from ottla.server.security.oauth.bearer import OAuthBearerClient, OAuthBearerServer
from ottla.server.security.oauth.login_tokens import LoginToken, LoginTokens, checked, replace_ms, retrieve
from ottla.server.security.oauth.token_requests import FailedRetrieval, headers_of, token_of, unsecured_token
from ottla.server.security.oauth.tokens import UnsecuredTokens
from ottla.server.security.peer_login import PeerLogin
from ottla.server.security.sasl_exchange import AuthenticationFailed, OfferedMechanism, SaslExchange
from ottla.server.tests.administered import at_once
from ottla.server.tests.oauth_issuer import CLAIMS, NOW_MS, NOW_S, unsigned
from ottla.wire.messages.sasl import SaslHandshakeRequest

SECRET = "hunter2-of-oauth"
KAFKAS = "org.apache.kafka.common.security.oauthbearer."
OWN = "listener.name.in.oauthbearer."
HANDLER, LINE, URL = (
    f"{OWN}sasl.login.callback.handler.class",
    f"{OWN}sasl.jaas.config",
    "sasl.oauthbearer.token.endpoint.url",
)
MODULE = f"{KAFKAS}OAuthBearerLoginModule"
MEMBER = {
    "broker.id": "1",
    "zookeeper.connect": "127.0.0.1:2181",
    "listeners": "OUT://127.0.0.1:9092,IN://127.0.0.1:9093",
    "listener.security.protocol.map": "OUT:PLAINTEXT,IN:SASL_PLAINTEXT",
    "inter.broker.listener.name": "IN",
    "sasl.enabled.mechanisms": "OAUTHBEARER",
    "sasl.mechanism.inter.broker.protocol": "OAUTHBEARER",
    f"{OWN}sasl.server.callback.handler.class": f"{KAFKAS}internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler",
    HANDLER: f"{KAFKAS}OAuthBearerLoginCallbackHandler",
}
GOOD = {
    URL: "https://issuer.example/token",
    "sasl.oauthbearer.client.credentials.client.id": "broker",
    "sasl.oauthbearer.client.credentials.client.secret": SECRET,
}


def login_of(texts: dict[str, str]) -> OAuthLogin:
    found = load_config({**MEMBER, **texts}).peer_logins["IN"].tokens
    assert found is not None
    return found


def without(name: str) -> dict[str, str]:
    return {each: text for each, text in GOOD.items() if each != name}


# ---------------------------------------------------------------------- settings


def test_a_server_and_a_secret():
    texts = {
        "sasl.oauthbearer.scope": " a b ",
        "sasl.login.read.timeout.ms": "7",
        f"{OWN}sasl.login.retry.backoff.ms": "8",
    }
    login = login_of(GOOD | texts)
    source = login.source
    assert isinstance(source, ClientCredentials) and source.tls is not None
    assert (source.url, source.client_id, source.client_secret, source.scope) == (GOOD[URL], "broker", SECRET, "a b")
    assert (source.connect_timeout_ms, source.read_timeout_ms, source.retry_backoff_ms) == (None, 7, 8)
    assert login.refresh == RefreshRules(window_factor=0.8, window_jitter=0.05, min_period_s=60, buffer_s=300)
    assert SECRET not in repr(login)


def test_earlier_releases_had_it_in_the_jaas_line():
    line = f'{MODULE} required clientId="b" clientSecret="{SECRET}" scope="x" extension_traceId="1";'
    login = login_of({URL: "http://127.0.0.1/", LINE: line})
    assert isinstance(login.source, ClientCredentials)
    assert (login.source.client_id, login.source.scope, login.source.tls) == ("b", "x", None)
    assert login.extensions == {"traceId": "1"}
    both = login_of(GOOD | {LINE: line}).source
    assert isinstance(both, ClientCredentials) and both.client_id == "broker"


def test_a_file():
    assert login_of({URL: "file:///etc/a%20token"}).source == TokenFile(path="/etc/a token")
    login_of({URL: "file:///x", "sasl.oauthbearer.jwt.retriever.class": f"{KAFKAS}FileJwtRetriever"})


def test_a_token_that_nobody_signs_has_to_be_asked_for():
    line = (
        f'{MODULE} required unsecuredLoginStringClaim_sub="b" unsecuredLoginNumberClaim_n="1.5"'
        ' unsecuredLoginListClaim_scope="|a|b" unsecuredLoginLifetimeSeconds="9" unsecuredLoginExtension_x="y";'
    )
    for handler in ({}, {HANDLER: f"{KAFKAS}internals.unsecured.OAuthBearerUnsecuredLoginCallbackHandler"}):
        member = {name: text for name, text in MEMBER.items() if name != HANDLER}
        login = load_config({**member, **handler, LINE: line}).peer_logins["IN"].tokens
        assert login is not None and login.extensions == {"x": "y"}
        claims = {"sub": "b", "n": 1.5, "scope": ("a", "b")}
        assert login.source == UnsecuredLogin(claims=claims, lifetime_s=9, subject_claim="sub")


UNSECURED = f"{KAFKAS}internals.unsecured.OAuthBearerUnsecuredLoginCallbackHandler"


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        ({HANDLER: "org.example.Own"}, f"{HANDLER}=org.example.Own: it is not known"),
        (without(URL), f"{OWN}{URL}: OAUTHBEARER needs this setting"),
        (GOOD | {URL: "ftp://x/"}, "must be an address"),
        (GOOD | {URL: f"https://u:{SECRET}@x/"}, "no place for a password"),
        (
            without("sasl.oauthbearer.client.credentials.client.id"),
            "client.id: it has to be given, or the option clientId",
        ),
        (
            without("sasl.oauthbearer.client.credentials.client.secret"),
            f"{OWN}sasl.oauthbearer.client.credentials.client.secret: it has to be given",
        ),
        (GOOD | {"sasl.oauthbearer.jwt.retriever.class": "x.Y"}, "it is not known"),
        (GOOD | {"sasl.oauthbearer.jwt.retriever.class": f"{KAFKAS}FileJwtRetriever"}, "it is no address for"),
        (GOOD | {"sasl.oauthbearer.assertion.file": "/x"}, "signed assertions are not served"),
        (GOOD | {LINE: f'{MODULE} required extension_auth="x";'}, "extension 'auth'"),
        (GOOD | {LINE: f'{MODULE} required extension_a="\u0001{SECRET}";'}, "extension 'a'"),
        ({HANDLER: UNSECURED}, "unsecuredLoginStringClaim_sub has to be given"),
        (
            {HANDLER: UNSECURED, LINE: f'{MODULE} required unsecuredLoginStringClaim_exp="1";'},
            "explicitly set the 'exp'",
        ),
        ({HANDLER: UNSECURED, LINE: f'{MODULE} required unsecuredLoginNumberClaim_x="nan";'}, "is no number"),
        ({HANDLER: UNSECURED, LINE: f'{MODULE} required unsecuredLoginXClaim_x="1";'}, "is no option of Kafka's"),
        ({HANDLER: UNSECURED, LINE: f'{MODULE} required unsecuredLoginLifetimeSeconds="0";'}, "positive number"),
    ],
)
def test_what_is_wrong_is_told_in_one_line(texts: dict[str, str], words: str):
    with pytest.raises(ConfigError) as refused:
        login_of(texts)
    assert words in str(refused.value) and SECRET not in str(refused.value) and "\n" not in str(refused.value)


def test_nobody_logs_in_without_having_been_told_how():
    member = {name: text for name, text in MEMBER.items() if name != HANDLER}
    with pytest.raises(ConfigError, match="a login by OAUTHBEARER needs this setting"):
        load_config(member)


# ---------------------------------------------------------------------- where tokens come from


class Issuer:
    """A server that says what it is told to, and keeps what it was asked."""

    def __init__(self) -> None:
        self.answers: list[tuple[int, bytes]] = []
        self.asked: list[tuple[dict[bytes, bytes], bytes]] = []
        self.port = 0

    async def serve(self, task_status: Any) -> None:
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        self.port = listener.socket.getsockname()[1]
        await trio.serve_listeners(self._answer, [listener], task_status=task_status)

    async def _answer(self, stream: trio.SocketStream) -> None:
        connection, body = h11.Connection(h11.SERVER), b""
        while not isinstance(event := connection.next_event(), h11.EndOfMessage):
            if event is h11.NEED_DATA:
                connection.receive_data(await stream.receive_some(10_000))
            elif isinstance(event, h11.Request):
                headers = dict(event.headers.raw_items())
            elif isinstance(event, h11.Data):
                body += bytes(event.data)
        self.asked.append(({name.lower(): value for name, value in headers.items()}, body))
        status, said = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        length = [("Content-Length", str(len(said)))]
        with contextlib.suppress(trio.BrokenResourceError):  # who asks may have heard enough
            for each in (h11.Response(status_code=status, headers=length), h11.Data(data=said), h11.EndOfMessage()):
                await stream.send_all(connection.send(each))
        await stream.aclose()


@pytest.fixture
async def issuer(nursery: trio.Nursery) -> AsyncIterator[Issuer]:
    issuer = Issuer()
    await nursery.start(issuer.serve)
    yield issuer


def credentials(issuer: Issuer, **changed: Any) -> ClientCredentials:
    usual: dict[str, Any] = {
        "url": f"http://127.0.0.1:{issuer.port}/token?a=b",
        "client_id": "broker",
        "client_secret": SECRET,
        "scope": None,
        "encodes_header": False,
        "tls": None,
        "connect_timeout_ms": None,
        "read_timeout_ms": None,
        "retry_backoff_ms": 1,
        "retry_backoff_max_ms": 60_000,
    }
    return ClientCredentials(**(usual | changed))


def given_out(token: str) -> bytes:
    return json.dumps({"access_token": token, "expires_in": 600}).encode()


async def test_a_server_gives_out_a_token_for_a_secret(issuer: Issuer):
    issuer.answers = [(200, given_out(unsigned()))]
    assert await retrieve(credentials(issuer, scope="a b/c"), None, 0) == unsigned()
    headers, body = issuer.asked[0]
    assert headers[b"authorization"] == b"Basic YnJva2VyOmh1bnRlcjItb2Ytb2F1dGg="
    assert headers[b"content-type"] == b"application/x-www-form-urlencoded"
    assert body == b"grant_type=client_credentials&scope=a+b%2Fc"


def test_a_secret_may_be_encoded_for_the_header():
    issuer = Issuer()
    for encodes, expected in ((False, b"a/b:c d"), (True, b"a%2Fb:c+d")):
        source = credentials(issuer, client_id="a/b", client_secret="c d", encodes_header=encodes)
        assert base64.b64decode(headers_of(source)[0][1].removeprefix("Basic ")) == expected
    texts = {f"{OWN}sasl.oauthbearer.header.urlencode": "true"}
    source = login_of(GOOD | texts).source
    assert isinstance(source, ClientCredentials) and source.encodes_header


async def test_a_server_with_a_fault_of_its_own_is_asked_again(issuer: Issuer):
    issuer.answers = [(503, b""), (408, b"x"), (200, given_out(unsigned()))]
    assert await retrieve(credentials(issuer), None, 0) == unsigned()
    assert len(issuer.asked) == 3


@pytest.mark.parametrize(
    ("status", "body", "words"),
    [
        (401, b'{"error": "invalid_client", "error_description": "x"}', r"status 401 \(invalid_client\)"),
        (400, b'{"error": "\\nbad"}', "status 400$"),
        (302, b"", "status 302$"),
        (200, b"[]", "is no JSON object"),
        (200, b"{}", "holds no token"),
        (200, b'{"access_token": 7}', "holds no token"),
        (200, b'{"access_token": "a b"}', "what came for a token is none"),
        (200, given_out("a" * 70_000), "more than 65536 characters"),
        (200, b"x" * (1 << 21), "more than"),
        (200, b"[" * 100_000, "is no JSON object"),
    ],
)
async def test_what_a_server_says_instead_is_told(issuer: Issuer, status: int, body: bytes, words: str):
    issuer.answers = [(status, body)]
    with pytest.raises(FailedRetrieval, match=words):
        await retrieve(credentials(issuer, retry_backoff_max_ms=0), None, 0)
    assert len(issuer.asked) == 1


async def test_a_server_that_does_not_answer_is_given_up(nursery: trio.Nursery):
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    issuer = Issuer()
    issuer.port = listener.socket.getsockname()[1]
    with pytest.raises(FailedRetrieval, match="there is nothing of an answer for 0.05 s"):
        await retrieve(credentials(issuer, read_timeout_ms=50, retry_backoff_max_ms=0), None, 0)
    await listener.aclose()
    with pytest.raises(FailedRetrieval, match="the server cannot be asked"):
        await retrieve(credentials(issuer, retry_backoff_max_ms=0), None, 0)


async def test_a_file_holds_a_token(tmp_path: Path):
    path = tmp_path / "token"
    path.write_text(f" {unsigned()}\n")
    assert await retrieve(TokenFile(path=str(path)), None, 0) == unsigned()
    path.write_bytes(b"\xff" * 100_000)
    for address, words in (
        (str(path), "more than 65536 characters"),
        (str(tmp_path), "it is no file"),
        (f"{path}-none", "there is no such file"),
    ):
        with pytest.raises(FailedRetrieval, match=words):
            await retrieve(TokenFile(path=address), None, 0)


@given(
    st.binary(max_size=200)
    | st.builds(
        lambda name, value: json.dumps({name: value}).encode(),
        st.sampled_from(["access_token", "x"]),
        st.text() | st.none(),
    )
)
def test_any_answer_holds_a_token_or_none(body: bytes):
    with contextlib.suppress(FailedRetrieval):
        assert token_of(body).strip()


@given(st.text("eyJ.-_=ab", max_size=60) | st.text(max_size=40))
def test_any_text_is_a_token_or_none(text: str):
    with contextlib.suppress(FailedRetrieval):
        checked(text, "sub", NOW_MS)


# ---------------------------------------------------------------------- how long they last


def token(starts_s: int, expires_s: int) -> LoginToken:
    return LoginToken("t", starts_s * 1000, expires_s * 1000)


# As Kafka's ExpiringCredentialRefreshingLogin does: window 0.8, no jitter, 60 s at least, 300 s kept free at the end.
@pytest.mark.parametrize(
    ("made", "at_s"),
    [
        (token(0, 3600), 2880),
        (token(0, 1000), 700),  # 800 would be in the time that is kept free
        (token(-1000, 400), 100),  # ... as would 120
        (token(-4000, 400), 60),  # the share is over already
        (token(0, 300), 240),  # neither time fits
        (token(0, 10), 8),
    ],
)
def test_when_a_token_is_replaced(made: LoginToken, at_s: int):
    rules = RefreshRules(window_factor=0.8, window_jitter=0.0, min_period_s=60, buffer_s=300)
    assert replace_ms(made, rules, 0, 0.5) == at_s * 1000


def test_chance_spreads_the_replacements():
    rules = RefreshRules(window_factor=0.8, window_jitter=0.1, min_period_s=0, buffer_s=0)
    assert [replace_ms(token(0, 1000), rules, 0, chance) for chance in (0.0, 0.5)] == [800_000, 850_000]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a.b", "what came for a token is none: the token has not three parts"),
        (unsigned(CLAIMS | {"sub": ""}), "names no user"),
        (unsigned({"sub": "a"}), "does not say when it expires"),
        (unsigned(CLAIMS | {"exp": NOW_S}), "the token has expired"),
        (unsigned(CLAIMS | {"iat": "x"}), "iat is no number"),
    ],
)
def test_a_token_that_nobody_would_take_is_not_shown(text: str, words: str):
    with pytest.raises(FailedRetrieval, match=words):
        checked(text, "sub", NOW_MS)


class Clock:
    def __init__(self) -> None:
        self.ms = NOW_MS

    def __call__(self) -> int:
        return self.ms


class Given:
    """Tokens that come one after the other; an error instead of one is raised."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
        self.count, self.failure, self.clock = 0, "", clock
        self.hangs = False
        monkeypatch.setattr(login_tokens, "retrieve", self.retrieve)

    async def retrieve(self, *_: object) -> str:
        self.count += 1
        if self.hangs:
            await trio.sleep_forever()
        if self.failure:
            raise FailedRetrieval(self.failure)
        return unsigned({"sub": f"user-{self.count}", "iat": self.clock.ms / 1000, "exp": self.clock.ms / 1000 + 1000})


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def tokens_given(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> Given:
    return Given(monkeypatch, clock)


@pytest.fixture
def tokens(clock: Clock, tokens_given: Given) -> LoginTokens:
    refresh = RefreshRules(window_factor=0.8, window_jitter=0.0, min_period_s=60, buffer_s=100)
    login = OAuthLogin(source=TokenFile(path="/"), refresh=refresh, extensions={}, subject_claim="sub")
    return LoginTokens(login, clock_ms=clock, chance=lambda: 0.5)


async def test_a_token_serves_many_logins_and_is_replaced_in_time(
    tokens: LoginTokens, clock: Clock, tokens_given: Given
):
    first = await tokens.current()
    clock.ms += 799_000
    assert await tokens.current() == first and tokens_given.count == 1
    clock.ms += 2_000
    second = await tokens.current()
    assert second != first and await tokens.current() == second and tokens_given.count == 2


async def test_a_token_is_used_as_long_as_it_lasts(
    tokens: LoginTokens, clock: Clock, tokens_given: Given, caplog: pytest.LogCaptureFixture
):
    first = await tokens.current()
    tokens_given.failure = "the server is away"
    clock.ms += 900_000
    for _ in range(3):
        assert await tokens.current() == first
    assert tokens_given.count == 2 and "good for another 100 s, cannot be replaced: the server is away" in caplog.text
    clock.ms += 11_000
    assert await tokens.current() == first and tokens_given.count == 3
    clock.ms += 100_000
    with pytest.raises(LoginFailed, match="there is no token: the server is away"):
        await tokens.current()
    tokens_given.failure = ""
    assert await tokens.current() != first
    assert "eyJ" not in caplog.text


async def test_a_login_does_not_wait_long_while_its_token_is_good(
    tokens: LoginTokens, clock: Clock, tokens_given: Given, autojump_clock: trio.testing.MockClock
):
    first = await tokens.current()
    tokens_given.hangs = True
    clock.ms += 900_000
    began_s = trio.current_time()
    assert await tokens.current() == first
    assert trio.current_time() - began_s == pytest.approx(login_tokens.REPLACED_WITHIN_S)


async def test_logins_at_one_time_ask_once(tokens: LoginTokens, tokens_given: Given):
    found: list[LoginToken] = []

    async def one() -> None:
        found.append(await tokens.current())

    async with trio.open_nursery() as nursery:
        for _ in range(5):
            nursery.start_soon(one)
    assert len(set(found)) == 1 and tokens_given.count == 1


# ---------------------------------------------------------------------- the exchange

RULES = UnsecuredTokenRules(principal_claim="sub", scope_claim="scope", required_scope=("all",), clock_skew_ms=0)


def unsecured(**claims: str) -> OAuthLogin:
    refresh = RefreshRules(window_factor=0.8, window_jitter=0.0, min_period_s=0, buffer_s=0)
    source = UnsecuredLogin(claims=claims, lifetime_s=600, subject_claim="sub")
    return OAuthLogin(source=source, refresh=refresh, extensions={"traceId": "7"}, subject_claim="sub")


def asking(exchange: SaslExchange, clock: Callable[[], int]) -> Any:
    async def ask(request: Any, version: int) -> Any:
        try:
            if isinstance(request, SaslHandshakeRequest):
                return exchange.on_handshake(request.mechanism, version)
            return exchange.on_token(bytes(request.auth_bytes), clock())
        except AuthenticationFailed as failed:
            return failed.answer

    return ask


async def test_brokers_log_in_by_tokens(caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.DEBUG)
    offered = {"OAUTHBEARER": OfferedMechanism(lambda: OAuthBearerServer(UnsecuredTokens(RULES)))}
    clock = login_tokens.time.time_ns
    exchange = SaslExchange(offered)
    login = PeerLogin(PeerLoginConfig(mechanism="OAUTHBEARER", tokens=unsecured(sub="broker", scope="all")), at_once)
    lifetime_ms = await login.log_in(asking(exchange, lambda: clock() // 1_000_000))
    assert 0 < lifetime_ms <= 600_000
    assert exchange.login is not None and exchange.login.principal == "User:broker"
    wrong = PeerLogin(PeerLoginConfig(mechanism="OAUTHBEARER", tokens=unsecured(sub="broker", scope="less")), at_once)
    with pytest.raises(LoginRefused, match="insufficient_scope"):
        await wrong.log_in(asking(SaslExchange(offered), lambda: clock() // 1_000_000))
    assert "eyJ" not in caplog.text


def test_the_message_is_the_one_of_the_rfc():
    client = OAuthBearerClient("t.t.t", {"a": "b", "c": "d"})
    assert client.step(b"") == b"n,,\x01auth=Bearer t.t.t\x01a=b\x01c=d\x01\x01"
    assert client.step(b"") == b"" and client.is_complete
    assert OAuthBearerClient("t", {}).step(b"") == b"n,,\x01auth=Bearer t\x01\x01"


@given(st.lists(st.binary(max_size=20), min_size=1, max_size=5))
def test_whatever_a_broker_answers_it_comes_to_an_end(answers: list[bytes]):
    client = OAuthBearerClient("t", {})
    client.step(b"")
    for number, answer in enumerate(answers):
        try:
            said = client.step(answer)
        except LoginFailed:
            assert number == 1
            return
        if client.is_complete:
            assert number == 0 and answer == b""
            return
        assert said == b"\x01" and number == 0


def test_a_token_that_nobody_signs_is_kafkas():
    text = unsecured_token(UnsecuredLogin(claims={"sub": "b", "l": ("x",)}, lifetime_s=60, subject_claim="sub"), NOW_MS)
    judged = UnsecuredTokens(
        UnsecuredTokenRules(principal_claim="sub", scope_claim="l", required_scope=("x",), clock_skew_ms=0)
    )
    assert judged(text, NOW_MS + 1) == ("b", NOW_MS + 60_000)
