"""Requests that only the primary carries out, handed on to it as they came."""

from __future__ import annotations

import ssl
from typing import Final

from ottla.server.admin.http.routes import Request, Response
from ottla.server.registry.election import Election
from ottla.server.registry.errors import ApiError, Code
from ottla.server.security.oauth.fetching import FailedRead, Limits, Unreached, exchange

LIMITS: Final = Limits(connect_s=5.0, read_s=30.0, all_s=40.0, bytes_max=8 << 20)
FORWARDED = "x-forward"
_PASSED_ON = ("accept", "authorization", "content-type", "confluent-accept-unknown-properties")


class Others:
    """Client that forwards requests to the primary among several instances. `context`: TLS context for https."""

    def __init__(self, election: Election, context: ssl.SSLContext | None = None) -> None:
        self._election, self._context = election, context

    @property
    def is_primary(self) -> bool:
        return self._election.is_primary

    async def settled(self) -> None:
        """Wait until a primary is elected, but at most KNOWN_S seconds."""
        await self._election.settled()

    async def forward(self, request: Request) -> Response | None:
        """Forward a request to the primary; None: the primary was lost and replaced, so try again. Raises ApiError."""
        primary = self._election.primary
        # Two instances that take each other for the primary would hand a request to and fro.
        is_own = primary is not None and primary.url == self._election.identity.url
        if primary is None or is_own or FORWARDED in request.headers:
            raise ApiError(Code.UNKNOWN_LEADER, "Leader not known.")
        headers = [(name, request.headers[name]) for name in _PASSED_ON if name in request.headers]
        target = request.raw_path + (f"?{request.raw_query}" if request.raw_query else "")
        if primary.scheme == "https" and self._context is None:
            self._context = ssl.create_default_context()
        try:
            answer = await exchange(
                f"{primary.url}{target}",
                self._context if primary.scheme == "https" else None,
                request.method,
                [*headers, (FORWARDED, "true")],
                request.body,
                LIMITS,
            )
        except FailedRead as error:
            if isinstance(error, Unreached) and await self._election.has_other_than(primary):
                return None
            text = f"Error while forwarding the request to the primary {primary.url}: {error}"
            raise ApiError(Code.FORWARDING, text) from None
        kind = request.headers.get("accept", "").partition(",")[0].partition(";")[0].strip()
        is_json = kind.endswith("json")
        return Response(answer.body, answer.status, kind if is_json else "application/vnd.schemaregistry.v1+json")


class Alone:
    """Substitute for `Others` in a registry with only one instance."""

    is_primary = True

    async def settled(self) -> None:
        """Return immediately, because there is no election."""

    async def forward(self, request: Request) -> Response | None:
        """Raise ApiError, because there is no other instance."""
        raise ApiError(Code.UNKNOWN_LEADER, "Leader not known.")
