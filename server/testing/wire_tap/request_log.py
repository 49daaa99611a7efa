"""The last seen requests, bounded in number and in bytes of kept frames; the oldest are dropped."""

from __future__ import annotations

from collections import deque

from ottla.server.testing.wire_tap.wire_request import WireRequest

REQUESTS_MAX = 20_000
BYTES_MAX = 64 * 1024 * 1024
RECORD_BYTES = 600  # that a request takes beside its frames


class RequestLog:
    """Bounded log of requests. One thread adds, any thread reads."""

    __slots__ = ("_bytes", "_bytes_max", "_requests", "_requests_max", "added", "dropped")

    def __init__(self, requests_max: int = REQUESTS_MAX, bytes_max: int = BYTES_MAX) -> None:
        self._requests: deque[WireRequest] = deque()
        self._requests_max, self._bytes_max = requests_max, bytes_max
        self._bytes = 0
        self.added = 0
        self.dropped = 0
        """Number of requests that are no longer here."""

    def add(self, request: WireRequest, kept_bytes: int) -> None:
        """Add a request whose kept frame has so many bytes."""
        self.added += 1
        request.number = self.added
        request.is_in_log = True
        self._requests.append(request)
        self._bytes += kept_bytes + RECORD_BYTES
        self._shrink()

    def grow(self, request: WireRequest, kept_bytes: int) -> None:
        """Count the bytes of an answer to a request, unless the request has been dropped."""
        if request.is_in_log:
            self._bytes += kept_bytes
            self._shrink()

    def _shrink(self) -> None:
        while self._requests and (self._bytes > self._bytes_max or len(self._requests) > self._requests_max):
            oldest = self._requests.popleft()
            oldest.is_in_log = False
            self._bytes -= oldest.kept_bytes + RECORD_BYTES
            self.dropped += 1

    def all(self) -> list[WireRequest]:
        """Return the requests in the order of their arrival."""
        return list(self._requests.copy())

    def clear(self) -> None:
        """Forget all requests, without counting them as dropped."""
        for each in self._requests.copy():
            each.is_in_log = False
        self._requests.clear()
        self._bytes = 0
