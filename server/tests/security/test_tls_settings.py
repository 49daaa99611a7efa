"""What Kafka's settings of TLS come to, and how certificates change."""

import contextlib
import datetime
import errno
import os
import ssl
import sys
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, NoEncryption, PrivateFormat
from hypothesis import given
from hypothesis import strategies as st

from ottla.server.config.broker_config import load_config
from ottla.server.config.repository import ConfigRepository, Overrides
from ottla.server.launch.certificates_command import Authority
from ottla.server.security import tls_listener
from ottla.server.security.certificates import (
    MalformedDer,
    alternative_names,
    distinguished_name,
    not_after,
    signature_algorithm,
)
from ottla.server.security.key_stores import MalformedPem, blocks, certificates, private_key
from ottla.server.security.tls_contexts import Secrets, client_context, openssl_name
from ottla.server.security.tls_listener import TlsListener, TlsListeners
from ottla.server.tests.encrypted import AUTHORITY, BROKER, INLINE, listener
from ottla.wire.settings import InvalidSetting


def file_of(directory: Path, *contents: bytes, name: str = "broker.pem") -> str:
    path = directory / name
    path.write_bytes(b"".join(contents))
    return str(path)


def in_file(path: str, **more: str) -> dict[str, str]:
    texts = {"ssl.keystore.type": "PEM", "ssl.keystore.location": path}
    return texts | {name.replace("_", "."): text for name, text in more.items()}


def der_of(context: ssl.SSLContext) -> bytes:
    """The certificate that a listener shows."""
    trusting = ssl.create_default_context()
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = trusting.wrap_bio(to_client, to_server, server_hostname="localhost")
    server = context.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(3):
        for each in (client, server):
            with contextlib.suppress(ssl.SSLWantReadError):
                each.do_handshake()
    found = client.getpeercert(binary_form=True)
    assert found is not None
    return found


LISTENER = listener()
DER = ssl.PEM_cert_to_DER_cert(BROKER.certificate_pem.decode())


def test_a_file_and_inline_settings_give_the_same(tmp_path: Path) -> None:
    assert der_of(listener().context) == DER
    path = file_of(tmp_path, b"comment\n", BROKER.certificate_pem, BROKER.key_pem)
    assert der_of(TlsListener("SSL", "SSL", in_file(path)).context) == DER


def test_a_setting_of_one_line_has_spaces_for_line_breaks() -> None:
    one_line = {name: text.replace("\n", " ") for name, text in INLINE.items()}
    assert der_of(TlsListener("SSL", "SSL", one_line).context) == DER


@pytest.mark.parametrize("password", ["s3cret", "pass wörd"])
def test_a_key_may_be_encrypted(tmp_path: Path, password: str) -> None:
    encryption = BestAvailableEncryption(password.encode())
    key = BROKER.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption)
    path = file_of(tmp_path, key, BROKER.certificate_pem)
    assert der_of(TlsListener("SSL", "SSL", in_file(path, ssl_key_password=password)).context) == DER
    for wrong in ({}, {"ssl_key_password": "wrong-pa55"}):
        with pytest.raises(InvalidSetting, match="listener SSL: .*key.password") as caught:
            TlsListener("SSL", "SSL", in_file(path, **wrong))
        assert password not in str(caught.value)
        assert "wrong-pa55" not in str(caught.value)


def test_a_listener_has_settings_of_its_own() -> None:
    texts = INLINE | {"ssl.client.auth": "required", "listener.name.inner.ssl.client.auth": "none"}
    assert TlsListener("INNER", "SSL", texts).context.verify_mode is ssl.CERT_NONE
    assert TlsListener("OUTER", "SSL", texts).context.verify_mode is ssl.CERT_REQUIRED
    # SASL says who clients are: a certificate is asked for only if this very listener is to.
    assert TlsListener("OUTER", "SASL_SSL", texts).context.verify_mode is ssl.CERT_NONE
    texts["listener.name.outer.ssl.client.auth"] = "requested"
    asking = TlsListener("OUTER", "SASL_SSL", texts)
    assert asking.context.verify_mode is ssl.CERT_OPTIONAL
    assert asking.principal(DER) == "User:ANONYMOUS"
    assert TlsListener("OUTER", "SSL", texts).principal(DER) == "User:CN=broker,O=Ottla"


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"ssl.keystore.key": None, "ssl.keystore.certificate.chain": None}, "there is no key: set ssl.keystore"),
        ({"ssl.keystore.key": None}, "private key is not specified"),
        ({"ssl.keystore.certificate.chain": None}, "certificate chain is not specified"),
        ({"ssl.keystore.type": "JKS"}, "key store type is JKS"),
        ({"ssl.keystore.key": "nothing"}, "holds no private key"),
        ({"ssl.keystore.certificate.chain": "-----BEGIN CERTIFICATE----- !"}, "has no end"),
        ({"ssl.truststore.password": "x"}, "trust store password cannot be specified for PEM"),
        ({"ssl.truststore.location": "x"}, "Both SSL trust store location and"),
        ({"ssl.truststore.type": "PKCS12"}, "only for PEM"),
        ({"ssl.client.auth": "sometimes"}, "ssl.client.auth"),
        ({"ssl.enabled.protocols": "TLSv1.4"}, "TLSv1.4"),
        ({"ssl.enabled.protocols": "TLSv1,TLSv1.1"}, "not served any more"),
        ({"ssl.protocol": "QUIC"}, "ssl.protocol"),
        ({"ssl.cipher.suites": "TLS_ROT13"}, "OpenSSL knows none"),
        ({"ssl.cipher.suites": "TLS_AES_128_GCM_SHA256", "ssl.enabled.protocols": "TLSv1.2"}, "none of them is for"),
        ({"ssl.principal.mapping.rules": "RULE:("}, "Invalid rule"),
    ],
)
def test_wrong_settings_are_refused_in_one_line(changed: dict[str, str | None], reason: str) -> None:
    texts = {name: text for name, text in (INLINE | changed).items() if text is not None}
    with pytest.raises(InvalidSetting, match="^listener SSL: ") as caught:
        TlsListener("SSL", "SSL", texts | {"ssl.client.auth": texts.get("ssl.client.auth", "required")})
    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)


def test_files_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    missing, folder = str(tmp_path / "missing.pem"), str(tmp_path)
    other = file_of(tmp_path, AUTHORITY.issue("other", is_server=True).key_pem, BROKER.certificate_pem)
    for path, reason in ((missing, "is no file"), (folder, "is no file"), (other, "not that of the first certificate")):
        with pytest.raises(InvalidSetting, match=reason):
            TlsListener("SSL", "SSL", in_file(path))
    with pytest.raises(InvalidSetting, match="only key password"):
        TlsListener("SSL", "SSL", in_file(other, ssl_keystore_password="x"))


@pytest.mark.parametrize(
    ("settings", "least", "most"),
    [
        ({}, "TLSv1_2", "TLSv1_3"),
        ({"ssl_enabled_protocols": "TLSv1.2,TLSv1.1,TLSv1"}, "TLSv1_2", "TLSv1_2"),
        ({"ssl_enabled_protocols": "TLSv1.3"}, "TLSv1_3", "TLSv1_3"),
        ({"ssl_cipher_suites": "TLS_AES_128_GCM_SHA256"}, "TLSv1_3", "TLSv1_3"),
        ({"ssl_cipher_suites": "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"}, "TLSv1_2", "TLSv1_2"),
    ],
)
def test_versions_follow_from_protocols_and_suites(settings: dict[str, str], least: str, most: str) -> None:
    context = listener(**settings).context
    assert (context.minimum_version.name, context.maximum_version.name) == (least, most)
    assert context.options & ssl.OP_NO_RENEGOTIATION


@pytest.mark.parametrize(
    ("iana", "openssl"),
    [
        ("TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", "ECDHE-RSA-AES256-GCM-SHA384"),
        ("TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256", "ECDHE-ECDSA-CHACHA20-POLY1305"),
        ("TLS_DHE_RSA_WITH_AES_128_CBC_SHA256", "DHE-RSA-AES128-SHA256"),
        ("TLS_RSA_WITH_AES_128_CBC_SHA", "AES128-SHA"),
        ("ECDHE-RSA-AES256-GCM-SHA384", "ECDHE-RSA-AES256-GCM-SHA384"),
    ],
)
def test_suites_have_openssls_names(iana: str, openssl: str) -> None:
    assert openssl_name(iana) == openssl
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_ciphers(openssl)
    assert openssl in {each["name"] for each in context.get_ciphers()}


def test_another_broker_is_checked_by_its_name_unless_it_is_not_to_be() -> None:
    made = listener()
    context = client_context(made.config, made.secrets)
    assert context.check_hostname
    assert context.verify_mode is ssl.CERT_REQUIRED
    made = listener(ssl_endpoint_identification_algorithm="")
    context = client_context(made.config, made.secrets)
    assert not context.check_hostname
    assert context.verify_mode is ssl.CERT_REQUIRED
    made = listener(ssl_endpoint_identification_algorithm="ldaps")
    with pytest.raises(InvalidSetting, match="neither https nor empty"):
        client_context(made.config, Secrets(made.config))


# ---------------------------------------------------------------------- changes


def configured(path: str, **more: str) -> tuple[ConfigRepository, TlsListeners]:
    texts = in_file(path, listeners="SSL://:9093", security_inter_broker_protocol="SSL", **more)
    config = load_config(texts)
    configs = ConfigRepository(config)
    return configs, TlsListeners(config.listeners, configs)


def again(name: str = "broker", hosts: tuple[str, ...] = ("localhost", "127.0.0.1")) -> bytes:
    issued = AUTHORITY.issue(name, hosts, is_server=True, organization="Ottla")
    return issued.key_pem + issued.certificate_pem


def test_a_file_that_is_written_over_is_read_when_its_setting_is_given_again(tmp_path: Path) -> None:
    path = file_of(tmp_path, BROKER.key_pem, BROKER.certificate_pem)
    configs, listeners = configured(path)
    (made,) = listeners
    before = made.context
    configs.announce()
    assert made.context is before
    file_of(tmp_path, again())
    configs.announce()
    assert made.context is not before
    assert der_of(made.context) != DER


def test_a_changed_setting_is_checked_and_then_taken_up(tmp_path: Path) -> None:
    configs, listeners = configured(file_of(tmp_path, BROKER.key_pem, BROKER.certificate_pem))
    (made,) = listeners
    name = "listener.name.ssl.ssl.keystore.location"
    for content, reason in (
        (again("somebody"), "DistinguishedName does not match: existing=CN=broker,O=Ottla, new=CN=somebody,O=Ottla"),
        (again(hosts=("localhost",)), "SubjectAltNames do not match"),
        (b"nothing", "holds no private key"),
    ):
        path = file_of(tmp_path, content, name="new.pem")
        with pytest.raises(InvalidSetting, match=reason):
            configs.check({}, {name: path})
    path = file_of(tmp_path, again(hosts=("localhost", "127.0.0.1", "broker.example")), name="new.pem")
    configs.check({}, {name: path})
    assert der_of(made.context) == DER
    configs.put_broker(Overrides({name: path}, 1), for_all=False)
    assert der_of(made.context) != DER


def test_a_change_that_was_checked_comes_into_force_without_another_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    configs, listeners = configured(file_of(tmp_path, BROKER.key_pem, BROKER.certificate_pem))
    (made,) = listeners
    path = file_of(tmp_path, again(), name="new.pem")
    change = {"listener.name.ssl.ssl.keystore.location": path}
    configs.check({}, change)
    with monkeypatch.context() as patched:
        patched.setattr(tls_listener, "Secrets", None)  # which reads files
        configs.put_broker(Overrides(change, 1), for_all=False)
    taken = der_of(made.context)
    assert taken != DER
    # A file that is another one by then is read.
    path = file_of(tmp_path, again(), name="newer.pem")
    change = {"listener.name.ssl.ssl.keystore.location": path}
    configs.check({}, change)
    file_of(tmp_path, again() + b"\n", name="newer.pem")
    checked = made._checked
    configs.put_broker(Overrides(change, 2), for_all=False)
    assert checked is not None and made.context is not checked.context
    assert der_of(made.context) not in (taken, der_of(checked.context))


_SETTINGS = st.sampled_from(
    [
        "ssl.keystore.location",
        "ssl.keystore.type",
        "ssl.keystore.password",
        "ssl.keystore.key",
        "ssl.keystore.certificate.chain",
        "ssl.key.password",
        "ssl.truststore.location",
        "ssl.truststore.type",
        "ssl.truststore.password",
        "ssl.truststore.certificates",
        "ssl.cipher.suites",
        "ssl.enabled.protocols",
        "ssl.protocol",
        "ssl.client.auth",
        "ssl.principal.mapping.rules",
    ]
)
_TEXTS = st.text(max_size=40) | st.sampled_from(
    ["PEM", "PKCS12", "JKS", "required", "requested", "none", "\0", "/", "A\0B", *INLINE.values()]
)


@given(st.dictionaries(_SETTINGS, _TEXTS, max_size=6))
def test_any_settings_are_taken_or_refused(texts: dict[str, str]) -> None:
    with contextlib.suppress(InvalidSetting):
        LISTENER.check({**INLINE, **{f"listener.name.ssl.{name}": text for name, text in texts.items()}})


def test_a_bad_file_leaves_everything_as_it_is_and_is_told_of_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = file_of(tmp_path, BROKER.key_pem, BROKER.certificate_pem)
    configs, listeners = configured(path)
    (made,) = listeners
    file_of(tmp_path, BROKER.key_pem[:100])
    configs.announce()
    configs.announce()
    assert der_of(made.context) == DER
    assert len(caplog.records) == 1
    assert "TLS goes on with the certificates and settings that it has: listener SSL: " in caplog.text


def test_another_holder_is_taken_if_that_is_allowed(tmp_path: Path) -> None:
    path = file_of(tmp_path, BROKER.key_pem, BROKER.certificate_pem)
    configs, listeners = configured(path, ssl_allow_dn_changes="true", ssl_allow_san_changes="true")
    (made,) = listeners
    file_of(tmp_path, again("somebody", ()))
    configs.announce()
    assert distinguished_name(der_of(made.context)) == "CN=somebody,O=Ottla"


# ---------------------------------------------------------------------- foreign bytes


def test_names_in_certificates_are_read() -> None:
    assert distinguished_name(DER) == "CN=broker,O=Ottla"
    assert alternative_names(DER) == {b"\x82\x09localhost", b"\x87\x04\x7f\x00\x00\x01"}
    authority = ssl.PEM_cert_to_DER_cert(AUTHORITY.certified.certificate_pem.decode())
    assert alternative_names(authority) == frozenset()


def test_characters_that_mean_something_are_escaped() -> None:
    odd = Authority("x", days=1).issue(' #a,b+c"d\\e<f>g;h=i ', is_server=False)
    der = ssl.PEM_cert_to_DER_cert(odd.certificate_pem.decode())
    assert distinguished_name(der) == r"CN=\ \#a\,b\+c\"d\\e\<f\>g\;h\=i\ "


@pytest.mark.parametrize(
    "expires",
    [
        datetime.datetime(2049, 12, 31, 23, 59, 59, tzinfo=datetime.UTC),  # the last with two digits for the year
        datetime.datetime(2050, 1, 1, tzinfo=datetime.UTC),
        datetime.datetime(9999, 12, 31, 23, 59, 59, tzinfo=datetime.UTC),
        datetime.datetime(1999, 3, 1, 1, 2, 3, tzinfo=datetime.UTC),
    ],
)
def test_the_end_of_a_certificate_is_read_in_both_forms(expires: datetime.datetime) -> None:
    key = rsa.generate_private_key(65537, 1024)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "broker")])
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), 1)
        .not_valid_before(datetime.datetime(1990, 1, 1, tzinfo=datetime.UTC))
        .not_valid_after(expires)
        .sign(key, hashes.SHA256())
    )
    assert not_after(made.public_bytes(Encoding.DER)) == int(expires.timestamp())


def test_a_listener_tells_when_the_first_certificate_of_its_chain_expires() -> None:
    of_broker = x509.load_pem_x509_certificate(BROKER.certificate_pem).not_valid_after_utc
    assert listener().expires_s == int(of_broker.timestamp())


@given(st.binary(max_size=200) | st.tuples(st.integers(0, len(DER) - 1), st.binary(max_size=4)))
def test_any_bytes_are_a_certificate_or_malformed(data: bytes | tuple[int, bytes]) -> None:
    if isinstance(data, tuple):
        position, put = data
        data = DER[:position] + put + DER[position + len(put) :]
    for read in (distinguished_name, alternative_names, not_after):
        with contextlib.suppress(MalformedDer):
            read(data)  # type: ignore[operator]


@given(
    st.text(max_size=200)
    | st.lists(st.sampled_from(["-----", "BEGIN ", "END ", "CERTIFICATE", "QUJD", ":"])).map("".join)
)
def test_any_text_is_pem_or_malformed(text: str) -> None:
    for read in (lambda each: list(blocks(each)), certificates, private_key):
        with contextlib.suppress(MalformedPem):
            read(text)


def test_without_a_descriptor_for_the_key_the_old_one_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = file_of(tmp_path, BROKER.certificate_pem, BROKER.key_pem)
    texts = {
        "listeners": "SSL://:0",
        "security.inter.broker.protocol": "SSL",
        "log.dirs": str(tmp_path),
        **in_file(path),
    }
    config = load_config(texts)
    listeners = TlsListeners(config.listeners, ConfigRepository(config))
    (used,) = listeners
    before = used.context
    another = AUTHORITY.issue("broker", ["localhost", "127.0.0.1"], is_server=True, organization="Ottla")
    file_of(tmp_path, another.certificate_pem, another.key_pem)

    def none_left(*_: object) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as patched:
        patched.setattr(os, "memfd_create", none_left)
        assert listeners._read_anew(texts) == []
    assert "the key cannot be given to OpenSSL: Too many open files" in caplog.text
    assert used.context is before
    listeners._take_up(listeners._read_anew(texts))
    assert used.context is not before


def test_pkcs12_without_its_package_is_refused_with_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = file_of(tmp_path, BROKER.pkcs12("secret"), name="broker.p12")
    texts = {"ssl.keystore.type": "PKCS12", "ssl.keystore.location": path, "ssl.keystore.password": "secret"}
    TlsListener("SSL", "SSL", texts)
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.serialization.pkcs12", None)
    with pytest.raises(InvalidSetting, match=r"pip install 'ottla\[security\]'"):
        TlsListener("SSL", "SSL", texts)


# ---------------------------------------------------------------------- signatures with SHA-1


def signed_with_sha_1() -> dict[str, str]:
    """Settings with a certificate that an authority has signed so. The library makes none, so the signature is put in afterwards."""
    keys = [rsa.generate_private_key(65537, 2048) for _ in range(2)]
    authority, holder = (
        x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)]) for name in ("authority", "old broker")
    )
    begin = datetime.datetime(2020, 1, 1)
    made = x509.CertificateBuilder(
        issuer_name=authority, subject_name=holder, public_key=keys[0].public_key(), serial_number=7, not_valid_before=begin,
        not_valid_after=begin + datetime.timedelta(days=20_000),
    ).sign(keys[1], hashes.SHA256())  # fmt: skip
    sha_256, sha_1 = (bytes.fromhex(f"2a864886f70d0101{last}") for last in ("0b", "05"))
    to_sign = made.tbs_certificate_bytes.replace(sha_256, sha_1)
    signature = keys[1].sign(to_sign, padding.PKCS1v15(), hashes.SHA1())
    der = made.public_bytes(Encoding.DER).replace(sha_256, sha_1)[: -len(signature)] + signature
    assert signature_algorithm(der) == "1.2.840.113549.1.1.5"
    key = keys[0].private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.key": key,
        "ssl.keystore.certificate.chain": ssl.DER_cert_to_PEM_cert(der),
    }


def test_a_certificate_that_is_signed_with_sha_1_is_served_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    """As Apache Kafka does, whose Java looks at such signatures where it verifies."""
    context = TlsListener("SSL", "SSL", signed_with_sha_1()).context
    assert distinguished_name(der_of(context)) == "CN=old broker"
    assert caplog.messages == [
        (
            "ssl.keystore: CN=old broker has a certificate that is signed with SHA-1, and is served all the same:"
            " have it signed anew, with SHA-256"
        )
    ]
    usual = listener().context
    assert {each["name"] for each in context.get_ciphers()} == {each["name"] for each in usual.get_ciphers()}
    assert context.minimum_version == usual.minimum_version


@pytest.mark.parametrize("client_auth", ["requested", "required"])
def test_where_clients_show_certificates_one_line_names_the_certificate(client_auth: str) -> None:
    """The level that serves it would take theirs with such a signature as well."""
    with pytest.raises(InvalidSetting) as refused:
        TlsListener("SSL", "SSL", signed_with_sha_1() | {"ssl.client.auth": client_auth})
    assert str(refused.value) == (
        "listener SSL: ssl.keystore: CN=old broker has a certificate that is signed with SHA-1, which is not served where"
        " certificates of others are verified: have it signed anew, with SHA-256"
    )
