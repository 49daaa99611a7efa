"""The context of a request: what a handler knows about it beside its body."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.happenings import Fact, Note

logger = logging.getLogger("ottla.server")

ANONYMOUS = "User:ANONYMOUS"
THIS_BROKER = "this broker"
"""Address in the place of a client's when a broker sends itself a request. No client can be it: their principals have a type and
a colon."""

UNNAMED_SOFTWARE = "unknown", "unknown"

PortT_co = TypeVar("PortT_co", covariant=True)


class Charge(Protocol):
    """Interface of one request's quota charge; implemented by `server/security/quotas/client_quotas.py`."""

    @property
    def fetched_bytes_max(self) -> float: ...

    def exempt(self) -> None: ...

    def count(self) -> None: ...

    def settle_fetch(self, answer_bytes: int, *, is_given: bool = False) -> int: ...

    def take_mutations(self, count: int, *, is_strict: bool) -> bool: ...

    def carry(self, pause_ms: int) -> None: ...


class HasPeer(Protocol):
    """Interface of a connection's socket."""

    def getpeername(self) -> Any: ...

    def setsockopt(self, level: int, option: int, value: int, /) -> Any: ...


class TakesComplaints(Protocol):
    """Interface for logging mistakes of clients and bugs; `server/network/listener_context.py` implements it."""

    def note(self, peer: str, client_id: str, what: str) -> None: ...

    @property
    def note_happening(self) -> Note: ...

    async def report_bug(self, error: Exception, peer: str, client_id: str, *, is_closing: bool = True) -> None: ...


def mutations_of(context: RequestContext[Any], *, strict_since: int) -> Callable[[int], None]:
    """Return a function that charges the client for partitions to create or delete (KIP-599).

    The function raises THROTTLING_QUOTA_EXCEEDED if the request's version is `strict_since` or later.
    """
    # Taken now: the context goes on to other requests.
    charge, is_strict = context.charge, context.api_version >= strict_since

    def take(count: int) -> None:
        if charge is not None and not charge.take_mutations(count, is_strict=is_strict):
            raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED)

    return take


class RequestContext(Generic[PortT_co]):
    """Client, version and time of one request, and the broker as far as the handler needs it.

    A connection has one context, and updates it for each request. Requests of a connection are served one after the
    other, so the context does not change while a handler runs; only `now_ms` is outdated after an await.
    """

    __slots__ = (
        "_complaints",
        "_on_close",
        "api_version",
        "broker",
        "charge",
        "checked_batch",
        "client_host",
        "client_id",
        "client_software",
        "is_forwarded",
        "is_token_authenticated",
        "listener_name",
        "now_ms",
        "principal",
        "security_protocol",
        "socket",
    )

    def __init__(
        self,
        broker: PortT_co,
        *,
        api_version: int = 0,
        client_id: str = "",
        client_host: str = "",
        principal: str = ANONYMOUS,
        listener_name: str = "PLAINTEXT",
        security_protocol: str = "PLAINTEXT",
        now_ms: int = 0,
        complaints: TakesComplaints | None = None,
        socket: HasPeer | None = None,
    ) -> None:
        self.broker, self.api_version = broker, api_version
        self.client_id, self.client_host = client_id, client_host
        self.client_software = UNNAMED_SOFTWARE
        """Client software name and version, from the client's ApiVersions request."""
        self.principal = principal
        self.is_token_authenticated = False  # by a delegation token, which has fewer rights than its owner
        self.is_forwarded = False
        """True if another broker has forwarded the request; the client's attributes are then those that it had there."""
        self.listener_name, self.security_protocol, self.now_ms = listener_name, security_protocol, now_ms
        self._complaints, self.socket = complaints, socket
        self.charge: Charge | None = None
        """None while there are no quotas; after that the last request's stays, which does not count any more."""
        self.checked_batch: Any = None
        """Partition and header of the batch of this request, and the verdict of Produce's fast path, for the handler, which takes them away."""
        self._on_close: dict[Callable[[object], None], None] = {}

    @property
    def client_port(self) -> int | None:
        """Client's port; None if the transport does not know the port."""
        try:
            address = None if self.socket is None else self.socket.getpeername()
        except OSError:
            return None
        return int(address[1]) if isinstance(address, tuple) else None

    def complain(self, what: str) -> None:
        """Log a protocol error of the client, at most once a minute; the connection stays open."""
        if self._complaints is not None:
            self._complaints.note(self.client_host.removeprefix("/"), self.client_id, what)

    def note(self, kind: str, cause: str, /, *, source: str = "", **facts: Fact) -> None:
        """Note a happening that this client's request has caused."""
        if self._complaints is not None:
            self._complaints.note_happening(kind, cause, source=source, **facts)

    async def report_bug_of(self, client: RequestContext[Any], error: Exception) -> None:
        """Log a bug in serving a forwarded request of `client`, once a minute; this connection stays open."""
        if self._complaints is not None:
            host = client.client_host.removeprefix("/")
            await self._complaints.report_bug(error, host, client.client_id, is_closing=False)

    def on_close(self, leave: Callable[[object], None]) -> None:
        """Register a function to call with this context when the connection ends; registering twice has no effect."""
        self._on_close[leave] = None

    def close(self) -> None:
        """Call the functions registered with `on_close`, because the connection has ended."""
        leavers, self._on_close = self._on_close, {}
        for leave in leavers:
            try:
                leave(self)
            except Exception:  # it would end the task of the connection, and with it the broker
                logger.exception("bug: the end of the connection of %s", self.client_host)
