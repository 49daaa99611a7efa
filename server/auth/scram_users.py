"""SCRAM credentials of users, as they are kept in the coordination tree under /config/users, read when they change.

A user's node has the mechanism's name as key: `SCRAM-SHA-256=salt=...,stored_key=...,server_key=...,iterations=4096`. What
else is kept of users there (quotas) is none of this module's business.
"""

from __future__ import annotations

import hmac
import logging
import secrets
from collections.abc import Iterator, Mapping
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
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"


class ScramUsers:
    """Who may log in by SCRAM; a `ScramStore`."""

    def __init__(self) -> None:
        self._credentials: dict[str, dict[str, ScramCredential]] = {}
        self._secret = secrets.token_bytes(32)

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
        if found:
            self._credentials[name] = found
        else:
            self._credentials.pop(name, None)

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
        """A salt that looks like any other, and keys that nobody has."""
        hash_name = HASHES[mechanism]
        seed = hmac.digest(self._secret, f"{mechanism} {name}".encode("utf-8", "surrogatepass"), "sha512")
        number = int.from_bytes(seed[:32], "big") % (1 << SALT_BITS)
        key = hmac.digest(self._secret, seed, hash_name)
        return ScramCredential(_in_36_digits(number), key, key, ITERATIONS_MIN)


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
