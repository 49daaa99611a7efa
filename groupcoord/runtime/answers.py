"""Answers of coordinators that are there at once, or when members and commits are: finish them, gather them, wait for them."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar, cast

import trio

from ottla.wire.answers import Given, PendingAnswer, Worked

T = TypeVar("T")
U = TypeVar("U")


class _All(PendingAnswer[U]):
    """Is ready when all of some answers are; `finish` makes the response of theirs."""

    __slots__ = ("_answers", "_finish", "_missing")

    def __init__(self, answers: Sequence[Given[T]], finish: Callable[[list[T]], U]) -> None:
        super().__init__()
        self._answers: Sequence[Given[Any]] = answers
        self._finish = finish
        # Only these will call back.
        waiting = [each for each in answers if isinstance(each, PendingAnswer) and not each.is_ready]
        self._missing = len(waiting)
        for each in waiting:
            each.on_ready = self._note_ready
        if not waiting:
            self.become_ready()

    @property
    def is_abandonable(self) -> bool:
        # One answer that is needed even without its peer keeps all of them.
        return all(each.is_abandonable for each in self._answers if isinstance(each, PendingAnswer))

    def _note_ready(self) -> None:
        self._missing -= 1
        if not self._missing:
            self.become_ready()

    def response(self) -> U:
        return self._finish([_response(each) for each in self._take()])

    def abandon(self) -> None:
        for each in self._take():
            if isinstance(each, PendingAnswer):
                each.abandon()

    def _take(self) -> Sequence[Given[Any]]:
        """The answers, of which this is the last use: they and this object know each other."""
        answers, self._answers = self._answers, ()
        return answers


def then(answer: Given[T], finish: Callable[[T], U]) -> Given[U]:
    """`finish` applied to a response, at once or when it is there."""
    if not isinstance(answer, PendingAnswer):
        return finish(answer)
    return gathered([answer], lambda responses: finish(responses[0]))


def gathered(answers: Sequence[Given[T]], finish: Callable[[list[T]], U]) -> Given[U]:
    """`finish` applied to all responses, at once or when they are there."""
    # If all are there no object has to be made.
    if not any(isinstance(answer, PendingAnswer) for answer in answers):
        return finish([_response(each) for each in answers])
    return _All(answers, finish)


async def finished(answer: Worked[Given[T]]) -> T:
    """The response that an answer is or will be. Whoever is cancelled here waits for it no more."""
    given: Given[T] = await answer if isinstance(answer, Coroutine) else answer
    if isinstance(given, PendingAnswer) and not given.is_ready:
        ready = trio.Event()
        given.on_ready = ready.set
        try:
            await ready.wait()
        except BaseException:  # also if the coroutine that awaits this is closed
            # A pending answer has to be taken or abandoned. Otherwise the objects that know each other are never
            # collected.
            given.abandon()
            raise
    return _response(given)


def _response(answer: Given[T]) -> T:
    """The response of an answer that is ready. Coordinators answer everything, so there is one."""
    if not isinstance(answer, PendingAnswer):
        return answer
    response: Any = answer.response()
    return cast("T", response)
