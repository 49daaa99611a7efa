"""How much memory whole answers may take that are on their way, of all readers together.

A long answer should come in pieces. One that is made at once, such as a page of records, stays until a reader has it, and a slow
reader has a minute.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ottla.server.http.messages import Refused

ANSWERS_BYTES_MAX = 64 * 1024 * 1024


class Room:
    """One for the whole endpoint."""

    def __init__(self, bytes_max: int = ANSWERS_BYTES_MAX) -> None:
        self._left = self._bytes_max = bytes_max

    @contextmanager
    def held(self, size: int) -> Iterator[None]:
        """While an answer is sent. Raises Refused if others take the room; an answer that is alone has room at any size."""
        if size > self._left and self._left < self._bytes_max:
            raise Refused(503, "Other answers are on their way, which have not been read.")
        self._left -= size
        try:
            yield
        finally:
            self._left += size
