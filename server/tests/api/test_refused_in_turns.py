"""A request that is refused as a whole may name a hundred thousand elements, each of which is answered: others run meanwhile."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from ottla.server.api.handlers import describe_topic_partitions as describe_topic_partitions_handler
from ottla.server.api.handlers.create_topics import create_partitions, create_topics
from ottla.server.api.handlers.delete_topics import delete_topics
from ottla.server.api.handlers.describe_configs import describe_configs
from ottla.server.api.handlers.describe_topic_partitions import describe_topic_partitions
from ottla.server.api.handlers.list_offsets import list_offsets
from ottla.server.tests.administered import opened
from ottla.wire import time_slice
from ottla.wire.messages.create_topics import (
    CreatableTopic,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
)
from ottla.wire.messages.delete_topics import DeleteTopicsRequest
from ottla.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ottla.wire.messages.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from ottla.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from ottla.wire.tests.turns import counted_turns

COUNT = 1_200
NAMES = [f"t{number}" for number in range(COUNT)]
PARTITIONS = [
    ListOffsetsPartition(partition_index=index, current_leader_epoch=-1, timestamp=-1) for index in range(COUNT)
]


def creation(timeout_ms: int, partition_count: int) -> CreateTopicsRequest:
    topics = [
        CreatableTopic(name=name, num_partitions=partition_count, replication_factor=1, assignments=[], configs=[])
        for name in NAMES
    ]
    return CreateTopicsRequest(topics=topics, timeout_ms=timeout_ms, validate_only=True)


@pytest.mark.parametrize(
    ("handler", "version", "request_"),
    [
        (create_topics, 4, creation(0, 1)),
        (create_topics, 4, creation(1000, 0)),
        (
            create_partitions,
            1,
            CreatePartitionsRequest(
                topics=[CreatePartitionsTopic(name=name, count=1, assignments=None) for name in NAMES],
                timeout_ms=0,
                validate_only=True,
            ),
        ),
        (delete_topics, 3, DeleteTopicsRequest(topic_names=NAMES, topics=[], timeout_ms=0)),
        (delete_topics, 3, DeleteTopicsRequest(topic_names=NAMES, topics=[], timeout_ms=1000)),
        (delete_topics, 3, DeleteTopicsRequest(topic_names=[*NAMES, *NAMES], topics=[], timeout_ms=1000)),
        (
            describe_configs,
            1,
            DescribeConfigsRequest(
                resources=[
                    DescribeConfigsResource(resource_type=77, resource_name=name, configuration_keys=None)
                    for name in NAMES
                ]
            ),
        ),
        (
            describe_topic_partitions,
            0,
            DescribeTopicPartitionsRequest(topics=[TopicRequest(name=name) for name in [*NAMES[1:], ""]]),
        ),
        (
            list_offsets,
            2,
            ListOffsetsRequest(
                replica_id=-1, isolation_level=7, topics=[ListOffsetsTopic(name="t", partitions=PARTITIONS)]
            ),
        ),
    ],
)
async def test_others_run_while_a_long_request_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, handler: Any, version: int, request_: Any
) -> None:
    broker = await opened(tmp_path)
    monkeypatch.setattr(time_slice, "SLICE_S", -1.0)
    monkeypatch.setattr(describe_topic_partitions_handler, "sorted_in_slices", sort)
    async with counted_turns() as turns:
        response = await handler(request_, broker.context(version))
    assert turns.count > COUNT // 2
    assert len(answers_in(response)) == COUNT


async def sort(names: Iterable[str]) -> list[str]:
    """As `sorted_in_slices`, but without a turn."""
    return sorted(names)


def answers_in(response: Any) -> list[Any]:
    """The answers for the elements of a request."""
    if isinstance(response, ListOffsetsResponse):
        return response.topics[0].partitions
    return next(value for name in ("topics", "results", "responses") if (value := getattr(response, name, None)))
