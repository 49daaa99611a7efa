"""Moves of goods between the places of a warehouse, the same ones every time.

`random()` alone is drawn from, which gives the same numbers on every Python.
"""

import random
from collections.abc import Iterator
from typing import NamedTuple

ITEMS = ("bolts", "bridges", "clocks", "ink", "letters", "stamps")
PLACES = ("cellar", "gate", "ramp", "shelf-1", "shelf-2", "yard")
OUTSIDE = "outside"
COUNT = 400
ABORTED_EVERY = 5


class Move(NamedTuple):
    number: int
    item: str
    source: str
    target: str
    count: int
    is_aborted: bool


def moves(count: int = COUNT) -> Iterator[Move]:
    """Deliveries from outside, moves of at most what is there, and some that are begun and given up."""
    drawn = random.Random(1924)
    stock: dict[tuple[str, str], int] = {}
    for number in range(count):
        item, target = ITEMS[int(drawn.random() * len(ITEMS))], PLACES[int(drawn.random() * len(PLACES))]
        sources = [place for place in PLACES if place != target and stock.get((item, place))]
        source = sources[int(drawn.random() * len(sources))] if sources and number >= 40 else OUTSIDE
        there = 50 if source == OUTSIDE else stock[item, source]
        moved = there if drawn.random() < 0.4 else 1 + int(drawn.random() * there)
        is_aborted = number % ABORTED_EVERY == ABORTED_EVERY - 1
        if not is_aborted:
            if source != OUTSIDE:
                stock[item, source] -= moved
            stock[item, target] = stock.get((item, target), 0) + moved
        yield Move(number, item, source, target, moved, is_aborted)
