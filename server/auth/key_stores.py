"""Keystores and truststores, as Kafka's settings name them: PEM in files or in the settings themselves, PKCS12 and
JKS in files.

A store comes to PEM in memory in the end, because that is what OpenSSL reads. Errors are InvalidSetting with the name of the
setting that has to be changed. Passwords and keys are never part of a message.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ottla.server.auth.pem import Block, MalformedPem, certificates, private_key
from ottla.server.auth.unreadable_store import UnreadableStore
from ottla.wire.settings import InvalidSetting

if TYPE_CHECKING:
    from types import ModuleType

    from ottla.server.settings.security_config import TlsConfig

STORE_BYTES_MAX = 4 * 1024 * 1024
_JKS = b"\xfe\xed\xfe\xed"


class KeyStore(NamedTuple):
    """A private key with the certificates that show it, the holder's first (DER)."""

    key: Block
    chain: tuple[bytes, ...]
    password: str | None
    """Of the key."""

    @property
    def pem(self) -> str:
        return self.key.text + pem_of(self.chain)


def pem_of(chain: tuple[bytes, ...]) -> str:
    """Certificates (DER) as PEM."""
    return "".join(Block("CERTIFICATE", each).text for each in chain)


def read_key_store(config: TlsConfig) -> KeyStore | None:
    """What ssl.keystore.* come to, None if nothing is said. Kafka's DefaultSslEngineFactory has the same rules."""
    kind = config.ssl_keystore_type.upper()
    key, chain, location = config.ssl_keystore_key, config.ssl_keystore_certificate_chain, config.ssl_keystore_location
    if key is not None or chain is not None:
        _check_inline(kind, key, chain)
        return _of_pem("ssl.keystore.key", key or "", chain or "", config.ssl_key_password)
    if location is None:
        if config.ssl_keystore_password is not None:
            _refuse("ssl.keystore.password", "SSL key store is not specified, but key store password is specified.")
        return None
    if kind == "PEM":
        if config.ssl_keystore_password is not None:
            reason = "SSL key store password cannot be specified with PEM format, only key password may be specified."
            _refuse("ssl.keystore.password", reason)
        text = _text_of("ssl.keystore.location", location)
        return _of_pem("ssl.keystore.location", text, text, config.ssl_key_password)
    _check_type("ssl.keystore.type", config.ssl_keystore_type)
    return _of_binary_store(config, location)


def read_trust_store(config: TlsConfig) -> tuple[bytes, ...] | None:
    """The authorities (DER) that ssl.truststore.* come to, None if nothing is said."""
    kind, inline = config.ssl_truststore_type.upper(), config.ssl_truststore_certificates
    location, password = config.ssl_truststore_location, config.ssl_truststore_password
    if inline is not None:
        if kind != "PEM":
            reason = f"SSL trust store certs can be specified only for PEM, but trust store type is {kind}."
            _refuse("ssl.truststore.type", reason)
        if location is not None:
            reason = "Both SSL trust store location and separate trust certificates are specified."
            _refuse("ssl.truststore.location", reason)
    if password is not None and (kind == "PEM" or inline is not None):
        _refuse("ssl.truststore.password", "SSL trust store password cannot be specified for PEM format.")
    if inline is not None:
        return _certificates("ssl.truststore.certificates", inline)
    if location is None:
        if password is not None:
            reason = "SSL trust store is not specified, but trust store password is specified."
            _refuse("ssl.truststore.password", reason)
        return None
    if kind == "PEM":
        return _certificates("ssl.truststore.location", _text_of("ssl.truststore.location", location))
    _check_type("ssl.truststore.type", config.ssl_truststore_type)
    return _authorities_of_binary_store("ssl.truststore.location", location, password)


def files_of(config: TlsConfig) -> tuple[str, ...]:
    """The files that these settings name."""
    named = (config.ssl_keystore_location, config.ssl_truststore_location)
    return tuple(each for each in named if each is not None)


def _check_inline(kind: str, key: str | None, chain: str | None) -> None:
    if key is None:
        _refuse("ssl.keystore.key", "SSL certificate chain is specified, but private key is not specified")
    if kind != "PEM":
        _refuse("ssl.keystore.type", f"SSL private key can be specified only for PEM, but key store type is {kind}.")
    if chain is None:
        reason = "SSL private key is specified, but certificate chain is not specified."
        _refuse("ssl.keystore.certificate.chain", reason)


def _of_pem(name: str, key: str, chain: str, password: str | None) -> KeyStore:
    try:
        return KeyStore(private_key(key), tuple(certificates(chain)), password)
    except MalformedPem as error:
        raise _unusable(name, str(error)) from None


def _certificates(name: str, text: str) -> tuple[bytes, ...]:
    try:
        return tuple(certificates(text))
    except MalformedPem as error:
        raise _unusable(name, str(error)) from None


def _text_of(name: str, location: str) -> str:
    return read_file(name, location).decode("utf-8", "replace")


def read_file(name: str, location: str) -> bytes:
    """A store's bytes; InvalidSetting says why it cannot be read."""
    path = Path(location)
    try:
        # A pipe or a device would hold whoever reads it for ever.
        if not path.is_file():
            raise _unusable(name, f"{location} is no file")
        with path.open("rb") as file:
            if os.fstat(file.fileno()).st_size > STORE_BYTES_MAX:
                raise _unusable(name, f"{location} has more than {STORE_BYTES_MAX} bytes")
            return file.read(STORE_BYTES_MAX)
    except OSError as error:
        raise _unusable(name, f"{location} cannot be read: {error.strerror}") from None


def _refuse(name: str, reason: str) -> None:
    raise InvalidSetting(name, None, reason, message=f"{name}: {reason}")


def _unusable(name: str, reason: str) -> InvalidSetting:
    return InvalidSetting(name, None, reason, message=f"{name} cannot be used: {reason}")


def _check_type(name: str, kind: str) -> None:
    if kind.upper() not in ("PKCS12", "JKS"):
        raise InvalidSetting(name, kind, f"{kind} is not known; allowed: PEM, PKCS12, JKS")


def _of_binary_store(config: TlsConfig, location: str) -> KeyStore:
    """A file of Java's. As there the first bytes say which format it has, and not its type."""
    name = "ssl.keystore.location"
    data, password, key_password = read_file(name, location), config.ssl_keystore_password, config.ssl_key_password
    try:
        if data.startswith(_JKS):
            key, chain = _jks_reader(name).key_and_chain(data, password, key_password)
        else:
            # The format allows two, but what reads it here takes only one.
            if key_password not in (None, password):
                _refuse("ssl.key.password", "the key of a PKCS12 store has to have the password of the store")
            key, chain = _pkcs12_reader(name).key_and_chain(data, password)
    except UnreadableStore as error:
        raise _unusable(name, str(error)) from None
    return KeyStore(Block("PRIVATE KEY", key), chain, None)


def _authorities_of_binary_store(name: str, location: str, password: str | None) -> tuple[bytes, ...]:
    data = read_file(name, location)
    reader = _jks_reader(name) if data.startswith(_JKS) else _pkcs12_reader(name)
    try:
        found: tuple[bytes, ...] = reader.authorities(data, password)
    except UnreadableStore as error:
        raise _unusable(name, str(error)) from None
    return found


def _pkcs12_reader(name: str) -> ModuleType:
    """`pkcs12_stores.py`, whose package is an optional one."""
    try:
        from ottla.server.auth import pkcs12_stores
    except ImportError:
        raise _unusable(name, "PKCS12 is read with cryptography: pip install 'ottla[security]'") from None
    return pkcs12_stores


def _jks_reader(name: str) -> ModuleType:
    """The same for `jks_stores.py`."""
    try:
        from ottla.server.auth import jks_stores
    except ImportError:
        reason = (
            "it has Java's own format, JKS, which is read with pyjks: pip install 'ottla[jks]', or convert it with"
            " `keytool -importkeystore -deststoretype PKCS12`"
        )
        raise _unusable(name, reason) from None
    return jks_stores
