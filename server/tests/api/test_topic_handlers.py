"""CreateTopics, DeleteTopics, CreatePartitions, DescribeCluster and DescribeTopicPartitions."""

from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from ottla.replication.cluster import znodes
from ottla.replication.cluster.coordination import Create
from ottla.replication.controller.topic_planner import NewTopic
from ottla.server.api.handlers.cluster import describe_cluster
from ottla.server.api.handlers.create_topics import create_partitions, create_topics
from ottla.server.api.handlers.delete_topics import delete_topics
from ottla.server.api.handlers.describe_topic_partitions import describe_topic_partitions
from ottla.server.tests.administered import AdministeredBroker, opened
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.cluster import DescribeClusterBroker, DescribeClusterRequest
from ottla.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
)
from ottla.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.wire.messages.describe_topic_partitions import Cursor, DescribeTopicPartitionsRequest, TopicRequest
from ottla.wire.schema import ZERO_UUID


def creatable(name: str, partitions: int = 1, factor: int = 1, **configs: str | None) -> CreatableTopic:
    told = [CreatableTopicConfig(name=each.replace("_", "."), value=value) for each, value in configs.items()]
    return CreatableTopic(name=name, num_partitions=partitions, replication_factor=factor, assignments=[], configs=told)


async def create(broker: AdministeredBroker, *topics: CreatableTopic, validate_only: bool = False) -> Any:
    request = CreateTopicsRequest(topics=list(topics), validate_only=validate_only)
    return (await create_topics(request, broker.context(7))).topics


async def test_a_created_topic_is_told_with_its_settings(tmp_path: Path) -> None:
    broker = await opened(tmp_path, {"log.retention.hours": "1"})
    (result,) = await create(broker, creatable("t", 2, segment_ms="7"))
    assert (result.error_code, result.error_message) == (0, None)
    assert (result.num_partitions, result.replication_factor) == (2, 1)
    assert result.topic_id == broker.cluster.topics["t"].topic_id
    configs = {each.name: (each.value, each.config_source) for each in result.configs}
    assert list(configs) == sorted(configs)
    assert len(configs) == 37
    assert configs["segment.ms"] == ("7", 1)
    assert configs["retention.ms"] == ("3600000", 4)
    assert configs["retention.bytes"] == ("-1", 5)


async def test_each_topic_of_a_request_succeeds_or_fails_by_itself(tmp_path: Path) -> None:
    broker = await opened(tmp_path)
    results = await create(
        broker,
        creatable("a"),
        creatable("twice"),
        creatable("b", factor=3),
        creatable("twice"),
        creatable("c", foo="1"),
        creatable("d", retention_ms=None),
        creatable("x y", retention_ms=None),
        creatable("e"),
    )
    assert [(each.name, each.error_code) for each in results] == [
        ("a", 0),
        ("b", ErrorCode.INVALID_REPLICATION_FACTOR),
        ("c", ErrorCode.INVALID_CONFIG),
        ("d", ErrorCode.INVALID_CONFIG),
        ("x y", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("e", 0),
        ("twice", ErrorCode.INVALID_REQUEST),
    ]
    assert results[2].error_message == "Unknown topic config name: foo"
    assert results[3].error_message == "Null value not supported for topic configs: retention.ms"
    assert results[-1].error_message == "Duplicate topic name."
    assert sorted(broker.cluster.topics) == ["a", "e"]


async def test_too_many_partitions_fail_the_whole_request(tmp_path: Path) -> None:
    broker = await opened(tmp_path)
    results = await create(broker, creatable("a"), creatable("b", 10_000))
    assert [each.error_code for each in results] == [ErrorCode.POLICY_VIOLATION] * 2
    assert not broker.cluster.topics


async def test_validation_alone_tells_the_same_and_creates_nothing(tmp_path: Path) -> None:
    broker = await opened(tmp_path)
    (result,) = await create(broker, creatable("t", -1, -1), validate_only=True)
    assert (result.error_code, result.num_partitions, result.replication_factor) == (0, 1, 1)
    assert not broker.cluster.topics


async def delete(broker: AdministeredBroker, *states: tuple[str | None, bytes], version: int = 6) -> Any:
    if version < 6:
        request = DeleteTopicsRequest(topic_names=[name or "" for name, _ in states], timeout_ms=1)
    else:
        topics = [DeleteTopicState(name=name, topic_id=topic_id) for name, topic_id in states]
        request = DeleteTopicsRequest(topics=topics, timeout_ms=1)
    response = await delete_topics(request, broker.context(version))
    return [(each.name, each.topic_id, each.error_code) for each in response.responses]


async def test_a_topic_that_has_got_the_name_meanwhile_is_not_deleted_by_the_id_of_the_former_one(
    tmp_path: Path,
) -> None:
    """The request waits for its turn to mark topics, as one of very many does, until the name is another topic's."""
    broker = await opened(tmp_path)
    await create(broker, creatable("t"))
    former_id = broker.cluster.topics["t"].topic_id
    told: list[Any] = []

    async def delete_by_id() -> None:
        told.extend(await delete(broker, (None, former_id)))

    broker.administration._marking = marking = trio.CapacityLimiter(1)
    async with trio.open_nursery() as nursery, marking:
        nursery.start_soon(delete_by_id)
        await wait_all_tasks_blocked()
        await broker.coordination.multi([Create(znodes.deleted_topic_path("t"))])
        await wait_all_tasks_blocked()
        await create(broker, creatable("t"))
        assert (topic_id := broker.cluster.topics["t"].topic_id) != former_id
    await wait_all_tasks_blocked()
    assert told == [(None, former_id, ErrorCode.UNKNOWN_TOPIC_ID)]
    assert broker.cluster.topics["t"].topic_id == topic_id
    assert broker.hosted() == [("t", 0)]


async def test_topics_are_deleted_by_name_and_by_id(tmp_path: Path) -> None:
    broker = await opened(tmp_path)
    await create(broker, *map(creatable, "abcd"))
    ids = {name: topic.topic_id for name, topic in broker.cluster.topics.items()}
    assert await delete(broker, ("a", ZERO_UUID), version=1) == [("a", ids["a"], 0)]
    assert await delete(broker, ("b", ZERO_UUID), (None, ids["c"])) == [("c", ids["c"], 0), ("b", ids["b"], 0)]
    assert list(broker.cluster.topics) == ["d"]


async def test_contradictory_deletions_are_refused_and_delete_nothing(tmp_path: Path) -> None:
    broker = await opened(tmp_path)
    await create(broker, creatable("t"))
    topic_id, unknown = broker.cluster.topics["t"].topic_id, b"x" * 16
    invalid = ErrorCode.INVALID_REQUEST
    assert await delete(broker, (None, ZERO_UUID)) == [(None, ZERO_UUID, invalid)]
    assert await delete(broker, ("t", topic_id)) == [("t", topic_id, invalid)]
    assert await delete(broker, ("t", ZERO_UUID), ("t", ZERO_UUID)) == [("t", ZERO_UUID, invalid)]
    assert await delete(broker, (None, topic_id), (None, topic_id)) == [(None, topic_id, invalid)]
    assert await delete(broker, ("t", ZERO_UUID), (None, topic_id)) == [("t", topic_id, invalid)]
    twice_by_id = [(None, topic_id), (None, topic_id), ("t", ZERO_UUID)]
    assert await delete(broker, *twice_by_id) == [(None, topic_id, invalid), ("t", topic_id, invalid)]
    assert await delete(broker, (None, ZERO_UUID), (None, ZERO_UUID)) == [(None, ZERO_UUID, invalid)] * 2
    assert await delete(broker, (None, unknown)) == [(None, unknown, ErrorCode.UNKNOWN_TOPIC_ID)]
    assert await delete(broker, ("u", ZERO_UUID)) == [("u", ZERO_UUID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]
    assert list(broker.cluster.topics) == ["t"]


async def test_a_request_without_time_is_late_and_changes_nothing(tmp_path: Path) -> None:
    broker = await opened(tmp_path)
    await create(broker, creatable("t"))
    late = ErrorCode.REQUEST_TIMED_OUT
    request = CreateTopicsRequest(topics=[creatable("u"), creatable("x y")], timeout_ms=0)
    created = (await create_topics(request, broker.context(7))).topics
    assert [(each.name, each.error_code, each.error_message) for each in created] == [
        ("u", late, None),
        ("x y", late, None),
    ]
    more = [CreatePartitionsTopic(name="t", count=2, assignments=None)]
    added = await create_partitions(
        CreatePartitionsRequest(topics=more, timeout_ms=-1, validate_only=False), broker.context(3)
    )
    assert added.results[0].error_code == late
    gone = await delete_topics(DeleteTopicsRequest(topic_names=["t", "u"], timeout_ms=0), broker.context(5))
    assert [each.error_code for each in gone.responses] == [late] * 2
    assert {name: len(topic.partitions) for name, topic in broker.cluster.topics.items()} == {"t": 1}


@pytest.mark.parametrize(("version", "code"), [(2, 42), (3, 73), (6, 73)])
async def test_deletion_can_be_disabled(tmp_path: Path, version: int, code: int) -> None:
    broker = await opened(tmp_path, {"delete.topic.enable": "false"})
    await create(broker, creatable("t"))
    assert await delete(broker, ("t", ZERO_UUID), version=version) == [("t", ZERO_UUID, code)]
    assert list(broker.cluster.topics) == ["t"]


async def test_partitions_are_added_topic_by_topic(tmp_path: Path) -> None:
    broker = await opened(tmp_path)
    await create(broker, *map(creatable, "abc"))
    topics = [
        CreatePartitionsTopic(name="a", count=3, assignments=[CreatePartitionsAssignment(broker_ids=[1])] * 2),
        CreatePartitionsTopic(name="b", count=1, assignments=None),
        CreatePartitionsTopic(name="x", count=5, assignments=None),
        CreatePartitionsTopic(name="c", count=2, assignments=None),
        CreatePartitionsTopic(name="c", count=2, assignments=None),
    ]
    request = CreatePartitionsRequest(topics=topics, timeout_ms=1, validate_only=False)
    results = (await create_partitions(request, broker.context(3))).results
    assert [(each.name, each.error_code, each.error_message) for each in results] == [
        ("c", ErrorCode.INVALID_REQUEST, "Duplicate topic name."),
        ("a", 0, None),
        ("b", ErrorCode.INVALID_PARTITIONS, "Topic already has 1 partition(s)."),
        ("x", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None),
    ]
    assert {name: len(topic.partitions) for name, topic in broker.cluster.topics.items()} == {"a": 3, "b": 1, "c": 1}


async def test_the_cluster_is_described(tmp_path: Path) -> None:
    broker = await opened(tmp_path)
    broker.show(2, rack="r")
    request = DescribeClusterRequest(include_cluster_authorized_operations=True)
    response = describe_cluster(request, broker.context(2))
    assert (response.error_code, response.cluster_id, response.controller_id) == (0, broker.cluster.cluster_id, 1)
    assert response.brokers[1] == DescribeClusterBroker(broker_id=2, host="host-2", port=9092, rack="r")
    assert response.cluster_authorized_operations == 8096


@pytest.mark.parametrize(
    ("endpoint_type", "code"),
    [(2, ErrorCode.MISMATCHED_ENDPOINT_TYPE), (9, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)],
)
async def test_only_brokers_can_be_described(tmp_path: Path, endpoint_type: int, code: ErrorCode) -> None:
    broker = await opened(tmp_path)
    request = DescribeClusterRequest(include_cluster_authorized_operations=False, endpoint_type=endpoint_type)
    assert describe_cluster(request, broker.context(1)).error_code == code


async def paged(
    tmp_path: Path, names: str, limit: int, cursor: tuple[str, int] | None = None
) -> tuple[list[tuple[str | None, int, list[int]]], tuple[str, int] | None]:
    broker = await opened(tmp_path)
    await broker.administration.create_topics([NewTopic(name=name, partition_count=3) for name in "abc"])
    request = DescribeTopicPartitionsRequest(
        topics=[TopicRequest(name=name) for name in names],
        response_partition_limit=limit,
        cursor=None if cursor is None else Cursor(topic_name=cursor[0], partition_index=cursor[1]),
    )
    response = describe_topic_partitions(request, broker.context(0))
    broker.coordination.close()
    topics = [
        (each.name, each.error_code, [partition.partition_index for partition in each.partitions])
        for each in response.topics
    ]
    following = response.next_cursor
    return topics, None if following is None else (following.topic_name, following.partition_index)


MISSING = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize(
    ("names", "limit", "cursor", "topics", "following"),
    [
        ("", 100, None, [("a", 0, [0, 1, 2]), ("b", 0, [0, 1, 2]), ("c", 0, [0, 1, 2])], None),
        ("cac", 100, None, [("a", 0, [0, 1, 2]), ("c", 0, [0, 1, 2])], None),
        ("", 4, None, [("a", 0, [0, 1, 2]), ("b", 0, [0])], ("b", 1)),
        ("", 4, ("b", 1), [("b", 0, [1, 2]), ("c", 0, [0, 1])], ("c", 2)),
        ("", 4, ("c", 2), [("c", 0, [2])], None),
        ("", 3, None, [("a", 0, [0, 1, 2])], ("b", 0)),
        ("", -5, None, [("a", 0, [0])], ("a", 1)),
        ("ax", 100, None, [("a", 0, [0, 1, 2]), ("x", MISSING, [])], None),
        ("ax", 3, None, [("a", 0, [0, 1, 2])], ("x", 0)),
        ("", 100, ("bb", 0), [("c", 0, [0, 1, 2])], None),
        ("ab", 100, ("c", 0), [("a", 42, []), ("b", 42, [])], None),
        ("a", 100, ("a", -1), [("a", 42, [])], None),
        ("a", 100, ("a", 9), [("a", 0, [])], None),
    ],
)
async def test_partitions_are_told_page_by_page(
    tmp_path: Path,
    names: str,
    limit: int,
    cursor: tuple[str, int] | None,
    topics: list[Any],
    following: tuple[str, int] | None,
) -> None:
    assert await paged(tmp_path, names, limit, cursor) == (topics, following)


async def test_very_many_topics_are_told_in_turns_in_the_order_of_their_names(tmp_path: Path) -> None:
    broker = await opened(tmp_path)
    await create(broker, creatable("name-1500", 2))
    names = [f"name-{number}" for number in range(3_000)]
    request = DescribeTopicPartitionsRequest(
        topics=[TopicRequest(name=name) for name in (*reversed(names), *names)], response_partition_limit=10
    )
    response: Any = describe_topic_partitions(request, broker.context(0))
    response = await response
    broker.coordination.close()
    assert [each.name for each in response.topics] == sorted(names)
    assert [each.name for each in response.topics if not each.error_code] == ["name-1500"]
