"""Rights of the registry's clients: users with passwords, and what each of them may do with which subjects.

The users file (`--users FILE`) names them:

    user.alice=a password
    rights.alice=read,write:orders-* compatibility:orders-value
    user.admin=another one
    rights.admin=read,write,delete,compatibility:*

A pattern is a subject's whole name, or a beginning and an asterisk. Contexts are part of names: `:.staging:*` are all
subjects of one, and settings of all subjects need a right to `*`. A client that may read a subject may also read the ids of
its schemas. Lists show what a user may read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from ottla.server.admin.http import basic_authentication
from ottla.server.admin.http.basic_authentication import USER, InvalidUsers
from ottla.server.admin.http.routes import Request
from ottla.server.registry.errors import ApiError, Code

READ, WRITE, DELETE, COMPATIBILITY = RIGHTS = ("read", "write", "delete", "compatibility")
_GRANTED = "rights."


class Grant(NamedTuple):
    """Rights to all subjects that match a pattern."""

    rights: frozenset[str]
    pattern: str

    def covers(self, subject: str | None) -> bool:
        """Tell whether the grant applies to `subject`; None stands for all subjects."""
        if self.pattern == "*":
            return True
        if subject is None:
            return False
        return subject.startswith(self.pattern[:-1]) if self.pattern.endswith("*") else subject == self.pattern


class User(NamedTuple):
    """User of the registry, with password and grants."""

    password: bytes
    grants: tuple[Grant, ...]

    def may(self, right: str, subject: str | None) -> bool:
        return any(right in each.rights and each.covers(subject) for each in self.grants)


class Access:
    """Access rules: users by name. If `users` is None, everybody may do everything."""

    def __init__(self, users: Mapping[str, User] | None = None) -> None:
        self._users = users

    def check_login(self, request: Request) -> None:
        """Raise Refused unless the request has a valid login. Called before the body is read."""
        if self._users is not None and self._user(request) is None:
            raise basic_authentication.login_required("schema registry")

    def check(self, request: Request, right: str, subject: str | None) -> None:
        """Raise ApiError if the user lacks `right` for `subject`; None stands for all subjects."""
        if not self._may(request, right, subject):
            what = "all subjects" if subject is None else f"subject {subject}"
            raise ApiError(Code.FORBIDDEN, f"User is denied operation {right} on {what}")

    def readable(self, request: Request) -> Callable[[str], bool] | None:
        """Return a function that tells whether the user may read a subject; None if the user may read all."""
        if self._may(request, READ, None):
            return None
        return lambda subject: self._may(request, READ, subject)

    def _may(self, request: Request, right: str, subject: str | None) -> bool:
        if self._users is None:
            return True
        user = self._user(request)
        return user is not None and user.may(right, subject)

    def _user(self, request: Request) -> User | None:
        users = self._users or {}
        name = basic_authentication.authenticated(request, lambda name: users[name].password if name in users else None)
        return None if name is None else users[name]


def read_access(file: Path) -> Access:
    """Read a file of users and their rights. Raises InvalidUsers."""
    return Access(parse_users(basic_authentication.read_users_file(file)))


def parse_users(texts: Mapping[str, str]) -> Mapping[str, User]:
    """Parse users and their rights. Raises InvalidUsers."""
    unknown = [each for each in texts if not each.startswith((USER, _GRANTED))]
    if unknown:
        raise InvalidUsers(f"{unknown[0]}: must be user.NAME or rights.NAME")
    passwords = {name.removeprefix(USER): text for name, text in texts.items() if name.startswith(USER)}
    rights = {name.removeprefix(_GRANTED): text for name, text in texts.items() if name.startswith(_GRANTED)}
    for name in rights:
        if name not in passwords:
            raise InvalidUsers(f"{_GRANTED}{name}: there is no {USER}{name} with a password")
    for name, password in passwords.items():
        if not password or ":" in name or not name:
            raise InvalidUsers(f"{USER}{name}: needs a password, and a name without a colon")
    return {name: User(password.encode(), _grants(rights.get(name, ""))) for name, password in passwords.items()}


def _grants(text: str) -> tuple[Grant, ...]:
    grants = []
    for each in text.split():
        names, separator, pattern = each.partition(":")
        rights = frozenset(names.split(","))
        if not separator or not pattern or not rights <= frozenset(RIGHTS):
            raise InvalidUsers(f"{each}: must be {','.join(RIGHTS)}:PATTERN, with some of these rights")
        grants.append(Grant(rights, pattern))
    return tuple(grants)
