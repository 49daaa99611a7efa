"""Stores of keys and certificates in Java's binary formats: PKCS#12 (RFC 7292), read by the package `cryptography`, and JKS, by `pyjks`.

Both packages are optional, and loaded when such a store is first read. Until version 8 Java wrote JKS only, and `keytool -storetype
JKS` still does. Its encryption is weak: whoever has the file may guess passwords fast. The sizes of what is read are bounded before
the package sees it, so that a file made to be expensive costs no more than a large one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization.pkcs12 import PKCS12KeyAndCertificates

JKS_MAGIC = b"\xfe\xed\xfe\xed"
STORE_BYTES_MAX = 1024 * 1024  # Java's own file of all usual authorities has 200 KB
KEY_BYTES_MAX = 16 * 1024  # RSA 16384 has 9 KB
_X509 = ("X.509", "X509")


class UnreadableStore(ValueError):
    """Store that cannot be read, or another password; the message has neither in it."""


# ---------------------------------------------------------------------- PKCS#12


def pkcs12_key_and_chain(data: bytes, password: str | None) -> tuple[bytes, tuple[bytes, ...]]:
    """Private key (DER of PKCS#8) and its certificates (DER), the holder's first. Raises UnreadableStore."""
    store = _pkcs12_store(data, password)
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    if store.key is None or store.cert is None:
        raise UnreadableStore("it holds no private key with a certificate")
    key = store.key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())
    others = [each.certificate for each in store.additional_certs]
    return key, tuple(each.public_bytes(Encoding.DER) for each in _chain(store.cert.certificate, others))


def pkcs12_authorities(data: bytes, password: str | None) -> tuple[bytes, ...]:
    """All certificates (DER): Java trusts those of keys as well. Raises UnreadableStore."""
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
    """Certificates from the holder to the authority, by the issuers' names: a store has them in any order, and perhaps more."""
    by_subject = {each.subject: each for each in others}
    following: x509.Certificate | None = holder
    while following is not None:
        yield following
        following = by_subject.pop(following.issuer, None)  # once each: an authority is its own issuer


# ---------------------------------------------------------------------- JKS


def jks_key_and_chain(
    data: bytes, store_password: str | None, key_password: str | None
) -> tuple[bytes, tuple[bytes, ...]]:
    """First private key (DER of PKCS#8) and its certificates (DER), the holder's first. Raises UnreadableStore.

    `key_password` None: that of the store, as with Java's tools.
    """
    jks = _jks()
    password = store_password if key_password is None else key_password
    for entry in _entries(jks, data, store_password):
        if isinstance(entry, jks.PrivateKeyEntry):
            if password is None:
                raise UnreadableStore("its key has a password, and none is given")
            chain = _certificates(entry)
            if not chain:
                raise UnreadableStore("its key has no certificate")
            return _decrypted(jks, entry, password), chain
    raise UnreadableStore("it holds no private key with a certificate")


def jks_authorities(data: bytes, password: str | None) -> tuple[bytes, ...]:
    """All certificates that are trusted (DER): Java trusts the holders of keys as well. Raises UnreadableStore."""
    jks = _jks()
    found: list[bytes] = []
    for entry in _entries(jks, data, password):
        if isinstance(entry, jks.TrustedCertEntry):
            found += [entry.cert] if entry.type in _X509 else []
        elif isinstance(entry, jks.PrivateKeyEntry):
            found += _certificates(entry)[:1]
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
    """Entries of a store. Without a password the file is not checked for changes, as in Java."""
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


def _certificates(entry: Any) -> tuple[bytes, ...]:
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
