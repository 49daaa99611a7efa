"""Forms in which handlers and coordinators answer a request.

| form                | meaning                                                                                  |
|---------------------|------------------------------------------------------------------------------------------|
| a response          | the answer                                                                               |
| `EncodedAnswer`     | the answer as bytes, which others who asked the same may share                           |
| None                | no answer is sent (Produce with acks=0)                                                  |
| `PendingAnswer`     | one of the above, later: an object that others wake, and for which no task has to wait   |
| a coroutine         | one of the above, after work in time slices, or after waiting for disks                  |
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Coroutine
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

ResponseT = TypeVar("ResponseT")


class EncodedAnswer(NamedTuple):
    """Body of a response that is already encoded as bytes."""

    body: bytes

    @property
    def is_ready(self) -> bool:
        """Always True, so that callers can treat this object and a `PendingAnswer` alike."""
        return True


class PendingAnswer(Generic[ResponseT]):
    """Response to one request, which may become ready later.

    The holder must call either `response()` when it is ready, or `abandon()`. Both must break all reference cycles,
    which are never collected otherwise. This class is no `ABC`, because every answer is tested with `isinstance`, which
    is four times as slow for an `ABC`.
    """

    __slots__ = ("is_ready", "on_ready")

    def __init__(self) -> None:
        self.is_ready = False
        # None until somebody waits for the answer, who looks at `is_ready` as well.
        self.on_ready: Callable[[], None] | None = None

    def become_ready(self) -> None:
        """Mark the response as ready, and notify the waiting connection."""
        # A deadline and a partition may both end the same wait.
        if not self.is_ready:
            self.is_ready = True
            if self.on_ready is not None:
                self.on_ready()

    @property
    def is_abandonable(self) -> bool:
        """Tell whether the answer is of no use after the peer has disconnected."""
        return False

    @abstractmethod
    def response(self) -> ResponseT | None:
        """Return the ready response; None if none is to be sent. Call this at most once, and not after `abandon`."""

    @abstractmethod
    def abandon(self) -> None:
        """Release all resources, because the peer has disconnected."""


Given: TypeAlias = ResponseT | PendingAnswer[ResponseT]
"""A response now, or when its condition is met."""

Worked: TypeAlias = ResponseT | Coroutine[Any, Any, ResponseT]
"""A response now, or after work."""

Answer: TypeAlias = Worked[ResponseT | PendingAnswer[ResponseT] | EncodedAnswer | None]
"""Return type of handlers."""
