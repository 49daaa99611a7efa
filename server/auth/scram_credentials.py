"""SCRAM credentials: what is kept of a password, the texts that Kafka keeps them as, and the keys of RFC 5802.

A credential is `salt=<base64>,stored_key=<base64>,server_key=<base64>,iterations=<n>` (Kafka's ScramCredentialUtils). To make
one of a password costs thousands of hashes, so that belongs in a thread; to check a login costs three.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from typing import NamedTuple

ITERATIONS_MIN, ITERATIONS_MAX = 4_096, 16_384
SCRAM_256, SCRAM_512 = "SCRAM-SHA-256", "SCRAM-SHA-512"
HASHES = {SCRAM_256: "sha256", SCRAM_512: "sha512"}
"""Mechanism -> the name of its hash function."""
TYPES = {1: SCRAM_256, 2: SCRAM_512}
"""Kafka's number of each mechanism."""

_PARTS = ("salt", "stored_key", "server_key", "iterations")


class MalformedCredential(ValueError):
    """A text that is no credential. It is not in the message: it may be one nearly."""


class ScramCredential(NamedTuple):
    """What a server knows of a password. It cannot log in with it, but whoever has it can pose as the server."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    def __repr__(self) -> str:
        return "ScramCredential([hidden])"


def encode_credential(credential: ScramCredential) -> str:
    salt, stored, server = (base64.b64encode(each).decode() for each in credential[:3])
    return f"salt={salt},stored_key={stored},server_key={server},iterations={credential.iterations}"


def decode_credential(text: str) -> ScramCredential:
    """Raises MalformedCredential. As in Kafka the parts may come in any order, and there are no others."""
    parts: dict[str, str] = {}
    for each in text.split(","):
        name, _, value = each.partition("=")
        parts[name] = value
    if sorted(parts) != sorted(_PARTS):
        raise MalformedCredential("Credentials not valid")
    try:
        salt, stored, server = (base64.b64decode(parts[name], validate=True) for name in _PARTS[:3])
    except (binascii.Error, ValueError):
        raise MalformedCredential("Credentials not valid") from None
    iterations = parts["iterations"]
    if not (iterations.isascii() and iterations.isdecimal()) or len(iterations) > 9:
        raise MalformedCredential("Credentials not valid")
    return ScramCredential(salt, stored, server, int(iterations))


def salted_password(mechanism: str, password: str, salt: bytes, iterations: int) -> bytes:
    """RFC 5802's Hi(). Kafka takes the password as it is, without SASLprep. Takes a millisecond and more."""
    return hashlib.pbkdf2_hmac(HASHES[mechanism], password.encode(), salt, iterations)


def credential_of(mechanism: str, salted: bytes, salt: bytes, iterations: int) -> ScramCredential:
    """What a server keeps of a salted password."""
    name = HASHES[mechanism]
    client_key = hmac.digest(salted, b"Client Key", name)
    server_key = hmac.digest(salted, b"Server Key", name)
    return ScramCredential(salt, hashlib.new(name, client_key).digest(), server_key, iterations)
