"""GSSAPI without Kerberos: the states of an exchange over a library that is made up, and the settings.

`compat_tests/clients/test_gssapi.py` has the library itself, with a KDC.
"""

import contextlib
import threading
from importlib import util
from pathlib import Path

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from ottla.server.config.broker_config import ConfigError, load_config
from ottla.server.dispatch.dispatch import CloseConnection
from ottla.server.network.authentication import AddressThreads
from ottla.server.security.kerberos.exchange import (
    OFFER,
    TOKEN_BYTES_MAX,
    TOKENS_MAX,
    GssapiClient,
    GssapiServer,
    GssFailure,
    Stepped,
)
from ottla.server.security.kerberos.names import ShortNamer
from ottla.server.security.mechanism import LoginFailed
from ottla.server.security.sasl_exchange import AuthenticationFailed, OfferedMechanism, SaslExchange

CHOICE = bytes((1, 0, 0, 0))


class Context:
    """Both sides of a Kerberos in which a ticket is `ticket:` and its principal, and a wrapped message begins with `wrapped:`."""

    def __init__(self, principal: bytes = b"", *, is_mutual: bool = True) -> None:
        self.principal, self.is_mutual = principal, is_mutual

    def step(self, token: bytes) -> Stepped:
        if token == b"more":
            return Stepped(b"again", False)
        if token == b"replay":
            raise GssFailure("Request is a replay", is_passing=True)
        if not token.startswith(b"ticket:"):
            raise GssFailure("Token header is malformed or corrupt")
        self.principal = token.removeprefix(b"ticket:")
        return Stepped(b"proof" if self.is_mutual else None, True)

    def initiator(self) -> str:
        return self.principal.decode(errors="replace")

    def wrap(self, message: bytes) -> bytes:
        return b"wrapped:" + message

    def unwrap(self, token: bytes) -> bytes:
        if not token.startswith(b"wrapped:"):
            raise GssFailure("Message stream modified")
        return token.removeprefix(b"wrapped:")


class InitiatingContext(Context):
    def step(self, token: bytes) -> Stepped:
        if not token:
            return Stepped(b"ticket:" + self.principal, False)
        if token != b"proof":
            raise GssFailure("Token header is malformed or corrupt")
        return Stepped(None, True)


def server(*rules: str, is_mutual: bool = True) -> GssapiServer:
    namer = ShortNamer(rules or ("DEFAULT",))
    return GssapiServer(lambda: Context(is_mutual=is_mutual), lambda name: namer.short_name(name, "REALM"))


def chosen(principal: str, *rules: str, choice: bytes = CHOICE) -> GssapiServer:
    made = server(*rules)
    for token in (f"ticket:{principal}".encode(), b"", b"wrapped:" + choice):
        made.step(token, 0)
    return made


def test_a_client_proves_who_it_is_and_takes_no_layer():
    made = server()
    assert made.step(b"ticket:alice@REALM", 0) == b"proof" and made.login is None
    assert made.step(b"", 0) == b"wrapped:" + OFFER and made.login is None
    assert made.step(b"wrapped:" + CHOICE + b"whoever", 0) == b""
    assert made.login is not None and made.login.principal == "User:alice" and made.login.expires_ms is None


def test_without_a_proof_of_the_server_the_offer_comes_at_once():
    made = server(is_mutual=False)
    assert made.step(b"ticket:alice@REALM", 0) == b"wrapped:" + OFFER


def test_kerberos_may_take_several_tokens():
    made = server()
    assert made.step(b"more", 0) == b"again"
    assert made.step(b"ticket:alice@REALM", 0) == b"proof"


def test_what_a_client_says_of_another_user_counts_for_nothing():
    assert chosen("kafka/host@REALM", choice=CHOICE + b"alice").login.principal == "User:kafka"
    assert chosen("a@OTHER", "RULE:[1:$1.$0]/L", choice=b"\x01\xff\xff\xff\xff\xfe").login.principal == "User:a.other"


@pytest.mark.parametrize(
    ("tokens", "words"),
    [
        ([b"garbage"], "Kerberos: Token header is malformed"),
        ([b"ticket:a@REALM", b"x"], "expecting no response data"),
        ([b"ticket:a@REALM", b"", CHOICE], "Kerberos: Message stream modified"),
        ([b"ticket:a@REALM", b"", b"wrapped:\1\0\0"], "too short"),
        ([b"ticket:a@REALM", b"", b"wrapped:\2\0\0\0"], "Client selected unsupported protection: 2"),
        ([b"ticket:a@REALM", b"", b"wrapped:\3\0\0\0"], "Client selected unsupported protection: 3"),
        ([b"ticket:a@OTHER", b"", b"wrapped:\1\0\0\0"], "No rules apply to a@OTHER"),
        ([b"ticket:a/b/c@REALM", b"", b"wrapped:\1\0\0\0"], "Malformed Kerberos name"),
        ([b"ticket:a\\/b@REALM", b"", b"wrapped:\1\0\0\0"], "Malformed Kerberos name"),
        ([b"ticket:a\nb@REALM", b"", b"wrapped:\1\0\0\0"], "Malformed Kerberos name"),
        ([b"ticket:" + b"a" * 2000 + b"@REALM", b"", b"wrapped:\1\0\0\0"], "Malformed Kerberos name"),
        ([b"ticket:@REALM", b"", b"wrapped:\1\0\0\0"], "make no name"),
        ([b"x" * (TOKEN_BYTES_MAX + 1)], "a token of"),
        ([b"more"] * (TOKENS_MAX + 1), "too many tokens"),
        ([b"ticket:a@REALM", b"", b"wrapped:\1\0\0\0", b""], "after the last one"),
    ],
)
def test_what_ends_a_login(tokens: list[bytes], words: str):
    made = server()
    *before, last = tokens
    for token in before:
        made.step(token, 0)
    with pytest.raises(LoginFailed, match=words):
        made.step(last, 0)
    with pytest.raises(LoginFailed, match="after the last one|too many"):
        made.step(b"ticket:a@REALM", 0)


def test_what_passes_ends_the_connection_without_an_answer():
    exchange = SaslExchange({"GSSAPI": OfferedMechanism(server)})
    exchange.on_handshake("GSSAPI", 1)
    with pytest.raises(CloseConnection, match="replay"):
        exchange.on_token(b"replay", 0)


def test_a_client_is_told_nothing_but_that_its_credentials_are_wrong():
    exchange = SaslExchange({"GSSAPI": OfferedMechanism(server)})
    exchange.on_handshake("GSSAPI", 1)
    with pytest.raises(AuthenticationFailed, match="Token header is malformed") as failed:
        exchange.on_token(b"garbage", 0)
    told = "Authentication failed during authentication due to invalid credentials with SASL mechanism GSSAPI"
    assert (failed.value.answer.error_code, failed.value.answer.error_message) == (58, told)


def test_clients_of_long_ago_begin_with_a_token():
    ticket = b"\x60:" + b"a@REALM"

    class Old(Context):
        def step(self, token: bytes) -> Stepped:
            return super().step(token.replace(b"\x60:", b"ticket:"))

    namer = ShortNamer(["DEFAULT"])
    made = GssapiServer(lambda: Old(), lambda name: namer.short_name(name, "REALM"))
    exchange = SaslExchange({"GSSAPI": OfferedMechanism(lambda: made)})
    exchange.begin_bare(ticket)
    assert exchange.takes_bare_tokens
    assert exchange.on_bare_token(ticket, 0) == b"proof"
    assert exchange.on_bare_token(b"", 0) == b"wrapped:" + OFFER
    assert exchange.on_bare_token(b"wrapped:" + CHOICE, 0) == b"" and exchange.is_complete


@pytest.mark.parametrize(("name", "frame"), [("PLAIN", b"\x60:a"), ("GSSAPI", b"\0\x12"), ("GSSAPI", b"")])
def test_what_is_no_token_of_gssapi_is_a_request(name: str, frame: bytes):
    exchange = SaslExchange({name: OfferedMechanism(server)})
    exchange.begin_bare(frame)
    assert not exchange.takes_tokens


def test_who_logs_in_again_has_to_be_the_same():
    exchange = SaslExchange({"GSSAPI": OfferedMechanism(server, max_reauth_ms=60_000)})
    exchange.on_handshake("GSSAPI", 1)
    tokens = [b"", b"wrapped:" + CHOICE]
    for token in (b"ticket:alice@REALM", *tokens):
        answer = exchange.on_token(token, 10)
    assert exchange.is_complete and answer.session_lifetime_ms == 60_000
    exchange.begin_anew("GSSAPI", 1, 5_000)
    for token in (b"ticket:alice@REALM", *tokens):
        exchange.on_token(token, 5_000)
    exchange.begin_anew("GSSAPI", 1, 10_000)
    exchange.on_token(b"ticket:bob@REALM", 10_000)
    exchange.on_token(b"", 10_000)
    with pytest.raises(AuthenticationFailed, match="Cannot change principals"):
        exchange.on_token(tokens[1], 10_000)


PIECES = st.sampled_from(
    [b"ticket:a@REALM", b"ticket:", b"more", b"", b"wrapped:\1\0\0\0x", b"wrapped:", b"replay", b"\0"]
)


@given(st.lists(PIECES | st.binary(max_size=40), max_size=12))
def test_any_tokens_end_in_a_login_or_a_refusal(tokens: list[bytes]):
    made = server()
    with contextlib.suppress(LoginFailed, CloseConnection):
        for token in tokens:
            made.step(token, 0)
            if made.login is not None:
                assert made.login.principal == "User:a"
                return


# ---------------------------------------------------------------------- the client's side


def test_both_sides_come_to_an_end():
    there, here = server(), GssapiClient(lambda: InitiatingContext(b"kafka/b@REALM"))
    token = here.step(b"")
    while not here.is_complete:
        token = here.step(there.step(token, 0))
    assert there.login is not None and there.login.principal == "User:kafka"


@pytest.mark.parametrize(
    ("answers", "words"),
    [
        ([b""], "does not prove who it is"),
        ([b"other"], "Kerberos: Token header"),
        ([b"proof", b"\1\0\0\0"], "Kerberos: Message stream modified"),
        ([b"proof", b"wrapped:"], "no connection without"),
        ([b"proof", b"wrapped:\6\0\0\0"], "no connection without"),
        ([b"x" * (TOKEN_BYTES_MAX + 1)], "too many tokens, or one that is too long"),
    ],
)
def test_a_broker_that_does_not_keep_to_it_is_found_out(answers: list[bytes], words: str):
    here = GssapiClient(lambda: InitiatingContext(b"kafka/b@REALM"))
    here.step(b"")
    *before, last = answers
    for each in before:
        here.step(each)
    with pytest.raises(LoginFailed, match=words):
        here.step(last)


@given(st.lists(st.sampled_from([b"proof", b"", b"wrapped:\1\0\0\0"]) | st.binary(max_size=20), max_size=12))
def test_whatever_a_broker_answers_it_comes_to_an_end(answers: list[bytes]):
    here = GssapiClient(lambda: InitiatingContext(b"kafka/b@REALM"))
    with contextlib.suppress(LoginFailed):
        for each in (b"", *answers):
            here.step(each)
            if here.is_complete:
                return


# ---------------------------------------------------------------------- threads


async def test_an_address_has_one_thread_at_a_time_and_leaves_nothing_behind(nursery: trio.Nursery):
    turns, running, at_once = AddressThreads(2), set(), []
    may_end = [trio.Event(), trio.Event()]

    def step(address: str) -> None:
        running.add(address)
        at_once.append(len(running))
        trio.from_thread.run(may_end[0].wait)
        running.discard(address)

    for address in ("a", "a", "a", "b"):
        nursery.start_soon(turns.run, address, lambda address=address: step(address))
    with trio.fail_after(60):
        while running != {"a", "b"}:
            await trio.sleep(0.001)
        may_end[0].set()
        while turns._limiters:
            await trio.sleep(0.001)
    assert len(at_once) == 4 and max(at_once) == 2


async def test_whoever_leaves_does_not_get_another_thread_before_his_first_is_free(nursery: trio.Nursery):
    turns, begun, may_end = AddressThreads(2), [], threading.Event()

    def step(address: str) -> None:
        begun.append(address)
        may_end.wait(60)

    leaving = trio.CancelScope()

    async def leave() -> None:
        with leaving:
            await turns.run("a", lambda: step("a"))

    nursery.start_soon(leave)
    with trio.fail_after(60):
        while not begun:
            await trio.sleep(0.001)
        leaving.cancel()
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(turns.run, "a", lambda: step("a again"))
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(turns.run, "b", lambda: step("b"))
        while "b" not in begun:
            await trio.sleep(0.001)
        assert begun == ["a", "b"]
        may_end.set()
        while turns._limiters:
            await trio.sleep(0.001)
    assert begun == ["a", "b", "a again"]


# ---------------------------------------------------------------------- settings

MODULE = "com.sun.security.auth.module.Krb5LoginModule"
LINE = "listener.name.out.gssapi.sasl.jaas.config"
MEMBER = {
    "broker.id": "1",
    "zookeeper.connect": "127.0.0.1:2181",
    "listeners": "OUT://127.0.0.1:9092",
    "listener.security.protocol.map": "OUT:SASL_PLAINTEXT",
    "inter.broker.listener.name": "OUT",
}


def line(**options: str) -> dict[str, str]:
    usual = {"useKeyTab": "true", "storeKey": "true", "principal": "kafka/host@REALM", "serviceName": "kafka"}
    texts = " ".join(f'{name}="{value}"' for name, value in (usual | options).items() if value)
    return {LINE: f"{MODULE} required {texts};"}


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(util, "find_spec", lambda name: object())


@pytest.mark.usefixtures("installed")
def test_the_line_says_which_keys_there_are(tmp_path: Path):
    (tmp_path / "keys").touch()
    texts = line(keyTab=f"{tmp_path}/keys", serviceName="") | {"sasl.kerberos.service.name": "broker"}
    config = load_config({**MEMBER, **texts, "sasl.kerberos.principal.to.local.rules": "RULE:[1:$1],DEFAULT"})
    kerberos = config.sasl["OUT"].mechanisms["GSSAPI"].kerberos
    assert kerberos is not None and kerberos.rules == ("RULE:[1:$1]", "DEFAULT")
    keys = kerberos.keys
    assert (keys.principal, keys.keytab, keys.service_name) == ("kafka/host@REALM", tmp_path / "keys", "broker")
    assert config.peer_logins["OUT"].kerberos == keys


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("texts", "words"),
    [
        ({}, f"{LINE}: mechanism GSSAPI needs this setting"),
        (line(serviceName=""), "No serviceName defined in either JAAS or Kafka config"),
        (line() | {"sasl.kerberos.service.name": "other"}, "Conflicting serviceName values"),
        (line(useKeyTab="false"), "useKeyTab=true is needed"),
        (line(storeKey=""), "storeKey=true is needed"),
        (line(principal="*"), "principal has to be given"),
        (line(keyTab="/there/is/none"), "keyTab /there/is/none cannot be read: there is no such file"),
        (line(keyTab="/"), "keyTab / cannot be read: it is no file"),
        (line(isInitiator="false"), "isInitiator cannot be false"),
        ({LINE: "org.example.Other required;"}, f"the login module of GSSAPI has to be {MODULE}"),
    ],
)
def test_what_is_missing_is_told_in_one_line(texts: dict[str, str], words: str):
    with pytest.raises(ConfigError) as refused:
        load_config({**MEMBER, **texts})
    assert words in str(refused.value) and "\n" not in str(refused.value)


def test_a_missing_package_is_told_in_one_line(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"GSSAPI needs the package gssapi: pip install 'ottla\[gssapi\]'"):
        load_config({**MEMBER, **line()})
