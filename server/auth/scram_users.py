"""SCRAM credentials of users, as they are kept in the coordination tree under /config/users, read when they change.

A user's node has the mechanism's name as key: `SCRAM-SHA-256=salt=...,stored_key=...,server_key=...,iterations=4096`. What
else is kept of users there (quotas) is none of this module's business.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import secrets
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import NamedTuple
from urllib.parse import unquote

from ottla.replication.cluster import znodes
from ottla.server.auth.scram import KnownToken
from ottla.server.auth.scram_credentials import (
    HASHES,
    ITERATIONS_MIN,
    MalformedCredential,
    ScramCredential,
    decode_credential,
)

logger = logging.getLogger("ottla.auth")

SALT_BITS = 130  # of those that Kafka's tools make, written in 36 digits
_SALT_DIGITS_MAX = 26
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"


class _Shape(NamedTuple):
    """What a stranger sees of a credential that somebody has. `salt_bytes` is None for salts as Kafka's tools make them."""

    iterations: int
    salt_bytes: int | None

    @classmethod
    def of(cls, credential: ScramCredential) -> _Shape:
        is_kafkas = len(credential.salt) <= _SALT_DIGITS_MAX and not credential.salt.translate(None, _DIGITS.encode())
        return cls(credential.iterations, None if is_kafkas else len(credential.salt))


_KAFKAS = _Shape(ITERATIONS_MIN, None)


class ScramUsers:
    """Who may log in by SCRAM; a `ScramStore`."""

    def __init__(self) -> None:
        self._credentials: dict[str, dict[str, ScramCredential]] = {}
        self._secret = secrets.token_bytes(32)
        self._shapes: dict[str, Counter[_Shape]] = {mechanism: Counter() for mechanism in HASHES}
        self._usual: dict[str, _Shape] = {}  # as far as somebody has asked since the last change

    def on_entity(self, entity: str, texts: Mapping[str, str]) -> None:
        """Take what is kept of an entity, if it is a user and not the default one."""
        kind, _, element = entity.partition("/")
        if kind == znodes.USERS and "/" not in element and element != znodes.DEFAULT_ENTITY:
            self.put(unquote(element), texts)

    def put(self, name: str, texts: Mapping[str, str]) -> None:
        """Take what is kept of a user now; nothing: the user is gone."""
        found = {}
        for mechanism in HASHES:
            if (text := texts.get(mechanism)) is not None:
                try:
                    found[mechanism] = decode_credential(text)
                except MalformedCredential:
                    logger.error("Left aside a %s credential that cannot be read", mechanism)
        for mechanism, credential in self.of(name).items():
            shapes, shape = self._shapes[mechanism], _Shape.of(credential)
            shapes[shape] -= 1
            if not shapes[shape]:
                del shapes[shape]
        for mechanism, credential in found.items():
            self._shapes[mechanism][_Shape.of(credential)] += 1
        if found:
            self._credentials[name] = found
        else:
            self._credentials.pop(name, None)
        self._usual.clear()

    def of(self, name: str) -> Mapping[str, ScramCredential]:
        """The credentials of a user, by mechanism."""
        return self._credentials.get(name, {})

    def __iter__(self) -> Iterator[str]:
        return iter(self._credentials)

    def credential(self, mechanism: str, name: str) -> ScramCredential | None:
        return self._credentials.get(name, {}).get(mechanism)

    def token(self, mechanism: str, token_id: str, now_ms: int) -> KnownToken | None:
        return None

    def no_credential(self, mechanism: str, name: str) -> ScramCredential:
        """What most users' credentials look like, with keys that nobody has."""
        hash_name = HASHES[mechanism]
        seed = hmac.digest(self._secret, f"{mechanism} {name}".encode("utf-8", "surrogatepass"), "sha512")
        key = hmac.digest(self._secret, seed, hash_name)
        iterations, salt_bytes = self._usual_shape(mechanism)
        if salt_bytes is None:
            salt = _in_36_digits(int.from_bytes(seed[:32], "big") % (1 << SALT_BITS))
        else:
            salt = hashlib.shake_256(seed).digest(salt_bytes)
        return ScramCredential(salt, key, key, iterations)

    def _usual_shape(self, mechanism: str) -> _Shape:
        shape = self._usual.get(mechanism)
        if shape is None:
            shapes = self._shapes[mechanism]
            shape = self._usual[mechanism] = max(shapes, key=lambda each: (shapes[each], each.iterations), default=_KAFKAS)
        return shape


def user_entity(name: str) -> str:
    """Where what is kept of a user is, below /config."""
    return f"{znodes.USERS}/{znodes.entity_element(name)}"


def new_salt() -> bytes:
    """As Kafka's tools make one."""
    return _in_36_digits(secrets.randbits(SALT_BITS))


def _in_36_digits(number: int) -> bytes:
    found = []
    while number:
        number, digit = divmod(number, 36)
        found.append(_DIGITS[digit])
    return "".join(reversed(found)).encode() or b"0"
