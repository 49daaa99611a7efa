"""`--add-scram` of `ottla start`: users that a secured broker begins with, as `kafka-storage format --add-scram` takes them.

    SCRAM-SHA-256=[name=alice,password=her password]
    SCRAM-SHA-512=[name=alice,iterations=8192,salt="N3E=",saltedpassword="..."]

`parse_first_user` raises `MalformedUser`, whose text never holds a password. To make the credential takes milliseconds, so
that belongs in a thread.
"""

from __future__ import annotations

import base64
import binascii
import re
from typing import NamedTuple

from ottla.server.auth.scram_credentials import (
    HASHES,
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    credential_of,
    encode_credential,
    salted_password,
)
from ottla.server.auth.scram_users import new_salt
from ottla.wire.settings import parse_integer

_TEXT = re.compile(r"([A-Z0-9-]+)=\[(.*)\]", re.DOTALL)
# A value in quotes may hold a comma, and `\"` and `\\`.
_PART = re.compile(r'\s*([a-z]+)=("(?:[^"\\]|\\.)*"|[^",][^,]*|)\s*(?:,|$)', re.DOTALL)
_NAMES = ("name", "password", "iterations", "salt", "saltedpassword")


class MalformedUser(ValueError):
    """What cannot be read; one line for the operator."""


class FirstUser(NamedTuple):
    """A user, and what the credential is made of: a password, or one that is salted already."""

    mechanism: str
    name: str
    password: str
    salted: bytes
    salt: bytes
    iterations: int

    def __repr__(self) -> str:
        return f"FirstUser({self.mechanism}, {self.name!r})"

    def credential(self) -> str:
        """As it is kept."""
        salt = self.salt or new_salt()
        salted = self.salted or salted_password(self.mechanism, self.password, salt, self.iterations)
        return encode_credential(credential_of(self.mechanism, salted, salt, self.iterations))


def parse_first_user(text: str) -> FirstUser:
    """Raises MalformedUser."""
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
