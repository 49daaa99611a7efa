"""Large messages are freed a few structs at a time."""

from itertools import count
from types import SimpleNamespace

import pytest
import trio

from ottla.server.net.sliced_work import FREED_AT_ONCE, free_in_slices, is_short
from ottla.wire import time_slice
from ottla.wire.messages.delete_topics import DeleteTopicsRequest
from ottla.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from ottla.wire.schema import Struct
from ottla.wire.tests.turns import counted_turns

TOPICS = 20 * FREED_AT_ONCE


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
