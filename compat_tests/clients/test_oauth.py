"""Real clients log in by tokens, and Apache Kafka hears the same tokens as Ottla and says the same.

Whoever issues the tokens is a small server here: /keys has its public keys, /token gives out tokens for a password.
"""

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import aiokafka
import aiokafka.abc
import pytest
import trio
from compat_tests.apache.brokers import ApacheKafka4, accepts_connections
from compat_tests.support.brokers import OttlaProcess, free_port, serve_until, wait_until
from compat_tests.support.java_tools import FAST_START, jars
from compat_tests.support.token_server import CLIENT, SECRET, Issuer, claims, token_server
from compat_tests.support.wire_client import WireClient
from confluent_kafka import Producer
from kafka import KafkaProducer
from kafka.errors import KafkaError
from kafka.net.sasl.oauth import AbstractTokenProvider

from ottla.server.config.jaas import parse_jaas
from ottla.server.config.login_rules import oauth_login
from ottla.server.config.sasl_rules import PeerLoginConfig
from ottla.server.security.mechanism import LoginRefused
from ottla.server.security.peer_login import PeerLogin
from ottla.server.tests.oauth_issuer import curve, first_message, part, rsa, signed, unsigned
from ottla.wire.messages.sasl import SaslAuthenticateRequest, SaslHandshakeRequest

KAFKAS = "org.apache.kafka.common.security.oauthbearer."
MODULE = f"{KAFKAS}OAuthBearerLoginModule"
SHORT_S = 20  # a token that a client has to renew while a test runs: librdkafka does a fifth of it before the end


@pytest.fixture(scope="module")
def issuer() -> Iterator[str]:
    with token_server() as address:
        yield address


def settings(issuer: str) -> dict[str, str]:
    """Of both brokers: listener SIGNED takes signed tokens, listener OPEN takes what nobody has signed."""
    return {
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "listener.name.signed.oauthbearer.sasl.server.callback.handler.class": f"{KAFKAS}OAuthBearerValidatorCallbackHandler",
        "listener.name.signed.oauthbearer.sasl.jaas.config": f"{MODULE} required;",
        "listener.name.signed.sasl.oauthbearer.jwks.endpoint.url": f"{issuer}/keys",
        "listener.name.signed.sasl.oauthbearer.expected.audience": "kafka,other",
        "listener.name.signed.sasl.oauthbearer.expected.issuer": "https://issuer/",
        "listener.name.open.oauthbearer.sasl.jaas.config": f"{MODULE} required"
        ' unsecuredValidatorRequiredScope="all" unsecuredValidatorAllowableClockSkewMs="30000"'
        ' unsecuredLoginStringClaim_sub="broker";',  # without it Kafka's own login at this listener ends the start
        "num.partitions": "1",
    }


class Ports:
    """Where the two listeners are."""

    def __init__(self) -> None:
        self.signed, self.open = free_port(), free_port()

    def listeners(self) -> str:
        return f"SIGNED://127.0.0.1:{self.signed},OPEN://127.0.0.1:{self.open}"


PROTOCOLS = "SIGNED:SASL_PLAINTEXT,OPEN:SASL_PLAINTEXT"


class OAuthKafka(ApacheKafka4):
    """It reads keys only from addresses that a system property allows."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.ports = Ports()

    def java(self, *options: str) -> list[str]:
        address = self.settings["listener.name.signed.sasl.oauthbearer.jwks.endpoint.url"]
        return super().java(f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={address}", *options)

    def properties(self, listener: str) -> dict[str, str]:
        found = super().properties(listener)
        for name, more in (
            ("listeners", self.ports.listeners()),
            ("advertised.listeners", self.ports.listeners()),
            ("listener.security.protocol.map", PROTOCOLS),
        ):
            found[name] += f",{more}"
        return found


@pytest.fixture(scope="module")
def ottla(tmp_path_factory: pytest.TempPathFactory, issuer: str) -> Iterator[Ports]:
    ports = Ports()
    listening = {
        "listeners": f"PLAINTEXT://127.0.0.1:{free_port()},{ports.listeners()}",
        "listener.security.protocol.map": f"PLAINTEXT:PLAINTEXT,{PROTOCOLS}",
    }
    broker = OttlaProcess(tmp_path_factory.mktemp("ottla"), settings(issuer) | listening)
    broker.start()
    yield ports
    broker.stop()
    # A token begins with what every JSON object in base64 begins with.
    assert "eyJ" not in broker.log and SECRET not in broker.log
    assert "failed authentication" in broker.log


# ---------------------------------------------------------------------- clients


def librdkafka(port: int, **more: Any) -> dict[str, Any]:
    options = {name.replace("_", "."): value for name, value in more.items() if name != "oauth_cb"}
    return {
        "bootstrap.servers": f"127.0.0.1:{port}",
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        **options,
        **({"oauth_cb": more["oauth_cb"]} if "oauth_cb" in more else {}),
    }


def produce(options: dict[str, Any], until: Callable[[], bool] = lambda: True) -> list[Any]:
    """What went wrong, with records one after the other until it is so, and one more."""
    failures: list[Any] = []
    producer = Producer(options | {"error_cb": failures.append})

    def is_over() -> bool:
        is_last = until()
        producer.produce("oauth", b"x", on_delivery=lambda error, _: failures.append(error) if error else None)
        if producer.flush(60):
            failures.append("it is not delivered")
        return is_last or bool(failures)

    wait_until(is_over, "the last record", 90)
    return failures


def test_librdkafka_with_a_callback_renews_its_token(ottla: Ports) -> None:
    given = []

    def token(_: str) -> tuple[str, float]:
        expires = int(time.time()) + SHORT_S
        given.append(expires)
        return signed(claims(exp=expires)), float(expires)

    def is_renewed() -> bool:
        return len(given) > 1 and time.time() > given[0]

    # Also after the first token has ended, and its session with it.
    assert produce(librdkafka(ottla.signed, oauth_cb=token), until=is_renewed) == []


def test_librdkafka_asks_the_issuer_itself(ottla: Ports, issuer: str) -> None:
    options = librdkafka(
        ottla.signed,
        sasl_oauthbearer_method="oidc",
        sasl_oauthbearer_client_id=CLIENT,
        sasl_oauthbearer_client_secret=SECRET,
        sasl_oauthbearer_token_endpoint_url=f"{issuer}/token",
    )
    assert produce(options) == []


def test_librdkafka_makes_unsigned_tokens(ottla: Ports) -> None:
    options = librdkafka(
        ottla.open,
        enable_sasl_oauthbearer_unsecure_jwt="true",
        sasl_oauthbearer_config="principal=bob scope=all",
    )
    assert produce(options) == []


def test_librdkafka_hears_that_its_token_is_wrong(ottla: Ports) -> None:
    failures: list[Any] = []

    def token(_: str) -> tuple[str, float]:
        return signed(claims(aud="elsewhere")), time.time() + 600

    producer = Producer(librdkafka(ottla.signed, oauth_cb=token) | {"error_cb": failures.append})
    serve_until(producer, lambda: "invalid_token" in str(failures), "the failure is told")


class Tokens(AbstractTokenProvider):
    def __init__(self, **changed: Any) -> None:
        self.changed = changed

    def token(self) -> str:
        return signed(claims(exp=int(time.time()) + SHORT_S) | self.changed)

    def extensions(self) -> dict[str, str]:
        return {"traceId": "123"}


def python(ottla: Ports, **changed: Any) -> dict[str, Any]:
    return {
        "bootstrap_servers": f"127.0.0.1:{ottla.signed}",
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauth_token_provider": Tokens(**changed),
    }


def test_kafka_python_logs_in_and_again(ottla: Ports) -> None:
    producer = KafkaProducer(**python(ottla))

    def is_served_after(end_s: float) -> bool:
        is_over = time.time() > end_s
        producer.send("python", b"x").get(timeout=60)
        return is_over

    # The session ends with the first token, so whoever is served then has logged in again.
    producer.send("python", b"x").get(timeout=60)
    end_s = time.time() + SHORT_S
    wait_until(lambda: is_served_after(end_s), "the first token has ended", 90)
    producer.close()


def test_kafka_python_is_refused(ottla: Ports) -> None:
    with pytest.raises(KafkaError):
        KafkaProducer(**python(ottla, iss="mallory"), bootstrap_timeout_ms=3000)


class AsyncTokens(aiokafka.abc.AbstractTokenProvider):
    async def token(self) -> str:
        return signed(claims(), curve("P-256", "p256"), "ES256")


def test_aiokafka_logs_in(ottla: Ports) -> None:
    async def send() -> None:
        options = {"bootstrap_servers": f"127.0.0.1:{ottla.signed}", "security_protocol": "SASL_PLAINTEXT"}
        options |= {"sasl_mechanism": "OAUTHBEARER", "sasl_oauth_token_provider": AsyncTokens()}
        async with aiokafka.AIOKafkaProducer(**options) as producer:
            await producer.send_and_wait("aio", b"x")

    asyncio.run(send())


@pytest.mark.parametrize("kind", ["token endpoint", "token file", "unsecured"])
def test_java_logs_in(ottla: Ports, issuer: str, run: Any, tmp_path: Any, kind: str) -> None:
    token = tmp_path / "token"
    token.write_text(signed(claims()))
    address = f"{issuer}/token" if kind == "token endpoint" else token.as_uri()
    options = 'unsecuredLoginStringClaim_sub="alice" unsecuredLoginStringClaim_scope="all"'
    if kind != "unsecured":
        options = f'clientId="{CLIENT}" clientSecret="{SECRET}"'
    lines = [
        "security.protocol=SASL_PLAINTEXT",
        "sasl.mechanism=OAUTHBEARER",
        f"sasl.jaas.config={MODULE} required {options};",
    ]
    if kind != "unsecured":
        lines += [
            f"sasl.login.callback.handler.class={KAFKAS}OAuthBearerLoginCallbackHandler",
            f"sasl.oauthbearer.token.endpoint.url={address}",
        ]
    config = tmp_path / "client.properties"
    config.write_text("\n".join(lines) + "\n")
    port = ottla.open if kind == "unsecured" else ottla.signed
    allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={address}"
    command = [
        "java",
        *FAST_START,
        allowed,
        "-cp",
        f"{jars('kafka_4', tools=True)}/*",
        "org.apache.kafka.tools.TopicCommand",
    ]
    arguments = ["--bootstrap-server", f"127.0.0.1:{port}", "--command-config", str(config)]
    run(*command, *arguments, "--create", "--topic", f"java-{kind.replace(' ', '-')}", timeout_s=180)


def test_a_new_key_of_the_issuer_is_found_by_its_first_tokens(ottla: Ports, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Issuer, "key_ids", ("first", "new"))
    token = signed(claims(), rsa("new"))
    first = told(ottla.signed, first_message(token))
    assert first[-1][:2] == (58, '{"status":"invalid_token"}')
    wait_until(lambda: told(ottla.signed, first_message(token))[-1][0] == 0, "the key is read", 90)


# ---------------------------------------------------------------------- beside Apache Kafka

Told = list[Any]


def told(port: int, message: bytes) -> Told:
    """What a broker says to a first message, and to the byte with which a client hears that it is refused.

    Of each answer: the error, its words, the bytes, and whether the session has time left. None: the connection ends.
    """
    found: Told = []
    with WireClient(("127.0.0.1", port), client_id="oauth") as client:
        assert client.ask(SaslHandshakeRequest(mechanism="OAUTHBEARER"), 1).error_code == 0
        token = message
        while True:
            client.send(SaslAuthenticateRequest(auth_bytes=token), 2)
            answer = client.receive()
            if answer is None:
                return [*found, None]
            found.append(
                (
                    answer.error_code,
                    answer.error_message or "",
                    bytes(answer.auth_bytes),
                    answer.session_lifetime_ms > 0,
                )
            )
            if answer.error_code or not answer.auth_bytes:
                return found
            token = b"\x01"


def now(shift: float) -> int:
    return int(time.time() + shift)


def hmac_signed() -> str:
    return f"{part({'alg': 'HS256', 'kid': 'first'})}.{part(claims())}.{part(b'x' * 32)}"


SIGNED = {
    "good": lambda: signed(claims()),
    "elliptic": lambda: signed(claims(), curve("P-256", "p256"), "ES256"),
    "PS256": lambda: signed(claims(), algorithm="PS256"),
    "no key id": lambda: signed(claims(), kid=None),
    "no key id, elliptic": lambda: signed(claims(), curve("P-256", "p256"), "ES256", kid=None),
    "another key id": lambda: signed(claims(), curve("P-256", "p256"), "ES256", kid="first"),
    "unknown key": lambda: signed(claims(), rsa("unknown")),
    "wrong key": lambda: signed(claims(), rsa("second"), kid="first"),
    "unsigned": lambda: unsigned(claims()),
    "hmac": hmac_signed,
    "expired": lambda: signed(claims(exp=now(-40))),
    "expired within the skew": lambda: signed(claims(exp=now(-10))),
    "no end": lambda: signed(claims(exp=None)),
    "an end that is text": lambda: signed(claims(exp="soon")),
    "no beginning": lambda: signed(claims(iat=None)),
    "issued in the future": lambda: signed(claims(iat=now(100))),
    "issued after its end": lambda: signed(claims(iat=now(1000))),
    "issued before 1970": lambda: signed(claims(iat=-5)),
    "not yet": lambda: signed(claims(nbf=now(100))),
    "not yet, within the skew": lambda: signed(claims(nbf=now(10))),
    "not before its end": lambda: signed(claims(nbf=now(1000))),
    "fractions": lambda: signed(claims(exp=now(600) + 0.5, iat=now(-1) + 0.5)),
    "another issuer": lambda: signed(claims(iss="https://issuer")),
    "no issuer": lambda: signed(claims(iss=None)),
    "issuer is a list": lambda: signed(claims(iss=["https://issuer/"])),
    "another audience": lambda: signed(claims(aud="x")),
    "no audience": lambda: signed(claims(aud=None)),
    "one of the audiences": lambda: signed(claims(aud=["x", "other"])),
    "an audience that is a number": lambda: signed(claims(aud=["kafka", 5])),
    "no audiences at all": lambda: signed(claims(aud=[])),
    "no user": lambda: signed(claims(sub=None)),
    "empty user": lambda: signed(claims(sub="")),
    "blank user": lambda: signed(claims(sub="  ")),
    "user is a number": lambda: signed(claims(sub=5)),
    "user in any script": lambda: signed(claims(sub="奥特拉")),
    "id is a number": lambda: signed(claims(jti=5)),
    "no scope": lambda: signed(claims(scope=None)),
    "scope is a number": lambda: signed(claims(scope=5)),
    "empty scope": lambda: signed(claims(scope="")),
    "scopes": lambda: signed(claims(scope=["a", "b"])),
    "scope twice": lambda: signed(claims(scope=["a", "a"])),
    "blank scope among others": lambda: signed(claims(scope=["a", " "])),
    "something critical": lambda: (
        f"{part({'alg': 'RS256', 'kid': 'first', 'crit': ['own'], 'own': 1})}.{part(claims())}.AAAA"
    ),
    "claims are a list": lambda: signed(b"[]"),
    "claims are no JSON": lambda: signed(b"{"),
    "a claim twice": lambda: signed(json.dumps(claims()).encode()[:-1] + b', "sub": "bob"}'),
    "nested deeply": lambda: signed(b"[" * 20_000),
    "two parts": lambda: "e30.e30",
    "four parts": lambda: "e30.e30.e30.e30",
    "dots": lambda: "...",
    "no base64": lambda: "~.~.~",
}
OPEN = {
    "good": lambda: unsigned(claims()),
    "signed": lambda: signed(claims()),
    "signature": lambda: unsigned(claims()) + "AAAA",
    "none in capitals": lambda: unsigned(claims(), {"alg": "NONE"}),
    "expired": lambda: unsigned(claims(exp=now(-60))),
    "expired within the skew": lambda: unsigned(claims(exp=now(-1))),
    "no end": lambda: unsigned(claims(exp=None)),
    "of the future": lambda: unsigned(claims(iat=now(200))),
    "issued after its end": lambda: unsigned(claims(iat=now(2), exp=now(1))),
    "not yet": lambda: unsigned(claims(nbf=now(100))),
    "no user": lambda: unsigned(claims(sub=None)),
    "user is a list": lambda: unsigned(claims(sub=["a"])),
    "no scope": lambda: unsigned(claims(scope=None)),
    "another scope": lambda: unsigned(claims(scope=["some", "more"])),
    "scope with others": lambda: unsigned(claims(scope=["some", "all"])),
    "scopes in one text": lambda: unsigned(claims(scope="some all")),
    "two parts": lambda: "e30.e30",
    "no JSON": lambda: "e.e.",
}
MESSAGES = {
    "authorization id": lambda token: first_message(token, CLIENT),
    "another authorization id": lambda token: first_message(token, "bob"),
    "extensions": lambda token: first_message(token, "", "a=b\x01c=d e\x01"),
    "extension without a value": lambda token: first_message(token, "", "a=\x01"),
    "extension with a digit": lambda token: first_message(token, "", "a1=x\x01"),
    "two tokens, the good one last": lambda token: first_message("x", "", f"auth=Bearer {token}\x01"),
    "the good one first": lambda token: first_message(token, "", "auth=Bearer x\x01"),
    "small letters": lambda token: first_message(token).replace(b"Bearer", b"bearer  "),
    "no token": lambda token: b"n,,\x01a=b\x01\x01",
    "no end": lambda token: first_message(token)[:-1],
    "channel binding": lambda token: b"y" + first_message(token)[1:],
    "empty": lambda token: b"",
    "the last byte first": lambda token: b"\x01",
    "no ASCII": lambda token: first_message(token, "", "a=ü\x01"),
}


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory, issuer: str) -> Iterator[Ports]:
    broker = OAuthKafka(tmp_path_factory.mktemp("kafka"), settings(issuer))
    broker.start()
    for port in (broker.ports.signed, broker.ports.open):
        wait_until(lambda: accepts_connections("127.0.0.1", port), "the listener is open", 60)  # noqa: B023
    yield broker.ports
    broker.stop()


def test_both_say_the_same_to_signed_tokens(ottla: Ports, kafka: Ports) -> None:
    said = {}
    for name, made in SIGNED.items():
        message = first_message(made())
        said[name] = (told(ottla.signed, message), told(kafka.signed, message))
    assert {name: pair for name, pair in said.items() if pair[0] != pair[1]} == {}
    assert len(said["good"][0]) == 1 and len(said["wrong key"][0]) == 2


def test_both_say_the_same_to_unsigned_tokens(ottla: Ports, kafka: Ports) -> None:
    said = {}
    for name, made in OPEN.items():
        message = first_message(made())
        said[name] = (told(ottla.open, message), told(kafka.open, message))
    assert {name: pair for name, pair in said.items() if pair[0] != pair[1]} == {}


def test_both_say_the_same_to_first_messages(ottla: Ports, kafka: Ports) -> None:
    said = {}
    for name, made in MESSAGES.items():
        message = made(signed(claims()))
        said[name] = (told(ottla.signed, message), told(kafka.signed, message))
    assert {name: pair for name, pair in said.items() if pair[0] != pair[1]} == {}


# ---------------------------------------------------------------------- between brokers


@pytest.mark.parametrize("is_in_jaas", [True, False])
def test_another_broker_logs_in_by_tokens_of_the_server(ottla: Ports, issuer: str, is_in_jaas: bool) -> None:
    texts = {
        "sasl.login.callback.handler.class": f"{KAFKAS}OAuthBearerLoginCallbackHandler",
        "sasl.oauthbearer.token.endpoint.url": f"{issuer}/token",
    }
    line = f'{MODULE} required clientId="{CLIENT}" clientSecret="{SECRET}" extension_traceId="1";'
    credentials = {
        f"sasl.oauthbearer.client.credentials.client.{name}": text
        for name, text in (("id", CLIENT), ("secret", SECRET))
    }
    login = oauth_login(texts | ({} if is_in_jaas else credentials), "", parse_jaas(line)[0] if is_in_jaas else None)
    peer = PeerLogin(PeerLoginConfig(mechanism="OAUTHBEARER", tokens=login))
    for port, is_taken in ((ottla.signed, True), (ottla.open, False)):
        with WireClient(("127.0.0.1", port), client_id="broker") as client:

            async def ask(request: Any, version: int, client: WireClient = client) -> Any:
                return await trio.to_thread.run_sync(client.ask, request, version)

            if is_taken:
                assert 500_000 < trio.run(peer.log_in, ask) <= 600_000
            else:
                with pytest.raises(
                    LoginRefused, match="the login by OAUTHBEARER is refused: SASL_AUTHENTICATION_FAILED"
                ):
                    trio.run(peer.log_in, ask)
