"""Producers are described for each partition, of long requests once."""

from types import SimpleNamespace
from typing import Any

import pytest
import trio

from ottla.replication.log.producers import ProducerEntry
from ottla.server.api.handlers.describe_transactions import PRODUCERS_PER_TURN, describe_producers
from ottla.wire.messages.describe_transactions import DescribeProducersRequest, TopicRequest
from ottla.wire.time_slice import TimeSlice


async def test_a_partition_that_is_named_very_often_is_described_once() -> None:
    log = SimpleNamespace(producers={})
    broker = SimpleNamespace(
        authorizer=None,
        cluster=SimpleNamespace(topics={"t": "t"}),
        partition=lambda name, index: SimpleNamespace(log=log),
    )
    context: Any = SimpleNamespace(broker=broker)
    twice = DescribeProducersRequest(topics=[TopicRequest(name="t", partition_indexes=[0, 0])])
    answer: Any = describe_producers(twice, context)
    assert [each.partition_index for each in answer.topics[0].partitions] == [0, 0]
    often = DescribeProducersRequest(topics=[TopicRequest(name="t", partition_indexes=[0, 1] * 100)] * 100)
    pending: Any = describe_producers(often, context)
    answer = await pending
    assert [(each.name, [one.partition_index for one in each.partitions]) for each in answer.topics] == [("t", [0, 1])]


async def test_very_many_producers_are_described_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    log = SimpleNamespace(producers={number: ProducerEntry(number) for number in range(5000)})
    broker = SimpleNamespace(
        authorizer=None,
        cluster=SimpleNamespace(topics={"t": "t"}),
        partition=lambda name, index: SimpleNamespace(log=log),
    )
    context: Any = SimpleNamespace(broker=broker)
    turns = []

    async def yield_if_over(self: TimeSlice) -> None:
        turns.append(None)
        await trio.lowlevel.checkpoint()
        log.producers.pop(4999, None)  # others change it meanwhile

    monkeypatch.setattr(TimeSlice, "yield_if_over", yield_if_over)
    request = DescribeProducersRequest(topics=[TopicRequest(name="t", partition_indexes=[0])])
    answer: Any = await describe_producers(request, context)
    assert [each.producer_id for each in answer.topics[0].partitions[0].active_producers] == list(range(5000))
    assert len(turns) >= 5000 // PRODUCERS_PER_TURN
