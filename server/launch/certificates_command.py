"""`ottla certificates`: an authority, brokers and a client, as files that Ottla, Kafka and librdkafka read.

    authority.pem, authority.key.pem    whom to trust; its key signs more, and is needed on no broker
    <broker>.pem, <broker>.properties   key and certificate of a broker, and the settings that name them
    client.pem, client.properties       the same for a client, with Kafka's names for Java's clients and tools
    <other>.pem, <other>.properties     the same for another client

What is there is left as it is, so a second run adds what is missing. Keys are readable by their owner only. A file is
there whole or not at all.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from ottla.server.security.certificate_authority import Authority, Certified

AUTHORITY, AUTHORITY_KEY, CLIENT = "authority.pem", "authority.key.pem", "client"
RESERVED = ("authority", "authority.key", CLIENT)
NAME_MAX = 64  # characters of a common name (RFC 5280)
LOOPBACK = ("localhost", "127.0.0.1", "::1")
_HOST = re.compile(r"[A-Za-z0-9:][A-Za-z0-9.:-]*")


class CertificatesFailed(Exception):
    """Nothing was made, or not everything; the text is one line for the user."""


def check_host(host: str) -> str | None:
    """Return the problem with a broker's name, or None."""
    if _HOST.fullmatch(host) is None:
        return f"{host} is neither a host name nor an address"
    if len(host) > NAME_MAX:
        return f"{host} is longer than {NAME_MAX} characters"
    return f"{host} is the name of another file" if host.lower() in RESERVED else None


def make_certificates(folder: Path, brokers: Sequence[str], days: int, clients: Sequence[str] = ()) -> list[Path]:
    """Make what is not there yet, each certificate for so many days; returns the new files.

    `clients` are more of them, beside the one that is always made. A broker named `localhost` is reached by the addresses of the machine itself, too.
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
