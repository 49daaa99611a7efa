"""Sockets served inside the event loop's wait: what wakes the task, and that everything else still gets its turn."""

import contextlib
import itertools
import socket
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import trio

from ottla.server.network.readiness import (
    SHORT_TURN_S,
    WAIT_READABLE,
    WAIT_WRITABLE,
    Readiness,
)
from ottla.server.network.sliced_work import ROUND_S, WorkQueue


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Our end, which does not block, and the peer's."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    with ours, theirs:
        yield ours, theirs


Pair = tuple[socket.socket, socket.socket]


def echo_until(sock: socket.socket, last: bytes) -> Callable[[], Any]:
    """Sends back what comes; ends with what came last."""

    def step() -> Any:
        data = sock.recv(100)
        sock.send(data)
        return data if data == last else WAIT_READABLE

    return step


async def test_it_is_inside_the_wait_here() -> None:
    assert Readiness().is_inside_the_wait


async def test_the_task_sleeps_until_there_is_something_for_it(pair: Pair, nursery: trio.Nursery) -> None:
    ours, theirs = pair
    readiness = Readiness()
    ended = []

    async def serve() -> None:
        ended.append(await readiness.serve(ours, echo_until(ours, b"stop")))

    nursery.start_soon(serve)
    await trio.testing.wait_all_tasks_blocked()
    for word in (b"one", b"two"):
        theirs.send(word)
        assert await trio.to_thread.run_sync(theirs.recv, 100) == word
    assert ended == []
    theirs.send(b"stop")
    with trio.fail_after(60):
        while not ended:
            await trio.sleep(0.001)
    assert ended == [b"stop"]


async def test_an_error_is_raised_in_the_task(pair: Pair) -> None:
    ours, theirs = pair
    theirs.send(b"x")

    def step() -> Any:
        raise ValueError("of this step")

    readiness = Readiness()
    with pytest.raises(ValueError, match="of this step"):
        await readiness.serve(ours, step)
    assert await readiness.serve(ours, echo_until(ours, b"x")) == b"x"


async def test_a_step_may_wait_until_the_socket_takes_more(pair: Pair) -> None:
    ours, theirs = pair
    left = memoryview(bytearray(4_000_000))
    received = 0

    def step() -> Any:
        nonlocal left
        with contextlib.suppress(BlockingIOError):
            left = left[ours.send(left) :]
        return WAIT_WRITABLE if left else "sent"

    async def read() -> None:
        nonlocal received
        while received < 4_000_000:
            received += len(await trio.to_thread.run_sync(theirs.recv, 1 << 20))

    theirs.send(b"go")
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(read)
            assert await Readiness().serve(ours, step) == "sent"
    assert received == 4_000_000


async def test_a_cancelled_task_lets_go_of_its_socket(pair: Pair) -> None:
    ours, theirs = pair
    readiness = Readiness()
    with trio.move_on_after(0.01) as scope:
        await readiness.serve(ours, echo_until(ours, b""))
    assert scope.cancelled_caught
    theirs.send(b"x")
    await trio.lowlevel.wait_readable(ours)  # which trio can wait for as for any other
    assert await readiness.serve(ours, echo_until(ours, b"x")) == b"x"


async def test_a_socket_that_is_always_ready_leaves_time_for_all_others(pair: Pair, nursery: trio.Nursery) -> None:
    ours, theirs = pair
    theirs.send(b"never read")
    steps = 0

    def step() -> Any:
        nonlocal steps
        steps += 1
        return WAIT_READABLE

    async def forever() -> None:
        await Readiness().serve(ours, step)

    nursery.start_soon(forever)
    with trio.fail_after(60):
        await trio.sleep(0.01)  # a deadline
        for _ in range(100):
            await trio.lowlevel.checkpoint()  # a task that can go on
        assert await trio.to_thread.run_sync(lambda: "thread") == "thread"
        left, right = trio.socket.socketpair()
        with left, right:
            await right.send(b"io")
            assert await left.recv(2) == b"io"
    assert steps > 0
    nursery.cancel_scope.cancel()


async def test_a_step_may_wake_other_tasks(pair: Pair, nursery: trio.Nursery) -> None:
    ours, theirs = pair
    woken = trio.Event()

    def step() -> Any:
        ours.recv(100)
        woken.set()
        return WAIT_READABLE

    nursery.start_soon(Readiness().serve, ours, step)
    await trio.testing.wait_all_tasks_blocked()
    theirs.send(b"x")
    with trio.fail_after(60):
        await woken.wait()
    nursery.cancel_scope.cancel()


async def test_an_end_of_the_stream_is_an_event_like_others(pair: Pair) -> None:
    ours, theirs = pair
    theirs.close()
    assert await Readiness().serve(ours, lambda: ours.recv(1) or "left") == "left"


async def test_turns_are_short_when_those_before_have_used_up_what_all_may_take(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    readiness = Readiness()
    now = 100.0
    monkeypatch.setattr("ottla.server.network.readiness.time.monotonic", lambda: now)
    readiness.wait(0)
    assert readiness.turn_end(now) == now + ROUND_S
    nearly_over = now + ROUND_S / 2
    assert readiness.turn_end(nearly_over) == now + ROUND_S
    over = now + ROUND_S + 1
    assert readiness.turn_end(over) == over + SHORT_TURN_S


async def test_work_has_its_turns_after_each_look_at_the_sockets(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sockets leave no time, and trio runs tasks in random order. Who stood in line longest comes first all the same."""
    ours, theirs = pair
    theirs.send(b"stays")
    now, looks = 100.0, 0
    monkeypatch.setattr("ottla.server.network.readiness.time.monotonic", lambda: now)
    came, went_on = list[int](), list[tuple[int, int]]()

    def step() -> Any:
        nonlocal now, looks
        now += 2 * ROUND_S
        looks += 1
        return "end" if len(went_on) == 9 else WAIT_READABLE

    async def work(number: int) -> None:
        nonlocal now
        came.append(number)
        await readiness.work.turn()
        went_on.append((number, looks))
        now += ROUND_S * 0.6

    readiness = Readiness()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(readiness.serve, ours, step)
        for number in range(9):
            nursery.start_soon(work, number)
    assert [number for number, _ in went_on] == came
    # Each wakes the next one before its own work, as long as there is time then.
    first = went_on[0][1]
    assert [look - first for _, look in went_on] == [0, 0, 0, 1, 1, 1, 2, 2, 2]


async def test_work_that_stands_in_line_goes_on_when_nothing_is_served_any_more(nursery: trio.Nursery) -> None:
    queue, went_on = WorkQueue(), list[int]()

    async def work(number: int) -> None:
        await queue.turn()
        went_on.append(number)

    for number in range(3):
        nursery.start_soon(work, number)
    await trio.testing.wait_all_tasks_blocked()
    assert len(went_on) == 0
    queue.close()
    await trio.testing.wait_all_tasks_blocked()
    assert sorted(went_on) == [0, 1, 2]
    assert queue.has_time()


@contextlib.contextmanager
def five_pairs() -> Iterator[list[Pair]]:
    with contextlib.ExitStack() as sockets:
        pairs = [socket.socketpair() for _ in range(5)]
        for each in itertools.chain(*pairs):
            sockets.enter_context(each)
        yield pairs


@pytest.fixture
def long_step(monkeypatch: pytest.MonkeyPatch) -> Callable[[list[int], int, int], Callable[[], Any]]:
    """Makes steps of which two use up the time between two looks. They note their number, and end when called often enough."""
    now = 100.0
    monkeypatch.setattr("ottla.server.network.readiness.time.monotonic", lambda: now)

    def make(calls: list[int], number: int, count: int) -> Callable[[], Any]:
        def step() -> Any:
            nonlocal now
            calls.append(number)
            now += ROUND_S * 0.6
            return "end" if calls.count(number) == count else WAIT_READABLE

        return step

    return make


async def test_those_for_whom_there_was_no_time_come_first_next_time(
    long_step: Callable[[list[int], int, int], Callable[[], Any]],
) -> None:
    readiness, calls = Readiness(), list[int]()
    epoll, looks_at = readiness._epoll, []

    def look(*arguments: Any) -> Any:
        looks_at.append(len(calls))
        return epoll.poll(*arguments)

    readiness._epoll = SimpleNamespace(
        poll=look, register=epoll.register, modify=epoll.modify, unregister=epoll.unregister
    )
    with five_pairs() as pairs:
        async with trio.open_nursery() as nursery:
            for number, (ours, theirs) in enumerate(pairs):
                theirs.send(b"stays")
                nursery.start_soon(readiness.serve, ours, long_step(calls, number, 4))
    assert max(after - before for before, after in itertools.pairwise(looks_at)) == 2
    for length in range(len(calls)):
        counts = [calls[:length].count(number) for number in range(5)]
        assert max(counts) - min(counts) <= 2, "nobody is passed over again and again"


async def test_those_who_are_poked_wait_for_their_turns_as_well(
    long_step: Callable[[list[int], int, int], Callable[[], Any]],
) -> None:
    readiness, calls = Readiness(), list[int]()
    with five_pairs() as pairs:
        async with trio.open_nursery() as nursery:
            for number, (ours, _) in enumerate(pairs):
                nursery.start_soon(readiness.serve, ours, long_step(calls, number, 1))
            while len(readiness._served) < len(pairs):
                await trio.lowlevel.checkpoint()
            for ours, _ in pairs:
                readiness.poke(ours)
            readiness._serve_poked()
            assert calls == [0, 1]
    assert calls == [0, 1, 2, 3, 4]
