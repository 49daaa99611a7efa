"""Requests for records are answered for topics that the client has the right for; of others nothing is told or done."""

from pathlib import Path
from typing import Any

import pytest

from ottla.server.dispatch.access import CLUSTER_NAME, AclOperation, ResourceType
from ottla.server.tests.administered import AdministeredBroker
from ottla.server.tests.api.test_produce import GOOD, answers
from ottla.server.tests.dispatch.test_access import with_topics
from ottla.server.tests.rights import ask, guard
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.delete_topics import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from ottla.wire.messages.describe_transactions import DescribeProducersRequest, TopicRequest
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from ottla.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

TOPIC, CLUSTER = ResourceType.TOPIC, ResourceType.CLUSTER
CLUSTER_ACTION = (AclOperation.CLUSTER_ACTION, CLUSTER, CLUSTER_NAME)
FORBIDDEN = ErrorCode.TOPIC_AUTHORIZATION_FAILED
MISSING = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
# The client gets the right to these two; the first is there, and so is "u".
NAMES = ("hidden", "u", "missing", "t")


async def with_records(tmp_path: Path) -> AdministeredBroker:
    broker = await with_topics(tmp_path, "t", "u")
    await answers(broker, ("t", 0, GOOD), ("u", 0, GOOD))
    return broker


def list_offsets(names: tuple[str, ...]) -> ListOffsetsRequest:
    asked = [ListOffsetsPartition(partition_index=0, timestamp=-1)]
    return ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=each, partitions=asked) for each in names])


def offset_for_leader_epoch(names: tuple[str, ...]) -> OffsetForLeaderEpochRequest:
    asked = [OffsetForLeaderPartition(partition=0, leader_epoch=0)]
    return OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic=each, partitions=asked) for each in names])


def delete_records(names: tuple[str, ...]) -> DeleteRecordsRequest:
    asked = [DeleteRecordsPartition(partition_index=0, offset=-1)]
    topics = [DeleteRecordsTopic(name=each, partitions=asked) for each in names]
    return DeleteRecordsRequest(topics=topics, timeout_ms=1000)


def describe_producers(names: tuple[str, ...]) -> DescribeProducersRequest:
    return DescribeProducersRequest(topics=[TopicRequest(name=each, partition_indexes=[0]) for each in names])


def fetch(names: tuple[str, ...], *, replica_id: int = -1, isolation_level: int = 0) -> FetchRequest:
    asked = [FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=10_000)]
    return FetchRequest(
        replica_id=replica_id,
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=10_000,
        isolation_level=isolation_level,
        session_id=0,
        session_epoch=-1,
        topics=[FetchTopic(topic=each, partitions=asked) for each in names],
    )


def codes(response: Any) -> dict[str, int]:
    topics = response.responses if hasattr(response, "responses") else response.topics
    return {getattr(each, "topic", "") or each.name: each.partitions[0].error_code for each in topics}


@pytest.mark.parametrize(
    ("request_for", "version", "operation"),
    [
        (list_offsets, 7, AclOperation.DESCRIBE),
        (offset_for_leader_epoch, 4, AclOperation.DESCRIBE),
        (delete_records, 2, AclOperation.DELETE),
        (describe_producers, 0, AclOperation.READ),
        (fetch, 12, AclOperation.READ),
    ],
)
async def test_topics_that_the_client_has_no_right_for_are_as_if_nobody_knew_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request_for: Any, version: int, operation: AclOperation
) -> None:
    broker = await with_records(tmp_path)
    for names_at_once in (200, 1):
        monkeypatch.setattr("ottla.server.dispatch.access.NAMES_AT_ONCE", names_at_once)
        authorizer = guard(broker, (operation, TOPIC, "t"), (operation, TOPIC, "missing"))
        response = await ask(broker, request_for(NAMES), version)
        assert codes(response) == {"hidden": FORBIDDEN, "u": FORBIDDEN, "missing": MISSING, "t": 0}
        refused = [each for each in authorizer.refused if each[1] is TOPIC]
        assert sorted(refused) == [(operation, TOPIC, "hidden"), (operation, TOPIC, "u")]
    assert broker.partition("u", 0).log_start_offset == 0
    broker.authorizer = None
    assert codes(await ask(broker, request_for(NAMES), version)) == {
        "hidden": MISSING,
        "u": 0,
        "missing": MISSING,
        "t": 0,
    }


async def test_an_unknown_isolation_level_is_noticed_by_whoever_may_see_something(tmp_path: Path) -> None:
    broker = await with_records(tmp_path)
    guard(broker)
    request = list_offsets(("t", "u"))
    request.isolation_level = 7
    assert codes(await ask(broker, request, 7)) == {"t": FORBIDDEN, "u": FORBIDDEN}
    assert codes(await ask(broker, fetch(("t", "u"), isolation_level=7), 12)) == {"t": FORBIDDEN, "u": FORBIDDEN}
    guard(broker, (AclOperation.DESCRIBE, TOPIC, "t"))
    assert set(codes(await ask(broker, request, 7)).values()) == {ErrorCode.UNKNOWN_SERVER_ERROR}


async def test_brokers_ask_for_epochs_of_all_topics(tmp_path: Path) -> None:
    broker = await with_records(tmp_path)
    authorizer = guard(broker, CLUSTER_ACTION)
    assert codes(await ask(broker, offset_for_leader_epoch(("t", "missing")), 4)) == {"t": 0, "missing": MISSING}
    assert not authorizer.refused


async def test_names_that_no_topic_can_have_are_no_secret_of_producers(tmp_path: Path) -> None:
    broker = await with_topics(tmp_path)
    authorizer = guard(broker)
    assert codes(await ask(broker, describe_producers(("a/b",)), 0)) == {"a/b": ErrorCode.INVALID_TOPIC_EXCEPTION}
    assert not authorizer.refused


# ------------------------------------------------------------------ Fetch


def fetch_by_id(broker: AdministeredBroker, names: tuple[str, ...], **fields: Any) -> FetchRequest:
    request = fetch(names)
    for topic in request.topics:
        known = broker.cluster.topics.get(topic.topic)
        topic.topic, topic.topic_id = "", b"x" * 16 if known is None else known.topic_id
    for name, value in fields.items():
        setattr(request, name, value)
    return request


def by_id(response: Any) -> list[tuple[bytes, int, bool]]:
    return [
        (topic.topic_id, each.error_code, bool(each.records))
        for topic in response.responses
        for each in topic.partitions
    ]


async def test_ids_are_no_secret_to_consumers(tmp_path: Path) -> None:
    broker = await with_records(tmp_path)
    t, u = (broker.cluster.topics[name].topic_id for name in ("t", "u"))
    guard(broker, (AclOperation.READ, TOPIC, "t"))
    response = await ask(broker, fetch_by_id(broker, ("u", "missing", "t")), 13)
    assert by_id(response) == [
        (t, 0, True),
        (b"x" * 16, ErrorCode.UNKNOWN_TOPIC_ID, False),
        (u, FORBIDDEN, False),
    ]


async def test_a_replica_needs_the_right_of_brokers_and_no_other(tmp_path: Path) -> None:
    broker = await with_records(tmp_path)
    authorizer = guard(broker, (AclOperation.READ, TOPIC, "t"))
    names = ("t", "missing")
    refused = await ask(broker, fetch(names, replica_id=2), 12)
    assert codes(refused) == {"t": FORBIDDEN, "missing": FORBIDDEN}
    request = fetch_by_id(broker, names, replica_state=ReplicaState(replica_id=2, replica_epoch=-1))
    assert {code for _, code, _ in by_id(await ask(broker, request, 15))} == {FORBIDDEN}
    assert authorizer.refused == [CLUSTER_ACTION] * 2
    guard(broker, CLUSTER_ACTION)
    # This broker is alone: it has no followers.
    assert codes(await ask(broker, fetch(names, replica_id=2), 12))["t"] not in (0, FORBIDDEN)


async def test_each_request_of_a_session_is_decided_about(tmp_path: Path) -> None:
    """Also the partitions that had no news, of which nobody asks."""
    names = tuple(f"t{number}" for number in range(6))
    broker = await with_topics(tmp_path, *names)
    authorizer = guard(broker, *((AclOperation.READ, TOPIC, name) for name in names))

    async def next_fetch(epoch: int, session_id: int) -> Any:
        request = fetch(names if not epoch else ())
        request.session_id, request.session_epoch = session_id, epoch
        return await ask(broker, request, 12)

    first = await next_fetch(0, 0)
    assert len(codes(first)) == 6
    for epoch in (1, 2):
        assert codes(await next_fetch(epoch, first.session_id)) == {}
    authorizer.rights.remove((AclOperation.READ, TOPIC, "t3"))
    authorizer.version += 1
    assert codes(await next_fetch(3, first.session_id)) == {"t3": FORBIDDEN}
    authorizer.rights.add((AclOperation.READ, TOPIC, "t3"))
    authorizer.version += 1
    assert codes(await next_fetch(4, first.session_id)) == {"t3": 0}
