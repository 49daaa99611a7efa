"""Work on large requests goes on only while there is time left between two looks at the sockets."""

import pytest
import trio

from ottla.server.net.turns import InTurn


async def work(done: list[str], name: str) -> str:
    for piece in range(3):
        done.append(f"{name}{piece}")
        await trio.lowlevel.checkpoint()
    return name


async def test_work_comes_to_its_end_and_answers() -> None:
    done: list[str] = []
    assert await InTurn(work(done, "a"), lambda: False) == "a"
    assert done == ["a0", "a1", "a2"]


async def test_work_waits_while_the_time_is_used_up() -> None:
    done: list[str] = []
    answers = iter([True, False, True, True, False, False, True, False])
    asked: list[int] = []

    def is_spent() -> bool:
        asked.append(len(done))
        return next(answers)

    assert await InTurn(work(done, "a"), is_spent) == "a"
    assert asked == [0, 0, 1, 1, 1, 2, 3, 3]


async def test_errors_and_cancellation_reach_the_work() -> None:
    async def fail() -> None:
        await trio.lowlevel.checkpoint()
        raise ValueError("of the work")

    with pytest.raises(ValueError, match="of the work"):
        await InTurn(fail(), lambda: False)

    cleaned_up = False

    async def wait() -> None:
        nonlocal cleaned_up
        try:
            await trio.sleep_forever()
        finally:
            cleaned_up = True

    with trio.CancelScope() as scope:
        scope.cancel()
        await InTurn(wait(), lambda: False)
    assert cleaned_up
