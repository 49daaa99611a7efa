"""A connection logs in by a token: what it is told, how long it lasts, what the log says, and which settings may change."""

import json
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trio

from ottla.server.config.broker_config import load_config
from ottla.server.config.repository import ConfigRepository, Overrides
from ottla.server.config.sasl_rules import sasl_of_listener
from ottla.server.network import authentication
from ottla.server.network.readiness import Readiness
from ottla.server.security.oauth.key_sources import KeySources
from ottla.server.security.sasl_listener import FailedLogins, SaslListener, UnauthenticatedPeers
from ottla.server.security.scram_users import ScramUsers
from ottla.server.tests.config.test_oauth_settings import LINE, MODULE, SIGNED, UNSECURED
from ottla.server.tests.network.test_authentication import Client, Served
from ottla.server.tests.oauth_issuer import CLAIMS, NOW_S, first_message, published, rsa, signed, unsigned
from ottla.wire.errors import ErrorCode
from ottla.wire.settings import InvalidSetting

OAUTHBEARER = "OAUTHBEARER"
WORDS = '{"status":"invalid_token"}'


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Both clocks of authentications."""
    clock = SimpleNamespace(s=float(NOW_S))
    shifted = SimpleNamespace(monotonic=lambda: clock.s, time_ns=lambda: int(clock.s * 1e9))
    monkeypatch.setattr(authentication, "time", shifted)
    return clock


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    path = tmp_path / "keys.json"
    path.write_bytes(published(rsa()))
    return path


@pytest.fixture
def settings(request: pytest.FixtureRequest, key_file: Path) -> dict[str, str]:
    usual = {
        "sasl.enabled.mechanisms": "OAUTHBEARER,SCRAM-SHA-256",
        "connection.failed.authentication.delay.ms": "0",
        "oauthbearer.sasl.server.callback.handler.class": SIGNED,
        "sasl.oauthbearer.jwks.endpoint.url": key_file.as_uri(),
        "sasl.oauthbearer.expected.audience": "kafka",
        "sasl.oauthbearer.expected.issuer": "https://issuer.example",
    }
    return usual | getattr(request, "param", {})


@pytest.fixture
async def served(settings: dict[str, str], nursery: trio.Nursery, clock: SimpleNamespace) -> Served:
    served = Served({})
    sources = KeySources()
    sources.start_in(nursery)
    config = sasl_of_listener(settings, "SASL")
    served.listener = SaslListener(config, ScramUsers(), FailedLogins(), UnauthenticatedPeers(), lambda: sources)
    await served.listener.until_ready()
    return served


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


async def log_in(client: Client, token: str, *more: Any) -> Any:
    assert (await client.choose(OAUTHBEARER)).error_code == 0
    return await client.tell(first_message(token, *more))


async def test_a_token_logs_in_for_as_long_as_it_is_good(client: Client, served: Served, clock: SimpleNamespace):
    told = await log_in(client, signed(), "alice", "traceparent=1\x01")
    assert (told.error_code, told.auth_bytes, told.session_lifetime_ms) == (0, b"", 600_000)
    assert await client.is_served() and served.principals == ["User:alice"]
    clock.s += 600
    assert await client.is_served()
    clock.s += 0.1
    assert not await client.is_served()


async def test_a_token_that_has_expired_within_the_skew_has_no_time_left(client: Client, clock: SimpleNamespace):
    told = await log_in(client, signed(CLAIMS | {"exp": NOW_S - 10}))
    assert (told.error_code, told.session_lifetime_ms) == (0, 0)
    clock.s += 0.1
    assert not await client.is_served()


@pytest.mark.parametrize("settings", [{"connections.max.reauth.ms": "60000"}], indirect=True)
async def test_the_shorter_of_both_ends_counts_and_a_new_token_renews(client: Client, clock: SimpleNamespace):
    assert (await log_in(client, signed())).session_lifetime_ms == 60_000
    clock.s += 55
    assert (await log_in(client, signed(CLAIMS | {"exp": NOW_S + 90}))).session_lifetime_ms == 35_000
    clock.s += 30
    assert await client.is_served()
    clock.s += 5.1
    assert not await client.is_served()


async def test_a_new_token_is_of_the_same_user(client: Client, clock: SimpleNamespace):
    await log_in(client, signed())
    clock.s += 5
    told = await log_in(client, signed(CLAIMS | {"sub": "bob"}))
    assert told.error_message == "Cannot change principals during re-authentication from User.alice: User.bob"
    assert await client.frame() is None


async def test_a_wrong_token_is_told_in_json_and_then_refused(client: Client, caplog: pytest.LogCaptureFixture):
    token = signed(CLAIMS | {"exp": 1})
    told = await log_in(client, token)
    assert (told.error_code, told.auth_bytes, told.session_lifetime_ms) == (0, WORDS.encode(), 0)
    told = await client.tell(b"\x01")
    assert (told.error_code, told.error_message) == (ErrorCode.SASL_AUTHENTICATION_FAILED, WORDS)
    assert await client.frame() is None
    assert "failed authentication of 10.0.0.1: the token expires before it begins" in caplog.text or (
        "failed authentication of 10.0.0.1: the token has expired" in caplog.text
    )
    assert token not in caplog.text and "alice" not in caplog.text


async def test_whoever_leaves_after_that_is_in_the_log_all_the_same(client: Client, caplog: pytest.LogCaptureFixture):
    await log_in(client, unsigned())
    await client.stream.send_eof()
    assert await client.frame() is None
    assert "failed authentication of 10.0.0.1: the token is not signed" in caplog.text


async def test_no_second_token_is_taken_on_one_connection(client: Client, served: Served):
    await log_in(client, unsigned())
    told = await client.tell(first_message(signed()))
    assert told.error_message == (
        "Authentication failed during authentication due to invalid credentials with SASL mechanism OAUTHBEARER"
    )
    assert await client.frame() is None and served.principals == []


@pytest.mark.parametrize("message", [b"", b"\x01", b"nonsense", b"n,,\x01auth=Basic x\x01\x01", b"x" * 500_000])
async def test_what_is_no_token_at_all(client: Client, message: bytes):
    await client.choose(OAUTHBEARER)
    told = await client.tell(message)
    assert told.error_message == (
        "Authentication failed during authentication due to invalid credentials with SASL mechanism OAUTHBEARER"
    )
    assert await client.frame() is None


async def test_another_authorization_id_is_refused_in_kafkas_words(client: Client, caplog: pytest.LogCaptureFixture):
    told = await log_in(client, signed(), "bob")
    assert told.error_message == (
        "Authentication failed: Client requested an authorization id (bob)"
        " that is different from the token's principal name (alice)"
    )
    assert "another authorization id" in caplog.text and "bob" not in caplog.text


async def test_old_clients_send_bare_tokens(client: Client, served: Served):
    assert (await client.choose(OAUTHBEARER, 0)).error_code == 0
    message = first_message(signed())
    await client.send(len(message).to_bytes(4, "big") + message)
    assert await client.frame() == b""
    assert await client.is_served() and served.principals == ["User:alice"]


async def test_failures_are_logged_once_a_minute(connect: Callable[[], Client], caplog: pytest.LogCaptureFixture):
    for _ in range(5):
        client = connect()
        await log_in(client, unsigned())
        await client.tell(b"\x01")
    assert caplog.text.count("failed authentication") == 1


async def test_before_the_keys_are_read_the_client_is_to_come_back(
    client: Client, key_file: Path, served: Served, settings: dict[str, str]
):
    key_file.unlink()
    sources = KeySources()
    served.listener._key_sources = lambda: sources
    served.listener._take(sasl_of_listener(settings, "SASL", settings))
    await client.choose(OAUTHBEARER)
    assert await client.tell(first_message(signed())) is None


UNSIGNED_TAKEN = pytest.mark.parametrize(
    "settings", [{"oauthbearer.sasl.server.callback.handler.class": UNSECURED}], indirect=True
)


@UNSIGNED_TAKEN
async def test_where_it_is_asked_for_an_unsigned_token_logs_in(client: Client, served: Served):
    assert (await log_in(client, unsigned())).error_code == 0
    assert await client.is_served() and served.principals == ["User:alice"]


@UNSIGNED_TAKEN
async def test_and_a_signed_one_does_not(client: Client):
    assert (await log_in(client, signed())).auth_bytes == WORDS.encode()


@pytest.mark.parametrize(
    "settings",
    [
        {
            "oauthbearer.sasl.server.callback.handler.class": UNSECURED,
            "oauthbearer.sasl.jaas.config": f'{MODULE} required unsecuredValidatorRequiredScope="a c";',
        }
    ],
    indirect=True,
)
async def test_a_missing_scope_is_told(client: Client):
    told = await log_in(client, unsigned())
    assert told.auth_bytes == b'{"status":"insufficient_scope", "scope":"[a, c]"}'
    assert json.loads(told.auth_bytes)["scope"] == "[a, c]"


@UNSIGNED_TAKEN
async def test_the_log_says_that_unsigned_tokens_are_taken(served: Served, settings: dict[str, str], caplog):
    served.listener.follow(configs_of(settings), "SASL")
    assert "Listener SASL takes tokens that nobody has signed" in caplog.text


@UNSIGNED_TAKEN
async def test_unsigned_tokens_need_no_package(settings: dict[str, str], monkeypatch: pytest.MonkeyPatch):
    for name in [each for each in sys.modules if each.partition(".")[0] in ("joserfc", "h11")]:
        monkeypatch.setitem(sys.modules, name, None)

    def sources() -> KeySources:
        raise AssertionError("nobody asks for keys")

    listener = SaslListener(
        sasl_of_listener(settings, "SASL"), ScramUsers(), FailedLogins(), UnauthenticatedPeers(), sources
    )
    await listener.until_ready()
    assert listener.exchange().on_handshake(OAUTHBEARER, 1).error_code == 0


# ---------------------------------------------------------------------- changes at run time


def configs_of(settings: dict[str, str]) -> ConfigRepository:
    own = {f"listener.name.sasl.{name}": text for name, text in settings.items()}
    listening = {
        "listeners": "SASL://127.0.0.1:0",
        "listener.security.protocol.map": "SASL:SASL_PLAINTEXT",
        "inter.broker.listener.name": "SASL",
    }
    return ConfigRepository(load_config(listening | own))


async def test_nobody_tells_a_running_broker_whose_tokens_are_good(served: Served, settings: dict[str, str]):
    configs = configs_of(settings)
    served.listener.follow(configs, "SASL")
    before = served.listener._config.mechanisms[OAUTHBEARER]
    prefix = "listener.name.sasl."
    for name in (
        "sasl.oauthbearer.jwks.endpoint.url",
        "oauthbearer.sasl.oauthbearer.jwks.endpoint.url",
        "oauthbearer.sasl.oauthbearer.expected.issuer",
        "oauthbearer.sasl.server.callback.handler.class",
        LINE.removeprefix("listener.name.out."),
    ):
        changed = {prefix + name: "http://127.0.0.1/"}
        with pytest.raises(InvalidSetting, match="settled in server.properties"):
            configs.check({}, changed)
        # Another broker has let it in: it is kept, and has no effect.
        configs.put_broker(Overrides(changed, 1), for_all=False)
        assert served.listener._config.mechanisms[OAUTHBEARER] == before
        configs.check({}, changed | {f"{prefix}connections.max.reauth.ms": "5"})
        configs.put_broker(Overrides({}, 2), for_all=False)
    configs.put_broker(Overrides({f"{prefix}oauthbearer.connections.max.reauth.ms": "5"}, 3), for_all=False)
    assert served.listener._config.mechanisms[OAUTHBEARER].max_reauth_ms == 5
