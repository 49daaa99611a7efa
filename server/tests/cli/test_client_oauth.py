"""Commands log in by tokens: of a file, of an issuer, or without a signature; and what is wrong with each is told."""

from __future__ import annotations

import importlib.util
import json
import os
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from ottla.server.cli.cli import main
from ottla.server.cli.client import oauth
from ottla.server.cli.client.oauth import TokenLogin, checked
from ottla.server.cli.client.output import RequestFailed, UsageError
from ottla.server.cli.client.security import security_of
from ottla.server.config.login_rules import UnsecuredLogin
from ottla.server.security.mechanism import LoginFailed
from ottla.server.security.oauth.bearer import OAuthBearerClient, decode_client_first
from ottla.server.security.oauth.token_requests import unsecured_token
from ottla.server.security.oauth.tokens import take_apart
from ottla.server.tests.console_client import running
from ottla.server.tests.encrypted import AUTHORITY

FAR_S = 60.0
MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
SECRET = "a secret &"
USER = f'{MODULE} required clientId="me" clientSecret="{SECRET}" scope="a b" extension_traceId="1";'


class Asked(NamedTuple):
    path: str
    authorization: str | None
    form: str


class Issuer:
    """Answers what a test wants. `asked`: what it was asked."""

    def __init__(self) -> None:
        self.status, self.body, self.headers = 200, b"", {}
        self.stalls = threading.Event()
        self.stalls.set()
        self.asked: list[Asked] = []
        issuer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                form = self.rfile.read(int(self.headers["Content-Length"])).decode()
                issuer.asked.append(Asked(self.path, self.headers["Authorization"], form))
                issuer.stalls.wait(FAR_S)
                self.send_response(issuer.status)
                for name, value in issuer.headers.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(issuer.body)

            do_GET = do_POST

            def log_message(self, *ignored: Any) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *ignored: Any) -> None:
                """A client may hang up at any moment."""

        self.server = Server(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}/tokens?of=all"


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    made = Issuer()
    yield made
    made.stalls.set()
    made.server.shutdown()
    made.server.server_close()


def login(**more: str) -> TokenLogin:
    texts = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER"}
    found = security_of(texts | {name.replace("_", "."): text for name, text in more.items()}).login
    assert isinstance(found, TokenLogin)
    return found


def of_issuer(url: str, jaas: str = USER, **more: str) -> TokenLogin:
    return login(sasl_jaas_config=jaas, sasl_oauthbearer_token_endpoint_url=url, **more)


def unsecured(subject: str) -> str:
    source = UnsecuredLogin(claims={"sub": subject}, lifetime_s=3600, subject_claim="sub")
    return unsecured_token(source, time.time_ns() // 1_000_000)


def token_of(found: TokenLogin) -> str:
    return decode_client_first(found.client(FAR_S).step(b"")).token


def test_an_issuer_is_asked_once_for_the_credentials_of_the_settings(issuer: Issuer) -> None:
    issuer.body = json.dumps({"access_token": "a.b.c", "expires_in": 3600}).encode()
    found = of_issuer(issuer.url)
    assert token_of(found) == token_of(found) == "a.b.c"
    assert issuer.asked == [
        Asked("/tokens?of=all", "Basic bWU6YSBzZWNyZXQgJg==", "grant_type=client_credentials&scope=a+b")
    ]
    assert found.client(FAR_S).step(b"") == b"n,,\x01auth=Bearer a.b.c\x01traceId=1\x01\x01"
    assert SECRET not in repr(found) and "a.b.c" not in repr(found)
    token_of(of_issuer(issuer.url, sasl_oauthbearer_header_urlencode="true"))
    assert issuer.asked[1].authorization == "Basic bWU6YStzZWNyZXQrJTI2"
    short = {"sasl_oauthbearer_client_id": "me", "sasl_oauthbearer_client_secret": SECRET}
    token_of(login(sasl_oauthbearer_token_endpoint_url=issuer.url, **short))
    assert issuer.asked[2] == Asked("/tokens?of=all", "Basic bWU6YSBzZWNyZXQgJg==", "grant_type=client_credentials")


def test_a_token_that_has_become_old_is_asked_for_anew(issuer: Issuer, monkeypatch: pytest.MonkeyPatch) -> None:
    issuer.body = b'{"access_token": "t"}'
    monkeypatch.setattr(oauth, "KEPT_S", -1.0)
    found = of_issuer(issuer.url)
    assert token_of(found) == token_of(found)
    assert len(issuer.asked) == 2


@pytest.mark.parametrize(
    ("status", "body", "headers", "words"),
    [
        (401, b"a secret &", {}, "status 401"),
        (302, b"", {"Location": "/elsewhere"}, "status 302"),
        (200, b"<html>", {}, "without an access_token"),
        (200, b"[1]", {}, "without an access_token"),
        (200, b'{"access_token": 5}', {}, "without an access_token"),
        (200, b'{"access_token": "two words"}', {}, "is none"),
        (200, b'{"access_token": ""}', {}, "without an access_token"),
        (200, b'{"access_token": "' + b"t" * 2_000_000 + b'"}', {}, "without an access_token"),
        (200, b'{"access_token": "' + b"t" * 70_000 + b'"}', {}, "is none"),
        (200, b"[" * 100_000, {}, "without an access_token"),
    ],
)
def test_an_issuer_that_gives_no_token_is_told_of(
    issuer: Issuer, status: int, body: bytes, headers: dict[str, str], words: str
) -> None:
    issuer.status, issuer.body, issuer.headers = status, body, headers
    with pytest.raises(RequestFailed, match=words) as told:
        token_of(of_issuer(issuer.url))
    assert SECRET not in str(told.value) and [each.path for each in issuer.asked] == ["/tokens?of=all"]


def test_an_issuer_with_tls_is_trusted_by_the_jaas_line(issuer: Issuer, tmp_path: Path) -> None:
    issuer.body = b'{"access_token": "t"}'
    leaf = AUTHORITY.issue("127.0.0.1", ["127.0.0.1"], is_server=True)
    (tmp_path / "server.pem").write_bytes(leaf.key_pem + leaf.certificate_pem)
    (tmp_path / "authority.pem").write_bytes(AUTHORITY.certified.certificate_pem)
    shown = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    shown.load_cert_chain(tmp_path / "server.pem")
    issuer.server.socket = shown.wrap_socket(issuer.server.socket, server_side=True)
    url = issuer.url.replace("http:", "https:")
    store = {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(tmp_path / "authority.pem")}
    trusting = "".join(f' {name}="{text}"' for name, text in store.items())
    assert token_of(of_issuer(url, USER.replace(";", f"{trusting};"))) == "t"
    # As in Kafka, whom a client trusts with records it does not trust with its secret.
    with pytest.raises(RequestFailed, match=r"cannot be asked: .*(self-signed|local issuer)"):
        token_of(of_issuer(url, **{name.replace(".", "_"): text for name, text in store.items()}))
    with pytest.raises(UsageError, match="authority"):
        of_issuer(url, USER.replace(";", f"{trusting.replace('authority', 'no-authority')};"))
    assert len(issuer.asked) == 1


def test_an_issuer_that_stalls_or_is_not_there_is_given_up(issuer: Issuer) -> None:
    issuer.stalls.clear()
    with pytest.raises(RequestFailed, match=r"does not answer within 0\.2 s|cannot be asked"):
        of_issuer(issuer.url).client(0.2)
    with pytest.raises(RequestFailed, match="cannot be asked"):
        of_issuer("https://127.0.0.1:1/").client(FAR_S)


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"sasl_jaas_config": f"{MODULE} required;"},
        {"sasl_oauthbearer_token_endpoint_url": "ftp://host", "sasl_jaas_config": USER},
        {"sasl_oauthbearer_token_endpoint_url": "http://", "sasl_jaas_config": USER},
        {"sasl_oauthbearer_token_endpoint_url": "http://host:x/", "sasl_jaas_config": USER},
        {
            "sasl_oauthbearer_token_endpoint_url": "http://host/",
            "sasl_jaas_config": f'{MODULE} required clientId="me";',
        },
        {"sasl_jaas_config": f'{MODULE} required unsecuredLoginStringClaim_sub="me" extension_auth="x";'},
        {"sasl_jaas_config": f'{MODULE} required unsecuredLoginStringClaim_sub="me" extension_a1="x";'},
        {"sasl_jaas_config": f'{MODULE} required unsecuredLoginStringClaim_scope="all";'},
        {
            "sasl_oauthbearer_token_endpoint_url": "http://host/",
            "sasl_jaas_config": USER,
            "sasl_login_callback_handler_class": "x.Y",
        },
    ],
)
def test_settings_that_give_no_token_are_wrong_use(more: dict[str, str]) -> None:
    with pytest.raises(UsageError) as told:
        login(**more)
    assert SECRET not in str(told.value)


def test_unsecured_tokens_have_the_claims_and_extensions_of_kafkas_options() -> None:
    options = 'unsecuredLoginStringClaim_sub="me" unsecuredLoginListClaim_scope="|a|b" unsecuredLoginExtension_one="1" extension_two="2"'
    found = login(sasl_jaas_config=f"{MODULE} required {options};")
    assert found.extensions == {"one": "1", "two": "2"}
    claims = take_apart(token_of(found)).claims
    assert (claims["sub"], claims["scope"]) == ("me", ["a", "b"])


def test_a_command_needs_no_package_and_for_a_file_no_http(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    of_issuer("http://host/")
    program = (
        "import sys; from ottla.server.cli.client.security import security_of\n"
        "texts = dict(each.split('=', 1) for each in sys.argv[1:])\n"
        "assert security_of(texts).login.client(60).step(b'')\n"
        "print(*sorted({'trio', 'h11', 'ssl', 'http.client'} & sys.modules.keys()))"
    )
    line = f'sasl.jaas.config={MODULE} required unsecuredLoginStringClaim_sub="me";'
    command = [sys.executable, "-c", program, "security.protocol=SASL_PLAINTEXT", "sasl.mechanism=OAUTHBEARER", line]
    assert subprocess.run(command, check=True, capture_output=True, text=True).stdout == "\n"


@given(st.text(max_size=40) | st.from_regex(r"\A[-_~+/.a-zA-Z0-9]+=*\Z"))
def test_whatever_is_taken_for_a_token_brokers_can_read(text: str) -> None:
    try:
        token = checked(text)
    except RequestFailed:
        return
    assert decode_client_first(OAuthBearerClient(token, {}).step(b"")).token == token


def test_a_refusal_ends_a_login() -> None:
    client = OAuthBearerClient("t", {})
    client.step(b"")
    assert client.step(b'{"status":"invalid_token"}') == b"\x01" and not client.is_complete
    with pytest.raises(LoginFailed):
        client.step(b"more")


# ---------------------------------------------------------------------- a broker that takes tokens


async def test_commands_log_in_with_tokens_of_a_file_and_of_an_issuer(
    tmp_path: Path, issuer: Issuer, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = {
        "listeners": "PLAINTEXT://127.0.0.1:0,OUT://127.0.0.1:0",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,OUT:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "listener.name.out.oauthbearer.sasl.jaas.config": f'{MODULE} required unsecuredValidatorAllowableClockSkewMs="9";',
        "connection.failed.authentication.delay.ms": "0",
    }
    file = tmp_path / "a token"
    issuer.body = json.dumps({"access_token": unsecured("of an issuer")}).encode()
    async with running(tmp_path / "data", **settings) as broker:
        end = broker.cluster.brokers[broker.node_id].endpoints["OUT"]
        tell = partial(_tell, f"{end.host}:{end.port}")
        file.write_text(unsecured("alice") + "\n")
        for more in (
            {"sasl.oauthbearer.token.endpoint.url": file.as_uri()},
            {"sasl.oauthbearer.token.endpoint.url": issuer.url, "sasl.jaas.config": USER},
            {"sasl.jaas.config": f'{MODULE} required unsecuredLoginStringClaim_sub="bob";'},
        ):
            assert await trio.to_thread.run_sync(tell, more) == 0, capsys.readouterr().err
        file.write_text("no.jwt.")
        assert await trio.to_thread.run_sync(tell, {"sasl.oauthbearer.token.endpoint.url": file.as_uri()}) == 1
        assert "refuses the login by OAUTHBEARER" in capsys.readouterr().err
        assert await trio.to_thread.run_sync(tell, {"sasl.oauthbearer.token.endpoint.url": "file:///none"}) == 1
        assert "cannot read the token in /none" in capsys.readouterr().err
        os.mkfifo(tmp_path / "pipe")
        assert (
            await trio.to_thread.run_sync(tell, {"sasl.oauthbearer.token.endpoint.url": (tmp_path / "pipe").as_uri()})
            == 1
        )
        assert "it is no file" in capsys.readouterr().err


def _tell(servers: str, more: dict[str, str]) -> int:
    settings = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER"} | more
    given = [part for name, text in settings.items() for part in ("-X", f"{name}={text}")]
    return main(["status", "-b", servers, "--timeout", str(FAR_S), *given])
