"""A KafkaError in place of any handler's answer is told in the form of its API, in every version, as Kafka's getErrorResponse does."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ottla.server.dispatch.dispatch import CloseConnection, Route, all_routes
from ottla.server.network.calls import Call
from ottla.server.network.large_requests import LARGE_FRAME_BYTES, error_answer
from ottla.server.tests.network.test_connection import Peer, calls, peer, request, scripted
from ottla.wire.errors import ErrorCode, KafkaError
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest
from ottla.wire.messages.list_offsets import ListOffsetsRequest
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.messages.share_fetch import ShareFetchRequest
from ottla.wire.schema import Array, Message, Primitive, Struct

__all__ = ["calls", "peer", "scripted"]  # fixtures
ERROR = KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH, "because")
CODES = ("error_code", "partition_error_code")


def filled(cls: type[Any], version: int, mark: str = "") -> Any:
    """An instance with two elements in each array, and a name of its own in each string."""
    made = cls.zero()
    for name, field in cls.wire_fields.items():
        if version not in field.version_range:
            continue
        if isinstance(field.type, Array):
            setattr(made, name, [_value(field.type.item, version, f"{mark}{name}{each}") for each in range(2)])
        elif field.type.name == "records" if isinstance(field.type, Primitive) else False:
            setattr(made, name, None)
        else:
            setattr(made, name, _value(field.type, version, mark + name))
    return made


def _value(kind: Any, version: int, mark: str) -> Any:
    if not isinstance(kind, Primitive):
        return filled(kind, version, mark)
    return {str: mark, int: 1 + len(mark), bytes: mark.encode().ljust(16)[:16], float: 1.0, bool: True}[type(kind.zero)]


def told(answer: Any, version: int) -> Iterator[tuple[tuple[str, ...], int]]:
    """Where an answer has error codes in this version, and which."""
    for name, field in answer.wire_fields.items():
        if version in field.version_range:
            value = getattr(answer, name)
            if name in CODES:
                yield (name,), value
            for each in value if isinstance(value, list) else [value]:
                if isinstance(each, Struct):
                    yield from (((name, *path), code) for path, code in told(each, version))


def texts(value: Any, version: int) -> Iterator[str | None]:
    for name, field in value.wire_fields.items():
        if version in field.version_range:
            part = getattr(value, name)
            if name == "error_message":
                yield part
            for each in part if isinstance(part, list) else [part]:
                if isinstance(each, Struct):
                    yield from texts(each, version)


def every_version() -> list[Any]:
    return [
        pytest.param(route, version, id=f"{route.name}-v{version}")
        for _, route in sorted(all_routes().items())
        for version in range(route.versions.first, route.versions.last + 1)
    ]


@pytest.mark.parametrize(("route", "version"), every_version())
def test_an_error_has_its_place_in_every_answer(route: Route, version: int) -> None:
    call = Call(route, version)
    asked = route.request_class.decode(filled(route.request_class, version).encode(version), version)
    answer = error_answer(call, ERROR, asked)
    decoded = route.response_class.decode(b"".join(call.encoded(answer)), version)
    if route.name == "DescribeLogDirs" and version < 3:
        assert decoded.results == []  # Kafka's as well
        return
    codes = list(told(decoded, version))
    assert codes and {code for _, code in codes} == {ERROR.code}
    assert set(texts(decoded, version)) <= {ERROR.message}
    at_top = [path for path, _ in codes if len(path) == 1]
    assert at_top or all(count >= 2 for count in Counter(path for path, _ in codes).values()), (
        "each element is answered"
    )


def test_elements_are_told_by_what_the_request_calls_them() -> None:
    def answered(request_class: type[Message], version: int) -> Any:
        call = Call(all_routes()[request_class.api_key], version)
        asked = request_class.decode(filled(request_class, version).encode(version), version)
        return call.response_class.decode(b"".join(call.encoded(error_answer(call, ERROR, asked))), version)

    produced = answered(ProduceRequest, 9)
    assert [each.name for each in produced.responses] == ["topic_data0name", "topic_data1name"]
    [first, _] = produced.responses[0].partition_responses
    assert (first.index, first.base_offset, first.log_append_time_ms, first.error_message) == (32, -1, -1, "because")
    [offset, _] = answered(ListOffsetsRequest, 4).topics[0].partitions
    assert (offset.timestamp, offset.offset, offset.leader_epoch) == (-1, -1, -1)
    found = answered(FindCoordinatorRequest, 6).coordinators
    assert [(each.key, each.node_id, each.port) for each in found] == [
        ("coordinator_keys0", -1, -1),
        ("coordinator_keys1", -1, -1),
    ]
    assert answered(FindCoordinatorRequest, 3).node_id == -1
    assert answered(ShareFetchRequest, 1).error_code == ERROR.code


def test_some_answers_have_the_error_at_the_top_and_in_their_elements() -> None:
    """As Kafka 4.4's: whoever asks for one topic finds the error with that topic."""

    def paths(key: int, version: int) -> set[tuple[str, ...]]:
        call = Call(all_routes()[key], version)
        answer = error_answer(call, ERROR, filled(call.route.request_class, version))
        return {path for path, _ in told(call.response_class.decode(b"".join(call.encoded(answer)), version), version)}

    top, topic = ("error_code",), ("topics", "error_code")
    partition = ("responses", "partitions", "error_code")
    assert [paths(3, version) for version in (12, 13)] == [{topic}, {top, topic}]
    assert [paths(1, version) for version in (6, 7, 12, 13)] == [{partition}, {top, partition}, {top, partition}, {top}]
    elected = ("replica_election_results", "partition_result", "error_code")
    assert [paths(43, version) for version in (0, 1, 2)] == [{elected}, {top, elected}, {top, elected}]
    assert paths(45, 1) == {top, partition}
    assert paths(46, 0) == {top}


def test_a_producer_that_reads_no_answer_is_told_by_the_end_of_its_connection() -> None:
    call = Call(all_routes()[ProduceRequest.api_key], 9)
    with pytest.raises(CloseConnection):
        error_answer(call, ERROR, ProduceRequest(acks=0, timeout_ms=1, topic_data=[]))


async def _later(request: Any, context: Any) -> Any:
    raise ERROR


def _at_once(request: Any, context: Any) -> Any:
    raise ERROR


@pytest.mark.parametrize("handler", [_at_once, _later])
@pytest.mark.parametrize("count", [1, 1 + LARGE_FRAME_BYTES // 8])
async def test_whoever_raises_it_is_answered(
    peer: Peer, calls: Any, monkeypatch: pytest.MonkeyPatch, handler: Callable[..., Any], count: int
) -> None:
    """At once, awaited, and of a request so large that a thread decodes it; none of these APIs has an error of the whole."""
    from ottla.wire.messages.groups import DeleteGroupsRequest, DeleteGroupsResponse

    await calls.make(42, 0)
    monkeypatch.setattr(calls.find(42, 0), "handler", handler)
    names = [f"group{index:04}" for index in range(count)]
    await peer.send(request(42, 0, 7, DeleteGroupsRequest(groups_names=names).encode(0)))
    frame = await peer.frame()
    assert frame is not None
    answer = DeleteGroupsResponse.decode(frame, 0, 4)
    assert [(each.group_id, each.error_code) for each in answer.results] == [(name, ERROR.code) for name in names]


@pytest.mark.parametrize("handler", [_at_once, _later])
async def test_an_error_of_very_many_elements_is_made_in_a_thread(
    peer: Peer, calls: Any, monkeypatch: pytest.MonkeyPatch, handler: Callable[..., Any]
) -> None:
    """In a frame that is decoded on the event loop: 30,000 groups took 180 ms."""
    from ottla.wire import error_answers
    from ottla.wire.messages.groups import DeleteGroupsRequest, DeleteGroupsResponse

    made_in: list[threading.Thread] = []
    made = error_answers.error_answer

    def note(*arguments: Any) -> Message:
        made_in.append(threading.current_thread())
        return made(*arguments)

    monkeypatch.setattr(error_answers, "error_answer", note)
    await calls.make(42, 0)
    monkeypatch.setattr(calls.find(42, 0), "handler", handler)
    for count in (3, 20_000):
        asked = DeleteGroupsRequest(groups_names=["a"] * count).encode(0)
        assert len(asked) < LARGE_FRAME_BYTES
        await peer.send(request(42, 0, 7, asked))
        frame = await peer.frame()
        assert frame is not None
        answer = DeleteGroupsResponse.decode(frame, 0, 4)
        assert [each.error_code for each in answer.results] == [ERROR.code] * count
    assert [each is threading.current_thread() for each in made_in] == [True, False]


def test_a_produce_of_several_partitions_can_say_it_of_each() -> None:
    """Its records may be let go of before."""
    data = [PartitionProduceData(index=each, records=None) for each in range(3)]
    asked = ProduceRequest(acks=1, timeout_ms=1, topic_data=[TopicProduceData(name="t", partition_data=data)])
    call = Call(all_routes()[ProduceRequest.api_key], 3)
    [topic] = error_answer(call, ERROR, asked).responses
    assert [(each.index, each.error_code) for each in topic.partition_responses] == [
        (each, ERROR.code) for each in range(3)
    ]
