"""Declarations of the settings of TLS, of the authorizer and of delegation tokens. `sasl_config.py` declares those of SASL."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

from ottla.wire.settings import BOOLEAN, LONG, PASSWORD, STRING, InvalidSetting, Setting, read_settings, setting

CLASS_NAME = "authorizer.class.name"
SUPER_USERS = "super.users"
ALLOW_EVERYONE = "allow.everyone.if.no.acl.found"

KNOWN_CLASSES = ("kafka.security.authorizer.AclAuthorizer", "org.apache.kafka.metadata.authorizer.StandardAuthorizer")
"""Kafka's own authorizers, of Kafka 3.9 with ZooKeeper and of KRaft. Their rules are the same."""

MASTER_KEY = "delegation.token.master.key"

_of_new_connections = partial(setting, dynamic="per-broker", on_change="Holds for new connections.")
_of_listener = partial(
    setting, dynamic="per-broker", on_change="Only for one listener, by its prefix; holds for new connections."
)
_per_broker = partial(setting, dynamic="per-broker")


@dataclass(frozen=True, kw_only=True)
class TlsConfig:
    """TLS settings. For a listener, `listener.name.<listener>.ssl.<...>` takes precedence over `ssl.<...>`."""

    ssl_protocol: str = _per_broker(
        "TLSv1.3",
        doc="Version of TLS that Java makes its context for; ssl.enabled.protocols decides which are spoken.",
        on_change="Checked, and nothing else: ssl.enabled.protocols decides.",
    )
    ssl_enabled_protocols: tuple[str, ...] = _of_new_connections(
        ("TLSv1.2", "TLSv1.3"), doc="Versions of TLS that may be used."
    )
    ssl_cipher_suites: tuple[str, ...] = _of_new_connections(
        (), doc="Cipher suites of TLS that may be used; by default those of the library."
    )
    ssl_client_auth: str = _of_new_connections(
        "none",
        choices=("required", "requested", "none"),
        doc="Whether clients have to show a certificate, are asked for one, or are not asked.",
    )
    ssl_endpoint_identification_algorithm: str = _per_broker(
        "https",
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
    ssl_keystore_type: str = _of_listener("JKS", doc="Format of the file with the private key: PEM, PKCS12 or JKS.")
    ssl_keystore_location: str | None = _per_broker(
        None,
        doc="File with the private key and the certificates of this broker.",
        on_change="Only for one listener, by its prefix; holds for new connections, as does a file that is written over.",
    )
    ssl_keystore_password: str | None = _of_listener(
        None, kind=PASSWORD, doc="Password of the file with the private key; PEM has none."
    )
    ssl_keystore_key: str | None = setting(
        None,
        kind=PASSWORD,
        dynamic="per-broker",
        doc="Private key of this broker, as PEM (PKCS#8).",
        on_change="Only for one listener, by its prefix; holds for new connections.",
    )
    ssl_keystore_certificate_chain: str | None = _of_listener(
        None, kind=PASSWORD, doc="Certificates of this broker, as PEM."
    )
    ssl_key_password: str | None = _of_listener(None, kind=PASSWORD, doc="Password of the private key.")
    ssl_truststore_type: str = _of_listener("JKS", doc="Format of the file with the authorities: PEM, PKCS12 or JKS.")
    ssl_truststore_location: str | None = _per_broker(
        None,
        doc="File with the certificates of the authorities that are trusted; by default those of the system.",
        on_change="Only for one listener, by its prefix; holds for new connections, as does a file that is written over.",
    )
    ssl_truststore_password: str | None = _of_listener(
        None, kind=PASSWORD, doc="Password of the file with the authorities; PEM has none."
    )
    ssl_truststore_certificates: str | None = _of_listener(
        None, kind=PASSWORD, doc="Certificates of the authorities that are trusted, as PEM."
    )


def authorizer_settings() -> Mapping[str, Setting]:
    """Return the settings of Kafka's authorizers, for documentation only: brokers do not describe them to clients."""
    users = "Principals that may do everything, such as User:admin, separated by semicolons."
    everyone = "Whether everybody may use what no rule is about. Without an authorizer nobody is asked."
    return {
        SUPER_USERS: Setting(name=SUPER_USERS, kind=STRING, default="", doc=users),
        ALLOW_EVERYONE: Setting(name=ALLOW_EVERYONE, kind=BOOLEAN, default=False, doc=everyone),
    }


@dataclass(frozen=True, kw_only=True)
class AuthorizerConfig:
    """Settings of the authorizer: the access that it allows without an ACL.

    `super_users`: principals, such as `User:admin`, that may do everything. `allow_everyone`: everyone may use
    resources that have no ACL.
    """

    super_users: frozenset[str] = frozenset()
    allow_everyone: bool = False

    @classmethod
    def of(cls, class_name: str, texts: Mapping[str, str]) -> AuthorizerConfig | None:
        """Parse the settings of authorizer `class_name`; return None if none is configured. Raises InvalidSetting."""
        class_name = class_name.strip()
        if not class_name:
            return None
        if class_name not in KNOWN_CLASSES:
            reason = f"there is no such authorizer; allowed: {', '.join(KNOWN_CLASSES)}"
            raise InvalidSetting.of_text(CLASS_NAME, class_name, reason)
        return cls(
            super_users=frozenset(_principals(texts.get(SUPER_USERS, ""))),
            # As Java reads it: anything else is false.
            allow_everyone=texts.get(ALLOW_EVERYONE, "").strip().lower() == "true",
        )


def _principals(text: str) -> list[str]:
    # As Kafka's StandardAuthorizer: at semicolons, because names of TLS clients have commas.
    principals = [each.strip() for each in text.split(";") if each.strip()]
    for each in principals:
        if ":" not in each:
            reason = f"expected a string in format principalType:principalName but got {each}"
            raise InvalidSetting.of_text(SUPER_USERS, text, reason)
    return principals


@dataclass(frozen=True, kw_only=True)
class TokenConfig:
    """Settings of delegation tokens, which need a secret key. Times are in ms."""

    delegation_token_secret_key: str | None = setting(
        None, kind=PASSWORD, doc="Key that the passwords of delegation tokens are made with, the same on every broker."
    )
    delegation_token_max_lifetime_ms: int = setting(
        604_800_000, kind=LONG, minimum=1, doc="Age beyond which a delegation token cannot be renewed."
    )
    delegation_token_expiry_time_ms: int = setting(
        86_400_000, kind=LONG, minimum=1, doc="How long a delegation token is good for if it is not renewed."
    )
    delegation_token_expiry_check_interval_ms: int = setting(
        3_600_000, kind=LONG, minimum=1, doc="Time between two looks for delegation tokens that have expired."
    )

    @classmethod
    def of(cls, texts: Mapping[str, str]) -> TokenConfig:
        """Parse the settings of a start; the secret key may have its older name. Raises InvalidSetting."""
        config = read_settings(cls, texts)
        if config.delegation_token_secret_key is None:
            return replace(config, delegation_token_secret_key=texts.get(MASTER_KEY))
        return config

    @property
    def secret_key(self) -> bytes:
        """Secret key of delegation tokens; empty if they are disabled."""
        return (self.delegation_token_secret_key or "").encode()


@dataclass(frozen=True, kw_only=True)
class OlderTokenConfig:
    """Delegation token setting that Kafka 4 has removed; it is still accepted, and cluster members describe it."""

    delegation_token_master_key: str | None = setting(
        None, kind=PASSWORD, doc="Older name of delegation.token.secret.key."
    )
