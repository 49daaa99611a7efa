"""Basic authentication (RFC 7617) of an HTTP API, and its file of users.

The file is one of properties, with a line `user.NAME=PASSWORD` for each user; only its owner may be able to read it.
"""

from __future__ import annotations

import hmac
import stat
from base64 import b64decode
from collections.abc import Callable
from pathlib import Path

from ottla.server.admin.http.routes import Refused, Request
from ottla.server.config.properties import MalformedProperties, parse_properties

USER = "user."


class InvalidUsers(ValueError):
    """Users file that cannot be used; the text is one line for the operator."""


def read_users_file(file: Path) -> dict[str, str]:
    """Read the properties of a users file. Raises InvalidUsers."""
    try:
        mode = file.stat().st_mode
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeError) as error:
        raise InvalidUsers(f"cannot read {file}: {error}") from None
    if stat.S_IMODE(mode) & 0o077:
        raise InvalidUsers(f"{file} has passwords, and others may read it: chmod 600 {file}")
    try:
        return parse_properties(text)
    except MalformedProperties as error:
        raise InvalidUsers(f"{file}: {error}") from None


def credentials_of(request: Request) -> tuple[bytes, bytes] | None:
    """Return name and password from a request's Authorization header; None if it has no Basic credentials."""
    scheme, _, encoded = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        name, separator, password = b64decode(encoded.strip(), validate=True).partition(b":")
    except ValueError:
        return None
    return (name, password) if separator else None


def authenticated(request: Request, password_of: Callable[[str], bytes | None]) -> str | None:
    """Return the name of the request's user; None if the user is unknown or the password is wrong."""
    found = credentials_of(request)
    if found is None:
        return None
    name, password = found
    user = name.decode("utf-8", "surrogateescape")
    wanted = password_of(user)
    # An unknown name takes as long as a wrong password.
    is_right = hmac.compare_digest(password, wanted or b"")
    return user if is_right and wanted is not None else None


def login_required(realm: str) -> Refused:
    """Make the 401 answer for a request without valid credentials."""
    return Refused(401, "HTTP 401 Unauthorized", (("WWW-Authenticate", f'Basic realm="{realm}"'),))
