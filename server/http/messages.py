"""What handlers of the HTTP endpoint get and give."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field

TEXT = "text/plain; charset=utf-8"
JSON = "application/json"
HTML = "text/html; charset=utf-8"
EVENT_STREAM = "text/event-stream"


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request, whole. Names of headers are in small letters; of a name that comes twice the last one is here."""

    method: str
    path: str
    """Decoded, without the query."""
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    peer: str = ""
    """The address that it came from."""


@dataclass(frozen=True, slots=True)
class Response:
    """An answer; its length is given where the body is bytes."""

    body: bytes | AsyncGenerator[bytes, None] = b""
    status: int = 200
    content_type: str = TEXT
    headers: tuple[tuple[str, str], ...] = ()
    is_lasting: bool = False
    """Has no end of its own: it is cancelled when the reader goes, and may wait for long between two pieces."""


class Refused(Exception):
    """What a handler raises for a request that it does not carry out: a status, and a sentence for whoever asked."""

    def __init__(self, status: int, sentence: str, headers: tuple[tuple[str, str], ...] = ()) -> None:
        super().__init__(sentence)
        self.status = status
        self.headers = headers

    @property
    def response(self) -> Response:
        # The sentence may repeat what somebody has sent, such as a lone surrogate.
        return Response(f"{self}\n".encode("utf-8", "replace"), status=self.status, headers=self.headers)


Handler = Callable[[Request], Awaitable[Response]]
