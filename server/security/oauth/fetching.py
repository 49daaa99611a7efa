"""HTTP client for keys, tokens, schemas and requests handed on: one exchange, no redirects, bounded in bytes and in time.

A redirect would lead to an address that the operator has not named. Proxies are not asked, whatever the environment says.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

import h11
import trio

from ottla.server.config.token_rules import KEY_SET_BYTES_MAX

if TYPE_CHECKING:
    import ssl

    from ottla.server.config.security_config import TlsConfig

TIME_S = 20.0
"""Time limit of an exchange. Kafka's library waits as long for a connection, and again for each piece of the answer."""

Headers = Sequence[tuple[str, str]]

OK = 200
_PIECE_BYTES = 1 << 16
_NO_HTTP = "the server speaks no HTTP, or leaves before the end of its answer"
_PORTS = {"http": 80, "https": 443}


class FailedRead(Exception):
    """Failure of an HTTP exchange; the text is for the log. `status`: status of the response; None: no response."""

    def __init__(self, text: str, status: int | None = None) -> None:
        super().__init__(text)
        self.status = status


class Unreached(FailedRead):
    """Failure to connect to an HTTP server, before a request was sent."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """Limits of one HTTP exchange: seconds for connecting, each read and the whole; bytes of the response."""

    connect_s: float = TIME_S
    read_s: float = TIME_S
    all_s: float = TIME_S
    bytes_max: int = KEY_SET_BYTES_MAX


_USUAL = Limits()


class Answer(NamedTuple):
    """HTTP response: status and body."""

    status: int
    body: bytes


async def fetch(url: str, context: ssl.SSLContext | None, headers: Headers = (), limits: Limits = _USUAL) -> bytes:
    """GET a document. `context`: TLS for https. `headers`: additional headers. Raises FailedRead."""
    return _document(await exchange(url, context, "GET", headers, b"", limits))


def _document(answer: Answer) -> bytes:
    if answer.status != OK:
        raise FailedRead(f"the server answers with status {answer.status}", answer.status)
    return answer.body


async def exchange(
    url: str, context: ssl.SSLContext | None, method: str, headers: Headers, body: bytes, limits: Limits
) -> Answer:
    """Send a request; return the response whatever its status. Raises FailedRead.

    `context`: TLS for https. `headers`: additional headers.
    """
    try:
        with trio.fail_after(limits.all_s):
            return await _exchange(url, context, method, headers, body, limits)
    except trio.TooSlowError:
        raise FailedRead(f"there is no whole answer after {limits.all_s:g} s") from None
    # UnicodeError: the host's name cannot be a name in DNS.
    except (OSError, UnicodeError, trio.BrokenResourceError) as error:
        raise FailedRead(f"the server cannot be asked: {_said(error)}") from None
    except h11.ProtocolError:
        raise FailedRead(_NO_HTTP) from None


async def _exchange(
    url: str, context: ssl.SSLContext | None, method: str, more: Headers, body: bytes, limits: Limits
) -> Answer:
    parts = urlsplit(url)
    assert parts.hostname is not None  # `token_rules.py` sees to it
    port = parts.port or _PORTS[parts.scheme]
    try:
        with trio.fail_after(limits.connect_s):
            stream: trio.abc.Stream = await trio.open_tcp_stream(parts.hostname, port)
    except trio.TooSlowError:
        raise Unreached(f"there is no connection after {limits.connect_s:g} s") from None
    except (OSError, UnicodeError) as error:
        raise Unreached(f"the server cannot be asked: {_said(error)}") from None
    if context is not None:
        stream = trio.SSLStream(stream, context, server_hostname=parts.hostname, https_compatible=True)
    try:
        # Some servers answer a longer path than they are asked for, and some none without these.
        headers = [
            ("Host", parts.netloc),
            ("Accept", "application/json"),
            ("User-Agent", "ottla"),
            ("Connection", "close"),
            *more,
        ]
        if body:
            headers.append(("Content-Length", str(len(body))))
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        connection = h11.Connection(h11.CLIENT)
        await _send(stream, connection, h11.Request(method=method, target=target, headers=headers))
        if body:
            await _send(stream, connection, h11.Data(data=body))
        await _send(stream, connection, h11.EndOfMessage())
        return await _answer(stream, connection, limits)
    finally:
        await trio.aclose_forcefully(stream)


async def _send(
    stream: trio.abc.Stream, connection: h11.Connection, event: h11.Request | h11.Data | h11.EndOfMessage
) -> None:
    if data := connection.send(event):
        await stream.send_all(data)


async def _answer(stream: trio.abc.Stream, connection: h11.Connection, limits: Limits) -> Answer:
    status = 0
    body = bytearray()
    while True:
        event = connection.next_event()
        if event is h11.NEED_DATA:
            try:
                with trio.fail_after(limits.read_s):
                    connection.receive_data(bytes(await stream.receive_some(_PIECE_BYTES)))
            except trio.TooSlowError:
                raise FailedRead(f"there is nothing of an answer for {limits.read_s:g} s") from None
        elif isinstance(event, h11.Response):
            status = event.status_code
        elif isinstance(event, h11.Data):
            body += event.data
            if len(body) > limits.bytes_max:
                raise FailedRead(f"the answer has more than {limits.bytes_max} bytes", status)
            # What was received may be ten thousand chunks of one byte.
            await trio.lowlevel.checkpoint()
        elif isinstance(event, h11.EndOfMessage):
            return Answer(status, bytes(body))
        elif not isinstance(event, h11.InformationalResponse):
            raise FailedRead(_NO_HTTP)


class HttpClient:
    """HTTP client that always sends the same login.

    `user_info`: user:password for basic authentication; None: no login. It is sent only in a header.
    `context`: TLS for https; None: trust the system's authorities, read at the first request.
    """

    def __init__(self, user_info: str | None, context: ssl.SSLContext | None = None) -> None:
        login = None if user_info is None else "Basic " + b64encode(user_info.encode()).decode()
        self._headers = () if login is None else (("Authorization", login),)
        self._context = context

    async def exchange(self, method: str, url: str, limits: Limits, body: bytes = b"", more: Headers = ()) -> Answer:
        """Send a request; return the response whatever its status. `more`: additional headers. Raises FailedRead."""
        context = None
        if urlsplit(url).scheme == "https":
            if self._context is None:
                self._context = await trio.to_thread.run_sync(_system_context)
            context = self._context
        return await exchange(url, context, method, (*self._headers, *more), body, limits)

    async def fetch(self, url: str, limits: Limits) -> bytes:
        """GET a document. Raises FailedRead."""
        return _document(await self.exchange("GET", url, limits))


def _system_context() -> ssl.SSLContext:
    # Only who names a server with https pays for OpenSSL, and for reading all authorities.
    from ssl import create_default_context

    return create_default_context()


def _said(error: Exception) -> str:
    # trio puts errors of TLS, and those of single addresses, below its own.
    cause = error.__cause__ or error
    said = (
        getattr(cause, "verify_message", None) or getattr(cause, "strerror", None) or getattr(error, "strerror", None)
    )
    return str(said or error or type(error).__name__)


# ---------------------------------------------------------------------- https


def https_context(tls: TlsConfig | None) -> ssl.SSLContext | None:
    """Return the TLS context for https; None without `tls`. Raises InvalidSetting.

    It reads files, so call it at the start.
    """
    if tls is None:
        return None
    from ottla.server.security.tls_contexts import Secrets, client_context

    return client_context(tls, Secrets(tls))
