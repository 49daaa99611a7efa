"""Turns of names: one holder at a time, in the order in which they came, and nothing is kept of them afterwards."""

from __future__ import annotations

import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from trio.testing import wait_all_tasks_blocked

from ottla.replication.keyed_lock import KeyedLock
from ottla.wire.tests.effort import examples


async def test_who_comes_first_gets_the_turn_first() -> None:
    turns = KeyedLock()
    seen: list[int] = []

    async def take(number: int) -> None:
        async with turns.hold(["a"]):
            seen.append(number)
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery, turns.hold(["b", "a", "b"]):
        for number in range(5):
            nursery.start_soon(take, number)
            await wait_all_tasks_blocked()
        assert seen == []
        assert len(turns) == 2
    assert seen == [0, 1, 2, 3, 4]
    assert not len(turns)


async def test_nothing_is_left_of_who_went_away_while_waiting() -> None:
    turns = KeyedLock()

    async def take() -> None:
        async with turns.hold(["a", "b"]):
            raise AssertionError

    async with turns.hold(["b"]):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(take)
            await wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
        assert len(turns) == 1
        with trio.CancelScope() as scope:
            scope.cancel()
            async with turns.hold(["c"]):
                assert len(turns) == 2
        assert len(turns) == 1
    assert not len(turns)


@settings(max_examples=examples(25))
@given(st.lists(st.lists(st.sampled_from("abcd"), max_size=4), max_size=8), st.integers(0, 7))
def test_each_name_has_one_holder_and_everybody_gets_a_turn(wanted: list[list[str]], gone: int) -> None:
    async def main() -> None:
        turns = KeyedLock()
        held: list[str] = []
        done: set[int] = set()

        async def take(number: int) -> None:
            with scopes[number]:
                async with turns.hold(wanted[number]):
                    assert not set(held) & set(wanted[number])
                    held.extend(set(wanted[number]))
                    with trio.CancelScope(shield=True):
                        await trio.lowlevel.checkpoint()
                    for name in set(wanted[number]):
                        held.remove(name)
                    done.add(number)

        scopes = [trio.CancelScope() for _ in wanted]
        async with trio.open_nursery() as nursery:
            for number in range(len(wanted)):
                nursery.start_soon(take, number)
            await trio.lowlevel.checkpoint()
            if gone < len(scopes):
                scopes[gone].cancel()
        assert done >= set(range(len(wanted))) - {gone}
        assert not len(turns)

    trio.run(main)
