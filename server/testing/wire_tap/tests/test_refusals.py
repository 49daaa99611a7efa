"""Errors are put where Kafka puts them, and only at the partitions that are meant where that is possible."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from ottla.server.dispatch.apis import APIS
from ottla.server.testing.wire_tap.kafka_names import messages_of
from ottla.server.testing.wire_tap.refusals import encoded_answer, merge, refusal
from ottla.server.testing.wire_tap.subjects import IsMeant, places_in
from ottla.server.testing.wire_tap.tests.wire_talk import fetch, fetched, produce, produced
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.wire.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from ottla.wire.schema import ZERO_UUID, Array, Message, Primitive, Struct

ERROR = ErrorCode.NOT_LEADER_OR_FOLLOWER


def no_name(topic_id: bytes) -> str | None:
    return None


def errors_in(message: Struct, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], int]]:
    """Yield where an answer has errors: the names and numbers on the way, and the code."""
    own = [
        getattr(message, each) for each in ("topic", "name", "index", "partition_index") if each in message.wire_fields
    ]
    path += tuple(own)
    for name in message.wire_fields:
        value = getattr(message, name)
        if name in ("error_code", "partition_error_code") and value:
            yield path, value
        for each in value if isinstance(value, list) else ():
            if isinstance(each, Struct):
                yield from errors_in(each, path)


def refused(request: Message, version: int, is_meant: IsMeant | None) -> tuple[dict[Any, int], list[Any] | None]:
    """Return the errors of a refusal, and the places of the request that is left."""
    answer, rest = refusal(request, version, ERROR, is_meant, no_name)
    encoded_answer(answer, version, 1)  # it can be sent
    return dict(errors_in(answer)), None if rest is None else list(places_in(rest, no_name))


def is_orders_1(topic: str, partition: int | None) -> bool:
    return (topic, partition) == ("orders", 1)


def is_orders(topic: str, partition: int | None) -> bool:
    return topic == "orders"


def commit() -> OffsetCommitRequest:
    partitions = [
        OffsetCommitRequestPartition(partition_index=each, committed_offset=1, committed_metadata=None)
        for each in (0, 1)
    ]
    return OffsetCommitRequest(
        group_id="g", member_id="m", topics=[OffsetCommitRequestTopic(name="orders", partitions=partitions)]
    )


def list_offsets() -> ListOffsetsRequest:
    partitions = [ListOffsetsPartition(partition_index=each, timestamp=-1) for each in (0, 1)]
    return ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="orders", partitions=partitions)])


def offset_fetch() -> OffsetFetchRequest:
    topics = [OffsetFetchRequestTopics(name="orders", partition_indexes=[0, 1])]
    return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=topics)])


PLACES = (("orders", 0), ("orders", 1))


@pytest.mark.parametrize(
    ("request_", "version"),
    [(produce(*PLACES), 9), (fetch(*PLACES), 4), (fetch(*PLACES), 12), (commit(), 8), (list_offsets(), 6)],
)
def test_one_partition_of_two(request_: Message, version: int) -> None:
    assert refused(request_, version, is_orders_1) == ({("orders", 1): ERROR}, [("orders", 0)])
    assert refused(request_, version, is_orders) == ({("orders", 0): ERROR, ("orders", 1): ERROR}, None)
    assert refused(request_, version, None) == ({("orders", 0): ERROR, ("orders", 1): ERROR}, None)


@pytest.mark.parametrize(
    ("request_", "version"),
    [
        (MetadataRequest(topics=[MetadataRequestTopic(name="orders"), MetadataRequestTopic(name="audit")]), 12),
        (MetadataRequest(topics=[MetadataRequestTopic(name="orders"), MetadataRequestTopic(name="audit")]), 13),
        (CreateTopicsRequest(topics=[CreatableTopic(name=each, num_partitions=1, replication_factor=1, assignments=[], configs=[]) for each in ("orders", "audit")]), 7),
        (DeleteTopicsRequest(topics=[DeleteTopicState(name="orders", topic_id=ZERO_UUID), DeleteTopicState(name="audit", topic_id=ZERO_UUID)], timeout_ms=1), 6),
        (DeleteTopicsRequest(topic_names=["orders", "audit"], timeout_ms=1), 3),
    ],
)  # fmt: skip
def test_one_topic_of_two(request_: Message, version: int) -> None:
    assert refused(request_, version, is_orders) == ({("orders",): ERROR}, [("audit", None)])


def test_an_answer_with_one_error_for_all_refuses_the_whole_request() -> None:
    assert refused(offset_fetch(), 9, is_orders_1) == ({(): ERROR}, None)


@pytest.mark.parametrize("version", [7, 9])
def test_errors_of_offsets_are_at_their_partitions(version: int) -> None:
    request = offset_fetch()
    if version < 8:
        topics = [OffsetFetchRequestTopic(name="orders", partition_indexes=[0, 1])]
        request = OffsetFetchRequest(group_id="g", topics=topics)
    unstable = ErrorCode.UNSTABLE_OFFSET_COMMIT
    answer, rest = refusal(request, version, unstable, None, no_name)
    assert (dict(errors_in(answer)), rest) == ({("orders", 0): unstable, ("orders", 1): unstable}, None)
    assert encoded_answer(answer, version, 1)
    answer, rest = refusal(request, version, unstable, is_orders_1, no_name)
    assert dict(errors_in(answer)) == {("orders", 1): unstable}
    assert rest is not None and list(places_in(rest, no_name)) == [("orders", 0)]
    of_all = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)])
    assert dict(errors_in(refusal(of_all, 9, unstable, None, no_name)[0])) == {(): unstable}
    both = OffsetFetchRequest(groups=[*offset_fetch().groups, *of_all.groups])
    errors = [*errors_in(refusal(both, 9, unstable, None, no_name)[0])]
    assert errors == [(("orders", 0), unstable), (("orders", 1), unstable), ((), unstable)]


def test_every_api_can_be_refused_in_every_version() -> None:
    for api in APIS:
        messages = messages_of(api.api_key)
        assert messages is not None
        for version in (api.versions.first, api.versions.last):
            made = filled(messages.request, version)
            for is_meant in (None, is_orders, lambda topic, partition: partition == 1):
                answer, rest = refusal(made, version, ERROR, is_meant, no_name)
                assert encoded_answer(answer, version, 1)
                assert rest is None or rest.encode(version)


def filled(cls: type[Any], version: int) -> Any:
    """Return a request for partition 1 of orders wherever it may name one."""
    made = cls.zero()
    for name, field in cls.wire_fields.items():
        if version in field.version_range:
            setattr(made, name, _value(field.type, version))
    return made


def _value(kind: Any, version: int) -> Any:
    if isinstance(kind, Array):
        return [_value(kind.item, version)]
    if not isinstance(kind, Primitive):
        return filled(kind, version)
    return {str: "orders", int: 1, bytes: b"o" * 16, float: 1.0, bool: True}[type(kind.zero)]


def test_errors_are_merged_into_an_answer() -> None:
    answer = produced(("orders", 0), ("audit", 0))
    merge(answer, produced(("orders", 1), ("orders", 0), ("new", 2), error=ERROR))
    assert [
        (topic.name, each.index, each.error_code) for topic in answer.responses for each in topic.partition_responses
    ] == [
        ("orders", 0, ERROR),
        ("orders", 1, ERROR),
        ("audit", 0, 0),
        ("new", 2, ERROR),
    ]
    merge(answer, produced())
    assert len(answer.responses) == 3


def test_a_fetch_has_errors_of_its_session_at_the_top() -> None:
    answer, _ = refusal(fetch(*PLACES), 12, ErrorCode.FETCH_SESSION_ID_NOT_FOUND, None, no_name)
    assert dict(errors_in(answer))[()] == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    message = fetch(("", 1))
    message.topics[0].topic_id = b"t" * 16
    answer, _ = refusal(message, 17, ERROR, None, no_name)
    assert dict(errors_in(answer)) == {("", 1): ERROR}
    assert answer.responses[0].topic_id == b"t" * 16  # type: ignore[attr-defined]
    assert fetched(("", 1)).responses[0].topic == ""
