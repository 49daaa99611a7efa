"""Clients log in by Kerberos, at a KDC that runs beside the tests: kcat, Java's, kafka-python, and another broker.

What is wrong with a ticket is tried with the mechanism alone, over the same library. `server/tests/security/test_gssapi.py` has the rest.
"""

import os
import struct
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import trio
from compat_tests.support.brokers import OttlaProcess, free_port, wait_until
from compat_tests.support.kerberos import Realm, python_path
from compat_tests.support.raw import receive_frame
from compat_tests.support.wire_client import WireClient
from hypothesis import given
from hypothesis import strategies as st
from kafka import KafkaConsumer, KafkaProducer

from ottla.server.config.sasl_rules import KerberosKeys, PeerLoginConfig
from ottla.server.dispatch.dispatch import CloseConnection
from ottla.server.security.kerberos.exchange import GssapiClient, GssapiServer
from ottla.server.security.kerberos.listener import KerberosListener
from ottla.server.security.mechanism import LoginFailed
from ottla.server.security.peer_login import PeerLogin
from ottla.wire.messages.api_versions import ApiVersionsRequest
from ottla.wire.messages.metadata import MetadataRequest
from ottla.wire.messages.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from ottla.wire.settings import InvalidSetting

SERVICE = "kafka/localhost"
MODULE = "com.sun.security.auth.module.Krb5LoginModule"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
PASSWORD = "word-beside-kerberos"
LISTENER = "listener.name.sasl_plaintext"


@pytest.fixture(scope="module")
def gssapi_path(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What PYTHONPATH needs; this process can import gssapi from now on."""
    path = python_path(tmp_path_factory.mktemp("packages") / "gssapi")
    if path:
        sys.path.append(path)
    return path


@pytest.fixture(scope="module")
def realm(tmp_path_factory: pytest.TempPathFactory, gssapi_path: str) -> Iterator[Realm]:
    with pytest.MonkeyPatch.context() as changed, Realm(tmp_path_factory.mktemp("realm")) as realm:
        # The library reads them in this process, too.
        for name, value in realm.environment.items():
            changed.setenv(name, value)
        yield realm


@pytest.fixture(scope="module")
def keytab(realm: Realm) -> Path:
    return realm.keytab(SERVICE)


# ---------------------------------------------------------------------- logins without a connection


def keys_of(realm: Realm, user: str, keytab: Path | None = None) -> KerberosKeys:
    path = keytab or realm.keytab(user)
    return KerberosKeys(principal=f"{user}@{realm.name}", keytab=path, service_name="kafka", initiates=True)


def client_of(realm: Realm, user: str, host: str = "localhost") -> GssapiClient:
    from ottla.server.security.kerberos.library import Initiator

    return GssapiClient(partial(Initiator(keys_of(realm, user)).begin, host))


def user_of(server: GssapiServer, client: GssapiClient) -> str:
    token = client.step(b"")
    while server.login is None:
        answer = server.step(token, 0)
        token = b"" if server.login else client.step(answer)
    return server.login.principal


def with_offset(name: str, seconds: int) -> str:
    """The same tickets for somebody whose clock is off by so many seconds, as he believes of it."""
    path = Path(name.removeprefix("FILE:"))
    data = path.read_bytes()
    assert data[:2] == b"\x05\x04"
    rest = data[4 + struct.unpack_from(">H", data, 2)[0] :]
    path.write_bytes(b"\x05\x04\x00\x0c\x00\x01\x00\x08" + struct.pack(">iI", seconds, 0) + rest)
    return name


def token_of(tickets: str) -> bytes:
    """The first token of somebody who has the ticket for the service, and asks no KDC."""
    import gssapi.raw as gss

    from ottla.server.security.kerberos.library import InitiatedContext

    found = gss.acquire_cred_from({b"ccache": tickets.encode()}, mechs=[gss.MechType.kerberos], usage="initiate")
    target = gss.import_name(b"kafka@localhost", gss.NameType.hostbased_service)
    token = InitiatedContext(found.creds, target).step(b"").token
    assert token is not None
    return token


@pytest.fixture(scope="module")
def listener(realm: Realm, keytab: Path) -> KerberosListener:
    return KerberosListener(keys_of(realm, SERVICE, keytab), ["RULE:[1:$1](Carol)/L", "DEFAULT"])


class ShortLived(NamedTuple):
    """A token whose ticket lasts a second, and tickets that last two; both were good at `since_s`."""

    token: bytes
    tickets: Any
    since_s: float

    def wait(self) -> None:
        """Until they have expired, if clocks may differ by a second."""
        wait_until(lambda: time.time() > self.since_s + 4, "the tickets have expired")


@pytest.fixture(scope="module")
def short_lived(realm: Realm, listener: KerberosListener) -> ShortLived:
    """Made before all others, so that nobody waits for them."""
    from ottla.server.security.kerberos.library import Initiator

    keys = keys_of(realm, "shortly")
    realm.run("kadmin.local", "-r", realm.name, "modprinc", "-maxlife", "2 seconds", "shortly")
    tickets = Initiator(keys)
    assert user_of(listener.server(), GssapiClient(partial(tickets.begin, "localhost"))) == "User:shortly"
    # For somebody whose clock is late, a ticket is good for longer.
    token = token_of(with_offset(realm.tickets("alice", "-S", SERVICE, "-l", "1s"), -250))
    return ShortLived(token, tickets, time.time())


# ---------------------------------------------------------------------- a broker


class KerberosOttla(OttlaProcess):
    protocol = "SASL_PLAINTEXT"

    def address(self, log: str) -> tuple[str, int] | None:
        found = super().address(log)
        return None if found is None else ("localhost", found[1])  # tickets are for a name


def line(realm: Realm, keytab: Path) -> str:
    return f'{MODULE} required useKeyTab=true storeKey=true keyTab="{keytab}" principal="{SERVICE}@{realm.name}";'


def made(folder: Path, realm: Realm, keytab: Path, path: str, **more: str) -> KerberosOttla:
    port = free_port()
    settings = {
        "advertised.listeners": f"SASL_PLAINTEXT://localhost:{port}",
        "security.inter.broker.protocol": "SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "GSSAPI,PLAIN",
        "sasl.kerberos.service.name": "kafka",
        "sasl.kerberos.principal.to.local.rules": "RULE:[1:$1](Carol)/L,RULE:[1:$1@$0](nobody.*),DEFAULT",
        f"{LISTENER}.gssapi.sasl.jaas.config": line(realm, keytab),
        f"{LISTENER}.plain.sasl.jaas.config": f'{PLAIN} required user_alice="{PASSWORD}";',
        "connections.max.reauth.ms": "2000",
        "num.partitions": "1",
        "connection.failed.authentication.delay.ms": "0",
    }
    broker = KerberosOttla(folder, settings | more)
    broker.port = port
    environment = realm.environment | ({"PYTHONPATH": os.pathsep.join([path, os.environ.get("PYTHONPATH", "")])})
    broker.inside = ["env", *(f"{name}={value}" for name, value in environment.items())]
    return broker


@pytest.fixture(scope="module")
def ottla(
    tmp_path_factory: pytest.TempPathFactory, realm: Realm, keytab: Path, gssapi_path: str, short_lived: ShortLived
) -> Iterator[KerberosOttla]:
    broker = made(tmp_path_factory.mktemp("ottla"), realm, keytab, gssapi_path)
    yield broker.start()
    broker.stop()


def python(broker: KerberosOttla) -> dict[str, str]:
    return {"bootstrap_servers": broker.bootstrap, "security_protocol": "SASL_PLAINTEXT"}


# ---------------------------------------------------------------------- clients


def test_kcat_logs_in_and_again(ottla: KerberosOttla, realm: Realm, kcat: str, run: Any) -> None:
    options = ["-b", ottla.bootstrap, "-X", "security.protocol=SASL_PLAINTEXT", "-X", "sasl.mechanism=GSSAPI"]
    options += ["-X", "sasl.kerberos.service.name=kafka", "-X", "sasl.kerberos.kinit.cmd=true"]
    environment = {"KRB5CCNAME": realm.tickets("alice")}
    run(kcat, *options, "-P", "-t", "kcat", stdin="one\ntwo\n", **environment)
    assert run(kcat, *options, "-C", "-t", "kcat", "-e", "-q", **environment) == "one\ntwo\n"


def test_java_logs_in_by_a_keytab(
    ottla: KerberosOttla, realm: Realm, java_with_tools: list[str], run: Any, tmp_path: Path
) -> None:
    client = tmp_path / "client.properties"
    client.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=GSSAPI\nsasl.kerberos.service.name=kafka\n"
        f'sasl.jaas.config={MODULE} required useKeyTab=true storeKey=true keyTab="{realm.keytab("bob")}"'
        f' principal="bob@{realm.name}";\n'
    )
    java, *options = java_with_tools
    command = [java, f"-Djava.security.krb5.conf={realm.kerberos_config}", *options]
    run(
        *[*command, "org.apache.kafka.tools.ConsoleProducer", "--bootstrap-server", ottla.bootstrap],
        *["--topic", "java", "--command-config", str(client)],
        stdin="three\n",
    )
    consumer = KafkaConsumer(
        "java", auto_offset_reset="earliest", consumer_timeout_ms=60_000, **python(ottla), sasl_plain_username="alice",
        sasl_plain_password=PASSWORD, sasl_mechanism="PLAIN",
    )  # fmt: skip
    assert next(consumer).value == b"three"  # by another mechanism of the same listener
    consumer.close()


def test_kafka_python_logs_in_and_again(ottla: KerberosOttla, realm: Realm, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KRB5CCNAME", realm.tickets("alice"))
    producer = KafkaProducer(**python(ottla), sasl_mechanism="GSSAPI", sasl_kerberos_service_name="kafka")
    assert producer.send("python", b"x").get(timeout=60).offset == 0
    producer.close()


# ---------------------------------------------------------------------- what is answered


def connected(broker: KerberosOttla) -> WireClient:
    return WireClient(("localhost", broker.port), client_id="test")


def tell(client: WireClient, token: bytes) -> Any:
    return client.ask(SaslAuthenticateRequest(auth_bytes=token), 2)


def log_in(client: WireClient, mechanism: GssapiClient) -> Any:
    """The last answer."""
    assert client.ask(SaslHandshakeRequest(mechanism="GSSAPI"), 1).error_code == 0
    answer = tell(client, mechanism.step(b""))
    while not answer.error_code:
        token = mechanism.step(bytes(answer.auth_bytes))
        if mechanism.is_complete:
            break
        answer = tell(client, token)
    return answer


REFUSED = "Authentication failed during authentication due to invalid credentials with SASL mechanism GSSAPI"


def test_a_session_is_begun_anew_by_the_same_user_only(ottla: KerberosOttla, realm: Realm) -> None:
    for user, error_code in (("alice", 0), ("bob", 58)):
        with connected(ottla) as client:
            first = log_in(client, client_of(realm, "alice"))
            assert first.error_code == 0 and 0 < first.session_lifetime_ms <= 2000
            again = log_in(client, client_of(realm, user))
            assert again.error_code == error_code
            told = "Cannot change principals during re-authentication from User.alice: User.bob"
            assert (again.error_message or "") == (told if error_code else "")


def test_what_is_no_ticket_is_refused_in_kafkas_words(ottla: KerberosOttla) -> None:
    for garbage in (b"", b"\0" * 100, b"x" * 70_000):
        with connected(ottla) as client:
            client.ask(SaslHandshakeRequest(mechanism="GSSAPI"), 1)
            answer = tell(client, garbage)
            assert (answer.error_code, answer.error_message) == (58, REFUSED)


def test_a_principal_without_a_name_is_refused(ottla: KerberosOttla, realm: Realm) -> None:
    with connected(ottla) as client:
        answer = log_in(client, client_of(realm, "nobody1"))
        assert (answer.error_code, answer.error_message) == (58, REFUSED)


def test_clients_of_long_ago_send_nothing_but_tokens(ottla: KerberosOttla, realm: Realm) -> None:
    mechanism = client_of(realm, "alice")
    with connected(ottla) as client:
        token = mechanism.step(b"")
        while True:
            client.socket.sendall(struct.pack(">i", len(token)) + token)
            token = mechanism.step(receive_frame(client.socket))
            if mechanism.is_complete:
                break
        # It has logged in: a broker that did not know it would hang up.
        assert client.ask(ApiVersionsRequest(client_software_name="x", client_software_version="1"), 0).error_code == 0
        assert client.ask(MetadataRequest(topics=[]), 1).brokers


def test_a_token_that_comes_again_ends_the_connection_without_an_answer(ottla: KerberosOttla, realm: Realm) -> None:
    token = client_of(realm, "alice").step(b"")
    with connected(ottla) as client:
        client.ask(SaslHandshakeRequest(mechanism="GSSAPI"), 1)
        assert tell(client, token).error_code == 0
    with connected(ottla) as client:
        client.ask(SaslHandshakeRequest(mechanism="GSSAPI"), 1)
        with pytest.raises((OSError, AssertionError, EOFError)):
            tell(client, token)


# ---------------------------------------------------------------------- between brokers


async def ask_over(client: WireClient, request: Any, version: int) -> Any:
    return await trio.to_thread.run_sync(client.ask, request, version)


def test_a_broker_logs_in_at_another_one(ottla: KerberosOttla, realm: Realm, keytab: Path) -> None:
    login = PeerLogin(PeerLoginConfig(mechanism="GSSAPI", kerberos=keys_of(realm, SERVICE, keytab)))

    async def log_in_twice() -> None:
        for _ in range(2):
            with connected(ottla) as client:
                assert 0 < await login.log_in(partial(ask_over, client), "localhost") <= 2000
        unknown = "Server kafka/elsewhere@TEST.OTTLA not found in Kerberos database"
        with connected(ottla) as client, pytest.raises(LoginFailed, match=unknown):
            await login.log_in(partial(ask_over, client), "elsewhere")

    trio.run(log_in_twice)


def test_a_broker_whose_keys_are_not_the_realms_does_not_get_in(ottla: KerberosOttla, realm: Realm) -> None:
    login = PeerLogin(PeerLoginConfig(mechanism="GSSAPI", kerberos=keys_of(realm, "stranger", realm.keytab("alice"))))
    with connected(ottla) as client, pytest.raises(LoginFailed, match="Kerberos: "):
        trio.run(login.log_in, partial(ask_over, client), "localhost")


# ---------------------------------------------------------------------- tickets that are wrong


def test_rules_name_users(listener: KerberosListener, realm: Realm) -> None:
    assert user_of(listener.server(), client_of(realm, "Carol")) == "User:carol"
    assert user_of(listener.server(), client_of(realm, "web/host.example")) == "User:web"
    with pytest.raises(LoginFailed, match="Malformed Kerberos name"):
        user_of(listener.server(), client_of(realm, "a/b/c"))


def test_a_ticket_for_another_service_is_refused(listener: KerberosListener, realm: Realm) -> None:
    realm.keytab("kafka/elsewhere.example")
    token = client_of(realm, "alice", "elsewhere.example").step(b"")
    with pytest.raises(LoginFailed, match="kafka/elsewhere.example@TEST.OTTLA"):
        listener.server().step(token, 0)


def test_clocks_that_differ_too_much_are_told(listener: KerberosListener, realm: Realm) -> None:
    tickets = with_offset(realm.tickets("alice", "-S", SERVICE), 3600)
    with pytest.raises(LoginFailed, match="Clock skew too great"):
        listener.server().step(token_of(tickets), 0)


def test_a_ticket_that_has_expired_is_refused(
    listener: KerberosListener, realm: Realm, short_lived: ShortLived, monkeypatch: pytest.MonkeyPatch
) -> None:
    strict = realm.folder / "strict.conf"
    strict.write_text(realm.kerberos_config.read_text().replace("clockskew = 300", "clockskew = 1"))
    monkeypatch.setenv("KRB5_CONFIG", str(strict))
    short_lived.wait()
    with pytest.raises(LoginFailed, match="Ticket expired"):
        listener.server().step(short_lived.token, 0)


def test_tickets_are_renewed_by_the_keys(listener: KerberosListener, short_lived: ShortLived) -> None:
    short_lived.wait()
    assert user_of(listener.server(), GssapiClient(partial(short_lived.tickets.begin, "localhost"))) == "User:shortly"


def test_keys_may_be_where_kerberos_has_them(realm: Realm, keytab: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KRB5_KTNAME", f"FILE:{keytab}")
    keys = KerberosKeys(principal=f"{SERVICE}@{realm.name}", keytab=None, service_name="kafka", initiates=True)
    assert user_of(KerberosListener(keys, ["DEFAULT"]).server(), client_of(realm, "alice")) == "User:alice"


def test_new_keys_count_at_once(realm: Realm) -> None:
    keytab = realm.keytab("kafka/renewed")
    listener = KerberosListener(keys_of(realm, "kafka/renewed", keytab), ["DEFAULT"])
    assert user_of(listener.server(), client_of(realm, "alice", "renewed")) == "User:alice"
    realm.run("kadmin.local", "-r", realm.name, "cpw", "-randkey", "kafka/renewed")
    with pytest.raises(LoginFailed, match="Kerberos: "):
        user_of(listener.server(), client_of(realm, "alice", "renewed"))
    realm.run("kadmin.local", "-r", realm.name, "ktadd", "-norandkey", "-k", str(keytab), "kafka/renewed")
    assert user_of(listener.server(), client_of(realm, "alice", "renewed")) == "User:alice"


def test_keys_that_cannot_be_used_are_told(realm: Realm) -> None:
    with pytest.raises(
        InvalidSetting, match="no ticket can be accepted for kafka/other@TEST.OTTLA: No key table entry"
    ):
        KerberosListener(keys_of(realm, "kafka/other", realm.keytab("alice")), ["DEFAULT"]).check()


@pytest.fixture(scope="module")
def good(realm: Realm) -> bytes:
    return client_of(realm, "alice").step(b"")


@given(position=st.integers(0, 600), put=st.binary(max_size=30), cut=st.integers(0, 600))
def test_foreign_bytes_are_refused(
    listener: KerberosListener, good: bytes, position: int, put: bytes, cut: int
) -> None:
    server = listener.server()
    token = good[:position] + put + good[position + len(put) :]
    try:
        server.step(token[: len(token) - cut], 0)
    except (LoginFailed, CloseConnection):
        return
    # It has touched nothing that counts, or it is as it was; in any case nobody is logged in by it alone.
    assert server.login is None
    with pytest.raises(LoginFailed):
        server.step(put or b"x", 0)


def test_a_start_with_the_wrong_keys_ends_in_one_line(
    tmp_path: Path, realm: Realm, keytab: Path, gssapi_path: str
) -> None:
    broker = made(tmp_path, realm, realm.keytab("alice"), gssapi_path)
    broker.launch()
    wait_until(broker.died, "the start is given up", 60)
    complaints = [each for each in broker.log.splitlines() if " INFO " not in each]
    name = "gssapi.sasl.jaas.config"
    assert complaints[-1].startswith(
        f"ottla: {name}: no ticket can be accepted for {SERVICE}@TEST.OTTLA: No key table entry"
    )
    assert "Traceback" not in broker.log and broker.process.returncode == 1
