"""Logins of the proxy's clients: names and passwords by basic authentication (RFC 7617).

A file of properties has them (`--users FILE`), a line `user.NAME=PASSWORD` for each; only its owner may be able to read it.
"""

from __future__ import annotations

import hmac
import stat
from base64 import b64decode
from collections.abc import Mapping
from pathlib import Path

from ottla.server.admin.http.routes import Refused, Request
from ottla.server.config.properties import MalformedProperties, parse_properties

_CHALLENGE = (("WWW-Authenticate", 'Basic realm="REST proxy"'),)
_USER = "user."


class InvalidLogins(ValueError):
    """Invalid file of users; the message is one line for the file's author."""


class Logins:
    """Passwords by user name; None if no login is required."""

    def __init__(self, passwords: Mapping[str, bytes] | None = None) -> None:
        self._passwords = passwords

    def check(self, request: Request) -> None:
        """Raise Refused unless a request comes from a user."""
        if self._passwords is not None and not self._is_known(request.headers.get("authorization", "")):
            raise Refused(401, "HTTP 401 Unauthorized", _CHALLENGE)

    def _is_known(self, header: str) -> bool:
        scheme, _, encoded = header.partition(" ")
        if scheme.lower() != "basic":
            return False
        try:
            name, separator, password = b64decode(encoded.strip(), validate=True).partition(b":")
        except ValueError:
            return False
        assert self._passwords is not None
        wanted = self._passwords.get(name.decode("utf-8", "surrogateescape"))
        # An unknown name takes as long as a wrong password.
        is_right = hmac.compare_digest(password, wanted or b"")
        return is_right and wanted is not None and bool(separator)


def read_logins(file: Path) -> Logins:
    """Read a file of users. Raises InvalidLogins."""
    try:
        mode = file.stat().st_mode
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeError) as error:
        raise InvalidLogins(f"cannot read {file}: {error}") from None
    if stat.S_IMODE(mode) & 0o077:
        raise InvalidLogins(f"{file} has passwords, and others may read it: chmod 600 {file}")
    try:
        texts = parse_properties(text)
    except MalformedProperties as error:
        raise InvalidLogins(f"{file}: {error}") from None
    for name, password in texts.items():
        user = name.removeprefix(_USER)
        if not name.startswith(_USER) or not user or ":" in user or not password:
            raise InvalidLogins(f"{file}: {name}: must be user.NAME=PASSWORD, with a name that has no colon")
    return Logins({name.removeprefix(_USER): password.encode() for name, password in texts.items()})
