"""Logins of the proxy's clients; a users file (`--users FILE`) has their names and passwords."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ottla.server.admin.http import basic_authentication
from ottla.server.admin.http.basic_authentication import USER, InvalidUsers
from ottla.server.admin.http.routes import Request

REALM = "REST proxy"


class Logins:
    """Users of the proxy: passwords by user name. If `passwords` is None, no login is required."""

    def __init__(self, passwords: Mapping[str, bytes] | None = None) -> None:
        self._passwords = passwords

    def check(self, request: Request) -> None:
        """Raise Refused if a request has no valid login."""
        self.user_of(request)

    def user_of(self, request: Request) -> str:
        """Return a request's user; "" if no login is required. Raises Refused if the login is invalid or missing."""
        if self._passwords is None:
            return ""
        user = basic_authentication.authenticated(request, self._passwords.get)
        if user is None:
            raise basic_authentication.login_required(REALM)
        return user


def read_logins(file: Path) -> Logins:
    """Read a users file. Raises InvalidUsers."""
    texts = basic_authentication.read_users_file(file)
    for name, password in texts.items():
        user = name.removeprefix(USER)
        if not name.startswith(USER) or not user or ":" in user or not password:
            raise InvalidUsers(f"{file}: {name}: must be user.NAME=PASSWORD, with a name that has no colon")
    return Logins({name.removeprefix(USER): password.encode() for name, password in texts.items()})
