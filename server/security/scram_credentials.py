"""SCRAM credentials: those of users, in the coordination tree's format, and made-up ones for unknown names.

`MadeUpCredentials` answers logins of unknown names so that the answer does not tell that they are unknown. A made-up answer looks
like that of some known user: its number of iterations and the form of its salt are drawn from those that the users of the mechanism
have, as often as they have them. Name and secret decide the draw, so it is the same on each broker, and after a restart.

When users come and go draws may change. Each look that users have is given a number by name and secret, the more users have
it the smaller, and the smallest wins (weighted rendezvous hashing): of all unknown names only as many change as users did. Such a
name gets another salt, too, which is what happens to a known user whose password is changed.

Tokens have 4,096 iterations and salts that Kafka's tools would make, all of them, and these are made here (`salt_of_token`).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import heapq
import hmac
import math
from collections import Counter
from typing import NamedTuple

ITERATIONS_MIN, ITERATIONS_MAX = 4_096, 16_384
SCRAM_256, SCRAM_512 = "SCRAM-SHA-256", "SCRAM-SHA-512"
HASHES = {SCRAM_256: "sha256", SCRAM_512: "sha512"}
"""Mechanism -> the name of its hash function."""
TYPES = {1: SCRAM_256, 2: SCRAM_512}
"""Kafka's number of each mechanism."""

_PARTS = ("salt", "stored_key", "server_key", "iterations")


class MalformedCredential(ValueError):
    """Malformed credential. The message does not quote it, because most of it may be valid."""


class ScramCredential(NamedTuple):
    """Salted keys of a password. Their holder cannot log in with them, but can pose as the server."""

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
    """Parse a credential; as in Kafka, its parts may be in any order.

    Raises MalformedCredential, also for unknown parts.
    """
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
    """Return RFC 5802's Hi(), which takes 1 ms or more. Like Kafka, do not apply SASLprep to the password."""
    return hashlib.pbkdf2_hmac(HASHES[mechanism], password.encode(), salt, iterations)


def credential_of(mechanism: str, salted: bytes, salt: bytes, iterations: int) -> ScramCredential:
    """Compute a credential from a salted password. It contains `salt` and `iterations`, too."""
    name = HASHES[mechanism]
    client_key = hmac.digest(salted, b"Client Key", name)
    server_key = hmac.digest(salted, b"Server Key", name)
    return ScramCredential(salt, hashlib.new(name, client_key).digest(), server_key, iterations)


# ---------------------------------------------------------------------- made-up credentials


SALT_BITS = 130  # of those that Kafka's tools make, written in 36 digits
LOOKS_MAX = 16  # that are drawn from: each takes a microsecond of every login
SALT_BYTES_MAX = 256  # that are made up; nobody needs more
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
_DIGIT_BYTES = frozenset(_DIGITS.encode())
_LENGTHS_OF_TOOLS = (25, 26)  # those of nearly all numbers of so many bits


class Look(NamedTuple):
    """Properties of a credential that clients see before login. `salt_bytes` 0: a salt like those of Kafka's tools."""

    iterations: int
    salt_bytes: int


_OF_NOBODY = Look(ITERATIONS_MIN, 0)


class MadeUpCredentials:
    """Source of dummy credentials for unknown names, derived from a secret. They look like those of existing users."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret
        self._looks: dict[str, Counter[Look]] = {mechanism: Counter() for mechanism in HASHES}
        self._drawn_from: dict[str, list[tuple[Look, int]]] = {}

    def change(self, mechanism: str, before: ScramCredential | None, after: ScramCredential | None) -> None:
        """Record a changed credential, so that dummy ones resemble real ones. `before` None: new; `after` None: removed."""
        looks = self._looks[mechanism]
        for credential, difference in ((before, -1), (after, 1)):
            if credential is not None and credential.iterations >= ITERATIONS_MIN:
                look = _look_of(credential)
                looks[look] += difference
                if not looks[look]:
                    del looks[look]
        self._drawn_from.pop(mechanism, None)

    def of_user(self, mechanism: str, name: str) -> ScramCredential:
        """Return the dummy credential of an unknown user. No proof matches it."""
        look = self._look(mechanism, name)
        seed = self._seed(f"user {mechanism} {look.iterations} {look.salt_bytes} {name}")
        return self._credential(mechanism, seed, _salt(seed, look.salt_bytes), look.iterations)

    def of_token(self, mechanism: str, token_id: str) -> ScramCredential:
        """Return the dummy credential of an unknown token. No proof matches it."""
        salt = self.salt_of_token(mechanism, token_id)
        return self._credential(mechanism, self._seed(f"key {mechanism} {token_id}"), salt, ITERATIONS_MIN)

    def salt_of_token(self, mechanism: str, token_id: str) -> bytes:
        """Return the salt for a token id, which is the same whether the token exists or not."""
        return _salt(self._seed(f"token {mechanism} {token_id}"), 0)

    def _credential(self, mechanism: str, seed: bytes, salt: bytes, iterations: int) -> ScramCredential:
        key = hmac.digest(self._secret, seed, HASHES[mechanism])
        return ScramCredential(salt, key, key, iterations)

    def _look(self, mechanism: str, name: str) -> Look:
        looks = self._drawn_from.get(mechanism)
        if looks is None:
            common = heapq.nlargest(LOOKS_MAX, self._looks[mechanism].items(), key=lambda each: (each[1], each[0]))
            looks = self._drawn_from[mechanism] = common or [(_OF_NOBODY, 1)]
        return min(looks, key=lambda each: self._rank(mechanism, name, *each))[0]

    def _rank(self, mechanism: str, name: str, look: Look, users: int) -> float:
        seed = self._seed(f"look {mechanism} {look.iterations} {look.salt_bytes} {name}")
        return -math.log((int.from_bytes(seed[:6], "big") + 1) / (1 << 48)) / users

    def _seed(self, text: str) -> bytes:
        return hmac.digest(self._secret, text.encode("utf-8", "surrogatepass"), "sha512")


def in_36_digits(number: int) -> bytes:
    """Format a number in base 36, as Java's BigInteger does."""
    found = []
    while number:
        number, digit = divmod(number, 36)
        found.append(_DIGITS[digit])
    return "".join(reversed(found)).encode() or b"0"


def _look_of(credential: ScramCredential) -> Look:
    salt = credential.salt
    is_of_tools = len(salt) in _LENGTHS_OF_TOOLS and _DIGIT_BYTES.issuperset(salt)
    return Look(credential.iterations, 0 if is_of_tools else min(len(salt), SALT_BYTES_MAX))


def _salt(seed: bytes, salt_bytes: int) -> bytes:
    if salt_bytes:
        return hashlib.shake_256(seed).digest(salt_bytes)
    return in_36_digits(int.from_bytes(seed[:32], "big") % (1 << SALT_BITS))
