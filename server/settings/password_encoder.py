"""How passwords are kept in ZooKeeper: Kafka's EncryptingPasswordEncoder, whose text both makes of brokers read.

    keyFactoryAlgorithm:PBKDF2WithHmacSHA512,cipherAlgorithm:AES/CBC/PKCS5Padding,keyLength:128,salt:...,iterations:4096,
    initializationVector:...,encryptedPassword:...,passwordLength:6

in any order, with bytes in base64; for AES/GCM also authenticationTagLength. The key is derived from
`password.encoder.secret`. A text says itself how it was made, so that these settings may change.
Deriving a key takes milliseconds. Every function here is called in a thread.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass

# Java's names of what hashlib calls by other names
KEY_FACTORIES = {f"PBKDF2WithHmacSHA{bits}": f"sha{bits}" for bits in (1, 224, 256, 384, 512)}
DEFAULT_KEY_FACTORY = "PBKDF2WithHmacSHA512"
CBC, GCM = "AES/CBC/PKCS5Padding", "AES/GCM/NoPadding"
CIPHERS = (CBC, GCM)
KEY_LENGTHS = (128, 192, 256)
SALT_BYTES = 256
IV_BYTES = {CBC: 16, GCM: 12}
TAG_BITS = 128
ITERATIONS_MAX = 1_000_000  # half a second; whoever can write into ZooKeeper could ask for any time
ENCODED_LENGTH_MAX = 100_000


class UndecodablePassword(Exception):
    """A text that holds no password for this secret; the message says nothing of either."""


@dataclass(frozen=True, kw_only=True)
class PasswordEncoder:
    """Encodes with what is given here, and decodes with what a text says of itself."""

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
        """The password; raises UndecodablePassword."""
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
    """Raises ValueError if the content was not encrypted with this key."""
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
    """Java counts characters beyond the basic plane as two."""
    return len(text) + sum(ord(character) > 0xFFFF for character in text)


def _text(content: bytes) -> str:
    return b64encode(content).decode()


def _bytes(text: str) -> bytes:
    return b64decode(text, validate=True)
