"""Deadlines: called in time, or not at all, and nobody is kept alive by one that is over."""

from __future__ import annotations

import pytest
import trio

from ottla.server.network.deadlines import TICK_S, Deadline, Deadlines
from ottla.wire.tests.garbage import nothing_is_left_of


class Waiter:
    """Holds its deadline, as requests do that wait."""

    def __init__(self, deadlines: Deadlines, seconds: float) -> None:
        self.calls = 0
        self.deadline = deadlines.add(seconds, self.give_up)

    def give_up(self) -> None:
        self.calls += 1


async def test_calls_come_when_their_time_is_over(nursery: trio.Nursery, autojump_clock: trio.abc.Clock) -> None:
    deadlines = Deadlines()
    nursery.start_soon(deadlines.run)
    late, early = Waiter(deadlines, 5), Waiter(deadlines, 1)
    await trio.sleep(1 + 2 * TICK_S)
    assert (early.calls, late.calls) == (1, 0)
    await trio.sleep(4)
    assert (early.calls, late.calls) == (1, 1)


async def test_a_cancelled_call_never_comes(nursery: trio.Nursery, autojump_clock: trio.abc.Clock) -> None:
    deadlines = Deadlines()
    nursery.start_soon(deadlines.run)
    cancelled, kept = Waiter(deadlines, 1), Waiter(deadlines, 1)
    deadlines.cancel(cancelled.deadline)
    await trio.sleep(2)
    assert (cancelled.calls, kept.calls) == (0, 1)
    deadlines.cancel(kept.deadline)  # too late, and no harm


async def test_one_call_may_cancel_another_of_the_same_tick(
    nursery: trio.Nursery, autojump_clock: trio.abc.Clock
) -> None:
    deadlines = Deadlines()
    nursery.start_soon(deadlines.run)
    others: list[Deadline] = []
    deadlines.add(1, lambda: deadlines.cancel(others[0]))
    second = Waiter(deadlines, 1)
    others.append(second.deadline)
    await trio.sleep(2)
    assert second.calls == 0


async def test_a_bug_in_one_call_keeps_no_other_from_coming(
    nursery: trio.Nursery, autojump_clock: trio.abc.Clock, caplog: pytest.LogCaptureFixture
) -> None:
    deadlines = Deadlines()
    nursery.start_soon(deadlines.run)
    deadlines.add(1, lambda: divmod(1, 0))
    same_tick, later = Waiter(deadlines, 1), Waiter(deadlines, 2)
    await trio.sleep(3)
    assert (same_tick.calls, later.calls) == (1, 1)
    assert "bug: the end of a wait" in caplog.text


@pytest.mark.parametrize("is_called", [True, False])
async def test_who_waited_is_not_left_for_the_garbage_collector(
    nursery: trio.Nursery, autojump_clock: trio.abc.Clock, is_called: bool
) -> None:
    deadlines = Deadlines()
    nursery.start_soon(deadlines.run)
    with nothing_is_left_of(Waiter):
        waiter = Waiter(deadlines, 1)
        if is_called:
            await trio.sleep(2)
        else:
            deadlines.cancel(waiter.deadline)
        del waiter
