"""Certificate authority that signs certificates for brokers and clients. Needs the package `cryptography`.

Keys are ECDSA P-256: a handshake with one costs a tenth of one with RSA 2048, and every client of today can do it. A
broker's certificate is one for clients, too, because brokers connect to each other.
"""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
    pkcs12,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_EARLIER = datetime.timedelta(hours=1)  # clocks differ


@dataclass(frozen=True, slots=True)
class Certified:
    """A private key, its certificate, and that of the authority that signed it."""

    name: str
    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate
    authority: x509.Certificate

    @property
    def key_pem(self) -> bytes:
        """PKCS#8, without a password."""
        return self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())

    @property
    def certificate_pem(self) -> bytes:
        return self.certificate.public_bytes(Encoding.PEM)

    def pkcs12(self, password: str) -> bytes:
        """Key and certificates, as a keystore for Java."""
        encryption = BestAvailableEncryption(password.encode())
        return pkcs12.serialize_key_and_certificates(
            self.name.encode(), self.key, self.certificate, [self.authority], encryption
        )


class Authority:
    """Certificate authority. Two with the same name are different ones: their keys differ."""

    def __init__(self, name: str, *, days: int) -> None:
        self._days = days
        self._key = ec.generate_private_key(ec.SECP256R1())
        names = _named(name)
        builder = (
            _begun(names, names, self._key, days)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(signs_certificates=True), critical=True)
        )
        self.certified = Certified(name, self._key, *(2 * [builder.sign(self._key, hashes.SHA256())]))

    @classmethod
    def read(cls, key_pem: bytes, certificate_pem: bytes, *, days: int) -> Authority:
        """Read an authority that was made before. Raises ValueError if key and certificate do not fit."""
        certificate = x509.load_pem_x509_certificate(certificate_pem)
        try:
            key = load_pem_private_key(key_pem, None)
        except TypeError:
            raise ValueError("the key has a password") from None
        if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != certificate.public_key():
            raise ValueError("the key is not that of the certificate")
        authority = cls.__new__(cls)
        authority._days, authority._key = days, key
        authority.certified = Certified(certificate.subject.rfc4514_string(), key, certificate, certificate)
        return authority

    @property
    def certificate(self) -> x509.Certificate:
        return self.certified.certificate

    def issue(self, name: str, hosts: Sequence[str] = (), *, is_server: bool, organization: str = "") -> Certified:
        """A new key with a certificate; `hosts` are names or addresses that a server is reached by."""
        key = ec.generate_private_key(ec.SECP256R1())
        uses = [ExtendedKeyUsageOID.CLIENT_AUTH] + [ExtendedKeyUsageOID.SERVER_AUTH] * is_server
        # Older clients take only certificates whose authority is named by its key.
        key_of_authority = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        builder = (
            _begun(_named(name, organization), self.certificate.subject, key, self._days)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(uses), critical=False)
            .add_extension(key_of_authority, critical=False)
        )
        if hosts:
            names = x509.SubjectAlternativeName([_host(each) for each in hosts])
            builder = builder.add_extension(names, critical=False)
        return Certified(name, key, builder.sign(self._key, hashes.SHA256()), self.certificate)

    def pkcs12(self, password: str) -> bytes:
        """The authority's certificate alone, as a truststore for Java."""
        entry = pkcs12.PKCS12Certificate(self.certificate, self.certified.name.encode())
        return pkcs12.serialize_java_truststore([entry], BestAvailableEncryption(password.encode()))


def _named(name: str, organization: str = "") -> x509.Name:
    parts = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization)] if organization else []
    return x509.Name([*parts, x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _host(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        return x509.DNSName(text)


def _begun(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, days: int
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _EARLIER)
        .not_valid_after(now + datetime.timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )
