"""A broker that connects to itself, in memory: what its certificate and its truststore make of each other.

Brokers of a cluster have certificates of the same authorities as a rule, so a broker that would not let itself in would not
find its way to the others. Kafka (SslFactory.SslEngineValidator) looks before it opens the listener among brokers, and before
it takes up other certificates. Names of hosts are not looked at.
"""

from __future__ import annotations

import ssl
from dataclasses import replace
from typing import TYPE_CHECKING

from ottla.server.auth.tls_contexts import client_context

if TYPE_CHECKING:
    from ottla.server.auth.tls_contexts import Secrets
    from ottla.server.settings.security_config import TlsConfig

_ROUNDS_MAX = 10  # TLS 1.2 needs three


def lenient_client(config: TlsConfig, secrets: Secrets) -> ssl.SSLContext:
    """What connects to others with these settings, and does not look at their names."""
    return client_context(replace(config, ssl_endpoint_identification_algorithm=""), secrets)


def rehearse(server: ssl.SSLContext, client: ssl.SSLContext) -> str | None:
    """Shake hands; None if all went well, else what went wrong."""
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    # The client first: with TLS 1.3 it is done before the server has seen its certificate.
    sides = {
        "it does not trust its own certificate": client.wrap_bio(to_client, to_server),
        "it does not trust its own certificate as that of a client": server.wrap_bio(
            to_server, to_client, server_side=True
        ),
    }
    for _ in range(_ROUNDS_MAX):
        for complaint in list(sides):
            try:
                sides[complaint].do_handshake()
            except ssl.SSLWantReadError:
                continue
            except ssl.SSLCertVerificationError as error:
                return f"{complaint} ({error.verify_message})"
            except ssl.SSLError as error:
                return f"the handshake failed ({error.reason})"
            del sides[complaint]
        if not sides:
            return None
    return "the handshake came to no end"
