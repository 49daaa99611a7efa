"""OpenSSL contexts from Kafka's settings, for accepted connections and for connections to other brokers.

A chain with a signature by SHA-1 is too weak for OpenSSL, and Java serves it. It is served here, too, with a warning, where a
listener verifies no certificates of clients: the security level of OpenSSL that this takes would let theirs pass as well.

Renegotiation is refused, sessions are resumed by tickets that only this context understands, and a certificate in a
truststore is trusted whether or not it is an authority's, as in Java. Cipher suites have Java's names (which are IANA's).
"""

from __future__ import annotations

import contextlib
import logging
import ssl
import tempfile
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from ottla.replication import system
from ottla.server.security.certificates import MalformedDer, distinguished_name, signature_algorithm
from ottla.server.security.key_stores import KeyStore, pem_of, read_key_store, read_trust_store
from ottla.wire.errors import bare
from ottla.wire.settings import InvalidSetting

if TYPE_CHECKING:
    from ottla.server.config.security_config import TlsConfig

TLS_1_3 = (
    "TLS_AES_256_GCM_SHA384",
    "TLS_CHACHA20_POLY1305_SHA256",
    "TLS_AES_128_GCM_SHA256",
    "TLS_AES_128_CCM_SHA256",
    "TLS_AES_128_CCM_8_SHA256",
)
USUAL_OF_TLS_1_3 = frozenset(TLS_1_3[:3])
"""Suites of TLS 1.3 that OpenSSL offers by default."""

_EXCHANGES = {
    "RSA": "",
    "DHE_RSA": "DHE-RSA-",
    "DHE_DSS": "DHE-DSS-",
    "ECDHE_RSA": "ECDHE-RSA-",
    "ECDHE_ECDSA": "ECDHE-ECDSA-",
}


def openssl_name(name: str) -> str:
    """Convert a cipher suite's IANA name, up to TLS 1.2, to OpenSSL's; other texts stay unchanged."""
    exchange, separator, rest = name.removeprefix("TLS_").removeprefix("SSL_").partition("_WITH_")
    if not separator or exchange not in _EXCHANGES:
        return name
    # OpenSSL names the hash of CBC and GCM suites, but not of CHACHA20 and CCM; it leaves CBC unsaid.
    rest = rest.replace("AES_128", "AES128").replace("AES_256", "AES256").replace("_CBC", "")
    if rest.startswith("CHACHA20"):
        rest = rest.removesuffix("_SHA256")
    if rest.startswith("3DES_EDE"):
        rest = rest.replace("3DES_EDE", "DES-CBC3")
    return _EXCHANGES[exchange] + rest.replace("_", "-")


def split_suites(names: Iterable[str]) -> tuple[list[str], list[str]]:
    """Split cipher suites into those of TLS 1.3 and the older ones; the latter by OpenSSL's names."""
    newest, older = [], []
    for name in names:
        if name in TLS_1_3:
            newest.append(name)
        else:
            older.append(openssl_name(name))
    return newest, older


# ---------------------------------------------------------------------- contexts


logger = logging.getLogger("ottla.tls")

_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
# Java has them switched off. As there they may be named, as long as another one is left.
_FORMER = frozenset(("TLSv1", "TLSv1.1"))
_CONTEXT_NAMES = frozenset(("SSL", "SSLv2", "SSLv3", "TLS", *_FORMER, *_VERSIONS))
CLIENT_AUTH = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}
_WEAK_SIGNATURE = "CA_MD_TOO_WEAK"
_SHA_1 = frozenset(("1.2.840.113549.1.1.5", "1.2.840.10045.4.1", "1.2.840.10040.4.3"))
"""Signatures with it, by RSA, by elliptic curves and by DSA."""
_WITH_SHA_1 = "has a certificate that is signed with SHA-1"
_SIGN_ANEW = "have it signed anew, with SHA-256"
KERNEL_TLS: int = getattr(ssl, "OP_ENABLE_KTLS", 0) if system.IS_LINUX else 0
"""Lets the kernel encrypt where it can (Python 3.12); 0: this Python or this system does not know of it."""


class Secrets:
    """Private key and trusted authorities of one listener, read from its keystore and truststore."""

    __slots__ = ("authorities", "key_store")

    def __init__(self, config: TlsConfig) -> None:
        self.key_store: KeyStore | None = read_key_store(config)
        self.authorities: tuple[bytes, ...] | None = read_trust_store(config)


def server_context(config: TlsConfig, secrets: Secrets) -> ssl.SSLContext:
    """Return the TLS context for accepted connections. Raises InvalidSetting if settings or stores cannot be used."""
    if secrets.key_store is None:
        reason = "there is no key: set ssl.keystore.location and ssl.keystore.type, or ssl.keystore.key"
        raise InvalidSetting.without_value("ssl.keystore.location", reason)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    wanted = CLIENT_AUTH.get(config.ssl_client_auth)
    if wanted is None:
        raise InvalidSetting("ssl.client.auth", config.ssl_client_auth, "it is none of required, requested, none")
    context.verify_mode = wanted
    _equip(context, config, secrets, has_to_verify=wanted is not ssl.CERT_NONE)
    return context


def client_context(config: TlsConfig, secrets: Secrets) -> ssl.SSLContext:
    """Return the TLS context for connections to other brokers. Raises InvalidSetting if settings are unusable."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    algorithm = config.ssl_endpoint_identification_algorithm.lower()
    if algorithm not in ("", "https"):
        name = "ssl.endpoint.identification.algorithm"
        raise InvalidSetting(name, config.ssl_endpoint_identification_algorithm, "it is neither https nor empty")
    context.check_hostname = algorithm == "https"
    _equip(context, config, secrets, has_to_verify=True)
    return context


def _equip(context: ssl.SSLContext, config: TlsConfig, secrets: Secrets, *, has_to_verify: bool) -> None:
    context.options |= ssl.OP_NO_RENEGOTIATION | KERNEL_TLS
    newest, older = split_suites(config.ssl_cipher_suites)
    _choose_versions(context, config, has_newest=bool(newest) or not older, has_older=bool(older) or not newest)
    _choose_suites(context, newest, older)
    if secrets.key_store is not None:
        _load_key(context, secrets.key_store, has_to_verify=has_to_verify)
    if has_to_verify:
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        _load_authorities(context, secrets.authorities)


def _choose_versions(context: ssl.SSLContext, config: TlsConfig, *, has_newest: bool, has_older: bool) -> None:
    if config.ssl_protocol not in _CONTEXT_NAMES:
        raise InvalidSetting("ssl.protocol", config.ssl_protocol, "it is not known; usual are TLS and TLSv1.3")
    enabled = config.ssl_enabled_protocols or tuple(_VERSIONS)
    if unknown := [each for each in enabled if each not in _VERSIONS and each not in _FORMER]:
        allowed = ", ".join(_VERSIONS)
        raise InvalidSetting("ssl.enabled.protocols", ",".join(unknown), f"it is not known; allowed: {allowed}")
    if _FORMER.issuperset(enabled):
        reason = "it is not served any more; allowed: " + ", ".join(_VERSIONS)
        raise InvalidSetting("ssl.enabled.protocols", ",".join(enabled), reason)
    # Suites are named for one version or the other: without a suite a version cannot be spoken.
    spoken = [each for each in _VERSIONS if each in enabled and (has_newest if each == "TLSv1.3" else has_older)]
    if not spoken:
        reason = f"none of them is for a version of ssl.enabled.protocols, {','.join(enabled)}"
        raise InvalidSetting("ssl.cipher.suites", ",".join(config.ssl_cipher_suites), reason)
    context.minimum_version, context.maximum_version = _VERSIONS[spoken[0]], _VERSIONS[spoken[-1]]


def _choose_suites(context: ssl.SSLContext, newest: list[str], older: list[str]) -> None:
    try:
        if older:
            context.set_ciphers(":".join(older))
    except (ssl.SSLError, ValueError):  # ValueError: a character that OpenSSL cannot be given
        raise InvalidSetting("ssl.cipher.suites", ",".join(older), "OpenSSL knows none of them") from None
    if newest and set(newest) != USUAL_OF_TLS_1_3:
        choose = getattr(context, "set_ciphersuites", None)  # Python 3.15
        if choose is not None:
            choose(":".join(newest))
        elif unused := set(newest) - USUAL_OF_TLS_1_3:
            names = ",".join(sorted(unused))
            raise InvalidSetting("ssl.cipher.suites", names, "this Python cannot choose them")
        else:
            logger.warning(
                "ssl.cipher.suites: this Python cannot choose among the suites of TLS 1.3; %s may be used as well",
                ", ".join(sorted(USUAL_OF_TLS_1_3 - set(newest))),
            )


def _load_key(context: ssl.SSLContext, store: KeyStore, *, has_to_verify: bool) -> None:
    holder: str | None = None
    with _as_file(store.pem) as path:
        error = _refusal(context, path, store)
        if error is not None and error.reason == _WEAK_SIGNATURE:
            holder = _signed_with_sha_1(store)
            if holder is not None and not has_to_verify:
                _lower_security_level(context)
                error = _refusal(context, path, store)
    if error is not None:
        raise _unusable_key(error, holder)
    if holder is not None:
        logger.warning(
            "ssl.keystore: %s has a certificate that is signed with SHA-1, and is served all the same: have it signed anew, with SHA-256",
            holder,
        )


def _refusal(context: ssl.SSLContext, path: str, store: KeyStore) -> ssl.SSLError | None:
    """Load the key and its chain into `context`; return OpenSSL's error, None if it accepts them.

    Raises InvalidSetting for a key password that is too long.
    """
    try:
        # Without a password OpenSSL would ask for one on the terminal.
        context.load_cert_chain(path, password=store.password or "")
    except ssl.SSLError as error:
        return bare(error)
    except ValueError:  # longer than OpenSSL takes
        raise InvalidSetting("ssl.key.password", "[hidden]", "it is too long") from None
    return None


def _lower_security_level(context: ssl.SSLContext) -> None:
    """Make OpenSSL accept weak signatures, without changing the cipher suites. TLS 1.3 has suites of its own."""
    suites = [each["name"] for each in context.get_ciphers() if each["protocol"] != "TLSv1.3"]
    context.set_ciphers(":".join([*(suites or ["DEFAULT"]), "@SECLEVEL=0"]))


def _signed_with_sha_1(store: KeyStore) -> str | None:
    """Return the subject of the chain's first certificate signed with SHA-1; None if there is none."""
    try:
        return next((distinguished_name(each) for each in store.chain if signature_algorithm(each) in _SHA_1), None)
    except MalformedDer:
        return None


def _unusable_key(error: ssl.SSLError, weak_holder: str | None) -> InvalidSetting:
    if weak_holder is not None:
        reason = (
            f"{weak_holder} {_WITH_SHA_1}, which is not served where certificates of others are verified: {_SIGN_ANEW}"
        )
    elif error.reason == _WEAK_SIGNATURE:
        reason = f"a certificate of the chain is signed with a hash that is too weak for OpenSSL: {_SIGN_ANEW}"
    elif error.reason == "KEY_VALUES_MISMATCH":
        reason = "the private key is not that of the first certificate"
    elif error.reason in ("BAD_DECRYPT", "BAD_PASSWORD_READ", "PKCS12_CIPHERFINAL_ERROR", "CIPHERFINAL_ERROR"):
        reason = "the private key cannot be decrypted with ssl.key.password"
    elif error.reason is not None and error.reason.endswith("_TOO_SMALL"):
        reason = "the key or a signature is too weak for OpenSSL's security level"
    else:
        # OpenSSL has no better word for a wrong password with some ciphers than that the key cannot be read.
        reason = f"the private key cannot be read ({error.reason or 'is ssl.key.password right?'})"
    return InvalidSetting("ssl.keystore.location", None, reason, message=f"ssl.keystore: {reason}")


def _load_authorities(context: ssl.SSLContext, authorities: tuple[bytes, ...] | None) -> None:
    if authorities is None:
        context.load_default_certs()
        return
    try:
        context.load_verify_locations(cadata=pem_of(authorities))
    except ssl.SSLError as error:
        reason = f"a certificate cannot be read ({error.reason})"
        raise InvalidSetting("ssl.truststore.location", None, reason, message=f"ssl.truststore: {reason}") from None


@contextlib.contextmanager
def _as_file(text: str) -> Iterator[str]:
    """Write a secret text to a private temporary file, if possible in memory; yield the file's path."""
    if (in_memory := system.file_in_memory()) is not None:
        descriptor, path = in_memory
        with open(descriptor, "w") as file:
            file.write(text)
            file.flush()
            yield path
        return
    with tempfile.NamedTemporaryFile("w", prefix="ottla") as file:  # its mode is 0600
        file.write(text)
        file.flush()
        yield file.name
