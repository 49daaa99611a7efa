"""Producers are described for each partition, of long requests once."""

from types import SimpleNamespace
from typing import Any

from ottla.server.handlers.describe_producers import describe_producers
from ottla.wire.messages.describe_producers import DescribeProducersRequest, TopicRequest


async def test_a_partition_that_is_named_very_often_is_described_once() -> None:
    log = SimpleNamespace(producers={})
    broker = SimpleNamespace(
        cluster=SimpleNamespace(topic=lambda name: name), partition=lambda name, index: SimpleNamespace(log=log)
    )
    context: Any = SimpleNamespace(broker=broker)
    twice = DescribeProducersRequest(topics=[TopicRequest(name="t", partition_indexes=[0, 0])])
    answer: Any = describe_producers(twice, context)
    assert [each.partition_index for each in answer.topics[0].partitions] == [0, 0]
    often = DescribeProducersRequest(topics=[TopicRequest(name="t", partition_indexes=[0, 1] * 100)] * 100)
    answer = describe_producers(often, context)
    assert [(each.name, [one.partition_index for one in each.partitions]) for each in answer.topics] == [("t", [0, 1])]
