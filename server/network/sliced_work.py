"""Answering the many elements of one request, and many such requests at once, without holding the event loop."""

from __future__ import annotations

import heapq
import math
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from functools import cache
from typing import Any, Protocol, TypeVar

import trio

from ottla.wire.answers import Worked
from ottla.wire.errors import KafkaError, result_of
from ottla.wire.schema import Array, Bytes, Records, String, Struct
from ottla.wire.time_slice import SLICE_S, TimeSlice

PARTITIONS_PER_SLICE = 1_000
# `sorted` does not give way, so it gets short lists, and `heapq.merge` joins them one name at a time.
SORTED_AT_ONCE = 2_000
# Objects go one after the other inside a single `del`, which does not give way either.
FREED_AT_ONCE = 500
FIELDS_OF_SHORT = 1_000
CHARACTERS_OF_FIELD = 100
"""Number of characters that take as long as a field."""
ROUND_S = 4 * SLICE_S
"""Time that all connections, and after them all awaited work, may hold the event loop between two looks at the sockets. Without
this common limit thirty peers that pipeline take 10 ms each, and all others wait for 280 ms."""

_long_computations = trio.CapacityLimiter(1)
"""Threads that compute contend with the event loop for the interpreter."""

Element = TypeVar("Element")
Topic = TypeVar("Topic")
Partition = TypeVar("Partition")
Answer = TypeVar("Answer")
Response = TypeVar("Response")


def answer_each(
    elements: Sequence[Element],
    answer: Callable[[Element], Answer],
    respond: Callable[[list[Answer]], Response],
    *,
    at_once: int = PARTITIONS_PER_SLICE,
) -> Worked[Response]:
    """Call `answer` for each element; return `respond` of the results.

    More than `at_once` elements are answered in time slices; the result is then a coroutine.
    """
    # A coroutine needs the connection's task, and to wake that costs more than a small request.
    if len(elements) <= at_once:
        return respond([answer(each) for each in elements])
    return _answer_each_in_slices(elements, answer, respond)


async def _answer_each_in_slices(
    elements: Iterable[Element], answer: Callable[[Element], Answer], respond: Callable[[list[Answer]], Response]
) -> Response:
    return respond(await each_in_slices(elements, answer))


async def each_in_slices(elements: Iterable[Element], answer: Callable[[Element], Answer]) -> list[Answer]:
    """Call `answer` for each element in time slices; return the results."""
    time_slice = TimeSlice()
    answers = []
    for each in elements:
        answers.append(answer(each))
        await time_slice.yield_if_over()
    return answers


def answer_partitions(
    topics: Sequence[Topic],
    partitions_of: Callable[[Topic], Sequence[Partition]],
    answer: Callable[[Topic, Partition], Answer],
    respond: Callable[[list[list[Answer]]], Response],
    *,
    at_once: int = PARTITIONS_PER_SLICE,
) -> Worked[Response]:
    """Call `answer` for each partition, and return `respond` of the results, one list per topic.

    More than `at_once` topics and partitions are answered in time slices; the result is then a coroutine.
    """
    if len(topics) + sum([len(partitions_of(topic)) for topic in topics]) <= at_once:
        return respond([[answer(topic, each) for each in partitions_of(topic)] for topic in topics])
    return _answer_in_slices(topics, partitions_of, answer, respond)


async def _answer_in_slices(
    topics: Sequence[Topic],
    partitions_of: Callable[[Topic], Sequence[Partition]],
    answer: Callable[[Topic, Partition], Answer],
    respond: Callable[[list[list[Answer]]], Response],
) -> Response:
    time_slice = TimeSlice()
    answers: list[list[Answer]] = []
    for topic in topics:
        of_topic: list[Answer] = []
        answers.append(of_topic)
        for each in partitions_of(topic):
            of_topic.append(answer(topic, each))
            await time_slice.yield_if_over()
        await time_slice.yield_if_over()
    return respond(answers)


async def sorted_in_slices(names: Iterable[str]) -> list[str]:
    """Return the names in order, without duplicates. Sorted in time slices, because `sorted` blocks the loop."""
    different = list(dict.fromkeys(names))
    runs = []
    for start in range(0, len(different), SORTED_AT_ONCE):
        runs.append(sorted(different[start : start + SORTED_AT_ONCE]))
        await trio.lowlevel.checkpoint()
    return await each_in_slices(heapq.merge(*runs), lambda name: name)


async def free_in_slices(messages: list[Struct]) -> None:
    """Free messages in time slices and empty `messages`: freeing fifty thousand structs takes 20 ms.

    Nested structs are first collected in a list, so that no parent frees them; then a few at a time are freed.
    """
    time_slice = TimeSlice()
    # The caller's list is emptied, or else it would keep the messages until the caller ends.
    structs, messages[:] = list(messages), []
    for struct in structs:  # which grows meanwhile
        for name in _lists_of_structs(type(struct)):
            structs += getattr(struct, name) or ()
        await time_slice.yield_if_over()
    # The name still holds the last one.
    del struct
    # Parents go first, from the end of the list, where taking them away moves nothing. Each frees only itself, because
    # the list still holds its children.
    structs.reverse()
    while structs:
        del structs[-FREED_AT_ONCE:]
        await time_slice.yield_if_over()


def is_short(message: Struct) -> bool:
    """True if encoding a message takes less time than a switch to a thread, judged by its fields and characters."""
    left = FIELDS_OF_SHORT
    structs: list[Any] = [message]
    for struct in structs:  # which grows meanwhile
        cls: Any = type(struct)
        left -= len(cls.wire_fields)
        for name in _variable_fields(cls):
            value = getattr(struct, name) or ()
            if isinstance(value, Struct):
                structs.append(value)
                continue
            if type(value) is not list:
                left -= len(value) // CHARACTERS_OF_FIELD
                continue
            left -= len(value)
            if value and left > 0:
                if isinstance(value[0], Struct):
                    structs += value
                elif isinstance(value[0], (str, bytes)):
                    left -= sum(map(len, value)) // CHARACTERS_OF_FIELD
        if left < 0:
            return False
    return True


@cache
def _variable_fields(cls: type[Struct]) -> tuple[str, ...]:
    """Return the names of fields of variable length: arrays, strings, bytes, records and structs."""
    types = {name: field.type for name, field in cls.wire_fields.items()}
    return tuple(
        name for name, each in types.items() if isinstance(each, (Array, type)) or each in (String, Bytes, Records)
    )


@cache
def _lists_of_structs(cls: type[Struct]) -> tuple[str, ...]:
    types = {name: field.type for name, field in cls.wire_fields.items()}
    return tuple(name for name, each in types.items() if isinstance(each, Array) and isinstance(each.item, type))


class WorkQueue:
    """Fair queue for work that connections await; limits the time of such work between two polls of the sockets.

    A round is one poll of the sockets and everything until the next poll (`Readiness.wait`). In each round the first
    task in the queue has a turn, and then the next ones while there is time. So awaited work gets its share of the time
    even if the sockets are always busy.

    Trio alone would run all runnable tasks in random order: some of sixty requests would be passed over again and
    again, and sixty pieces of work would run between two polls.
    """

    __slots__ = ("goes_on", "line", "round_end")

    def __init__(self) -> None:
        self.line: deque[trio.lowlevel.Task] = deque()
        self.round_end = math.inf  # where no round ever begins there is no limit
        self.goes_on = False
        """True if the next task in line was woken in this round: it comes before another look at the sockets."""

    def has_time(self) -> bool:
        """True if work may run now without queueing."""
        return not self.line and time.monotonic() <= self.round_end

    async def turn(self) -> None:
        """Wait in the queue until work may run. Cancellation is delivered later, when the work itself waits."""
        self.line.append(trio.lowlevel.current_task())
        await trio.lowlevel.wait_task_rescheduled(lambda _: trio.lowlevel.Abort.FAILED)
        # The next one runs after the piece of work that begins here.
        if self.line and time.monotonic() <= self.round_end:
            self.goes_on = True
            self.wake_first()

    def wake_first(self) -> None:
        """Wake the first task in the queue, even if the round's time is over."""
        trio.lowlevel.reschedule(self.line.popleft())

    def close(self) -> None:
        """Wake all queued tasks; afterwards the queue has no time limit."""
        self.round_end = math.inf
        while self.line:
            self.wake_first()


class Work(Protocol):
    """Interface of a coroutine as far as `QueuedWork` uses it."""

    def send(self, value: Any, /) -> Any: ...

    def close(self) -> None: ...


class QueuedWork:
    """Awaitable that runs `work` in pieces, queueing before each; if it is not awaited, it must be closed."""

    __slots__ = ("_queue", "_work")

    def __init__(self, work: Work, queue: WorkQueue) -> None:
        self._work, self._queue = work, queue

    def __await__(self) -> Generator[Any, Any, Any]:
        work, queue = self._work, self._queue
        resumed_with: Any = None
        try:
            while True:
                if not queue.has_time():
                    yield from queue.turn().__await__()
                # Trio sends what came of a wait, errors too, so there is nothing to throw into the work.
                resumed_with = yield work.send(resumed_with)
        except StopIteration as end:
            return end.value
        finally:
            resumed_with = None  # may hold the exception that holds this frame, and with it a large request until a full collection
            work.close()

    def close(self) -> None:
        """Close the work at its current position."""
        self._work.close()


async def computed(work: Callable[[], Response], *, in_thread: bool) -> Response:
    """Return the result of `work`, which runs in a thread if `in_thread` is True. KafkaErrors of `work` are raised."""
    if not in_thread:
        return work()
    result = await trio.to_thread.run_sync(result_of, work, limiter=_long_computations)
    if isinstance(result, KafkaError):
        try:
            raise result
        finally:
            del result, work  # or else the error would hold this frame, and this frame the error
    return result
