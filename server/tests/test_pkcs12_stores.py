"""PKCS12 as keystore and truststore, and what is no such store."""

import contextlib
import ssl
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.server.auth.certificates import distinguished_name
from ottla.server.auth.java_stores import UnreadableStore, pkcs12_authorities, pkcs12_key_and_chain
from ottla.server.auth.key_stores import read_key_store, read_trust_store
from ottla.server.auth.tls_listener import TlsListener
from ottla.server.settings.security_config import TlsConfig
from ottla.server.tests.encrypted import AUTHORITY, BROKER
from ottla.wire.settings import InvalidSetting, read_settings

PASSWORD = "a password of stores"
KEYS, TRUSTED = BROKER.pkcs12(PASSWORD), AUTHORITY.pkcs12(PASSWORD)


def texts(directory: Path, kind: str, **more: str) -> dict[str, str]:
    (directory / "keys").write_bytes(KEYS)
    (directory / "trusted").write_bytes(TRUSTED)
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
    given = texts(tmp_path, kind, ssl_key_password=PASSWORD, ssl_client_auth="required")
    config = read_settings(TlsConfig, given)
    keys = read_key_store(config)
    assert keys is not None and keys.password is None
    assert [distinguished_name(each) for each in keys.chain] == ["CN=broker,O=Ottla", "CN=test authority"]
    trusted = ssl.PEM_cert_to_DER_cert(AUTHORITY.certified.certificate_pem.decode())
    assert read_trust_store(config) == (trusted,)
    context = TlsListener("SSL", "SSL", given).context
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
        TlsListener("SSL", "SSL", texts(tmp_path, "PKCS12", **more))
    assert PASSWORD not in str(refused.value)


def test_a_store_without_what_is_needed_is_refused() -> None:
    with pytest.raises(UnreadableStore, match="no private key"):
        pkcs12_key_and_chain(TRUSTED, PASSWORD)
    # A key's own certificates count as trusted.
    assert len(pkcs12_authorities(KEYS, PASSWORD)) == 2


@settings(deadline=None, max_examples=30)  # a password costs thousands of hashes on purpose
@given(st.binary(max_size=200) | st.tuples(st.integers(0, len(KEYS) - 1), st.binary(min_size=1, max_size=4)))
def test_any_bytes_are_a_store_or_unreadable(data: bytes | tuple[int, bytes]) -> None:
    if isinstance(data, tuple):
        position, put = data
        data = KEYS[:position] + put + KEYS[position + len(put) :]
    for read in (pkcs12_key_and_chain, pkcs12_authorities):
        with contextlib.suppress(UnreadableStore):
            read(data, PASSWORD)
