"""Kafka's settings of TLS. Each listener may have its own: `listener.name.<listener>.ssl.<...>` wins over `ssl.<...>`.

What they come to is in `server/auth/`.
"""

from dataclasses import dataclass

from ottla.wire.settings import PASSWORD, setting


@dataclass(frozen=True, kw_only=True)
class TlsConfig:
    """How one listener encrypts, and what this broker shows when it asks another one through it."""

    ssl_protocol: str = setting(
        "TLSv1.3",
        dynamic="per-broker",
        doc="Version of TLS that Java makes its context for; ssl.enabled.protocols decides which are spoken.",
        on_change="Checked, and nothing else: ssl.enabled.protocols decides.",
    )
    ssl_enabled_protocols: tuple[str, ...] = setting(
        ("TLSv1.2", "TLSv1.3"),
        dynamic="per-broker",
        doc="Versions of TLS that may be used.",
        on_change="Holds for new connections.",
    )
    ssl_cipher_suites: tuple[str, ...] = setting(
        (),
        dynamic="per-broker",
        doc="Cipher suites of TLS that may be used; by default those of the library.",
        on_change="Holds for new connections.",
    )
    ssl_client_auth: str = setting(
        "none",
        choices=("required", "requested", "none"),
        dynamic="per-broker",
        doc="Whether clients have to show a certificate, are asked for one, or are not asked.",
        on_change="Holds for new connections.",
    )
    ssl_endpoint_identification_algorithm: str = setting(
        "https",
        dynamic="per-broker",
        doc="How this broker checks that a certificate is that of the broker it asks; https: by the name, empty: not at all.",
        on_change="Holds for new connections to other brokers.",
    )
    ssl_principal_mapping_rules: str = setting(
        "DEFAULT", doc="Rules that make a user's name of the distinguished name in a certificate."
    )
    ssl_allow_dn_changes: bool = setting(
        False, doc="Whether a new certificate may have another distinguished name than the one before it."
    )
    ssl_allow_san_changes: bool = setting(
        False, doc="Whether a new certificate may lack alternative names that the one before it had."
    )
    ssl_keystore_type: str = setting(
        "JKS",
        dynamic="per-broker",
        doc="Format of the file with the private key: PEM, PKCS12 or JKS.",
        on_change="Only for one listener, by its prefix; holds for new connections.",
    )
    ssl_keystore_location: str | None = setting(
        None,
        dynamic="per-broker",
        doc="File with the private key and the certificates of this broker.",
        on_change="Only for one listener, by its prefix; holds for new connections, as does a file that is written over.",
    )
    ssl_keystore_password: str | None = setting(
        None,
        kind=PASSWORD,
        dynamic="per-broker",
        doc="Password of the file with the private key; PEM has none.",
        on_change="Only for one listener, by its prefix; holds for new connections.",
    )
    ssl_keystore_key: str | None = setting(
        None,
        kind=PASSWORD,
        dynamic="per-broker",
        doc="Private key of this broker, as PEM (PKCS#8).",
        on_change="Only for one listener, by its prefix; holds for new connections.",
    )
    ssl_keystore_certificate_chain: str | None = setting(
        None,
        kind=PASSWORD,
        dynamic="per-broker",
        doc="Certificates of this broker, as PEM.",
        on_change="Only for one listener, by its prefix; holds for new connections.",
    )
    ssl_key_password: str | None = setting(
        None,
        kind=PASSWORD,
        dynamic="per-broker",
        doc="Password of the private key.",
        on_change="Only for one listener, by its prefix; holds for new connections.",
    )
    ssl_truststore_type: str = setting(
        "JKS",
        dynamic="per-broker",
        doc="Format of the file with the authorities: PEM, PKCS12 or JKS.",
        on_change="Only for one listener, by its prefix; holds for new connections.",
    )
    ssl_truststore_location: str | None = setting(
        None,
        dynamic="per-broker",
        doc="File with the certificates of the authorities that are trusted; by default those of the system.",
        on_change="Only for one listener, by its prefix; holds for new connections, as does a file that is written over.",
    )
    ssl_truststore_password: str | None = setting(
        None,
        kind=PASSWORD,
        dynamic="per-broker",
        doc="Password of the file with the authorities; PEM has none.",
        on_change="Only for one listener, by its prefix; holds for new connections.",
    )
    ssl_truststore_certificates: str | None = setting(
        None,
        kind=PASSWORD,
        dynamic="per-broker",
        doc="Certificates of the authorities that are trusted, as PEM.",
        on_change="Only for one listener, by its prefix; holds for new connections.",
    )
