"""What `ottla cluster --secure FOLDER` needs: certificates of one authority, and the settings that name them.

Brokers and clients show each other certificates, so whoever has the files of the client may do everything, and nobody else
comes in. All brokers are on this machine and have the same certificate.
"""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Final

from ottla.server.settings.properties import MalformedProperties, parse_properties

HOST_NAME: Final = "localhost"
DAYS: Final = 825


class NotSecured(Exception):
    """The certificates are not there and cannot be made; one line for the user."""


class Secured:
    """The files in a folder. What is missing is made; NotSecured if that fails."""

    def __init__(self, folder: Path) -> None:
        try:
            from ottla.server.process.certificates_command import (
                AUTHORITY,
                CLIENT,
                CertificatesFailed,
                make_certificates,
            )
        except ImportError:
            raise NotSecured("certificates are made with cryptography: pip install 'ottla[security]'") from None
        self.folder = folder.absolute()
        try:
            make_certificates(self.folder, [HOST_NAME], DAYS)
        except CertificatesFailed as error:
            raise NotSecured(str(error)) from None
        self._authority, self._client = self.folder / AUTHORITY, self.folder / f"{CLIENT}.pem"
        self.client_properties = self.folder / f"{CLIENT}.properties"
        """What Kafka's tools take by --command-config."""
        self.client_lines = _lines(self.client_properties)
        """The same settings, one each."""

    def settings(self, host: str, port: int) -> dict[str, str]:
        """Those of a broker that clients and the other brokers reach at this address, which its certificate names."""
        return {
            "listeners": f"SSL://{host}:{port}",
            "security.inter.broker.protocol": "SSL",
            "ssl.client.auth": "required",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.folder / f"{HOST_NAME}.pem"),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self._authority),
        }

    def client_context(self) -> ssl.SSLContext:
        """What a client needs to connect. OSError if its files cannot be used."""
        context = ssl.create_default_context(cafile=str(self._authority))
        context.load_cert_chain(self._client)
        return context

    @property
    def for_kcat(self) -> str:
        """Options of kcat, with librdkafka's names."""
        named = {"security.protocol": "SSL", "ssl.ca.location": self._authority}
        named |= {"ssl.certificate.location": self._client, "ssl.key.location": self._client}
        return " ".join(f"-X {name}={value}" for name, value in named.items())


def _lines(file: Path) -> list[str]:
    try:
        texts = parse_properties(file.read_text(encoding="utf-8"))
    except (OSError, MalformedProperties) as error:
        raise NotSecured(f"cannot read {file}: {error}") from None
    return [f"{name}={text}" for name, text in texts.items()]
