"""Requests and responses of the HTTP endpoint, the table of its paths, and the guard against pages of other sites.

The docstring of the package says how a module adds a path.

DNS rebinding: a page of evil.example has that name resolved to 127.0.0.1 and reads from here what its browser can reach.
Its requests name evil.example in their Host header, so only known names are answered: loopback, the bound host, the hosts
of the broker's listeners, `http.allowed.hosts`. Addresses are not names: no resolver can turn one into another. A listener
on loopback still accepts only loopback addresses. A request without a Host header comes from no browser.

Requests from other sites: there are no CORS headers, so no other page reads an answer. If the browser says that another page asks, the
work is not done either; only a link may lead here. A request that changes something has to come from a page of this endpoint (its Origin
is the host that it asks) or from no browser, and be JSON, which other pages cannot send without a preflight request, and those
are not answered.

Pace: the endpoint works in pieces of some milliseconds, and takes a third of the event loop's time at most. So however many ask, and
however much, clients of the broker keep the rest.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import NamedTuple

import trio

from ottla.wire.time_slice import SLICE_S, TimeSlice

TEXT = "text/plain; charset=utf-8"
JSON = "application/json"
HTML = "text/html; charset=utf-8"
EVENT_STREAM = "text/event-stream"


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """HTTP request with all its data. Header names are in lower case; a repeated header has its last value."""

    method: str
    path: str
    """Decoded, without the query."""
    raw_path: str = ""
    """The path as it was sent, in which an encoded slash is none between two segments."""
    raw_query: str = ""
    """The query as it was sent."""
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    pieces: AsyncGenerator[bytes, None] | None = None
    """A body that comes in chunks, for a route that streams; None: it is read whole."""
    peer: str = ""
    """Address of the client."""


@dataclass(frozen=True, slots=True)
class Response:
    """HTTP response. If `body` is bytes, the response has a Content-Length."""

    body: bytes | AsyncGenerator[bytes, None] = b""
    status: int = 200
    content_type: str = TEXT
    headers: tuple[tuple[str, str], ...] = ()
    is_lasting: bool = False
    """True if the answer has no end of its own: it is cancelled when the reader goes, and may pause for long between two
    pieces."""


class Refused(Exception):
    """Refusal of a request: a status and a sentence for the client."""

    def __init__(self, status: int, sentence: str, headers: tuple[tuple[str, str], ...] = ()) -> None:
        super().__init__(sentence)
        self.status, self.headers = status, headers

    @property
    def response(self) -> Response:
        # The sentence may repeat what somebody has sent, such as a lone surrogate.
        return Response(f"{self}\n".encode("utf-8", "replace"), status=self.status, headers=self.headers)


Handler = Callable[[Request], Awaitable[Response]]

Check = Callable[[Request], None]
"""Raise Refused for a request that may not be answered. It has no body yet."""


def anybody(request: Request) -> None:
    """Accept every request; the default check of a route."""


class Route(NamedTuple):
    """Handler of a path, with the check of requests and the maximal length of a body in bytes."""

    handler: Handler
    body_bytes_max: int
    check: Check
    streams: bool = False
    """A body in chunks is handed over piece by piece, while the answer is sent."""


_STRICT = {
    "cache-control": "no-store",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}


class Routes:
    """Routing table. A path with a trailing slash matches all paths that begin with it; the longest match wins."""

    headers: Mapping[str, str] = _STRICT
    """Headers of every answer for browsers, unless it has its own."""

    def refusal(self, refused: Refused) -> Response:
        """Make the response for a refused request."""
        return refused.response

    def __init__(self) -> None:
        self._exact: dict[str, dict[str, Route]] = {}
        self._below: dict[str, dict[str, Route]] = {}

    def get(self, path: str, handler: Handler, *, check: Check = anybody) -> None:
        """Register `handler` for GET and HEAD of `path`; the handler must not change state."""
        self._add(path, "GET", Route(handler, 0, check))

    def post(self, path: str, handler: Handler, *, body_bytes_max: int, check: Check = anybody) -> None:
        """Register `handler` for POST of `path` with a body of at most `body_bytes_max` bytes, if `check` passes."""
        self._add(path, "POST", Route(handler, body_bytes_max, check))

    def _add(self, path: str, method: str, route: Route) -> None:
        assert path.startswith("/"), path
        table = self._below if path.endswith("/") and path != "/" else self._exact
        methods = table.setdefault(path, {})
        assert method not in methods, f"two handlers for {method} {path}"
        methods[method] = route

    def find(self, method: str, path: str) -> Route:
        """Return the route of a request. Raises Refused if there is none."""
        methods = self._exact.get(path) or self._longest(path)
        if methods is None:
            raise Refused(404, f"There is nothing at this path. There is {', '.join(sorted(self._exact))}.")
        route = methods.get("GET" if method == "HEAD" else method)
        if route is None:
            allowed = ", ".join(sorted({*methods, *(("HEAD",) if "GET" in methods else ())}))
            raise Refused(405, f"This path answers {allowed} only.", (("Allow", allowed),))
        return route

    def _longest(self, path: str) -> dict[str, Route] | None:
        beginnings = [each for each in self._below if path.startswith(each)]
        return self._below[max(beginnings, key=len)] if beginnings else None


_LOCAL = frozenset({"localhost", "localhost.localdomain", "ip6-localhost"})
_OWN_SITE = frozenset({"same-origin", "none"})  # what browsers call pages of this endpoint, and an address typed in


class Guard:
    """Guard against requests from pages of other sites.

    `bound`: host that the listener is bound to. `names`: further names of this machine.
    """

    hint = "http.allowed.hosts has further names"
    """End of the sentence for a Host header with an unknown name: what the reader may do."""

    def __init__(self, bound: str, names: Iterable[str] = ()) -> None:
        self._names = {each.lower().rstrip(".") for each in (bound, *names)} | _LOCAL
        # A listener on some name may be anywhere.
        self._is_loopback = is_loopback(bound)

    def check_host(self, host: str | None) -> None:
        """Raise Refused if the Host header names another site."""
        if host is not None and not self._is_known(_without_port(host)):
            raise Refused(421, f"This endpoint is not known by the name in the Host header; {self.hint}.")

    def _is_known(self, name: str) -> bool:
        if name in self._names:
            return True
        try:
            address = ip_address(name)
        except ValueError:
            return False
        return address.is_loopback or not self._is_loopback

    def check_read(self, headers: Mapping[str, str]) -> None:
        """Raise Refused if a page of another site sends the request. Browsers would hide the answer from it anyway."""
        is_link = headers.get("sec-fetch-mode") == "navigate" and headers.get("sec-fetch-dest") == "document"
        if not is_link and is_of_another_site(headers):
            raise Refused(403, "Pages of other sites may not read anything here.")

    def check_site(self, headers: Mapping[str, str]) -> None:
        """Raise Refused if the browser says that a page of another site sends a request that changes state."""
        # A form navigates as a link does, so there is no exception for those.
        if is_of_another_site(headers):
            raise Refused(403, "Pages of other sites may not change anything here.")

    def check_change(self, headers: Mapping[str, str]) -> None:
        """Raise Refused if a page of another site sends, or may have sent, a request that changes state."""
        self.check_site(headers)
        if headers.get("content-type", "").partition(";")[0].strip().lower() != JSON:
            raise Refused(415, f"The Content-Type has to be {JSON}.")


def is_of_another_site(headers: Mapping[str, str]) -> bool:
    """True if a browser says that a page of another site makes it send a request, if only by a link."""
    origin, host = headers.get("origin"), headers.get("host", "")
    if origin is not None and not (host and origin.partition("://")[2].lower() == host.lower()):
        return True
    return headers.get("sec-fetch-site", "none") not in _OWN_SITE


def _without_port(host: str) -> str:
    host = host.strip().lower()
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0].rstrip(".")


def is_loopback(host: str) -> bool:
    """True for addresses of this machine alone, and for localhost. Any other name may be anywhere."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


REST = 2.0  # how long the endpoint works nothing after a piece of work, in lengths of that piece
REST_MAX_S = 0.05
REQUEST_S = 0.0003  # what a short request takes, with its answer


LOGIN_S = 0.1


class Pace:
    """Rate limit of all work of the endpoint. `PIECE_S`: intended length of a piece of work in seconds."""

    PIECE_S = 2 * SLICE_S

    def __init__(self) -> None:
        self._wrong_logins = trio.Lock()
        self._line = trio.Lock()  # first come, first served
        self._rested_at = 0.0

    async def request(self) -> None:
        """Wait until another request may be handled, and charge its usual cost in advance."""
        await self.pay(REQUEST_S)

    async def wrong_login(self) -> None:
        """Wait before a login is refused: LOGIN_S for each one, however many connections guess passwords."""
        async with self._wrong_logins:
            await trio.sleep(LOGIN_S)

    async def pay(self, worked_s: float) -> None:
        """Wait until the endpoint may work for `worked_s` seconds, and schedule the pause that follows this work."""
        async with self._line:
            await self._until_rested()
            self._rested_at = trio.current_time() + worked_s + min(worked_s * REST, REST_MAX_S)

    @asynccontextmanager
    async def piece(self) -> AsyncIterator[None]:
        """Run the block, which must not await, when the endpoint may work. Afterwards the endpoint pauses."""
        async with self._line:
            await self._until_rested()
            begun = trio.current_time()
            try:
                yield
            finally:
                ended = trio.current_time()
                self._rested_at = ended + min((ended - begun) * REST, REST_MAX_S)

    async def _until_rested(self) -> None:
        await trio.sleep_until(self._rested_at)


class PacedTimeSlice(TimeSlice):
    """Time slice of a long HTTP answer. At its end the answer waits for the endpoint's rate limit."""

    def __init__(self, pace: Pace) -> None:
        super().__init__()
        self._pace = pace

    async def yield_if_over(self) -> None:
        """If this slice is over, wait until the endpoint may work again, and begin the next slice."""
        if self.is_over():
            await self._pace.pay(SLICE_S)
            self.begin()
