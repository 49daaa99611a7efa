"""Long work: what is awaited goes on in the order of the queue while there is time left between two looks at the sockets, and large
messages are freed a few structs at a time.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from itertools import count
from types import SimpleNamespace

import pytest
import trio

from ottla.server.network.sliced_work import FREED_AT_ONCE, ROUND_S, QueuedWork, WorkQueue, free_in_slices, is_short
from ottla.wire import time_slice
from ottla.wire.messages.delete_topics import DeleteTopicsRequest
from ottla.wire.messages.offsets import OffsetFetchRequest, OffsetFetchRequestTopic
from ottla.wire.schema import Struct
from ottla.wire.tests.turns import counted_turns

TOPICS = 20 * FREED_AT_ONCE


@pytest.fixture
async def queue(nursery: trio.Nursery) -> AsyncIterator[WorkQueue]:
    """One whose rounds begin by hand."""
    made = WorkQueue()
    yield made
    made.close()  # before the nursery ends, which waits for those in line


@pytest.fixture
def spend(queue: WorkQueue, monkeypatch: pytest.MonkeyPatch) -> Callable[[], Awaitable[None]]:
    """Begins a round whose time is over at once, and waits until all that can go on has."""
    now = 100.0
    monkeypatch.setattr("ottla.server.network.sliced_work.time.monotonic", lambda: now)

    async def round_() -> None:
        nonlocal now
        # As `Readiness.wait` begins one.
        queue.round_end = now + ROUND_S
        if queue.line:
            queue.wake_first()
        now += 1
        await trio.testing.wait_all_tasks_blocked()

    return round_


async def work(done: list[str], name: str) -> str:
    for piece in range(3):
        done.append(f"{name}{piece}")
        await trio.lowlevel.checkpoint()
    return name


async def test_work_comes_to_its_end_and_answers() -> None:
    done: list[str] = []
    assert await QueuedWork(work(done, "a"), WorkQueue()) == "a"
    assert done == ["a0", "a1", "a2"]


async def test_each_piece_of_work_stands_in_line_while_the_time_is_used_up(
    queue: WorkQueue, spend: Callable[[], Awaitable[None]], nursery: trio.Nursery
) -> None:
    done, answers = list[str](), list[str]()

    async def answer(name: str) -> None:
        answers.append(await QueuedWork(work(done, name), queue))

    await spend()
    for name in ("a", "b"):
        nursery.start_soon(answer, name)
        await trio.testing.wait_all_tasks_blocked()
    seen = []
    for _ in range(8):
        seen.append(len(done))
        await spend()
    assert done == ["a0", "b0", "a1", "b1", "a2", "b2"]
    assert seen == [0, 1, 2, 3, 4, 5, 6, 6] and answers == ["a", "b"]


async def test_cancelled_work_keeps_its_place_in_the_line(
    queue: WorkQueue, spend: Callable[[], Awaitable[None]], nursery: trio.Nursery
) -> None:
    """It hears of that where it waits, as all code does, and nobody else's turn is lost with it."""
    done, ended, cancelled = list[str](), list[str](), trio.CancelScope()

    async def answer(name: str, scope: trio.CancelScope) -> None:
        with scope:
            await QueuedWork(work(done, name), queue)
        ended.append(name)

    await spend()
    for name, scope in (("a", cancelled), ("b", trio.CancelScope())):
        nursery.start_soon(answer, name, scope)
        await trio.testing.wait_all_tasks_blocked()
    cancelled.cancel()
    await trio.testing.wait_all_tasks_blocked()
    before = [*done, *ended]
    for _ in range(7):  # two of them to be told of the cancellation
        await spend()
    assert before == [] and ended == ["a", "b"]
    assert done == ["a0", "b0", "b1", "b2"]


async def test_errors_and_cancellation_reach_the_work() -> None:
    async def fail() -> None:
        await trio.lowlevel.checkpoint()
        raise ValueError("of the work")

    with pytest.raises(ValueError, match="of the work"):
        await QueuedWork(fail(), WorkQueue())

    cleaned_up = False

    async def wait() -> None:
        nonlocal cleaned_up
        try:
            await trio.sleep_forever()
        finally:
            cleaned_up = True

    with trio.CancelScope() as scope:
        scope.cancel()
        await QueuedWork(wait(), WorkQueue())
    assert cleaned_up


class Name(str):
    """Counts how many of its kind are gone."""

    gone = 0

    def __del__(self) -> None:
        Name.gone += 1


async def test_no_turn_frees_more_than_a_few_structs_and_those_in_use_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    Name.gone = 0
    clock = count()
    monkeypatch.setattr(time_slice, "time", SimpleNamespace(perf_counter=lambda: next(clock)))  # every slice is used up
    topics = [OffsetFetchRequestTopic(name=Name(number), partition_indexes=[0]) for number in range(TOPICS)]
    kept = topics[7]
    messages = [OffsetFetchRequest(group_id="group", topics=topics)]
    del topics
    steps: list[int] = []
    async with counted_turns(), trio.open_nursery() as nursery:
        nursery.start_soon(free_in_slices, messages)
        before = 0
        while Name.gone < TOPICS - 1:
            await trio.lowlevel.checkpoint()
            steps.append(Name.gone - before)
            before = Name.gone
    assert not messages
    assert max(steps) <= 2 * FREED_AT_ONCE  # two turns may pass between two looks
    assert kept.name == "7"


@pytest.mark.parametrize(
    ("message", "is_it"),
    [
        (OffsetFetchRequest(topics=None), True),
        (OffsetFetchRequest(topics=[OffsetFetchRequestTopic(name="t", partition_indexes=[0] * 900)]), True),
        (OffsetFetchRequest(topics=[OffsetFetchRequestTopic(name="t", partition_indexes=[0] * 1100)]), False),
        (OffsetFetchRequest(topics=[OffsetFetchRequestTopic(name="t", partition_indexes=[])] * 200), True),
        (OffsetFetchRequest(topics=[OffsetFetchRequestTopic(name="t", partition_indexes=[0])] * 600), False),
        (OffsetFetchRequest(topics=[OffsetFetchRequestTopic(name="t" * 200_000, partition_indexes=[])]), False),
        (DeleteTopicsRequest(topic_names=["t" * 10_000] * 20, timeout_ms=1), False),
    ],
)
def test_a_message_is_short_if_it_has_few_fields_and_characters(message: Struct, is_it: bool) -> None:
    assert is_short(message) == is_it
