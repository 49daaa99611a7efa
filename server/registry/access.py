"""Rights of the registry's clients: users with passwords, and what each of them may do with which subjects.

A file of properties names them (`--users FILE`); only its owner may be able to read it.

    user.alice=a password
    rights.alice=read,write:orders-* compatibility:orders-value
    user.admin=another one
    rights.admin=read,write,delete,compatibility:*

A pattern is a subject's whole name, or a beginning and an asterisk. Contexts are part of names: `:.staging:*` are all
subjects of one, and settings of all subjects need a right to `*`. A client that may read a subject may also read the ids of
its schemas. Lists show what a user may read.
"""

from __future__ import annotations

import hmac
import os
import stat
from base64 import b64decode
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from ottla.server.admin.http.routes import Refused, Request
from ottla.server.config.properties import MalformedProperties, parse_properties
from ottla.server.registry.errors import ApiError, Code

READ, WRITE, DELETE, COMPATIBILITY = RIGHTS = ("read", "write", "delete", "compatibility")
_CHALLENGE = (("WWW-Authenticate", 'Basic realm="schema registry"'),)
_USER, _GRANTED = "user.", "rights."


class InvalidAccess(ValueError):
    """Unusable users file; the text is one line for the operator."""


class Grant(NamedTuple):
    """Rights to the subjects of a pattern."""

    rights: frozenset[str]
    pattern: str

    def covers(self, subject: str | None) -> bool:
        """True if the grant covers a subject; None stands for all subjects."""
        if self.pattern == "*":
            return True
        if subject is None:
            return False
        return subject.startswith(self.pattern[:-1]) if self.pattern.endswith("*") else subject == self.pattern


class User(NamedTuple):
    """A user with a password and grants."""

    password: bytes
    grants: tuple[Grant, ...]

    def may(self, right: str, subject: str | None) -> bool:
        return any(right in each.rights and each.covers(subject) for each in self.grants)


class Access:
    """Users by name; None: everybody may do everything."""

    def __init__(self, users: Mapping[str, User] | None = None) -> None:
        self._users = users

    def check_login(self, request: Request) -> None:
        """Raise Refused unless a request comes from a user, before its body is read."""
        if self._users is not None and self._user(request) is None:
            raise Refused(401, "HTTP 401 Unauthorized", _CHALLENGE)

    def check(self, request: Request, right: str, subject: str | None) -> None:
        """Raise ApiError unless the user has a right to a subject; None: to all."""
        if not self._may(request, right, subject):
            what = "all subjects" if subject is None else f"subject {subject}"
            raise ApiError(Code.FORBIDDEN, f"User is denied operation {right} on {what}")

    def readable(self, request: Request) -> Callable[[str], bool] | None:
        """Tell which subjects the user may read; None: all of them."""
        if self._may(request, READ, None):
            return None
        return lambda subject: self._may(request, READ, subject)

    def _may(self, request: Request, right: str, subject: str | None) -> bool:
        if self._users is None:
            return True
        user = self._user(request)
        return user is not None and user.may(right, subject)

    def _user(self, request: Request) -> User | None:
        assert self._users is not None
        scheme, _, encoded = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "basic":
            return None
        try:
            name, _, password = b64decode(encoded.strip(), validate=True).partition(b":")
        except ValueError:
            return None
        user = self._users.get(name.decode("utf-8", "surrogateescape"))
        # An unknown name takes as long as a wrong password.
        is_right = hmac.compare_digest(password, b"" if user is None else user.password)
        return user if is_right else None


def read_access(file: Path) -> Access:
    """Read a file of users. Raises InvalidAccess."""
    try:
        mode = os.stat(file).st_mode
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeError) as error:
        raise InvalidAccess(f"cannot read {file}: {error}") from None
    if stat.S_IMODE(mode) & 0o077:
        raise InvalidAccess(f"{file} has passwords, and others may read it: chmod 600 {file}")
    try:
        return Access(parse_users(parse_properties(text)))
    except MalformedProperties as error:
        raise InvalidAccess(f"{file}: {error}") from None


def parse_users(texts: Mapping[str, str]) -> Mapping[str, User]:
    """Parse users and their rights. Raises InvalidAccess."""
    unknown = [each for each in texts if not each.startswith((_USER, _GRANTED))]
    if unknown:
        raise InvalidAccess(f"{unknown[0]}: must be user.NAME or rights.NAME")
    passwords = {name.removeprefix(_USER): text for name, text in texts.items() if name.startswith(_USER)}
    rights = {name.removeprefix(_GRANTED): text for name, text in texts.items() if name.startswith(_GRANTED)}
    for name in rights:
        if name not in passwords:
            raise InvalidAccess(f"{_GRANTED}{name}: there is no {_USER}{name} with a password")
    for name, password in passwords.items():
        if not password or ":" in name or not name:
            raise InvalidAccess(f"{_USER}{name}: needs a password, and a name without a colon")
    return {name: User(password.encode(), _grants(rights.get(name, ""))) for name, password in passwords.items()}


def _grants(text: str) -> tuple[Grant, ...]:
    grants = []
    for each in text.split():
        names, separator, pattern = each.partition(":")
        rights = frozenset(names.split(","))
        if not separator or not pattern or not rights <= frozenset(RIGHTS):
            raise InvalidAccess(f"{each}: must be {','.join(RIGHTS)}:PATTERN, with some of these rights")
        grants.append(Grant(rights, pattern))
    return tuple(grants)
