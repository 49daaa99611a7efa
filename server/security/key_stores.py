"""Keystores and truststores by Kafka's settings: PEM in files or settings, PKCS12 and JKS in files.

A store comes to PEM in memory in the end, because that is what OpenSSL reads. Errors are InvalidSetting with the name of the
setting that has to be changed. Passwords and keys are never part of a message.

PEM files may hold anything between the blocks, as OpenSSL and Java allow. A setting of one line has spaces where a file has line
breaks, so the blocks are parsed and rewritten.

Stores in Java's binary formats are PKCS#12 (RFC 7292), read by the package `cryptography`, and JKS, by `pyjks`. Both packages are
optional, and loaded when such a store is first read. Until version 8 Java wrote JKS only, and `keytool -storetype JKS` still
does. Its encryption is weak: an attacker who has the file can guess passwords fast. The sizes of what is read are bounded before
the package sees it, so that a file made to be expensive costs no more than a large one.
"""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.wire.settings import InvalidSetting

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization.pkcs12 import PKCS12KeyAndCertificates

    from ottla.server.config.security_config import TlsConfig


# ---------------------------------------------------------------------- PEM


TEXT_CHARACTERS_MAX = 4 * 1024 * 1024
"""Authorities of a whole system are some hundred kilobytes."""

_BEGIN, _END, _DASHES = "-----BEGIN ", "-----END ", "-----"
_LINE = 64


class MalformedPem(ValueError):
    """Text that is no PEM, or lacks the requested object. The message never quotes the text."""


class Block(NamedTuple):
    """PEM object. `label`: its type, such as CERTIFICATE or PRIVATE KEY."""

    label: str
    der: bytes

    @property
    def text(self) -> str:
        """The object as PEM text."""
        coded = base64.b64encode(self.der).decode()
        lines = [coded[start : start + _LINE] for start in range(0, len(coded), _LINE)]
        return "\n".join((f"{_BEGIN}{self.label}{_DASHES}", *lines, f"{_END}{self.label}{_DASHES}", ""))


def blocks(text: str) -> Iterator[Block]:
    """Yield all PEM objects of a text, in order. Raises MalformedPem if one is truncated or not base64."""
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
    """Return the certificates of a PEM text as DER. Raises MalformedPem if there are none."""
    found = [each.der for each in blocks(text) if each.label in ("CERTIFICATE", "X509 CERTIFICATE")]
    if not found:
        raise MalformedPem("it holds no certificate")
    return found


def private_key(text: str) -> Block:
    """Return the first private key of a PEM text. Raises MalformedPem if there is none."""
    for each in blocks(text):
        if each.label.endswith("PRIVATE KEY"):
            return each
    raise MalformedPem("it holds no private key")


# ---------------------------------------------------------------------- stores


FILE_BYTES_MAX = 4 * 1024 * 1024


class KeyStore(NamedTuple):
    """Private key with its certificate chain (DER). The chain begins with the key holder's certificate."""

    key: Block
    chain: tuple[bytes, ...]
    password: str | None
    """Password of the key."""

    @property
    def pem(self) -> str:
        return self.key.text + pem_of(self.chain)


def pem_of(chain: tuple[bytes, ...]) -> str:
    """Convert certificates (DER) to PEM."""
    return "".join(Block("CERTIFICATE", each).text for each in chain)


def read_key_store(config: TlsConfig) -> KeyStore | None:
    """Read the private key and chain that ssl.keystore.* gives; None if it gives none. Raises InvalidSetting.

    The rules are those of Kafka's DefaultSslEngineFactory.
    """
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
    """Read the authorities (DER) that ssl.truststore.* gives; None if it gives none. Raises InvalidSetting."""
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
    """Return the paths of the keystore and truststore files that the settings name."""
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
    """Return the bytes of the store file at `location`. `name`: setting that gives it. Raises InvalidSetting."""
    path = Path(location)
    try:
        # A pipe or a device would block its reader for ever.
        if not path.is_file():
            raise _unusable(name, f"{location} is no file")
        with path.open("rb") as file:
            if os.fstat(file.fileno()).st_size > FILE_BYTES_MAX:
                raise _unusable(name, f"{location} has more than {FILE_BYTES_MAX} bytes")
            return file.read(FILE_BYTES_MAX)
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
    """Read a JKS or PKCS#12 keystore. Its first bytes tell the format, whatever type is configured, as in Java."""
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


JKS_MAGIC = b"\xfe\xed\xfe\xed"
STORE_BYTES_MAX = 1024 * 1024  # Java's own file of all usual authorities has 200 KB
KEY_BYTES_MAX = 16 * 1024  # RSA 16384 has 9 KB
_X509 = ("X.509", "X509")


class UnreadableStore(ValueError):
    """Keystore or truststore that is malformed, or whose password is wrong. The message quotes neither."""


# ---------------------------------------------------------------------- PKCS#12


def pkcs12_key_and_chain(data: bytes, password: str | None) -> tuple[bytes, tuple[bytes, ...]]:
    """Return the private key (PKCS#8 in DER) and its certificates (DER), the holder's first. Raises UnreadableStore."""
    store = _pkcs12_store(data, password)
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    if store.key is None or store.cert is None:
        raise UnreadableStore("it holds no private key with a certificate")
    key = store.key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())
    others = [each.certificate for each in store.additional_certs]
    return key, tuple(each.public_bytes(Encoding.DER) for each in _chain(store.cert.certificate, others))


def pkcs12_authorities(data: bytes, password: str | None) -> tuple[bytes, ...]:
    """Return all certificates (DER); like Java, also those of private keys. Raises UnreadableStore."""
    store = _pkcs12_store(data, password)
    from cryptography.hazmat.primitives.serialization import Encoding

    found = [store.cert] if store.cert is not None else []
    found += store.additional_certs
    if not found:
        raise UnreadableStore("it holds no certificate")
    return tuple(each.certificate.public_bytes(Encoding.DER) for each in found)


def _pkcs12_store(data: bytes, password: str | None) -> PKCS12KeyAndCertificates:
    try:
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.serialization.pkcs12 import load_pkcs12
    except ImportError:
        raise UnreadableStore("PKCS12 is read with cryptography: pip install 'ottla[security]'") from None
    try:
        return load_pkcs12(data, None if password is None else password.encode())
    except (ValueError, TypeError, UnsupportedAlgorithm):
        # Its words may be about the contents.
        raise UnreadableStore("it is no PKCS12 store, or the password is another one") from None


def _chain(holder: x509.Certificate, others: Sequence[x509.Certificate]) -> Iterator[x509.Certificate]:
    """Yield the certificates from `holder` up to its authority. `others`: in any order, perhaps unrelated."""
    by_subject = {each.subject: each for each in others}
    following: x509.Certificate | None = holder
    while following is not None:
        yield following
        following = by_subject.pop(following.issuer, None)  # once each: an authority is its own issuer


# ---------------------------------------------------------------------- JKS


def jks_key_and_chain(
    data: bytes, store_password: str | None, key_password: str | None
) -> tuple[bytes, tuple[bytes, ...]]:
    """Return the first private key (PKCS#8 in DER) and its certificate chain (DER), the holder's certificate first.

    `key_password` None: the password of the store, as with Java's tools. Raises UnreadableStore.
    """
    jks = _jks()
    password = store_password if key_password is None else key_password
    for entry in _entries(jks, data, store_password):
        if isinstance(entry, jks.PrivateKeyEntry):
            if password is None:
                raise UnreadableStore("its key has a password, and none is given")
            chain = _chain_of(entry)
            if not chain:
                raise UnreadableStore("its key has no certificate")
            return _decrypted(jks, entry, password), chain
    raise UnreadableStore("it holds no private key with a certificate")


def jks_authorities(data: bytes, password: str | None) -> tuple[bytes, ...]:
    """Return the trusted certificates (DER); like Java, also those of private keys. Raises UnreadableStore."""
    jks = _jks()
    found: list[bytes] = []
    for entry in _entries(jks, data, password):
        if isinstance(entry, jks.TrustedCertEntry):
            found += [entry.cert] if entry.type in _X509 else []
        elif isinstance(entry, jks.PrivateKeyEntry):
            found += _chain_of(entry)[:1]
    if not found:
        raise UnreadableStore("it holds no certificate")
    return tuple(found)


def _jks() -> Any:
    try:
        import jks
    except ImportError:
        raise UnreadableStore(
            "it has Java's own format, JKS, which is read with pyjks: pip install 'ottla[jks]', or convert it with"
            " `keytool -importkeystore -deststoretype PKCS12`"
        ) from None
    return jks


def _entries(jks: Any, data: bytes, password: str | None) -> Iterator[Any]:
    """Yield the entries of a JKS store. Like Java, verify the store's integrity only with a password."""
    # The other format of that package has serialized objects of Java in it.
    if not data.startswith(JKS_MAGIC):
        raise UnreadableStore("it is no JKS store")
    if len(data) > STORE_BYTES_MAX:
        raise UnreadableStore(f"it has more than {STORE_BYTES_MAX} bytes")
    try:
        store = jks.KeyStore.loads(data, password, try_decrypt_keys=False)
    except jks.KeystoreSignatureException:
        raise UnreadableStore("the password is another one, or the file was changed") from None
    except Exception:  # noqa: BLE001 - the package names no limit to what it raises for foreign bytes
        raise UnreadableStore("it is no JKS store") from None
    return iter(store.entries.values())


def _chain_of(entry: Any) -> tuple[bytes, ...]:
    # `cert_chain` can be read while the key is encrypted, because it has no underscore.
    return tuple(der for kind, der in vars(entry)["cert_chain"] if kind in _X509)


def _decrypted(jks: Any, entry: Any, password: str) -> bytes:
    if len(vars(entry)["_encrypted"] or b"") > KEY_BYTES_MAX:
        raise UnreadableStore(f"its key has more than {KEY_BYTES_MAX} bytes")
    try:
        entry.decrypt(password)
        return bytes(entry.pkey_pkcs8)
    except jks.DecryptionFailureException:
        raise UnreadableStore("the password of its key is another one") from None
    except Exception:  # noqa: BLE001 - the package names no limit to what it raises for foreign bytes
        raise UnreadableStore("its key cannot be read") from None
