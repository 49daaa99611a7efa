"""Passwords among the settings of a broker, as they are kept in the coordination tree.

A broker that is alone keeps them as they are, in a file that only its user may read, as KRaft keeps them in its log. In
ZooKeeper they are encrypted with `password.encoder.secret`, and without it refused. What was encrypted with
`password.encoder.old.secret` is read, too, and written anew by whoever reads it first (Kafka's DynamicBrokerConfig).
"""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, NamedTuple

from ottla.server.settings.broker_config import broker_settings
from ottla.server.settings.password_encoder import DEFAULT_KEY_FACTORY, PasswordEncoder, UndecodablePassword
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.settings import PASSWORD

if TYPE_CHECKING:
    from ottla.server.settings.overrides import Texts
    from ottla.server.settings.zookeeper_config import ZooKeeperConfig

logger = logging.getLogger("ottla.configs")

PASSWORDS_MAX = 100  # of a broker: each takes some milliseconds to encrypt


class Read(NamedTuple):
    """Settings with their passwords in clear, and whether some have to be written anew."""

    texts: Texts
    is_outdated: bool


class KeptPasswords:
    """See the module's docstring. Its methods take time if there are passwords; `has_passwords` says so."""

    def __init__(self, encoder: PasswordEncoder | None, old_encoder: PasswordEncoder | None = None) -> None:
        self._encoder = encoder
        self._old_encoder = old_encoder

    @classmethod
    def of(cls, config: ZooKeeperConfig) -> KeptPasswords:
        return cls(
            _encoder(config, config.password_encoder_secret), _encoder(config, config.password_encoder_old_secret)
        )

    def to_keep(self, texts: Texts, node_id: int | None) -> Texts:
        """Settings as they are written; None: those of all brokers. Raises INVALID_CONFIG in Kafka's words."""
        passwords = [name for name in texts if is_password(name)]
        if not passwords:
            return texts
        if node_id is None:
            raise _refused("", "Password config can be defined only at broker level")
        if self._encoder is None:
            raise _refused(str(node_id), "Password encoder secret not configured")
        if len(passwords) > PASSWORDS_MAX:
            raise _refused(str(node_id), f"A broker has no more than {PASSWORDS_MAX} passwords")
        return {**texts, **{name: self._encoder.encode(texts[name]) for name in passwords}}

    def read(self, texts: Texts) -> Read:
        """Settings as they were written. Passwords that cannot be read are left aside."""
        found, is_outdated = dict(texts), False
        for number, name in enumerate([name for name in texts if is_password(name)]):
            password = _decoded(self._encoder, texts[name]) if number < PASSWORDS_MAX else None
            if password is None and self._encoder is not None and number < PASSWORDS_MAX:
                password = _decoded(self._old_encoder, texts[name])
                is_outdated |= password is not None
            if password is None:
                logger.error("Dynamic password config %s could not be decoded, ignoring.", name)
                del found[name]
            else:
                found[name] = password
        return Read(found, is_outdated)


def is_password(name: str) -> bool:
    """Whether a setting is a password that may be changed at run time, be it a listener's or a mechanism's."""
    return any(name.endswith(each) for each in _PASSWORDS)


def has_passwords(texts: Texts) -> bool:
    return any(map(is_password, texts))


_PASSWORDS = tuple(
    name for name, declared in broker_settings().items() if declared.kind is PASSWORD and not declared.is_read_only
)


def _decoded(encoder: PasswordEncoder | None, text: str) -> str | None:
    if encoder is None:
        return None
    try:
        return encoder.decode(text)
    except UndecodablePassword:
        return None


def _encoder(config: ZooKeeperConfig, secret: str | None) -> PasswordEncoder | None:
    if secret is None:
        return None
    return PasswordEncoder(
        secret=secret.encode(),
        random_bytes=os.urandom,
        key_factory=config.password_encoder_keyfactory_algorithm or DEFAULT_KEY_FACTORY,
        cipher=config.password_encoder_cipher_algorithm,
        key_length=config.password_encoder_key_length,
        iterations=config.password_encoder_iterations,
    )


def _refused(broker: str, reason: str) -> KafkaError:
    message = f"Invalid config value for resource ConfigResource(type=BROKER, name='{broker}'): {reason}"
    return KafkaError(ErrorCode.INVALID_CONFIG, message)
