"""The answer to a request, in the forms in which handlers and coordinators give it.

| form                | is                                                                                       |
|---------------------|------------------------------------------------------------------------------------------|
| a response          | there                                                                                    |
| `EncodedAnswer`     | there as bytes, which others who asked the same may share                                |
| None                | that none is to be sent (Produce with acks=0)                                            |
| `PendingAnswer`     | one of the above, later: an object that others wake, and for which no task has to wait   |
| a coroutine         | one of the above, after work that gives way now and then, or that waits for disks        |
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Coroutine
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

ResponseT = TypeVar("ResponseT")


class EncodedAnswer(NamedTuple):
    """The body of a response as it goes out."""

    body: bytes

    @property
    def is_ready(self) -> bool:
        """As of a `PendingAnswer`, so that who keeps both need not tell them apart."""
        return True


class PendingAnswer(Generic[ResponseT]):
    """The answer to one request: not ready, then ready, then taken by `response()`; or abandoned.

    Either of the two has to come, and has to undo all circles of references: they would never be collected. It is no `ABC`,
    because every answer is asked whether it is one of these, and `isinstance` of an `ABC` is four times as slow.
    """

    __slots__ = ("is_ready", "on_ready")

    def __init__(self) -> None:
        self.is_ready = False
        # None until somebody waits for the answer, who looks at `is_ready` as well.
        self.on_ready: Callable[[], None] | None = None

    def become_ready(self) -> None:
        """The answer may be taken now."""
        # A deadline and a partition may both end the same wait.
        if not self.is_ready:
            self.is_ready = True
            if self.on_ready is not None:
                self.on_ready()

    @property
    def is_abandonable(self) -> bool:
        """Whether nobody needs it any more when the peer has left."""
        return False

    @abstractmethod
    def response(self) -> ResponseT | None:
        """The response, once it is ready; None if none is to be sent. Called at most once, and then not abandoned."""

    @abstractmethod
    def abandon(self) -> None:
        """Nobody waits any more: let go of everything."""


Given: TypeAlias = ResponseT | PendingAnswer[ResponseT]
"""A response now, or when others have done what it waits for."""

Worked: TypeAlias = ResponseT | Coroutine[Any, Any, ResponseT]
"""A response now, or after work."""

Answer: TypeAlias = Worked[ResponseT | PendingAnswer[ResponseT] | EncodedAnswer | None]
"""What a handler may return; see the module's docstring."""
