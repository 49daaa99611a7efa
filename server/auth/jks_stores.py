"""Stores in Java's own format, JKS, read by the package `pyjks`.

Until version 8 Java wrote nothing else, and `keytool -storetype JKS` still does. Its encryption is weak: whoever has the file may
guess passwords fast. The sizes of what is read are bounded before the package sees it, so that a file made to be expensive costs
no more than a large one.
"""

from __future__ import annotations

from collections.abc import Iterator

import jks

from ottla.server.auth.unreadable_store import UnreadableStore

MAGIC = b"\xfe\xed\xfe\xed"
STORE_BYTES_MAX = 1024 * 1024  # Java's own file of all usual authorities has 200 KB
KEY_BYTES_MAX = 16 * 1024  # RSA 16384 has 9 KB
_X509 = ("X.509", "X509")


def key_and_chain(data: bytes, store_password: str | None, key_password: str | None) -> tuple[bytes, tuple[bytes, ...]]:
    """The first private key (DER of PKCS#8) and its certificates (DER), the holder's first. UnreadableStore.

    `key_password` None: that of the store, as with Java's tools.
    """
    password = store_password if key_password is None else key_password
    for entry in _entries(data, store_password):
        if isinstance(entry, jks.PrivateKeyEntry):
            if password is None:
                raise UnreadableStore("its key has a password, and none is given")
            chain = _certificates(entry)
            if not chain:
                raise UnreadableStore("its key has no certificate")
            return _decrypted(entry, password), chain
    raise UnreadableStore("it holds no private key with a certificate")


def authorities(data: bytes, password: str | None) -> tuple[bytes, ...]:
    """All certificates that are trusted (DER): Java trusts the holders of keys as well. UnreadableStore."""
    found: list[bytes] = []
    for entry in _entries(data, password):
        if isinstance(entry, jks.TrustedCertEntry):
            found += [entry.cert] if entry.type in _X509 else []
        elif isinstance(entry, jks.PrivateKeyEntry):
            found += _certificates(entry)[:1]
    if not found:
        raise UnreadableStore("it holds no certificate")
    return tuple(found)


def _entries(data: bytes, password: str | None) -> Iterator[object]:
    """Without a password the file is not checked for changes, as in Java."""
    # The other format of that package has serialized objects of Java in it.
    if not data.startswith(MAGIC):
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


def _certificates(entry: jks.PrivateKeyEntry) -> tuple[bytes, ...]:
    # `cert_chain` can be read while the key is encrypted, because it has no underscore.
    return tuple(der for kind, der in vars(entry)["cert_chain"] if kind in _X509)


def _decrypted(entry: jks.PrivateKeyEntry, password: str) -> bytes:
    if len(vars(entry)["_encrypted"] or b"") > KEY_BYTES_MAX:
        raise UnreadableStore(f"its key has more than {KEY_BYTES_MAX} bytes")
    try:
        entry.decrypt(password)
        return bytes(entry.pkey_pkcs8)
    except jks.DecryptionFailureException:
        raise UnreadableStore("the password of its key is another one") from None
    except Exception:  # noqa: BLE001 - the package names no limit to what it raises for foreign bytes
        raise UnreadableStore("its key cannot be read") from None
