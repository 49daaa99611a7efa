"""Keystores and truststores, as Kafka's settings name them: PEM in files or in the settings themselves, PKCS12 and JKS in files.

A store comes to PEM in memory in the end, because that is what OpenSSL reads. Errors are InvalidSetting with the name of the
setting that has to be changed. Passwords and keys are never part of a message.

PEM files may hold anything between the blocks, as OpenSSL and Java allow. A setting of one line has spaces where a file has line
breaks, so the blocks are taken apart and written anew.
"""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ottla.server.security.java_stores import (
    JKS_MAGIC,
    UnreadableStore,
    jks_authorities,
    jks_key_and_chain,
    pkcs12_authorities,
    pkcs12_key_and_chain,
)
from ottla.wire.settings import InvalidSetting

if TYPE_CHECKING:
    from ottla.server.config.security_config import TlsConfig


# ---------------------------------------------------------------------- PEM


TEXT_CHARACTERS_MAX = 4 * 1024 * 1024
"""Authorities of a whole system are some hundred kilobytes."""

_BEGIN, _END, _DASHES = "-----BEGIN ", "-----END ", "-----"
_LINE = 64


class MalformedPem(ValueError):
    """Text that is not PEM, or lacks what is looked for; the message never has the text in it."""


class Block(NamedTuple):
    """One object: `label` is CERTIFICATE, PRIVATE KEY and so on."""

    label: str
    der: bytes

    @property
    def text(self) -> str:
        """PEM of the block."""
        coded = base64.b64encode(self.der).decode()
        lines = [coded[start : start + _LINE] for start in range(0, len(coded), _LINE)]
        return "\n".join((f"{_BEGIN}{self.label}{_DASHES}", *lines, f"{_END}{self.label}{_DASHES}", ""))


def blocks(text: str) -> Iterator[Block]:
    """All objects of a text, in their order; MalformedPem if one of them is cut off or no base64."""
    if len(text) > TEXT_CHARACTERS_MAX:
        raise MalformedPem(f"it has more than {TEXT_CHARACTERS_MAX} characters")
    position = 0
    while (begin := text.find(_BEGIN, position)) >= 0:
        body = text.find(_DASHES, begin + len(_BEGIN))
        if body < 0:
            raise MalformedPem("a line that begins a block has no end")
        label = text[begin + len(_BEGIN) : body]
        # A block ends with its own name: what is nested or cut off does not.
        ending = f"{_END}{label}{_DASHES}"
        end = text.find(ending, body)
        if end < 0 or len(label) > _LINE:
            raise MalformedPem(f"a block of {label[:_LINE]!r} has no end")
        yield Block(label, _decoded(label, text[body + len(_DASHES) : end]))
        position = end + len(ending)


def _decoded(label: str, body: str) -> bytes:
    # Keys of OpenSSL's own format name their encryption in lines before the base64, which are part of them.
    if ":" in body:
        raise MalformedPem(f"a block of {label!r} has headers: convert the key with `openssl pkcs8 -topk8`")
    try:
        der = base64.b64decode("".join(body.split()), validate=True)
    except (binascii.Error, ValueError):  # ValueError: a character that is not ASCII
        raise MalformedPem(f"a block of {label!r} is not base64") from None
    if not der:
        raise MalformedPem(f"a block of {label!r} is empty")
    return der


def certificates(text: str) -> list[bytes]:
    """The certificates of a text as DER; MalformedPem if there are none."""
    found = [each.der for each in blocks(text) if each.label in ("CERTIFICATE", "X509 CERTIFICATE")]
    if not found:
        raise MalformedPem("it holds no certificate")
    return found


def private_key(text: str) -> Block:
    """The first private key of a text; MalformedPem if there is none."""
    for each in blocks(text):
        if each.label.endswith("PRIVATE KEY"):
            return each
    raise MalformedPem("it holds no private key")


# ---------------------------------------------------------------------- stores


STORE_BYTES_MAX = 4 * 1024 * 1024


class KeyStore(NamedTuple):
    """Private key with its certificates, the holder's first (DER)."""

    key: Block
    chain: tuple[bytes, ...]
    password: str | None
    """Password of the key."""

    @property
    def pem(self) -> str:
        return self.key.text + pem_of(self.chain)


def pem_of(chain: tuple[bytes, ...]) -> str:
    """PEM of certificates (DER)."""
    return "".join(Block("CERTIFICATE", each).text for each in chain)


def read_key_store(config: TlsConfig) -> KeyStore | None:
    """Read the keystore that ssl.keystore.* name, None if they name none; rules as in Kafka's DefaultSslEngineFactory."""
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
    """Read the authorities (DER) that ssl.truststore.* name, None if they name none."""
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
    """Files that these settings name."""
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
    """Read the bytes of a store; raises InvalidSetting if it cannot be read."""
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
    raise InvalidSetting.without_value(name, reason)


def _unusable(name: str, reason: str) -> InvalidSetting:
    return InvalidSetting(name, None, reason, message=f"{name} cannot be used: {reason}")


def _check_type(name: str, kind: str) -> None:
    if kind.upper() not in ("PKCS12", "JKS"):
        raise InvalidSetting(name, kind, f"{kind} is not known; allowed: PEM, PKCS12, JKS")


def _of_binary_store(config: TlsConfig, location: str) -> KeyStore:
    """Read a file of Java's. As there the first bytes say which format it has, and not its type."""
    name = "ssl.keystore.location"
    data, password, key_password = read_file(name, location), config.ssl_keystore_password, config.ssl_key_password
    try:
        if data.startswith(JKS_MAGIC):
            key, chain = jks_key_and_chain(data, password, key_password)
        else:
            # The format allows two, but what reads it here takes only one.
            if key_password not in (None, password):
                _refuse("ssl.key.password", "the key of a PKCS12 store has to have the password of the store")
            key, chain = pkcs12_key_and_chain(data, password)
    except UnreadableStore as error:
        raise _unusable(name, str(error)) from None
    return KeyStore(Block("PRIVATE KEY", key), chain, None)


def _authorities_of_binary_store(name: str, location: str, password: str | None) -> tuple[bytes, ...]:
    data = read_file(name, location)
    read = jks_authorities if data.startswith(JKS_MAGIC) else pkcs12_authorities
    try:
        return read(data, password)
    except UnreadableStore as error:
        raise _unusable(name, str(error)) from None
