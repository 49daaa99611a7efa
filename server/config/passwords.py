"""Passwords among the settings of a broker, as they are kept in the coordination tree.

A broker that is alone keeps them as they are, in a file that only its user may read, as KRaft keeps them in its log. In
ZooKeeper they are encrypted with `password.encoder.secret`, and without it refused. Values encrypted with
`password.encoder.old.secret` are read, too. The first broker that reads such a value encrypts it again with the new secret
(Kafka's DynamicBrokerConfig).

`PasswordEncoder` is Kafka's EncryptingPasswordEncoder, whose text both makes of brokers read:

    keyFactoryAlgorithm:PBKDF2WithHmacSHA512,cipherAlgorithm:AES/CBC/PKCS5Padding,keyLength:128,salt:...,iterations:4096,
    initializationVector:...,encryptedPassword:...,passwordLength:6

in any order, with bytes in base64; for AES/GCM also authenticationTagLength. The key is derived from
`password.encoder.secret`. A text says itself how it was made, so that these settings may change.
Deriving a key takes milliseconds: everything that encodes or decodes is called in a thread.
"""

from __future__ import annotations

import logging
import os
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from ottla.server.config.broker_config import broker_settings
from ottla.server.config.coordination_config import CBC, CIPHERS, GCM, ITERATIONS_MAX, KEY_FACTORIES, KEY_LENGTHS
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.settings import PASSWORD

if TYPE_CHECKING:
    from ottla.server.config.coordination_config import ZooKeeperConfig
    from ottla.server.config.repository import Texts

logger = logging.getLogger("ottla.configs")

PASSWORDS_MAX = 100  # of a broker: each takes some milliseconds to encrypt
DEFAULT_KEY_FACTORY = "PBKDF2WithHmacSHA512"
SALT_BYTES = 256
IV_BYTES = {CBC: 16, GCM: 12}
TAG_BITS = 128
ENCODED_LENGTH_MAX = 100_000


class UndecodablePassword(Exception):
    """Raised if a stored password cannot be decoded with this secret. The message quotes neither."""


@dataclass(frozen=True, kw_only=True)
class PasswordEncoder:
    """Encoder of passwords compatible with Kafka's EncryptingPasswordEncoder.

    It encodes with the parameters given here, and decodes with those stored in the encoded password.
    """

    secret: bytes
    random_bytes: Callable[[int], bytes]
    key_factory: str = DEFAULT_KEY_FACTORY
    cipher: str = CBC
    key_length: int = 128
    iterations: int = 4096

    def __repr__(self) -> str:
        return "PasswordEncoder([hidden])"

    def encode(self, password: str) -> str:
        salt, vector = self.random_bytes(SALT_BYTES), self.random_bytes(IV_BYTES[self.cipher])
        key = self._key(KEY_FACTORIES[self.key_factory], salt, self.iterations, self.key_length)
        parts = {
            "initializationVector": _text(vector),
            "keyLength": str(self.key_length),
            "salt": _text(salt),
            "keyFactoryAlgorithm": self.key_factory,
            "cipherAlgorithm": self.cipher,
            "iterations": str(self.iterations),
            "passwordLength": str(_java_length(password)),
            "encryptedPassword": _text(_encrypted(self.cipher, key, vector, password.encode())),
        }
        if self.cipher == GCM:
            parts["authenticationTagLength"] = str(TAG_BITS)
        return ",".join(f"{name}:{value}" for name, value in parts.items())

    def decode(self, text: str) -> str:
        """Decode a stored password. Raises UndecodablePassword."""
        if len(text) > ENCODED_LENGTH_MAX:
            raise UndecodablePassword("it is too long")
        try:
            return self._decoded({name: value for name, _, value in (each.partition(":") for each in text.split(","))})
        except (KeyError, ValueError) as error:
            # Without the error's own text, which may quote the password.
            raise UndecodablePassword(f"Password could not be decoded ({type(error).__name__})") from None

    def _decoded(self, parts: Mapping[str, str]) -> str:
        cipher, length, iterations = parts["cipherAlgorithm"], int(parts["keyLength"]), int(parts["iterations"])
        if cipher not in CIPHERS or length not in KEY_LENGTHS or not 1 <= iterations <= ITERATIONS_MAX:
            raise ValueError("parameters that are not served")
        if cipher == GCM and parts["authenticationTagLength"] != str(TAG_BITS):
            raise ValueError("a tag of another length")
        key = self._key(KEY_FACTORIES[parts["keyFactoryAlgorithm"]], _bytes(parts["salt"]), iterations, length)
        vector, encrypted = _bytes(parts["initializationVector"]), _bytes(parts["encryptedPassword"])
        password = _decrypted(cipher, key, vector, encrypted).decode()
        if _java_length(password) != int(parts["passwordLength"]):
            raise ValueError("another length")
        return password

    def _key(self, digest: str, salt: bytes, iterations: int, bits: int) -> bytes:
        import hashlib  # here, because it loads OpenSSL, and most brokers encrypt nothing

        return hashlib.pbkdf2_hmac(digest, self.secret, salt, iterations, bits // 8)


def _encrypted(cipher: str, key: bytes, vector: bytes, content: bytes) -> bytes:
    # Here, because only members of a cluster with such passwords need the package.
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    from cryptography.hazmat.primitives.padding import PKCS7

    if cipher == GCM:
        return AESGCM(key).encrypt(vector, content, None)
    padder = PKCS7(128).padder()
    encryptor = Cipher(algorithms.AES(key), modes.CBC(vector)).encryptor()
    return encryptor.update(padder.update(content) + padder.finalize()) + encryptor.finalize()


def _decrypted(cipher: str, key: bytes, vector: bytes, content: bytes) -> bytes:
    """Decrypt `content`. Raises ValueError if it was not encrypted with this key."""
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    from cryptography.hazmat.primitives.padding import PKCS7

    if cipher == GCM:
        try:
            return AESGCM(key).decrypt(vector, content, None)
        except InvalidTag:
            raise ValueError("another key") from None
    unpadder = PKCS7(128).unpadder()
    decryptor = Cipher(algorithms.AES(key), modes.CBC(vector)).decryptor()
    return unpadder.update(decryptor.update(content) + decryptor.finalize()) + unpadder.finalize()


def _java_length(text: str) -> int:
    """Return a text's length in Java, which counts characters beyond the basic multilingual plane as two."""
    return len(text) + sum(ord(character) > 0xFFFF for character in text)


def _text(content: bytes) -> str:
    return b64encode(content).decode()


def _bytes(text: str) -> bytes:
    return b64decode(text, validate=True)


# ---------------------------------------------------------------------- among the settings


class Read(NamedTuple):
    """Settings with passwords in clear text; `is_outdated`: some stored passwords should be encrypted again."""

    texts: Texts
    is_outdated: bool


class KeptPasswords:
    """Encrypter and decrypter of the passwords among stored settings; slow if there are any (`has_passwords`)."""

    def __init__(self, encoder: PasswordEncoder | None, old_encoder: PasswordEncoder | None = None) -> None:
        self._encoder, self._old_encoder = encoder, old_encoder

    @classmethod
    def of(cls, config: ZooKeeperConfig) -> KeptPasswords:
        return cls(
            _encoder(config, config.password_encoder_secret), _encoder(config, config.password_encoder_old_secret)
        )

    def to_keep(self, texts: Texts, node_id: int | None) -> Texts:
        """Return settings with their passwords encrypted. Raises INVALID_CONFIG if that is impossible, as in Kafka.

        `node_id` None: settings of all brokers, which may have no passwords.
        """
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
        """Return stored settings with decrypted passwords. Passwords that cannot be decrypted are left out."""
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
    """Return True if a setting, with or without a listener prefix, is a password that can change at run time."""
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
