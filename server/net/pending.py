"""Answers that come later without a task that waits for them.

A handler that has to wait for something that calls functions when it changes, as partitions do, returns a `PendingAnswer`.
The connection keeps it, goes on with what it may go on with, and sends the answer, in order, soon after it became ready.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple


class PendingAnswer(ABC):
    """The answer to one request: not ready, then ready, then taken by `response()`; or abandoned.

    `is_abandonable`: nobody needs it any more when the peer has left.
    """

    __slots__ = ("is_ready", "on_ready")

    is_abandonable = False

    def __init__(self) -> None:
        self.is_ready = False
        self.on_ready: Callable[[], None] | None = None

    def become_ready(self) -> None:
        """The answer may be taken now."""
        if not self.is_ready:
            self.is_ready = True
            if self.on_ready is not None:
                self.on_ready()

    @abstractmethod
    def response(self) -> Any:
        """The response, once it is ready; None if none is to be sent. Called at most once, and then not abandoned."""

    @abstractmethod
    def abandon(self) -> None:
        """Nobody waits any more: let go of everything."""


class Pending(NamedTuple):
    """A request whose turn to be answered has not come: its response, or what will have it."""

    call: Any
    correlation_id: int
    answer: Any

    @property
    def is_ready(self) -> bool:
        return not isinstance(self.answer, PendingAnswer) or self.answer.is_ready

    @property
    def is_abandonable(self) -> bool:
        return isinstance(self.answer, PendingAnswer) and self.answer.is_abandonable
