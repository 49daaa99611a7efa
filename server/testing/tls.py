"""Certificates of the lab: one authority for all brokers of this process, made in memory when the first one needs it."""

from __future__ import annotations

import ssl
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING

from ottla.server.cli.client.security import Security
from ottla.server.testing.errors import LabError

if TYPE_CHECKING:
    from collections.abc import Mapping

AUTHORITY = "ssl.truststore.certificates"
DAYS = 3650
"""A snapshot of brokers with TLS has their certificate, and may be opened years later."""


@cache
def tls_settings() -> Mapping[str, str]:
    """Return settings of brokers whose only listener, also between them, has TLS for 127.0.0.1. Raises LabError."""
    try:
        from ottla.server.launch.certificates_command import LOOPBACK, Authority  # here, because few tests use TLS
    except ImportError:
        raise LabError("tls=True needs the package cryptography: pip install 'ottla[security]'") from None
    authority = Authority("Ottla's lab", days=DAYS)
    broker = authority.issue("localhost", LOOPBACK, is_server=True)
    return MappingProxyType(
        {
            "listeners": "SSL://127.0.0.1:0",
            "security.inter.broker.protocol": "SSL",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.key": broker.key_pem.decode(),
            "ssl.keystore.certificate.chain": broker.certificate_pem.decode(),
            "ssl.truststore.type": "PEM",
            AUTHORITY: authority.certified.certificate_pem.decode(),
        }
    )


def authority_in(settings: Mapping[str, str]) -> str:
    """Return the certificates that clients of brokers with these settings trust, as PEM. Raises LabError without TLS."""
    if AUTHORITY not in settings:
        raise LabError("These brokers have no TLS; use Kafka(tls=True).")
    return settings[AUTHORITY]


def security_in(settings: Mapping[str, str]) -> Security:
    """Return the security with which a client of brokers with these settings connects, as far as the lab made it."""
    if AUTHORITY not in settings:
        return Security()
    return Security("SSL", ssl.create_default_context(cadata=settings[AUTHORITY]))
