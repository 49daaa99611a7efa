"""The HTTP API: a table of paths of both versions, and what requests and answers have in common.

A path is cut at its slashes before it is decoded, so that the name of a group may have one.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple
from urllib.parse import unquote

from ottla.server.admin.http.routes import Refused, Request, Response, Route, Routes
from ottla.server.rest.errors import RestError
from ottla.server.rest.logins import Logins

logger = logging.getLogger("ottla.rest")

JSON = "application/json"
V2 = "application/vnd.kafka.v2+json"
BODY_BYTES_MAX = 16 << 20
"""Longest body of a request that does not stream."""


class Call(NamedTuple):
    """Call of a handler: the request, and the variable parts of the request's path."""

    request: Request
    parts: tuple[str, ...]
    base_url: str
    """Scheme, host and port by which the client reaches the proxy."""
    user: str = ""
    """User of the proxy; empty if no login is required."""

    @property
    def query(self) -> Mapping[str, str]:
        return self.request.query


class Answer(NamedTuple):
    """JSON response with a status. `content_type` None: the content type of the API version."""

    content: Any
    status: int = 200
    content_type: str | None = None


NO_CONTENT = Answer(None, 204)
Handler = Callable[[Call], Awaitable[Any]]
"""Returns an Answer, a Response, or what is to be put into JSON. Raises RestError."""


class _Path(NamedTuple):
    pattern: tuple[str, ...]
    methods: dict[str, Handler]


class RestApi(Routes):
    """Dispatcher of requests to registered handlers."""

    headers: Mapping[str, str] = {"x-content-type-options": "nosniff"}

    def __init__(self, scheme: str, body_bytes_max: int = BODY_BYTES_MAX, logins: Logins | None = None) -> None:
        super().__init__()
        self._scheme = scheme
        self._paths: dict[tuple[int, str], list[_Path]] = {}
        self._logins = logins or Logins()
        self._route = Route(self.handle, body_bytes_max, self._logins.check)
        self._stream_route = self._route._replace(streams=True)

    def add(self, method: str, path: str, handler: Handler) -> None:
        """Register a handler for a method and path; {} in `path` matches one segment."""
        pattern = tuple(path.strip("/").split("/"))
        table = self._paths.setdefault((len(pattern), pattern[0]), [])
        known = next((each for each in table if each.pattern == pattern), None)
        if known is None:
            known = _Path(pattern, {})
            table.append(known)
        assert method not in known.methods, f"two handlers for {method} {path}"
        known.methods[method] = handler

    # --- what the server asks for

    def find(self, method: str, path: str) -> Route:
        """Return the route of a request. Requests that may have a streamed body have one route, all others another."""
        return self._stream_route if is_stream(method, path) else self._route

    def refusal(self, refused: Refused) -> Response:
        """Make the response for a request that the HTTP server refuses."""
        return refusal_of(refused)

    async def handle(self, request: Request) -> Response:
        """Handle a request and return the response."""
        kind = content_type(request)
        try:
            handler, parts = self._found(request)
            found = await handler(Call(request, parts, self._base_url(request), self._logins.user_of(request)))
        except RestError as error:
            return Response(error.body, error.status, kind)
        if isinstance(found, Response):
            return found
        if not isinstance(found, Answer):
            found = Answer(found)
        if found.status == 204:
            return Response(status=204, content_type=kind)
        body = json.dumps(found.content, separators=(",", ":")).encode()
        return Response(body, found.status, found.content_type or kind)

    def _found(self, request: Request) -> tuple[Handler, tuple[str, ...]]:
        """Return the handler of a request, and the decoded variable parts of its path. Raises RestError."""
        segments = [unquote(each) for each in request.raw_path.strip("/").split("/")]
        method = "GET" if request.method == "HEAD" else request.method
        is_known = False
        for pattern, methods in self._paths.get((len(segments), segments[0]), ()):
            if all(part in ("{}", segment) for part, segment in zip(pattern, segments, strict=True)):
                is_known = True
                if method in methods:
                    pairs = zip(pattern, segments, strict=True)
                    return methods[method], tuple(each for part, each in pairs if part == "{}")
        raise RestError(405, "HTTP 405 Method Not Allowed") if is_known else RestError(404, "HTTP 404 Not Found")

    def _base_url(self, request: Request) -> str:
        return f"{self._scheme}://{request.headers.get('host', 'localhost')}"


def is_stream(method: str, path: str) -> bool:
    """Return True if the request may have a streamed body; such a body need not end."""
    return method == "POST" and path.startswith("/v3/") and path.endswith("/records")


def refusal_of(refused: Refused) -> Response:
    """Make the response for a request that the HTTP server refuses."""
    return Response(RestError(refused.status, str(refused)).body, refused.status, JSON, refused.headers)


def content_type(request: Request) -> str:
    """Return the content type of the response to a request."""
    if request.raw_path.startswith("/v3"):
        return JSON
    # Whoever asks for plain JSON gets it; otherwise the type of the second version.
    return JSON if JSON in request.headers.get("accept", "") else V2


def media_type(text: str) -> str:
    """Return a media type without its parameters."""
    return text.partition(";")[0].strip().lower()
