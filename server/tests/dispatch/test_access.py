"""The seam that handlers ask by, and the two handlers that show how: Produce and Metadata."""

from pathlib import Path
from typing import Any

import pytest

from ottla.replication.controller.topic_planner import NewTopic
from ottla.server.api.handlers.produce import produce
from ottla.server.dispatch import access
from ottla.server.dispatch.access import (
    OPERATIONS,
    OPERATIONS_NOT_ASKED,
    AclOperation,
    ResourceType,
)
from ottla.server.tests.administered import AdministeredBroker, opened
from ottla.server.tests.api.test_metadata import ask, asked, told
from ottla.server.tests.api.test_produce import GOOD, answers, transactional
from ottla.server.tests.rights import guard
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID = (
    ResourceType.TOPIC,
    ResourceType.GROUP,
    ResourceType.CLUSTER,
    ResourceType.TRANSACTIONAL_ID,
)
WRITE, DESCRIBE, CREATE, READ = AclOperation.WRITE, AclOperation.DESCRIBE, AclOperation.CREATE, AclOperation.READ
FORBIDDEN = ErrorCode.TOPIC_AUTHORIZATION_FAILED


async def with_topics(tmp_path: Path, *names: str) -> AdministeredBroker:
    broker = await opened(tmp_path)
    await broker.administration.create_topics([NewTopic(name=name, partition_count=1) for name in names])
    return broker


# ------------------------------------------------------------------ the questions


async def test_without_an_authorizer_everybody_may_do_everything(tmp_path: Path) -> None:
    context = (await opened(tmp_path)).context(0)
    names = ["a", "b"]
    access.require(context, WRITE, TOPIC, "a")
    access.require_on_cluster(context, CREATE)
    assert access.may(context, WRITE, TOPIC, "a") and access.may_on_any(context, WRITE, TOPIC)
    assert access.allowed_names(context, DESCRIBE, TOPIC, names) is names
    assert not access.denied_names(context, DESCRIBE, TOPIC, names)
    for resource_type, all_of_it in OPERATIONS.items():
        assert access.authorized_operations(context, resource_type, "a") == all_of_it.bits


async def test_names_are_sorted_out_in_their_order(tmp_path: Path) -> None:
    broker = await opened(tmp_path)
    authorizer = guard(broker, (DESCRIBE, TOPIC, "c"), (DESCRIBE, TOPIC, "a"), (READ, GROUP, "b"))
    context = broker.context(0)
    assert access.allowed_names(context, DESCRIBE, TOPIC, ["c", "b", "a", "c"]) == ["c", "a", "c"]
    assert authorizer.refused == []
    assert access.denied_names(context, DESCRIBE, TOPIC, ["c", "b", "b"]) == {"b"}
    assert authorizer.refused == [(DESCRIBE, TOPIC, "b")]
    assert access.may_on_any(context, DESCRIBE, TOPIC) and not access.may_on_any(context, WRITE, TOPIC)
    assert access.authorized_operations(context, TOPIC, "a") == 1 << DESCRIBE


@pytest.mark.parametrize(("resource_type", "code"), access.REFUSALS.items())
async def test_each_type_is_refused_with_its_own_code(
    tmp_path: Path, resource_type: ResourceType, code: ErrorCode
) -> None:
    broker = await opened(tmp_path)
    guard(broker)
    with pytest.raises(KafkaError) as caught:
        access.require(broker.context(0), DESCRIBE, resource_type, "x")
    assert caught.value.code is code


# ------------------------------------------------------------------ Produce


async def test_records_go_only_where_the_client_may_write(tmp_path: Path) -> None:
    broker = await with_topics(tmp_path, "t", "u")
    authorizer = guard(broker, (WRITE, TOPIC, "t"), (WRITE, TOPIC, "missing"))
    told = await answers(
        broker, ("t", 0, GOOD), ("u", 0, GOOD), ("u", 9, GOOD), ("hidden", 0, GOOD), ("missing", 0, GOOD)
    )
    assert [(name, index, code) for name, index, code, _ in told] == [
        ("t", 0, 0),
        ("u", 0, FORBIDDEN),
        ("u", 9, FORBIDDEN),
        ("hidden", 0, FORBIDDEN),
        ("missing", 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    assert set(authorizer.refused) == {(WRITE, TOPIC, "u"), (WRITE, TOPIC, "hidden")}
    assert broker.partition("u", 0).log.log_end_offset == 0


async def test_an_unknown_id_comes_before_the_right_to_write(tmp_path: Path) -> None:
    broker = await with_topics(tmp_path, "t")
    guard(broker)
    ids = (broker.cluster.topics["t"].topic_id, b"x" * 16)
    data = [PartitionProduceData(index=0, records=memoryview(GOOD))]
    topics = [TopicProduceData(topic_id=each, partition_data=data) for each in ids]
    request = ProduceRequest(acks=-1, timeout_ms=1000, topic_data=topics)
    response: Any = produce(request, broker.context(13))
    codes = [topic.partition_responses[0].error_code for topic in response.responses]
    assert codes == [FORBIDDEN, ErrorCode.UNKNOWN_TOPIC_ID]


async def test_a_transactional_id_that_is_not_the_clients_refuses_all(tmp_path: Path) -> None:
    broker = await with_topics(tmp_path, "t", "u")
    authorizer = guard(broker, (WRITE, TOPIC, "t"), (WRITE, TOPIC, "u"))
    told = await answers(broker, ("t", 0, GOOD), ("u", 0, transactional()), transactional_id="x")
    assert [code for _, _, code, _ in told] == [ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED] * 2
    assert authorizer.refused == [(WRITE, TRANSACTIONAL_ID, "x")]
    # Nobody asks for a right to an id that no batch needs.
    told = await answers(broker, ("t", 0, GOOD), transactional_id="x")
    assert [code for _, _, code, _ in told] == [0]


async def test_a_transaction_is_not_looked_at_where_the_client_may_not_write(tmp_path: Path) -> None:
    broker = await with_topics(tmp_path, "t")
    authorizer = guard(broker, (WRITE, TRANSACTIONAL_ID, "x"))
    told = await answers(broker, ("t", 0, transactional()), transactional_id="x")
    assert [code for _, _, code, _ in told] == [FORBIDDEN]
    assert authorizer.refused == [(WRITE, TOPIC, "t")]


# ------------------------------------------------------------------ Metadata


async def test_all_topics_are_those_that_the_client_may_describe(tmp_path: Path) -> None:
    broker = await with_topics(tmp_path, "t", "u")
    authorizer = guard(broker, (DESCRIBE, TOPIC, "u"), (DESCRIBE, TOPIC, "missing"))
    for version in (0, 1, 12):
        assert told(await asked(broker, None if version else [], version=version)) == [("u", 0)]
    assert authorizer.refused == []


async def test_a_long_answer_is_kept_for_each_client_and_each_set_of_rules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ottla.server.api.handlers.metadata.PARTITIONS_PER_SLICE", 1)
    broker = await with_topics(tmp_path, "t", "u")
    authorizer = guard(broker, (DESCRIBE, TOPIC, "u"))
    assert told(await asked(broker, None)) == [("u", 0)]
    authorizer.rights.add((DESCRIBE, TOPIC, "t"))
    authorizer.version += 1
    assert told(await asked(broker, None)) == [("t", 0), ("u", 0)]


async def test_names_that_the_client_may_not_describe_are_refused_and_nothing_is_told(tmp_path: Path) -> None:
    broker = await with_topics(tmp_path, "t", "u")
    guard(broker, (DESCRIBE, TOPIC, "u"), (DESCRIBE, TOPIC, "missing"))
    response = await asked(
        broker,
        ["missing", "t", "u", "hidden"],
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=True,
    )
    assert [(each.name, each.error_code, each.topic_authorized_operations) for each in response.topics] == [
        ("u", 0, 1 << DESCRIBE),
        ("missing", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 1 << DESCRIBE),
        ("t", FORBIDDEN, OPERATIONS_NOT_ASKED),
        ("hidden", FORBIDDEN, OPERATIONS_NOT_ASKED),
    ]
    assert response.topics[2].topic_id == bytes(16)


async def test_ids_are_no_secret_but_names_are(tmp_path: Path) -> None:
    broker = await with_topics(tmp_path, "t", "u")
    guard(broker, (DESCRIBE, TOPIC, "u"))
    ids = [b"x" * 16, *(broker.cluster.topics[name].topic_id for name in ("t", "u"))]
    response = await ask(
        broker, MetadataRequest(topics=[MetadataRequestTopic(topic_id=each, name=None) for each in ids])
    )
    assert [(each.topic_id, each.name, each.error_code) for each in response.topics] == [
        (ids[0], None, ErrorCode.UNKNOWN_TOPIC_ID),
        (ids[2], "u", 0),
        (ids[1], None, FORBIDDEN),
    ]


@pytest.mark.parametrize(
    ("right", "is_created"),
    [(None, False), ((CREATE, CLUSTER, access.CLUSTER_NAME), True), ((CREATE, TOPIC, "new"), True)],
)
async def test_a_missing_topic_is_created_for_whoever_may_create_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, right: Any, is_created: bool
) -> None:
    broker = await opened(tmp_path)
    created: list[str] = []
    monkeypatch.setattr(broker.administration, "request_creation", created.extend)
    authorizer = guard(broker, (DESCRIBE, TOPIC, "new"), *([right] if right else []))
    response = await asked(broker, ["new"], include_topic_authorized_operations=True)
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if is_created else FORBIDDEN
    assert told(response) == [("new", code)]
    assert created == (["new"] if is_created else [])
    assert authorizer.refused == ([] if is_created else [(CREATE, TOPIC, "new")])


async def test_what_may_be_done_to_the_cluster_is_told_to_whoever_may_describe_it(tmp_path: Path) -> None:
    broker = await opened(tmp_path)
    create = (CREATE, CLUSTER, access.CLUSTER_NAME)
    for rights, bits in (
        ([create], 0),
        ([create, (DESCRIBE, CLUSTER, access.CLUSTER_NAME)], 1 << CREATE | 1 << DESCRIBE),
    ):
        guard(broker, *rights)
        response = await asked(broker, [], version=10, include_cluster_authorized_operations=True)
        assert response.cluster_authorized_operations == bits
    broker.authorizer = None
    response = await asked(broker, ["x"], allow_auto_topic_creation=False, include_topic_authorized_operations=True)
    assert response.topics[0].topic_authorized_operations == OPERATIONS[ResourceType.TOPIC].bits
