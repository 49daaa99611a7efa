"""SCRAM credentials of users, as they are kept in the coordination tree under /config/users, read when they change.

A user's node has the mechanism's name as key: `SCRAM-SHA-256=salt=...,stored_key=...,server_key=...,iterations=4096`. Quotas of
users, which the same nodes hold, are passed over.

`--add-scram` of `ottla start` names users that a secured broker begins with, as `kafka-storage format --add-scram` takes them:

    SCRAM-SHA-256=[name=alice,password=her password]
    SCRAM-SHA-512=[name=alice,iterations=8192,salt="N3E=",saltedpassword="..."]

`parse_first_user` raises `MalformedUser`, whose text never holds a password. To make the credential takes milliseconds, so
that belongs in a thread.
"""

from __future__ import annotations

import base64
import binascii
import logging
import re
import secrets
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import unquote

from ottla.replication.cluster import znodes
from ottla.server.security.scram import KnownToken
from ottla.server.security.scram_credentials import (
    HASHES,
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    SALT_BITS,
    MadeUpCredentials,
    MalformedCredential,
    ScramCredential,
    credential_of,
    decode_credential,
    encode_credential,
    in_36_digits,
    salted_password,
)
from ottla.wire.settings import parse_integer

if TYPE_CHECKING:
    from ottla.server.security.tokens import DelegationTokens

logger = logging.getLogger("ottla.auth")


class ScramUsers:
    """Store of the users with SCRAM credentials; implements `ScramStore`."""

    def __init__(self, secret: bytes | None = None, tokens: DelegationTokens | None = None) -> None:
        """Create the store. `secret` makes the dummy credentials.

        It is permanent, and equal on all brokers; None: a random one.
        """
        self._credentials: dict[str, dict[str, ScramCredential]] = {}
        self._made_up = MadeUpCredentials(secret or secrets.token_bytes(32))
        self._tokens = tokens

    def on_entity(self, entity: str, texts: Mapping[str, str]) -> None:
        """Apply the settings of an entity if it is a user; the default user is ignored."""
        kind, _, element = entity.partition("/")
        if kind == znodes.USERS and "/" not in element and element != znodes.DEFAULT_ENTITY:
            self.put(unquote(element), texts)

    def put(self, name: str, texts: Mapping[str, str]) -> None:
        """Apply the settings of a user. Remove the user if they contain no credentials."""
        found = {}
        for mechanism in HASHES:
            if (text := texts.get(mechanism)) is not None:
                try:
                    found[mechanism] = credential = decode_credential(text)
                except MalformedCredential:
                    logger.error("Left aside a %s credential that cannot be read", mechanism)
                    continue
                if credential.iterations < ITERATIONS_MIN:
                    too_few = "Nobody can log in by a %s credential with %d iterations, where %d are the minimum"
                    logger.error(too_few, mechanism, credential.iterations, ITERATIONS_MIN)
        for mechanism in HASHES:
            self._made_up.change(mechanism, self.credential(mechanism, name), found.get(mechanism))
        if found:
            self._credentials[name] = found
        else:
            self._credentials.pop(name, None)

    def of(self, name: str) -> Mapping[str, ScramCredential]:
        """Return the credentials of a user, by mechanism."""
        return self._credentials.get(name, {})

    def __iter__(self) -> Iterator[str]:
        return iter(self._credentials)

    def credential(self, mechanism: str, name: str) -> ScramCredential | None:
        return self._credentials.get(name, {}).get(mechanism)

    def token(self, mechanism: str, token_id: str, now_ms: int) -> KnownToken | None:
        return None if self._tokens is None else self._tokens.known(mechanism, token_id, now_ms)

    def no_credential(self, mechanism: str, name: str, *, is_token: bool = False) -> ScramCredential:
        return self._made_up.of_token(mechanism, name) if is_token else self._made_up.of_user(mechanism, name)


def user_entity(name: str) -> str:
    """Return the path of a user's node below /config."""
    return f"{znodes.USERS}/{znodes.entity_element(name)}"


def new_salt() -> bytes:
    """Return a random salt like those of Kafka's tools."""
    return in_36_digits(secrets.randbits(SALT_BITS))


# ---------------------------------------------------------------------- users of --add-scram


_TEXT = re.compile(r"([A-Z0-9-]+)=\[(.*)\]", re.DOTALL)
# A value in quotes may hold a comma, and `\"` and `\\`.
_PART = re.compile(r'\s*([a-z]+)=("(?:[^"\\]|\\.)*"|[^",][^,]*|)\s*(?:,|$)', re.DOTALL)
_NAMES = ("name", "password", "iterations", "salt", "saltedpassword")


class MalformedUser(ValueError):
    """Malformed value of --add-scram. The message is one line for the operator."""


class FirstUser(NamedTuple):
    """User given by --add-scram, with a password or a salted password."""

    mechanism: str
    name: str
    password: str
    salted: bytes
    salt: bytes
    iterations: int

    def __repr__(self) -> str:
        return f"FirstUser({self.mechanism}, {self.name!r})"

    def credential(self) -> str:
        """Compute the credential, as the coordination tree stores it."""
        salt = self.salt or new_salt()
        salted = self.salted or salted_password(self.mechanism, self.password, salt, self.iterations)
        return encode_credential(credential_of(self.mechanism, salted, salt, self.iterations))


def parse_first_user(text: str) -> FirstUser:
    """Parse the value of --add-scram. Raises MalformedUser."""
    # Bytes of a file or a command that are no UTF-8 are surrogates by now.
    if any("\ud800" <= each <= "\udfff" for each in text):
        raise MalformedUser("the text is not UTF-8")
    found = _TEXT.fullmatch(text.strip())
    if found is None or found[1] not in HASHES:
        raise MalformedUser(f"must be MECHANISM=[name=...,password=...] with a mechanism of {', '.join(HASHES)}")
    parts = _parts(found[2])
    if not parts.get("name"):
        raise MalformedUser("name is missing")
    if bool(parts.get("password")) == bool(parts.get("saltedpassword")):
        raise MalformedUser("either password or saltedpassword has to be given")
    if parts.get("saltedpassword") and not parts.get("salt"):
        raise MalformedUser("salt has to be given with saltedpassword")
    iterations = parse_integer(parts.get("iterations", str(ITERATIONS_MIN)))
    if iterations is None or not ITERATIONS_MIN <= iterations <= ITERATIONS_MAX:
        raise MalformedUser(f"iterations must be from {ITERATIONS_MIN} to {ITERATIONS_MAX}")
    salt, salted = (_bytes(parts, name) for name in ("salt", "saltedpassword"))
    return FirstUser(found[1], parts["name"], parts.get("password", ""), salted, salt, iterations)


def _parts(text: str) -> dict[str, str]:
    parts: dict[str, str] = {}
    position = 0
    while position < len(text):
        found = _PART.match(text, position)
        if found is None or found[1] not in _NAMES or found[1] in parts:
            raise MalformedUser(
                f"must be made of {', '.join(f'{name}=...' for name in _NAMES)}, each once, with commas between"
            )
        value = found[2]
        parts[found[1]] = re.sub(r"\\(.)", r"\1", value[1:-1], flags=re.DOTALL) if value[:1] == '"' else value
        position = found.end()
    return parts


def _bytes(parts: dict[str, str], name: str) -> bytes:
    try:
        return base64.b64decode(parts.get(name, ""), validate=True)
    except (binascii.Error, ValueError):
        raise MalformedUser(f"{name} is not base64") from None
