"""The garbage collector rests while brokers start, and full collections are rare."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import pytest

from ottla.server.testing import garbage
from ottla.server.testing.garbage import STARTS_PER_COLLECTION, without_collections
from ottla.server.testing.kafka import Kafka
from ottla.server.testing.node import Node


@pytest.fixture(autouse=True)
def collections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(garbage, "_collections", garbage._Collections())


@pytest.fixture
def generations() -> Iterator[list[int]]:
    """Generations that were collected since."""
    collected: list[int] = []

    def note(phase: str, info: dict[str, int]) -> None:
        if phase == "stop":
            collected.append(info["generation"])

    gc.callbacks.append(note)
    yield collected
    gc.callbacks.remove(note)


def test_no_garbage_is_collected_while_a_broker_starts(monkeypatch: pytest.MonkeyPatch, generations: list[int]) -> None:
    during: list[int] = []
    start = Node.start

    async def noting(self: Node, **options: Any) -> None:
        before = len(generations)
        await start(self, **options)
        during.append(len(generations) - before)

    monkeypatch.setattr(Node, "start", noting)
    threshold = gc.get_threshold()
    gc.set_threshold(20)
    try:
        with Kafka() as kafka:
            kafka.restore(kafka.snapshot())
    finally:
        gc.set_threshold(*threshold)
    assert during == [0, 0] and generations
    assert gc.isenabled()


def test_objects_of_a_start_are_old_after_it() -> None:
    with without_collections():
        made: list[list[int]] = [[] for _ in range(1000)]
    young = {id(each) for each in gc.get_objects(generation=0)}
    assert not any(id(each) in young for each in made)


def test_a_collector_that_is_off_stays_off() -> None:
    gc.disable()
    try:
        with without_collections():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_the_collector_is_on_again_after_a_failed_start() -> None:
    with pytest.raises(KeyError), without_collections():
        raise KeyError
    assert gc.isenabled()


def test_frozen_objects_stay_frozen() -> None:
    gc.freeze()
    try:
        count = gc.get_freeze_count()
        with without_collections():
            pass
        assert gc.get_freeze_count() >= count - 100
    finally:
        gc.unfreeze()


def test_a_full_collection_comes_once_in_many_starts_and_takes_a_small_part_of_the_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now_s, collected = 1000.0, []

    def collect() -> None:
        nonlocal now_s
        now_s += 2.0
        collected.append(now_s)

    monkeypatch.setattr("ottla.server.testing.garbage.time.monotonic", lambda: now_s)
    monkeypatch.setattr("ottla.server.testing.garbage.gc.collect", collect)
    for _ in range(10 * STARTS_PER_COLLECTION):
        now_s += 0.1
        garbage._collections.after_start()
    assert len(collected) == 2 and collected[1] - collected[0] > 40.0
