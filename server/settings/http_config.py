"""The settings of the HTTP endpoint. Apache Kafka has none, so they are accepted and in force, but not described to its clients."""

import re
from dataclasses import dataclass

from ottla.wire.settings import PASSWORD, setting

_LISTENER = re.compile(r"(?:\[([0-9A-Za-z:%.]+)\]|([^/:\[\]\s]*)):([0-9]{1,5})")
LOOPBACK = "127.0.0.1"
TOKEN_LENGTH_MIN = 16


def parse_http_listener(text: str) -> tuple[str, int] | None:
    """HOST:PORT, [IPV6]:PORT, or :PORT on loopback; None: it is no such text."""
    match = _LISTENER.fullmatch(text)
    if match is None or int(match[3]) > 65535:
        return None
    return match[1] or match[2] or LOOPBACK, int(match[3])


def _listener_problem(text: str) -> str | None:
    return None if parse_http_listener(text) else "must be HOST:PORT, or :PORT on loopback"


def _token_problem(text: str | None) -> str | None:
    # It goes into a header, so it is ASCII without spaces.
    if text is None or (len(text) >= TOKEN_LENGTH_MIN and text.isascii() and text.isprintable() and " " not in text):
        return None
    return f"must have {TOKEN_LENGTH_MIN} characters at least, all of them ASCII, and no spaces"


def _registry_problem(text: str | None) -> str | None:
    if text is None:
        return None
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(text)
        is_url = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        is_url = False
    if not is_url or not text.isascii() or not text.isprintable() or " " in text or parts.query or parts.fragment:
        return "must be a URL that begins with http:// or https://, without a query"
    # It is shown with the settings.
    return (
        "must not have a password in it: http.console.schema.registry.user.info takes it"
        if "@" in parts.netloc
        else None
    )


def _user_info_problem(text: str | None) -> str | None:
    return None if text is None or ":" in text else "must be user:password"


@dataclass(frozen=True, kw_only=True)
class HttpConfig:
    """Where the endpoint is, and who may ask it."""

    http_listener: str | None = setting(
        None,
        check=_listener_problem,
        internal=True,
        doc="Address of the HTTP endpoint with metrics and health, as HOST:PORT; none by default, port 0 any free port.",
    )
    http_allowed_hosts: tuple[str, ...] = setting(
        (),
        internal=True,
        doc="Names beside those of the listeners by which browsers and scrapers may ask the HTTP endpoint.",
    )
    http_console_write: bool = setting(
        False,
        internal=True,
        doc="Whether the console may produce records, change settings and start the small load of its Learn tab.",
    )
    http_console_token: str | None = setting(
        None,
        kind=PASSWORD,
        check=_token_problem,
        internal=True,
        doc="What opens the console; without it everybody on this machine may read, or each start makes one.",
    )

    http_console_schema_registry: str | None = setting(
        None,
        check=_registry_problem,
        internal=True,
        doc="URL of a schema registry, by which the console decodes keys and values in Avro.",
    )
    http_console_schema_registry_user_info: str | None = setting(
        None,
        kind=PASSWORD,
        check=_user_info_problem,
        internal=True,
        doc="User and password for the schema registry, as user:password.",
    )

    @property
    def address(self) -> tuple[str, int] | None:
        """Host and port; None: there is no endpoint."""
        return None if self.http_listener is None else parse_http_listener(self.http_listener)
