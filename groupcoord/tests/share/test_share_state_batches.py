"""State batches put in order, against a table of single offsets."""

import random

import pytest

from ottla.groupcoord.share.coordinator.state import NO_START_OFFSET, StateBatch, are_in_order, in_parts, merged

AVAILABLE, ACKNOWLEDGED, ARCHIVED = 0, 2, 4


def by_offset(*lists: list[StateBatch], start_offset: int = NO_START_OFFSET) -> dict[int, tuple[int, int]]:
    """Each offset with the highest delivery count, then state, that any batch gives it."""
    table: dict[int, tuple[int, int]] = {}
    for batch in (each for batches in lists for each in batches):
        for offset in range(max(batch.first_offset, start_offset), batch.last_offset + 1):
            said = (batch.delivery_count, batch.delivery_state)
            table[offset] = max(table.get(offset, said), said)
    return table


def test_batches_that_touch_and_say_the_same_become_one() -> None:
    found = merged((StateBatch(0, 4, ACKNOWLEDGED, 1),), [StateBatch(5, 9, ACKNOWLEDGED, 1)], NO_START_OFFSET)
    assert found == (StateBatch(0, 9, ACKNOWLEDGED, 1),)


def test_batches_that_touch_and_say_different_things_stay_two() -> None:
    known, news = StateBatch(0, 4, ACKNOWLEDGED, 1), StateBatch(5, 9, ACKNOWLEDGED, 2)
    assert merged((known,), [news], NO_START_OFFSET) == (known, news)


def test_higher_delivery_count_is_right() -> None:
    known, news = StateBatch(0, 9, ARCHIVED, 1), StateBatch(3, 5, AVAILABLE, 2)
    assert merged((known,), [news], NO_START_OFFSET) == (
        StateBatch(0, 2, ARCHIVED, 1),
        StateBatch(3, 5, AVAILABLE, 2),
        StateBatch(6, 9, ARCHIVED, 1),
    )


def test_higher_state_is_right_at_the_same_count() -> None:
    known, news = StateBatch(0, 9, AVAILABLE, 1), StateBatch(8, 12, ACKNOWLEDGED, 1)
    assert merged((known,), [news], NO_START_OFFSET) == (
        StateBatch(0, 7, AVAILABLE, 1),
        StateBatch(8, 12, ACKNOWLEDGED, 1),
    )


def test_nothing_is_left_before_the_start() -> None:
    known = (StateBatch(0, 4, ACKNOWLEDGED, 1), StateBatch(10, 14, ACKNOWLEDGED, 1))
    assert merged(known, [StateBatch(2, 6, ACKNOWLEDGED, 1)], 12) == (StateBatch(12, 14, ACKNOWLEDGED, 1),)
    assert merged(known, [], 100) == ()


@pytest.mark.parametrize("seed", range(300))
def test_random_lists_say_of_each_offset_what_the_best_batch_says(seed: int) -> None:
    chance = random.Random(seed)

    def batches() -> list[StateBatch]:
        firsts = [chance.randrange(40) for _ in range(chance.randrange(8))]
        return [
            StateBatch(first, first + chance.randrange(10), chance.choice((0, 2, 4)), chance.randrange(3))
            for first in firsts
        ]

    first, second = batches(), batches()
    start_offset = chance.choice((NO_START_OFFSET, 0, 20, 60))
    known = merged((), first, NO_START_OFFSET)
    found = merged(known, second, start_offset)
    assert are_in_order(known) and are_in_order(found)
    assert by_offset(list(found)) == by_offset(first, second, start_offset=start_offset)


@pytest.mark.parametrize("seed", range(100))
def test_parts_merged_one_by_one_come_to_the_same_as_all_at_once(seed: int) -> None:
    chance = random.Random(seed)

    def batches(count: int) -> list[StateBatch]:
        return [
            StateBatch(first, first + chance.choice((0, 0, 3, 40)), chance.choice((0, 2, 4)), chance.randrange(3))
            for first in (chance.randrange(100) for _ in range(count))
        ]

    known = merged((), batches(20), NO_START_OFFSET)
    news = batches(30)
    found = known
    for part in in_parts(news, 7):
        found = merged(found, part, NO_START_OFFSET)
    assert found == merged(known, news, NO_START_OFFSET)


def test_lists_that_are_not_in_order_are_seen() -> None:
    batch = StateBatch(5, 9, ACKNOWLEDGED, 1)
    assert are_in_order([batch, StateBatch(10, 12, ACKNOWLEDGED, 2)])
    assert not are_in_order([batch, StateBatch(10, 12, ACKNOWLEDGED, 1)])
    assert not are_in_order([batch, StateBatch(9, 12, ACKNOWLEDGED, 2)])
    assert not are_in_order([StateBatch(5, 4, ACKNOWLEDGED, 1)])
