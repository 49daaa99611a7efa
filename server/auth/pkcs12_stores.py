"""Stores of Java and OpenSSL in the format PKCS#12 (RFC 7292), read by the package `cryptography`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.hazmat.primitives.serialization.pkcs12 import PKCS12KeyAndCertificates, load_pkcs12

from ottla.server.auth.unreadable_store import UnreadableStore


def key_and_chain(data: bytes, password: str | None) -> tuple[bytes, tuple[bytes, ...]]:
    """The private key (DER of PKCS#8) and its certificates (DER), the holder's first. UnreadableStore."""
    store = _load(data, password)
    if store.key is None or store.cert is None:
        raise UnreadableStore("it holds no private key with a certificate")
    key = store.key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())
    others = [each.certificate for each in store.additional_certs]
    return key, tuple(each.public_bytes(Encoding.DER) for each in _chain(store.cert.certificate, others))


def authorities(data: bytes, password: str | None) -> tuple[bytes, ...]:
    """All certificates (DER): Java trusts those of keys as well. UnreadableStore."""
    store = _load(data, password)
    found = [store.cert] if store.cert is not None else []
    found += store.additional_certs
    if not found:
        raise UnreadableStore("it holds no certificate")
    return tuple(each.certificate.public_bytes(Encoding.DER) for each in found)


def _load(data: bytes, password: str | None) -> PKCS12KeyAndCertificates:
    try:
        return load_pkcs12(data, None if password is None else password.encode())
    except (ValueError, TypeError, UnsupportedAlgorithm):
        # Its words may be about the contents.
        raise UnreadableStore("it is no PKCS12 store, or the password is another one") from None


def _chain(holder: x509.Certificate, others: Sequence[x509.Certificate]) -> Iterator[x509.Certificate]:
    """From the holder to the authority, by the issuers' names: a store has them in any order, and perhaps more."""
    by_subject = {each.subject: each for each in others}
    following: x509.Certificate | None = holder
    while following is not None:
        yield following
        following = by_subject.pop(following.issuer, None)  # once each: an authority is its own issuer
