"""`ottla certificates`: an authority, brokers and a client, as files that Ottla, Kafka and librdkafka read.

    authority.pem, authority.key.pem    whom to trust; its key signs more, and is needed on no broker
    <broker>.pem, <broker>.properties   key and certificate of a broker, and the settings that name them
    client.pem, client.properties       the same for a client, with Kafka's names for Java's clients and tools
    <other>.pem, <other>.properties     the same for another client

Existing files are left unchanged, so a second run adds only missing ones. Keys are readable by their owner only. A file is
there whole or not at all. Keys are ECDSA P-256: a handshake with one costs a tenth of one with RSA 2048, and every client
of today can do it. A broker's certificate is one for clients, too, because brokers connect to each other.

The package `cryptography`, which is optional, makes them.
"""

from __future__ import annotations

import datetime
import ipaddress
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

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

AUTHORITY, AUTHORITY_KEY, CLIENT = "authority.pem", "authority.key.pem", "client"
RESERVED = ("authority", "authority.key", CLIENT)
NAME_MAX = 64  # characters of a common name (RFC 5280)
LOOPBACK = ("localhost", "127.0.0.1", "::1")
_HOST = re.compile(r"[A-Za-z0-9:][A-Za-z0-9.:-]*")


class CertificatesFailed(Exception):
    """Raised if some or all certificates could not be made. The text is one line for the user."""


def check_host(host: str) -> str | None:
    """Return why a broker's host name is unusable for certificates; None if it is usable."""
    if _HOST.fullmatch(host) is None:
        return f"{host} is neither a host name nor an address"
    if len(host) > NAME_MAX:
        return f"{host} is longer than {NAME_MAX} characters"
    return f"{host} is the name of another file" if host.lower() in RESERVED else None


def make_certificates(folder: Path, brokers: Sequence[str], days: int, clients: Sequence[str] = ()) -> list[Path]:
    """Make the missing certificates, valid for `days` days; return the paths of the new files.

    `clients`: names of additional clients that get a certificate. A certificate for the broker `localhost` is valid for
    the machine's loopback addresses. Raises CertificatesFailed.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        made: list[Path] = []
        authority = _authority(folder, days, made)
        for host in dict.fromkeys(brokers):
            if not (folder / f"{host}.pem").exists():
                hosts = LOOPBACK if host == "localhost" else (host,)
                _add(made, folder, host, authority.issue(host, hosts, is_server=True), _BROKER)
        for name in dict.fromkeys((CLIENT, *clients)):
            if not (folder / f"{name}.pem").exists():
                _add(made, folder, name, authority.issue(name, is_server=False), _CLIENT)
    except OSError as error:
        raise CertificatesFailed(f"cannot write {error.filename or folder}: {error.strerror}") from None
    return made


def _authority(folder: Path, days: int, made: list[Path]) -> Authority:
    key, certificate = folder / AUTHORITY_KEY, folder / AUTHORITY
    if key.exists() and certificate.exists():
        try:
            return Authority.read(key.read_bytes(), certificate.read_bytes(), days=days)
        except ValueError as error:
            raise CertificatesFailed(f"{folder} holds no authority to sign with: {error}") from None
    if certificate.exists():
        raise CertificatesFailed(f"{certificate} is there without {AUTHORITY_KEY}, so nothing more can be signed")
    authority = Authority("Ottla", days=days)
    # A key without its certificate, left by a run that was stopped, has signed nothing yet.
    key.unlink(missing_ok=True)
    _write(made, key, authority.certified.key_pem, 0o600)
    _write(made, certificate, authority.certified.certificate_pem, 0o644)
    return authority


_STORES = """\
ssl.keystore.type=PEM
ssl.keystore.location={keystore}
ssl.truststore.type=PEM
ssl.truststore.location={truststore}
"""
_BROKER = (
    """\
# Settings of the broker {name}; the paths are those of the machine where they were made.
listeners=SSL://:9092
advertised.listeners=SSL://{host}:9092
security.inter.broker.protocol=SSL
# Clients have to show a certificate of this authority. Without this line everybody is let in.
ssl.client.auth=required
"""
    + _STORES
)
_CLIENT = (
    """\
# For Java's clients and Kafka's tools; librdkafka takes the same files by ssl.ca.location, ssl.certificate.location and
# ssl.key.location.
security.protocol=SSL
"""
    + _STORES
)


def _add(made: list[Path], folder: Path, name: str, certified: Certified, settings: str) -> None:
    keystore = folder / f"{name}.pem"
    host = f"[{name}]" if ":" in name else name
    # A backslash would begin an escape.
    key, trusted = (str(path.absolute()).replace("\\", "\\\\") for path in (keystore, folder / AUTHORITY))
    text = settings.format(name=name, host=host, keystore=key, truststore=trusted)
    properties = folder / f"{name}.properties"
    if not properties.exists():
        _write(made, properties, text.encode(), 0o644)
    # Last: whether it is there says whether all is made.
    _write(made, keystore, certified.key_pem + certified.certificate_pem, 0o600)


def _write(made: list[Path], path: Path, data: bytes, mode: int) -> None:
    unfinished = path.with_name(f"{path.name}.unfinished")
    unfinished.unlink(missing_ok=True)
    descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with open(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(descriptor)
    unfinished.rename(path)
    made.append(path)


_EARLIER = datetime.timedelta(hours=1)  # clocks differ


@dataclass(frozen=True, slots=True)
class Certified:
    """Private key, its certificate, and the certificate of the authority that signed it."""

    name: str
    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate
    authority: x509.Certificate

    @property
    def key_pem(self) -> bytes:
        """Private key as PEM (PKCS#8), without a password."""
        return self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())

    @property
    def certificate_pem(self) -> bytes:
        return self.certificate.public_bytes(Encoding.PEM)

    def pkcs12(self, password: str) -> bytes:
        """Return the key and certificates as a Java keystore (PKCS#12)."""
        encryption = BestAvailableEncryption(password.encode())
        return pkcs12.serialize_key_and_certificates(
            self.name.encode(), self.key, self.certificate, [self.authority], encryption
        )


class Authority:
    """Certificate authority. Two authorities of the same name have different keys."""

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
        """Return an authority that was made earlier. Raises ValueError if the key does not match the certificate."""
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
        """Issue a certificate for a new key; return both. `hosts`: the server's host names or addresses."""
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
        """Return the authority's certificate as a Java truststore (PKCS#12)."""
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
