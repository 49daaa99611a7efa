"""JKS and PKCS12 as keystores and truststores, and what is no such store. `compat_tests/` has those of keytool."""

import contextlib
import ssl
import struct
import sys
from pathlib import Path

import jks
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.server.config.security_config import TlsConfig
from ottla.server.security.certificates import distinguished_name
from ottla.server.security.key_stores import (
    JKS_MAGIC,
    KEY_BYTES_MAX,
    STORE_BYTES_MAX,
    UnreadableStore,
    jks_authorities,
    jks_key_and_chain,
    pkcs12_authorities,
    pkcs12_key_and_chain,
    private_key,
    read_key_store,
    read_trust_store,
)
from ottla.server.security.tls_listener import TlsListener
from ottla.server.tests.encrypted import AUTHORITY, BROKER, CLIENT
from ottla.wire.settings import InvalidSetting, read_settings
from ottla.wire.tests.effort import examples

PASSWORD, KEY_PASSWORD = "a password of stores", "a password of keys"


def der(pem: bytes) -> bytes:
    return ssl.PEM_cert_to_DER_cert(pem.decode())


TRUSTED, BROKERS, CLIENTS = (
    der(each) for each in (AUTHORITY.certified.certificate_pem, BROKER.certificate_pem, CLIENT.certificate_pem)
)
KEY = private_key(BROKER.key_pem.decode()).der


def key_entry(alias: str = "broker", chain: tuple[bytes, ...] = (BROKERS, TRUSTED)) -> jks.PrivateKeyEntry:
    return jks.PrivateKeyEntry.new(alias, list(chain), KEY, "pkcs8")


def store(*entries: object, password: str = PASSWORD, key_password: str = PASSWORD) -> bytes:
    for each in entries:
        if isinstance(each, jks.PrivateKeyEntry):
            each.encrypt(key_password)
    return jks.KeyStore.new("jks", list(entries)).saves(password)


KEYS = store(key_entry())


def test_a_key_and_its_certificates_are_read() -> None:
    key, chain = jks_key_and_chain(KEYS, PASSWORD, None)
    assert chain == (BROKERS, TRUSTED)
    assert key == KEY
    # As in Java the file is not checked without its password, but the key has one.
    assert jks_key_and_chain(KEYS, None, PASSWORD) == (key, chain)
    with pytest.raises(UnreadableStore, match="none is given"):
        jks_key_and_chain(KEYS, None, None)


def test_store_and_key_may_have_two_passwords() -> None:
    data = store(key_entry(), key_password=KEY_PASSWORD)
    assert jks_key_and_chain(data, PASSWORD, KEY_PASSWORD)[1] == (BROKERS, TRUSTED)
    for password, key_password, reason in (
        (PASSWORD, None, "the password of its key is another one"),
        (PASSWORD, "wrong-one", "the password of its key is another one"),
        ("wrong-one", KEY_PASSWORD, "the password is another one, or the file was changed"),
        ("wrong-\ud800", KEY_PASSWORD, "it is no JKS store"),
    ):
        with pytest.raises(UnreadableStore, match=reason) as refused:
            jks_key_and_chain(data, password, key_password)
        assert "wrong" not in str(refused.value)


def test_all_that_java_trusts_is_trusted() -> None:
    certificate = jks.TrustedCertEntry.new("authority", TRUSTED)
    client = jks.TrustedCertEntry.new("client", CLIENTS)
    assert set(jks_authorities(store(certificate, client), PASSWORD)) == {TRUSTED, CLIENTS}
    assert jks_authorities(store(certificate), None) == (TRUSTED,)
    # The holder of a key, and not who has signed its certificate.
    assert jks_authorities(KEYS, PASSWORD) == (BROKERS,)
    with pytest.raises(UnreadableStore, match="no certificate"):
        jks_authorities(store(), PASSWORD)
    with pytest.raises(UnreadableStore, match="no private key"):
        jks_key_and_chain(store(certificate), PASSWORD, None)
    with pytest.raises(UnreadableStore, match="its key has no certificate"):
        jks_key_and_chain(store(key_entry(chain=())), PASSWORD, None)


def in_files(directory: Path, kind: str = "JKS", **more: str) -> dict[str, str]:
    (directory / "keys").write_bytes(KEYS)
    (directory / "trusted").write_bytes(store(jks.TrustedCertEntry.new("authority", TRUSTED)))
    return {
        "ssl.keystore.type": kind,
        "ssl.keystore.location": str(directory / "keys"),
        "ssl.keystore.password": PASSWORD,
        "ssl.truststore.type": kind,
        "ssl.truststore.location": str(directory / "trusted"),
        "ssl.truststore.password": PASSWORD,
        "ssl.client.auth": "required",
    } | {name.replace("_", "."): text for name, text in more.items()}


@pytest.mark.parametrize("kind", ["JKS", "jks", "PKCS12"])
def test_a_listener_has_such_stores(tmp_path: Path, kind: str) -> None:
    """Their first bytes say which format they have, under the name of the other one, too, as in Java."""
    made = TlsListener("SSL", "SSL", in_files(tmp_path, kind), is_between_brokers=True)
    assert made.context.cert_store_stats()["x509"] == 1
    # JKS is the usual type.
    texts = {name: text for name, text in in_files(tmp_path).items() if not name.endswith(".type")}
    TlsListener("SSL", "SSL", texts)


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"ssl_keystore_password": "wrong-one"}, "ssl.keystore.location cannot be used: the password is another one"),
        ({"ssl_truststore_password": "wrong-one"}, "ssl.truststore.location cannot be used: the password is another"),
        ({"ssl_key_password": "wrong-one"}, "ssl.keystore.location cannot be used: the password of its key is another"),
    ],
)
def test_a_wrong_password_is_refused_without_a_secret(tmp_path: Path, more: dict[str, str], reason: str) -> None:
    with pytest.raises(InvalidSetting, match=reason) as refused:
        TlsListener("SSL", "SSL", in_files(tmp_path, **more))
    assert PASSWORD not in str(refused.value) and "wrong-one" not in str(refused.value)


def test_without_its_package_it_is_said_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jks", None)
    with pytest.raises(InvalidSetting, match=r"pip install 'ottla\[jks\]', or convert it with `keytool"):
        TlsListener("SSL", "SSL", in_files(tmp_path))
    assert KEYS[:4] == JKS_MAGIC


def test_what_would_be_expensive_is_not_read() -> None:
    with pytest.raises(UnreadableStore, match="more than"):
        jks_authorities(KEYS[:4] + bytes(STORE_BYTES_MAX), PASSWORD)
    certificate = b"\0\5X.509" + struct.pack(">I", len(BROKERS)) + BROKERS
    entry = b"\0\0\0\1" + b"\0\1k" + bytes(8) + struct.pack(">I", KEY_BYTES_MAX + 1) + bytes(KEY_BYTES_MAX + 1)
    large = KEYS[:8] + b"\0\0\0\1" + entry + b"\0\0\0\1" + certificate
    with pytest.raises(UnreadableStore, match="its key has more than"):
        jks_key_and_chain(large, None, PASSWORD)
    # The package's other format holds serialized objects of Java.
    with pytest.raises(UnreadableStore, match="it is no JKS store"):
        jks_authorities(b"\xce\xce\xce\xce" + KEYS[4:], PASSWORD)
    for claimed in (b"\xff\xff\xff\xff", b"\0\x0f\xff\xff"):  # entries that are not there
        with pytest.raises(UnreadableStore, match="it is no JKS store"):
            jks_authorities(KEYS[:8] + claimed + KEYS[12:], PASSWORD)


foreign = (
    st.binary(max_size=200)
    | st.binary(max_size=300).map(lambda body: KEYS[:8] + body)
    | st.tuples(st.integers(0, len(KEYS) - 1), st.binary(min_size=1, max_size=4)).map(
        lambda put: KEYS[: put[0]] + put[1] + KEYS[put[0] + len(put[1]) :]
    )
)


@settings(deadline=None, max_examples=examples(300))
@given(data=foreign, password=st.sampled_from([PASSWORD, None]))
def test_any_bytes_are_a_store_or_unreadable(data: bytes, password: str | None) -> None:
    with contextlib.suppress(UnreadableStore):
        jks_key_and_chain(data, password, PASSWORD)
    with contextlib.suppress(UnreadableStore):
        jks_authorities(data, password)


# ---------------------------------------------------------------------- PKCS12

P12_KEYS, P12_TRUSTED = BROKER.pkcs12(PASSWORD), AUTHORITY.pkcs12(PASSWORD)


def pkcs12_files(directory: Path, kind: str, **more: str) -> dict[str, str]:
    (directory / "keys").write_bytes(P12_KEYS)
    (directory / "trusted").write_bytes(P12_TRUSTED)
    return {
        "ssl.keystore.type": kind,
        "ssl.keystore.location": str(directory / "keys"),
        "ssl.keystore.password": PASSWORD,
        "ssl.truststore.type": kind,
        "ssl.truststore.location": str(directory / "trusted"),
        "ssl.truststore.password": PASSWORD,
    } | {name.replace("_", "."): text for name, text in more.items()}


@pytest.mark.parametrize("kind", ["PKCS12", "pkcs12", "JKS"])
def test_both_stores_are_read(tmp_path: Path, kind: str) -> None:
    texts = pkcs12_files(tmp_path, kind, ssl_key_password=PASSWORD, ssl_client_auth="required")
    config = read_settings(TlsConfig, texts)
    keys = read_key_store(config)
    assert keys is not None and keys.password is None
    assert [distinguished_name(each) for each in keys.chain] == ["CN=broker,O=Ottla", "CN=test authority"]
    trusted = ssl.PEM_cert_to_DER_cert(AUTHORITY.certified.certificate_pem.decode())
    assert read_trust_store(config) == (trusted,)
    context = TlsListener("SSL", "SSL", texts).context
    assert context.cert_store_stats()["x509"] == 1


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"ssl_keystore_password": "wrong"}, "ssl.keystore.location cannot be used: it is no PKCS12 store, or"),
        ({"ssl_truststore_password": "wrong"}, "ssl.truststore.location cannot be used: it is no PKCS12 store, or"),
        ({"ssl_key_password": "another"}, "has to have the password of the store"),
        ({"ssl_keystore_type": "BKS"}, "BKS is not known; allowed: PEM, PKCS12, JKS"),
        ({"ssl_truststore_type": "BKS"}, "BKS is not known"),
    ],
)
def test_what_does_not_fit_is_refused_without_a_secret(tmp_path: Path, more: dict[str, str], reason: str) -> None:
    with pytest.raises(InvalidSetting, match=reason) as refused:
        TlsListener("SSL", "SSL", pkcs12_files(tmp_path, "PKCS12", **more))
    assert PASSWORD not in str(refused.value)


def test_a_store_without_what_is_needed_is_refused() -> None:
    with pytest.raises(UnreadableStore, match="no private key"):
        pkcs12_key_and_chain(P12_TRUSTED, PASSWORD)
    # A key's own certificates count as trusted.
    assert len(pkcs12_authorities(P12_KEYS, PASSWORD)) == 2


@settings(deadline=None, max_examples=examples(30))  # a password costs thousands of hashes on purpose
@given(st.binary(max_size=200) | st.tuples(st.integers(0, len(P12_KEYS) - 1), st.binary(min_size=1, max_size=4)))
def test_any_bytes_are_a_pkcs12_store_or_unreadable(data: bytes | tuple[int, bytes]) -> None:
    if isinstance(data, tuple):
        position, put = data
        data = P12_KEYS[:position] + put + P12_KEYS[position + len(put) :]
    for read in (pkcs12_key_and_chain, pkcs12_authorities):
        with contextlib.suppress(UnreadableStore):
            read(data, PASSWORD)
